# SPDX-License-Identifier: Apache-2.0
"""Which bundle a cell starts from: the link ``active`` in the folder of the cell, and a tamper-evident log of every change of it.

``FOLDER/active`` is a symbolic link to a bundle. ``FOLDER/releases/`` has the log, in the format of the audit log. An entry is on
the disk before the link changes, so that no bundle is ever active without one.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sticker_uq.cell.bundle import Bundle
from sticker_uq.gate.audit import AuditLog, Entry, entries, verify
from sticker_uq.io.files import check_output_folder, sync_folder, whereabouts
from sticker_uq.scene import InvalidInput

ACTIVE, LOG = "active", "releases"
PROMOTE, ROLLBACK, FAILED = "promote", "rollback", "failed"
_FILE_BYTES = 16_000_000
_DISK_S = 5.0


class ActiveBundle(NamedTuple):
    """A bundle that is or was active: where it lies, and the SHA-256 of its manifest."""

    folder: Path
    hash: str


class History(NamedTuple):
    """``standing``: the releases that can be returned to, the active one last; ``findings``: where the chain of hashes does not
    hold, or the link is not what the log says.
    """

    entries: tuple[Entry, ...]
    standing: tuple[ActiveBundle, ...]
    findings: tuple[str, ...]


def promote(cell: Path, candidate: Bundle, person: str = "", reason: str = "") -> ActiveBundle:
    """Make ``candidate`` the active bundle of ``cell``, a folder that is made when it is missing; returns what was made active.

    Raises :class:`InvalidInput` when it is active already, its comparison says that it is worse or is one with another bundle
    than the active one, ``active`` is no link, or the log is damaged or in use; OSError when the disk refuses. Nothing has
    changed then.
    """
    check_output_folder(cell, f"--cell {cell}")
    _check_comparison(cell, candidate)
    return _change(cell, PROMOTE, ActiveBundle(candidate.folder, candidate.hash), person, reason)


def _check_comparison(cell: Path, candidate: Bundle) -> None:
    compared = candidate.comparison
    if compared is None:
        return
    active = history(cell).standing[-1:] if (cell / LOG).is_dir() else ()
    present = active[0].hash if active else ""
    if compared.active != present:
        remedy = "`sticker-uq bundle promote` that bundle first"
        if present:
            remedy = "make it again from the active one with `sticker-uq improve`"
        raise InvalidInput(
            f"bundle {candidate.folder} was compared with the bundle {compared.active[:12]}, active in {cell} is "
            f"{present[:12] or 'none'}: {remedy}"
        )
    if compared.verdict == "worse":
        raise InvalidInput(
            f"bundle {candidate.folder} is worse than the active one ({'; '.join(compared.reasons)}): expected one that is "
            "better, or of which nothing can be told yet"
        )


def previous(cell: Path) -> ActiveBundle:
    found = history(cell)
    if found.findings:
        raise InvalidInput(
            f"{cell}: {found.findings[0]}; `sticker-uq bundle promote` makes a bundle active whatever was before"
        )
    if len(found.standing) < 2:
        raise InvalidInput(
            f"{cell}: no bundle was active before the present one; `sticker-uq bundle promote` takes any"
        )
    return found.standing[-2]


def rollback(cell: Path, bundle: Bundle, person: str = "", reason: str = "") -> ActiveBundle:
    """Make ``bundle`` active again, the one that :func:`previous` names; returns it.

    Raises :class:`InvalidInput` when it is not the bundle that was active then, and as :func:`previous` and :func:`promote` do.
    """
    release = previous(cell)
    if bundle.hash != release.hash:
        raise InvalidInput(
            f"bundle {bundle.folder} is not the one that was active (manifest {bundle.hash[:12]}, expected {release.hash[:12]})"
        )
    return _change(cell, ROLLBACK, release, person, reason)


def history(cell: Path) -> History:
    if not (cell / LOG).is_dir():
        raise InvalidInput(f"{cell}: no log of releases; `sticker-uq bundle promote` begins one")
    findings = [str(finding) for finding in verify(cell / LOG).findings]
    found = tuple(entries(cell / LOG))
    standing = _list_active(found)
    linked, expected = _read_link(cell), standing[-1].folder if standing else None
    if linked != expected:
        findings.append(f"{ACTIVE} points to {linked or 'nothing'}, the log says {expected or 'nothing'}")
    return History(found, standing, tuple(findings))


def _list_active(told: Iterable[Entry]) -> tuple[ActiveBundle, ...]:
    standing: list[ActiveBundle] = []
    before: list[ActiveBundle] = []
    for entry in told:
        if entry.kind == FAILED:  # the change before it did not happen
            standing = before
            continue
        before = standing
        if entry.kind == PROMOTE:
            kept = [i for i, one in enumerate(standing, 1) if str(one.folder) == entry.data["from"]]
            # what the link did not lead to then was never active, or not any more
            newest = ActiveBundle(Path(entry.data["to"]), entry.data["to_hash"])
            standing = [*standing[: max(kept, default=0)], newest]
        elif entry.kind == ROLLBACK:
            standing = standing[:-1]
    return tuple(standing)


def _change(cell: Path, kind: str, release: ActiveBundle, person: str, reason: str) -> ActiveBundle:
    present = _read_link(cell)
    log = AuditLog(cell / LOG, _FILE_BYTES)
    try:
        before = _list_active(entries(cell / LOG))[-1:]
        active = before[0].hash if before and before[0].folder == present else ""
        if kind == PROMOTE and release == ActiveBundle(present or Path(), active):
            raise InvalidInput(f"{release.folder} is the active bundle of {cell} already")
        before_it = {"from": str(present or ""), "from_hash": active}
        after_it = {"to": str(release.folder), "to_hash": release.hash}
        who = {"person": person, "person_check": "unchecked", "reason": reason}
        _write(log, kind, {**before_it, **after_it, **who, **whereabouts()})
        try:
            _link(cell, release.folder)
        except OSError as error:
            _write(log, FAILED, {"detail": error.strerror or str(error)})
            raise
    finally:
        log.close()
    return release


def _write(log: AuditLog, kind: str, told: dict[str, str]) -> None:
    log.add(kind, told)
    if not log.flush(_DISK_S) or log.status.problem:
        raise InvalidInput("the log of releases cannot be written, nothing was changed: is the disk full?")


def _read_link(cell: Path) -> Path | None:
    link = cell / ACTIVE
    if not os.path.lexists(link):
        return None
    if not link.is_symlink():
        raise InvalidInput(f"{link}: expected a symbolic link to a bundle; move away what is there")
    return link.resolve()


def _link(cell: Path, folder: Path) -> None:
    cell = cell.resolve()
    target = folder.relative_to(cell) if folder.is_relative_to(cell) else folder
    new = cell / f".{ACTIVE}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    os.replace(new, cell / ACTIVE)
    sync_folder(cell)

# SPDX-License-Identifier: Apache-2.0
"""Keeps in the audit log what must outlive the process: the newest entry of kind ``state`` is what the next start reads.

The file ``newest_state`` beside the log names that entry, so that a log that was cut off or removed is noticed. A second one, in
another place, tells the same of a folder that was removed or put back as a whole.
"""

import contextlib
import os
import re
from pathlib import Path

from sticker_uq.gate.audit import chain
from sticker_uq.gate.audit.log import AuditLog
from sticker_uq.gate.durable import DurableState
from sticker_uq.io.files import sync_folder
from sticker_uq.scene import InvalidInput, Reason

ACK_S = 1.0
"""Longest wait for the disk, in which the gate does nothing else; it has closed what had to be closed before."""
STATE = "state"
_NEWEST = "newest_state"


class StateStore:
    """Reads and writes the :class:`DurableState` in ``log``, whose files are in ``folder``; nothing was added to ``log`` yet.

    ``second``: where the entry is named a second time, if that can be done.
    """

    def __init__(self, log: AuditLog, folder: Path, second: Path | None = None) -> None:
        self._log = log
        self._folder = folder
        self._second = second
        self._logged: DurableState | None = None
        self._named = False
        self._behind = False
        self.problem: Reason | None = None
        """Why the newest state is in the log, but not named beside it."""

    def read(self) -> DurableState | None:
        """What the last run kept; None when there was none. Where that cannot be relied on, :meth:`DurableState.unreadable`."""
        known: DurableState | None = None
        try:
            newest, problem = self._newest()
            known = None if newest is None else DurableState.from_plain(newest.data)
        except (OSError, InvalidInput) as error:
            problem = _words(error)
        problem = problem or self._log.unread
        return (known or DurableState()).unreadable(problem) if problem else known

    def _newest(self) -> tuple[chain.Entry | None, str]:
        """The newest state in the log, and why it may not be the last one that was decided; empty when it is."""
        names, problem = self._names()
        newest: chain.Entry | None = None
        last, sealed = -1, -1
        for path in reversed(chain.log_files(self._folder)):
            for line in chain.lines_of(path):
                if (entry := line.entry) is None:
                    continue
                last = max(last, entry.number)
                newest = entry if entry.kind == STATE else newest
                sealed = max(sealed, entry.number) if entry.kind == chain.SEAL else sealed
                if names.get(entry.number, entry.hash) != entry.hash:
                    problem = f"entry {entry.number} of the audit log was exchanged"
            if newest is not None:
                break
        if (named := max(names, default=-1)) > last:
            problem = f"entry {named} of the audit log is missing"
        elif sealed > (-1 if newest is None else newest.number):  # whatever else has been written since
            problem = (
                problem or "a crash tore an entry of the audit log, which may have been the newest state"
            )
        elif newest is None and last >= 0:
            problem = problem or "the audit log holds no state, as one of an older version"
        return newest, problem

    def _names(self) -> tuple[dict[int, str], str]:
        """Number and hash of the entries that the log must have, and why those that are named cannot be read."""
        names: dict[int, str] = {}
        problem = ""
        for path in filter(None, (self._folder / _NEWEST, self._second)):
            try:
                written = path.read_bytes()
            except OSError as error:
                if not isinstance(error, FileNotFoundError) and path != self._second:
                    problem = f"{_NEWEST}: {_words(error)}"
                continue
            if (match := re.fullmatch(rb"(\d{20}) ([0-9a-f]{64})\n", written)) is None:
                problem = f"{path} names no entry"
                continue
            number, digest = int(match[1]), match[2].decode()
            if names.setdefault(number, digest) != digest:
                problem = f"entry {number} of the audit log was exchanged"
        return names, problem

    def keep(self, state: DurableState) -> Reason | None:
        """Write ``state``, if it has changed, and wait for the disk; why it is not there yet, None when it is."""
        if state != self._logged:
            status = self._log.status
            if self._behind and status.waiting:  # one wait for a disk that hangs is enough
                return status.problem or _LATE
            self._logged, self._named = None, False  # of what is under way now, any part may reach the disk
            taken = self._log.add(STATE, state.to_plain())
            self._behind = not (taken and self._log.settle(ACK_S))
            if self._behind:
                return self._log.status.problem or _LATE
            self._logged = state
        if not self._named:
            try:
                self._name_newest()
            except OSError as error:
                self.problem = Reason.of("audit_write_failed", detail=f"{_NEWEST}: {_words(error)}")
                return self.problem
            self._named, self.problem = True, None
        return None

    def _name_newest(self) -> None:
        """Name the newest entry of the log, which is the state or came after it."""
        status = self._log.status
        name = f"{status.number:020d} {status.head}\n".encode()
        _write(self._folder / _NEWEST, name)
        if self._second is not None:
            with contextlib.suppress(OSError):
                _write(self._second, name)


def _write(path: Path, name: bytes) -> None:
    fresh = not path.exists()
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, name, 0)
        os.fsync(file)
    finally:
        os.close(file)
    if fresh:
        sync_folder(path.parent)


def _words(error: OSError | InvalidInput) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


_LATE = Reason.of("audit_behind", seconds=ACK_S)

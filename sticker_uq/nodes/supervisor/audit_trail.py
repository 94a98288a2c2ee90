# SPDX-License-Identifier: Apache-2.0
"""The supervisor node's audit log: where it lies, what goes in, what /diagnostics say of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rclpy.logging import get_logging_directory
from rclpy.node import Node

from sticker_uq.gate.audit import AuditLog, Entry, Narrator, entries
from sticker_uq.gate.events import Effect, Event
from sticker_uq.gate.state import GateState, Phase
from sticker_uq.messages import text_of, texts_of
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.scene import InvalidInput, Reason


def default_folder(node: Node, kind: str) -> Path:
    """The folder for ``kind`` (audit) inside ROS's folder of logs; each node of this machine and person has its own."""
    domain = os.environ.get("ROS_DOMAIN_ID") or "0"
    name = node.get_fully_qualified_name().strip("/").replace("/", ".")
    return Path(str(get_logging_directory())) / kind / f"domain_{domain}.{name}"


MEGABYTE = 1_000_000
_STANDING = {Phase.FAULT.name: "last_run_faulted", Phase.INTERVENTION.name: "last_run_asked"}
FLUSH_S = 5.0
"""The end of the node waits so long at most for its last entries to reach the disk."""


class AuditTrail:
    """The supervisor node's audit log in ``folder`` (empty: the default one), opened for ``node``.

    Raises :class:`InvalidInput` when it cannot be opened, was damaged or is being written by another supervisor.
    """

    def __init__(self, node: Node, folder: str, file_mb: float) -> None:
        path = Path(folder).expanduser() if folder else default_folder(node, "audit")
        try:
            self._log = AuditLog(path, round(file_mb * MEGABYTE))
        except OSError as error:
            raise InvalidInput(f"audit log {path} cannot be opened: {error.strerror or error}") from None
        self._narrator = Narrator()
        self.folder = path
        self.unfinished = unfinished(path)
        """What an operator was needed for when the last run died; empty when it ended in order or nobody was needed."""

    def step(
        self, event: Event | None, before: GateState, after: GateState, effects: Sequence[Effect]
    ) -> None:
        for kind, data in self._narrator.entries_of_step(event, before, after, effects):
            self._log.add(kind, data)

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        self._log.add(kind, data)

    @property
    def head(self) -> str:
        """What the supervisor node publishes of its audit log: the hash of the newest entry on the disk."""
        return self._log.status.head

    @property
    def problem(self) -> Reason | None:
        return self._log.status.problem

    def close(self) -> None:
        self._log.flush(FLUSH_S)
        self._log.close(FLUSH_S)

    def report(self) -> PartReport:
        status = self._log.status
        values = {
            "head": status.head,
            "entries": status.number + 1,
            "waiting": status.waiting,
            "lost": status.lost,
            "slowest_ms": status.slowest_s * 1e3,
            "file": str(self.folder / status.file),
        }
        level = Level.ERROR if status.problem else Level.OK
        return PartReport(
            level, text_of(status.problem) if status.problem else "every entry reaches the disk", values
        )


def unfinished(folder: Path) -> tuple[Reason, ...]:
    """What the supervisor node's audit log says was open when it died without ``stop``: a fault or a question; empty when
    nothing was.
    """
    standing: tuple[Reason, ...] = ()
    for entry in entries(folder, newest_files=2):
        if entry.kind == "stop":
            standing = ()
        elif entry.kind == "gate":
            code = _STANDING.get(str(entry.data.get("to")))
            standing = (Reason(code), *_reasons(entry)) if code else ()
    return standing


def _reasons(entry: Entry) -> tuple[Reason, ...]:
    """The reasons of a ``gate`` entry; none where another program wrote something else."""
    with contextlib.suppress(TypeError, ValueError, AttributeError, LookupError):
        found = tuple(map(Reason.from_dict, entry.data["reasons"]))
        texts_of(found)
        return found
    return ()

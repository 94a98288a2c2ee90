# SPDX-License-Identifier: Apache-2.0
"""The audit log of the supervisor, and where it lies."""

import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rclpy.logging import get_logging_directory
from rclpy.node import Node

from sticker_uq.gate.audit import AuditLog, Narrator
from sticker_uq.gate.audit.state_store import StateStore
from sticker_uq.gate.durable import DurableState
from sticker_uq.gate.events import Effect, Event
from sticker_uq.gate.state import GateState
from sticker_uq.messages import text_of
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.scene import InvalidInput, Reason


def default_folder(node: Node, kind: str) -> Path:
    """The folder for ``kind`` (audit) inside ROS's folder of logs; each node of this machine and person has its own."""
    domain = os.environ.get("ROS_DOMAIN_ID") or "0"
    name = node.get_fully_qualified_name().strip("/").replace("/", ".")
    return Path(str(get_logging_directory())) / kind / f"domain_{domain}.{name}"


def _second_name(node: Node, folder: Path) -> Path | None:
    """Where the newest state of the log in ``folder`` is named a second time; None where that cannot be."""
    try:
        home = Path(os.environ.get("ROS_HOME") or "~/.ros").expanduser() / "sticker_uq" / "newest_state"
        home.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        node.get_logger().warning(f"{error}: an audit log that is put back as it was earlier is not noticed")
        return None
    named = f"{socket.gethostname()}:{folder.resolve()}"  # a home may be shared by machines
    return home / hashlib.sha256(os.fsencode(named)).hexdigest()[:32]


MEGABYTE = 1_000_000
FLUSH_S = 5.0
"""The end of the node waits so long at most for its last entries to reach the disk."""


class AuditTrail:
    """The audit log in ``folder`` (empty: the default one of ``node``). ``named_twice``: whether its newest state is named in
    ROS's home, too.

    Raises :class:`InvalidInput` when it cannot be opened or is being written by another supervisor.
    """

    def __init__(self, node: Node, folder: str, file_mb: float, named_twice: bool = True) -> None:
        path = Path(folder).expanduser() if folder else default_folder(node, "audit")
        try:
            self._log = AuditLog(path, round(file_mb * MEGABYTE))
        except OSError as error:
            raise InvalidInput(f"audit log {path} cannot be opened: {error.strerror or error}") from None
        self._narrator = Narrator()
        self.folder = path
        self._states = StateStore(self._log, path, _second_name(node, path) if named_twice else None)
        self.last_run = self._states.read()
        """What outlived the last run; None when this is the first."""

    def step(
        self, event: Event | None, before: GateState, after: GateState, effects: Sequence[Effect]
    ) -> None:
        for kind, data in self._narrator.entries_of_step(event, before, after, effects):
            self._log.add(kind, data)

    def keep(self, state: DurableState) -> Reason | None:
        """Write what must outlive this process, where it has changed; why it is not on the disk yet, None when it is."""
        return self._states.keep(state)

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        self._log.add(kind, data)

    @property
    def head(self) -> str:
        """The hash of the newest entry on the disk."""
        return self._log.status.head

    @property
    def problem(self) -> Reason | None:
        return self._log.status.problem or self._states.problem

    def destroy(self) -> None:
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
        if problem := self.problem:
            return PartReport(Level.ERROR, text_of(problem), values)
        return PartReport(Level.OK, "every entry reaches the disk", values)

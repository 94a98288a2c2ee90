# SPDX-License-Identifier: Apache-2.0
"""Keeps in the audit log what must outlive the process: the newest entry of kind ``state`` is what the next start reads.

The file ``newest_state`` beside the log names that entry, so that a log that was cut off or removed is noticed.
"""

import os
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
    """Reads and writes the :class:`DurableState` in ``log``, whose files are in ``folder``; nothing was added to ``log`` yet."""

    def __init__(self, log: AuditLog, folder: Path) -> None:
        self._log = log
        self._folder = folder
        self._kept: DurableState | None = None
        self._behind = False

    def read(self) -> DurableState | None:
        """What the last run kept; None when there was none. What cannot be relied on is a state that is held and says why."""
        try:
            return self._read()
        except (OSError, InvalidInput) as error:
            detail = error.strerror if isinstance(error, OSError) else str(error)
            reason = Reason.of("last_run_unreadable", detail=detail or str(error))
            return DurableState(held=True, held_for=(reason,))

    def _read(self) -> DurableState | None:
        number, digest = self._named()
        last: chain.Entry | None = None
        newest: chain.Entry | None = None
        for path in reversed(chain.log_files(self._folder)):
            for line in chain.lines_of(path):
                entry = line.entry
                if entry is None:
                    continue
                last = entry if last is None or entry.number > last.number else last
                newest = entry if entry.kind == STATE else newest
                if entry.number == number and entry.hash != digest:
                    raise InvalidInput(f"entry {number} of the audit log was exchanged")
            if newest is not None:
                break
        if number > (-1 if last is None else last.number):
            raise InvalidInput(f"entry {number} of the audit log is missing")
        if last is None:
            return None
        if last.kind == chain.SEAL:
            raise InvalidInput("a crash tore the last entry of the audit log")
        if newest is None:
            raise InvalidInput("the audit log holds no state, as one of an older version")
        return DurableState.from_plain(newest.data)

    def _named(self) -> tuple[int, str]:
        """Number and hash of an entry that the log must have; -1 where none is named."""
        try:
            number, _, digest = (self._folder / _NEWEST).read_bytes().strip().partition(b" ")
        except FileNotFoundError:
            return -1, ""
        if not number.isdigit():
            raise InvalidInput(f"{_NEWEST} names no entry")
        return int(number), digest.decode("ascii", "replace")

    def keep(self, state: DurableState) -> Reason | None:
        """Write ``state``, if it has changed, and wait for the disk; why it is not there yet, None when it is."""
        if state == self._kept:
            return None
        status = self._log.status
        if self._behind and status.waiting:  # one wait for a disk that hangs is enough
            return status.problem or _LATE
        self._kept = None  # of what is under way now, any part may reach the disk
        self._log.add(STATE, state.to_plain())
        self._behind = not self._log.settle(ACK_S)
        if self._behind:
            return self._log.status.problem or _LATE
        try:
            self._name_newest()
        except OSError as error:
            return Reason.of("audit_write_failed", detail=error.strerror or str(error))
        self._kept = state
        return None

    def _name_newest(self) -> None:
        """Name the newest entry of the log, which is the state or came after it."""
        status = self._log.status
        path = self._folder / _NEWEST
        fresh = not path.exists()
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, f"{status.number:020d} {status.head}\n".encode(), 0)
            os.fsync(file)
        finally:
            os.close(file)
        if fresh:
            sync_folder(self._folder)


_LATE = Reason.of("audit_behind", seconds=ACK_S)

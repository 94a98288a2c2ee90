# SPDX-License-Identifier: Apache-2.0
"""Keeps in the audit log what must outlive the process: the newest entry of kind ``state`` is what the next start reads.

The file ``newest_state`` beside the log names that entry, so that a log that was cut off or removed is noticed.
"""

import os
import re
from dataclasses import replace
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
        self._logged: DurableState | None = None
        self._named = False
        self._behind = False
        self.problem: Reason | None = None
        """Why the newest state is in the log, but not named beside it."""

    def read(self) -> DurableState | None:
        """What the last run kept; None when there was none. Where that cannot be relied on, it is what is known of it, held."""
        known: DurableState | None = None
        try:
            newest, problem = self._newest()
            known = None if newest is None else DurableState.from_plain(newest.data)
        except (OSError, InvalidInput) as error:
            problem = _words(error)
        if not problem:
            return known
        reason = Reason.of("last_run_unreadable", detail=problem)
        return replace(known or DurableState(), held=True, held_for=(reason,))

    def _newest(self) -> tuple[chain.Entry | None, str]:
        """The newest state in the log, and why it may not be the last one that was decided; empty when it is."""
        number, digest, problem = self._name()
        newest: chain.Entry | None = None
        last, sealed = -1, -1
        for path in reversed(chain.log_files(self._folder)):
            for line in chain.lines_of(path):
                if (entry := line.entry) is None:
                    continue
                last = max(last, entry.number)
                newest = entry if entry.kind == STATE else newest
                sealed = max(sealed, entry.number) if entry.kind == chain.SEAL else sealed
                if entry.number == number and entry.hash != digest:
                    problem = f"entry {number} of the audit log was exchanged"
            if newest is not None:
                break
        if number > last:
            problem = f"entry {number} of the audit log is missing"
        elif sealed > (-1 if newest is None else newest.number):  # whatever else has been written since
            problem = (
                problem or "a crash tore an entry of the audit log, which may have been the newest state"
            )
        elif newest is None and last >= 0:
            problem = problem or "the audit log holds no state, as one of an older version"
        return newest, problem

    def _name(self) -> tuple[int, str, str]:
        """Number and hash of an entry that the log must have, -1 where none is named, and why that cannot be read."""
        try:
            written = (self._folder / _NEWEST).read_bytes()
        except FileNotFoundError:
            return -1, "", ""
        except OSError as error:
            return -1, "", f"{_NEWEST}: {_words(error)}"
        if (match := re.fullmatch(rb"(\d{20}) ([0-9a-f]{64})\n", written)) is None:
            return -1, "", f"{_NEWEST} names no entry"
        return int(match[1]), match[2].decode(), ""

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


def _words(error: OSError | InvalidInput) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


_LATE = Reason.of("audit_behind", seconds=ACK_S)

# SPDX-License-Identifier: Apache-2.0
"""Writes the audit log in a thread of its own: every entry reaches the disk, and the gate never waits for it."""

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sticker_uq.gate.audit import chain
from sticker_uq.io.files import sync_folder
from sticker_uq.scene import InvalidInput, Reason

CAPACITY = 10_000
"""Entries that may wait for the disk; further ones are lost, and the log says how many."""
RETRY_S = 0.5
"""After so long a disk that refused an entry is asked again."""
LOOK_S = 0.25
"""So often it is checked that the files of the log are still there as they were written."""
BEHIND_S = 2.0
"""An entry that has waited longer for the disk than this is a problem."""


@dataclass(frozen=True)
class AuditStatus:
    """Hash and number of the last entry on the disk, entries waiting, longest time one took, in s.

    ``problem`` says why entries do not reach the disk; None when they do.
    """

    head: str
    number: int
    waiting: int
    lost: int
    slowest_s: float
    file: str
    problem: Reason | None


class AuditLog:
    """The log in ``folder``, which is made when it is missing; a log that is there is continued.

    A line that a crash tore is kept and vouched for by an entry of kind ``sealed``. A log that was damaged in its middle, or on a
    disk that cannot be written any more, is not continued: nothing is added to it, which :attr:`status` says. Raises
    :class:`InvalidInput` when another process writes this log, and :class:`OSError` when there is none and none can be made.
    """

    def __init__(self, folder: Path, file_bytes: int, capacity: int = CAPACITY) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file_bytes = file_bytes
        self._capacity = capacity
        self._lock_file = _exclusive(folder)
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, Mapping[str, Any], int, float]] = deque()
        self._closing = False
        self._lost = 0
        self._error = ""
        self._failed_ns = 0
        self._slowest_s = 0.0
        self._half_written = False
        self._file, self._size, self._number, self._head = -1, 0, -1, chain.GENESIS
        self._continued = self._damaged = False
        try:
            self._continue()
        except (InvalidInput, OSError) as error:
            if not (files := _find_logs(folder)):
                os.close(self._lock_file)
                raise
            self._path = files[-1]
            self._damaged = isinstance(error, InvalidInput)
            self._error = str(error) if isinstance(error, InvalidInput) else error.strerror or str(error)
            self._failed_ns = time.time_ns()
        self.unread = self._error
        """Why this log could not be continued when it was opened; empty when it could."""
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()

    def add(self, kind: str, data: Mapping[str, Any]) -> bool:
        """Add an entry, which is written soon; False when too many wait, so that it is lost. Never waits."""
        with self._changed:
            if len(self._queue) >= self._capacity:
                self._lost += 1
                return False
            self._queue.append((kind, data, time.time_ns(), time.monotonic()))
            self._changed.notify_all()
            return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until all entries are on the disk; False when it did not take them within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue, timeout_s)

    def settle(self, timeout_s: float) -> bool:
        """The same, but the wait also ends when the disk refuses an entry."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue or self._error, timeout_s)
            return not self._queue

    @property
    def status(self) -> AuditStatus:
        with self._changed:
            waited = time.monotonic() - self._queue[0][3] if self._queue else 0.0
            problem = Reason.of("audit_write_failed", detail=self._error) if self._error else None
            if problem is None and waited > BEHIND_S:
                problem = Reason.of("audit_behind", seconds=round(waited, 1))
            slowest_s = max(self._slowest_s, waited)
            counts = self._number, len(self._queue), self._lost
            return AuditStatus(self._head, *counts, slowest_s, self._path.name, problem)

    def close(self, timeout_s: float = 5.0) -> None:
        """Write the waiting entries and end. A disk that refuses after ``timeout_s`` keeps what is there already."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():  # else it still holds a file that nobody else may write
            os.close(self._lock_file)

    # everything below runs in the thread that writes, or before it has started

    def _continue(self) -> None:
        self._path, self._number, self._head, torn = _resume(self._folder)
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._file).st_size
        self._older = {path: _identity(path) for path in chain.log_files(self._folder) if path != self._path}
        sync_folder(self._folder)
        if torn is not None:
            self._seal(torn)
        self._continued = True

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing, LOOK_S)
                batch = list(self._queue)
                closing = self._closing
            if not batch and not closing:
                self._look()
            if batch and not self._write(batch):
                with self._changed:
                    # an end that was asked for does not wait for a full disk
                    if self._closing:
                        break
                    self._changed.wait_for(lambda: self._closing, RETRY_S)
            elif closing:
                with self._changed:
                    if not self._queue:
                        break
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _write(self, batch: list[tuple[str, Mapping[str, Any], int, float]]) -> bool:
        """Append ``batch`` and take it out of the queue; False when the disk refuses."""
        with self._changed:
            lost, failed_ns, error = self._lost, self._failed_ns, self._error
        items = [(kind, data, time_ns) for kind, data, time_ns, _ in batch]
        if failed_ns or lost:
            now = time.time_ns()
            gap = {"since_ns": failed_ns or now, "until_ns": now, "lost": lost, "detail": error}
            items.append(("gap", gap, now))
        try:
            self._append(items)
        except OSError as refused:
            with self._changed:
                self._error = refused.strerror or str(refused)
                self._failed_ns = self._failed_ns or time.time_ns()
                self._changed.notify_all()
            return False
        damage = self._damage()
        with self._changed:
            for _ in batch:
                _, _, _, since = self._queue.popleft()
                self._slowest_s = max(self._slowest_s, time.monotonic() - since)
            self._lost -= lost
            self._error, self._failed_ns = damage, time.time_ns() if damage else 0
            self._changed.notify_all()
        return True

    def _look(self) -> None:
        damage = self._damage()
        with self._changed:
            self._error = damage
            self._failed_ns = self._failed_ns or (time.time_ns() if damage else 0)
            self._changed.notify_all()

    def _damage(self) -> str:
        """How the files in the folder differ from those that were written: one that is open can be written all the same."""
        if self._damaged:
            return self.unread
        if not self._continued:  # the disk may work again
            try:
                self._continue()
            except (InvalidInput, OSError) as error:
                return str(error)
        here = os.fstat(self._file)
        written = {**self._older, self._path: (here.st_dev, here.st_ino, self._size)}
        for path, identity in written.items():
            try:
                found = _identity(path)
            except OSError as error:
                return f"{path}, which was written: {error.strerror}"
            if found[:2] != identity[:2]:
                return f"{path} is another file than the one that was written"
            if found != identity:
                return f"{path} has {found[2]} bytes, written were {identity[2]}"
        return ""

    def _append(self, items: list[tuple[str, Mapping[str, Any], int]]) -> None:
        if damage := self._damage():
            raise OSError(damage)
        number, head, lines = self._number, self._head, b""
        for kind, data, time_ns in items:
            entry = chain.Entry.create(number + 1, head, kind, data, time_ns)
            if (length := len(entry.line())) > chain.MOST_LINE:  # no reader would take it for an entry
                entry = chain.Entry.create(number + 1, head, kind, {"too_long": length}, time_ns)
            number, head = entry.number, entry.hash
            lines += entry.line()
        if self._size and self._size + len(lines) > self._file_bytes:
            self._next_file()
        self._write_all(lines)
        with self._changed:
            self._number, self._head = number, head

    def _write_all(self, data: bytes) -> None:
        if self._half_written:
            os.ftruncate(self._file, self._size)
        self._half_written = True
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)
            self._half_written = False
            raise
        self._half_written = False
        self._size += len(data)

    def _next_file(self) -> None:
        path = self._folder / _name(chain.file_number(self._path) + 1)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sync_folder(self._folder)
        self._older[self._path] = _identity(self._path)
        os.close(self._file)
        self._path, self._file, self._size = path, file, 0

    def _seal(self, torn: bytes) -> None:
        if not torn:
            self._write_all(b"\n")
            return
        data, now = chain.seal_of(torn), time.time_ns()
        seal = chain.Entry.create(self._number + 1, self._head, chain.SEAL, data, now)
        self._write_all(b"\n" + seal.line())
        self._number, self._head = seal.number, seal.hash


def _identity(path: Path) -> tuple[int, int, int]:
    """Device, inode and size of the file at ``path``."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size


def _find_logs(folder: Path) -> list[Path]:
    try:
        return chain.log_files(folder)
    except (InvalidInput, OSError):
        return []


def _exclusive(folder: Path) -> int:
    path = folder / "lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        lock = os.open(path, os.O_RDONLY)  # of a log that cannot be written any more
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise InvalidInput(
            f"audit log {folder} is being written by another process: is a second supervisor running?"
        ) from None
    return lock


def _resume(folder: Path) -> tuple[Path, int, str, bytes | None]:
    """The file to continue, number and hash of the last good entry, and what a crash left of the next one."""
    files = chain.log_files(folder)
    for path in reversed(files):
        last, torn = _tail(path)
        if last is not None or torn is not None:
            if last is None and path is not files[0]:
                last, before = _tail(files[files.index(path) - 1])
                if before is not None or last is None:
                    raise InvalidInput(f"{path} is torn at its beginning and the file before it is damaged")
            number, head = (last.number, last.hash) if last is not None else (-1, chain.GENESIS)
            return files[-1] if torn is None else path, number, head, torn
    return files[-1] if files else folder / _name(1), -1, chain.GENESIS, None


def _tail(path: Path) -> tuple[chain.Entry | None, bytes | None]:
    """The last good entry of a file and the bytes behind it: None when there are none, empty when it lacks its line feed.

    Raises :class:`InvalidInput` when something between good entries was changed.
    """
    last: chain.Entry | None = None
    torn: chain.Line | None = None
    for line in chain.lines_of(path):
        if line.entry is None:
            if torn is not None:
                raise _damage_error(torn, path)
            torn = line
            continue
        sealed = torn is None or (
            line.entry.kind == chain.SEAL and dict(line.entry.data) == chain.seal_of(torn.raw[:-1])
        )
        if not sealed or (last is not None and line.entry.previous != last.hash):
            raise _damage_error(torn or line, path)
        last, torn = line.entry, None
    if torn is None:
        return last, None
    if torn.complete:  # no crash leaves a whole line that is none
        raise _damage_error(torn, path)
    if (entry := chain.Entry.parse(torn.raw)) is not None and (last is None or entry.previous == last.hash):
        return entry, b""  # only its line feed is missing
    return last, torn.raw


def _damage_error(line: chain.Line, path: Path) -> InvalidInput:
    return InvalidInput(
        f"audit log {path} is damaged at line {line.number}: keep it, look at cell, arm and laptop, and give the supervisor "
        "another folder, which starts held"
    )


def _name(number: int) -> str:
    return f"audit-{number:06d}.jsonl"

# SPDX-License-Identifier: Apache-2.0
"""The writer of the audit log: continues, rotates, survives crashes and a full disk, and never makes anybody wait."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sticker_uq.gate.audit import AuditLog, entries, log, verify
from sticker_uq.gate.audit.chain import MOST_LINE
from sticker_uq.scene import InvalidInput, Reason

BIG = 10**6


def wait_until(log_: AuditLog, condition: object, patience_s: float = 30.0) -> None:
    """Wait for the writer's own news."""
    with log_._changed:
        assert log_._changed.wait_for(condition, patience_s)


def test_entries_are_read_again_in_order_over_restarts_and_files(tmp_path):
    folder = tmp_path / "Prüfung 笔记本 #1 100%"
    for start in range(3):
        writer = AuditLog(folder, 600)
        for index in range(5):
            writer.add("gate", {"start": start, "index": index})
        writer.close()
        assert writer.status.problem is None
        assert writer.status.number == start * 5 + 4
    assert [(e.data["start"], e.data["index"]) for e in entries(folder)] == [
        (s, i) for s in range(3) for i in range(5)
    ]
    found = verify(folder, head=writer.status.head)
    assert found.findings == []
    assert found.files == 3  # each start finds its file full


def test_an_entry_that_no_reader_takes_is_written_without_its_data(tmp_path):
    writer = AuditLog(tmp_path, BIG)
    writer.add("workpiece", {"workpiece": "x" * MOST_LINE})
    writer.add("gate", {"to": "BLOCKED"})
    writer.close()
    assert verify(tmp_path).findings == []
    assert [entry.kind for entry in entries(tmp_path)] == ["workpiece", "gate"]
    assert next(entries(tmp_path)).data["too_long"] > MOST_LINE
    AuditLog(tmp_path, BIG).close()  # and the next supervisor starts


def test_a_second_writer_is_refused(tmp_path):
    writer = AuditLog(tmp_path, BIG)
    with pytest.raises(InvalidInput, match="second supervisor"):
        AuditLog(tmp_path, BIG)
    writer.close()
    AuditLog(tmp_path, BIG).close()


def test_a_log_on_a_disk_that_cannot_be_written_any_more_goes_on_when_it_can(tmp_path, monkeypatch):
    """Until then it says so; what the last run left torn is not taken for whole meanwhile."""
    AuditLog(tmp_path, BIG).close()
    writer = AuditLog(tmp_path, BIG)
    writer.add("gate", {"by": 1})
    writer.close()
    path = tmp_path / "audit-000001.jsonl"
    path.write_bytes(path.read_bytes() + b"{torn")
    really = os.open

    def opened(path_: object, flags: int, *mode: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return really(path_, flags, *mode)

    with monkeypatch.context() as patched:
        patched.setattr(log.os, "open", opened)
        writer = AuditLog(tmp_path, BIG)
        assert writer.unread == "Read-only file system"
        with pytest.raises(InvalidInput, match="second supervisor"):
            AuditLog(tmp_path, BIG)
        writer.add("gate", {"by": 2})
        assert not writer.settle(30.0)
    assert writer.flush(30.0)
    writer.close()
    assert verify(tmp_path).whole
    assert [entry.kind for entry in entries(tmp_path)] == ["gate", "sealed", "gate", "gap"]


def test_two_writers_of_one_log_whose_lock_was_removed_are_told(tmp_path):
    first = AuditLog(tmp_path, BIG)
    (tmp_path / "lock").unlink()
    second = AuditLog(tmp_path, BIG)
    second.add("gate", {"by": 2})
    assert second.flush(30.0)
    first.add("gate", {"by": 1})
    assert not first.settle(30.0)
    assert first.status.problem is not None
    first.close(0.1)
    assert second.status.problem is None
    second.close()
    assert [entry.data for entry in entries(tmp_path)] == [{"by": 2}]
    assert verify(tmp_path).whole


@pytest.mark.parametrize("left", [1, 40, -2])
def test_a_line_torn_by_a_crash_is_kept_and_sealed(tmp_path, left):
    writer = AuditLog(tmp_path, BIG)
    writer.add("gate", {"index": 0})
    writer.add("gate", {"index": 1})
    writer.close()
    path = tmp_path / "audit-000001.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:left])
    assert "no later start" in str(verify(tmp_path).findings[0])
    again = AuditLog(tmp_path, BIG)
    again.add("gate", {"index": 2})
    again.close()
    assert path.read_bytes().startswith(first + second[:left] + b"\n")
    assert [e.kind for e in entries(tmp_path)] == ["gate", "sealed", "gate"]
    found = verify(tmp_path, head=again.status.head)
    assert (found.findings, found.seals) == ([], 1)


@pytest.mark.parametrize(
    ("left", "newest", "found"),
    [
        (-1, None, (1, 2, 0)),  # the line feed alone is lost: the entry is good
        (None, b"\0\0\0", (2, 3, 1)),  # a new file is torn in its first line
        (None, b"", (2, 2, 0)),
        (4, None, (1, 2, 1)),  # nothing but a piece of the very first line
    ],
)
def test_a_log_that_a_crash_left_goes_on(tmp_path, left, newest, found):
    writer = AuditLog(tmp_path, BIG)
    writer.add("gate", {})
    writer.close()
    path = tmp_path / "audit-000001.jsonl"
    path.write_bytes(path.read_bytes()[:left])
    if newest is not None:
        (tmp_path / "audit-000002.jsonl").write_bytes(newest)
    again = AuditLog(tmp_path, BIG)
    again.add("gate", {})
    again.close()
    seen = verify(tmp_path)
    assert (seen.findings, seen.files, seen.entries, seen.seals) == ([], *found)


class Disk:
    """``os.write`` and ``os.fsync`` of the log, which may refuse after some bytes or hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: int | None = None
        self.refused = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self._write, self._fsync = os.write, os.fsync
        monkeypatch.setattr(log.os, "write", self.write)
        monkeypatch.setattr(log.os, "fsync", self.fsync)

    def write(self, file: int, data: bytes) -> int:
        if self.free is None:
            return self._write(file, data)
        if self.free == 0:
            self.refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, bytes(data)[: self.free])
        self.free -= written
        return written

    def fsync(self, file: int) -> None:
        assert self.go.wait(60)
        self._fsync(file)


def test_a_full_disk_is_told_tried_again_and_the_gap_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "RETRY_S", 0.01)
    disk = Disk(monkeypatch)
    writer = AuditLog(tmp_path, BIG, capacity=3)
    writer.add("gate", {"index": 0})
    assert writer.flush(30)
    disk.free = 25  # it takes a part of the next entry
    writer.add("gate", {"index": 1})
    assert disk.refused.wait(30)
    wait_until(writer, lambda: writer._error)
    assert writer.status.problem == Reason.of("audit_write_failed", detail="No space left on device")
    for index in range(2, 7):
        writer.add("gate", {"index": index})
    assert (writer.status.waiting, writer.status.lost) == (3, 3)
    assert verify(tmp_path).whole  # what is there is whole at any time
    disk.free = None
    assert writer.flush(30)
    assert writer.status.problem is None
    writer.add("gate", {"index": 7})
    writer.close()
    told = [(e.kind, e.data.get("index")) for e in entries(tmp_path)]
    assert told == [("gate", 0), ("gate", 1), ("gate", 2), ("gate", 3), ("gap", None), ("gate", 7)]
    [gap] = [e.data for e in entries(tmp_path) if e.kind == "gap"]
    assert gap["lost"] == 3
    assert gap["since_ns"] < gap["until_ns"]
    assert "No space left" in gap["detail"]
    found = verify(tmp_path, head=writer.status.head)
    assert (found.findings, found.gaps) == ([], 1)


def replace_by_a_copy(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    shutil.copy(path.with_suffix(".old"), path)


LOSSES = {
    "removed": lambda path: path.unlink(),
    "moved": lambda path: path.rename(path.with_name("elsewhere")),
    "folder removed": lambda path: shutil.rmtree(path.parent),
    "folder moved": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    "folder replaced": lambda path: (path.parent.rename(path.parent.with_name("old")), path.parent.mkdir()),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "written by another": lambda path: path.write_bytes(path.read_bytes() + b"{}"),
    "replaced": replace_by_a_copy,
}


@pytest.mark.parametrize("older", [False, True], ids=["open file", "older file"])
@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_log_that_is_gone_or_changed_while_open_is_told(tmp_path, loss, writing, older):
    """Whether or not there is something to write, and of whichever file: what is open can be written when nobody will find it."""
    folder = tmp_path / "log"
    writer = AuditLog(folder, 400 if older else BIG)
    for index in range(4):
        writer.add("gate", {"index": index, "text": "x" * 200})
        assert writer.flush(30.0)
    loss(folder / "audit-000001.jsonl")
    if writing:
        writer.add("gate", {"index": 4})
    wait_until(writer, lambda: writer.status.problem is not None)
    assert "audit-000001.jsonl" in str(writer.status.problem)
    writer.close()


def test_a_log_that_is_put_back_goes_on_with_a_gap(tmp_path):
    folder, away = tmp_path / "log", tmp_path / "away"
    writer = AuditLog(folder, BIG)
    writer.add("gate", {"index": 0})
    assert writer.flush(30.0)
    folder.rename(away)
    wait_until(writer, lambda: writer.status.problem is not None)
    writer.add("gate", {"index": 1})
    away.rename(folder)
    wait_until(writer, lambda: writer.status.problem is None and not writer.status.waiting)
    writer.close()
    assert [entry.kind for entry in entries(folder)] == ["gate", "gate", "gap"]
    assert verify(folder).findings == []


def test_a_full_disk_does_not_hold_up_the_end(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    disk.free = 0
    writer = AuditLog(tmp_path, BIG)
    writer.add("gate", {})
    assert disk.refused.wait(30)
    writer.close(30)
    assert not writer._thread.is_alive()


def test_a_disk_that_hangs_makes_nobody_wait_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "BEHIND_S", 0.0)
    disk = Disk(monkeypatch)
    writer = AuditLog(tmp_path, BIG)
    disk.go.clear()
    for index in range(100):
        writer.add("gate", {"index": index})  # would never return if it waited for the disk
    assert writer.status.problem.code == "audit_behind"
    assert writer.status.waiting == 100
    disk.go.set()
    writer.close(30)
    assert writer.status.problem is None
    assert verify(tmp_path).entries == 100


KILLED = """
import sys
from pathlib import Path
from sticker_uq.gate.audit import AuditLog
writer = AuditLog(Path(sys.argv[1]), 5000)
index = told = 0
begun = writer.status.number
while True:
    if writer.status.waiting < 20:
        writer.add("gate", {"index": index, "ballast": "x" * (index % 300)})
        index += 1
    if not told and writer.status.number - begun > 100:
        told = print("going", flush=True) or 1
"""


def test_kill_9_while_writing_leaves_a_log_that_goes_on(tmp_path):
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"going\n"
        process.kill()
        process.wait()
    writer = AuditLog(tmp_path, 5000)
    writer.close()
    found = verify(tmp_path, head=writer.status.head)
    assert found.findings == []
    assert found.entries >= 200

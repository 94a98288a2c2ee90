# SPDX-License-Identifier: Apache-2.0
import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sticker_uq.io.files import atomic_write, files_in, undo_unfinished, undone_unless_finished, write_file


def test_writes_bytes_and_text(tmp_path):
    with atomic_write(tmp_path / "a.bin") as stream:
        stream.write(b"\x00\x01")
    with atomic_write(tmp_path / "a.txt", "w") as stream:
        stream.write("größer\n")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\x01"
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "größer\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "a.txt"]


def test_failure_keeps_the_old_file_and_leaves_no_other(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")

    def fill_the_disk():
        with atomic_write(target) as stream:
            stream.write(b"half of the new")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fill_the_disk()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_full_disk_is_reported_with_nothing_left(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left .*a\.bin"), atomic_write(tmp_path / "a.bin") as stream:
        stream.write(b"data")
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "nowhere" / "a.bin"):
        pass


def test_others_may_read_the_file_as_the_umask_says(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    with atomic_write(tmp_path / "atomic"):
        pass
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_folder_is_listed_without_hidden_files_and_circles(tmp_path):
    for name in ("b/x.png", "a.txt", ".hidden", "Thumbs.db", "__MACOSX/y.png", ".git/z"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "b" / "back").symlink_to(tmp_path)
    assert files_in(tmp_path) == [tmp_path / "a.txt"]
    assert files_in(tmp_path, below=True) == [tmp_path / "a.txt", tmp_path / "b" / "x.png"]


@pytest.mark.parametrize("other", ["undoes the same", "begins a file"])
def test_two_threads_that_undo_the_same_undo_it_once_and_no_file_is_begun_meanwhile(other, tmp_path):
    undoing, go_on, undone = threading.Event(), threading.Event(), []

    def undo():
        undoing.set()
        assert go_on.wait(60)
        undone.append(1)

    def fail():
        with undone_unless_finished(undo):
            raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as threads:
        failing = threads.submit(fail)
        assert undoing.wait(60)
        # not both at once: whichever of them came first, the other would undo what it began, or not
        if other == "begins a file":
            waits_for_the_other = threads.submit(write_file, tmp_path / "a", "late")
        else:
            waits_for_the_other = threads.submit(undo_unfinished)
        with pytest.raises(TimeoutError):
            waits_for_the_other.result(0.1)
        assert not list(tmp_path.iterdir())
        go_on.set()
        waits_for_the_other.result()
        with pytest.raises(KeyboardInterrupt):
            failing.result()
    assert undone == [1]

# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a terminal: the command ends with a word and status 130, and leaves no process and no half-written file."""

import errno
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from lab_helpers.scenes import rendered

CTRL_C = b"\x03"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_HUNG_S = 120.0


def _foreground() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that starts the tests with & has it ignored


class Terminal:
    """A command in a terminal of its own, of which it is the foreground."""

    def __init__(self, *command: str, folder: Path) -> None:
        self._screen, inside = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            command,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            preexec_fn=_foreground,
            cwd=folder,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
        )
        os.close(inside)

    def close(self) -> None:
        os.close(self._screen)
        self.process.kill()
        self.process.wait()

    def wait_for(self, pattern: str) -> None:
        while not re.search(pattern, _CONTROL.sub("", self.text)):
            more = self._read()
            assert more, self.text
            self.text += more

    def interrupt(self) -> int:
        """Press Ctrl-C; the exit status."""
        os.write(self._screen, CTRL_C)
        while more := self._read():
            self.text += more
        return self.process.wait()

    def _read(self) -> str:
        assert select.select([self._screen], [], [], _HUNG_S)[0], self.text
        try:
            return os.read(self._screen, 4096).decode(errors="replace")
        except OSError as error:
            if error.errno != errno.EIO:  # nobody writes any more
                raise
            return ""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = rendered(tmp_path_factory.mktemp("stopping") / "data", range(8), (160, 120), stickers=1)
    (folder / "many").mkdir()
    for number in range(400):  # enough that a replay is under way for a while
        shutil.copy(folder / "images" / f"{number % 8:08d}.jpg", folder / "many" / f"{number:08d}.jpg")
    return folder


@pytest.mark.parametrize(
    ("command", "under_way", "left"),
    [
        (
            "replay DATA/many --jobs 2 --out out --passes 2 --device cpu --threads 1 --no-dil",
            r"images\D*[1-9]\d*/400",
            ("out",),
        ),
        (
            "train --data DATA --out out --start packaged --input-size 320 --freeze backbone --batch-size 2 --epochs 9",
            "first step of",
            ("out", "out/state.pt"),
        ),
        ("demo --out out --port 0", "live page: http", ("out",)),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_ctrl_c_ends_a_command_with_a_word_and_leaves_nothing_behind(
    tmp_path, data, command, under_way, left
):
    """A command whose processes share its work, one that keeps what it has, and one with the nodes of a cell."""
    words = command.replace("DATA", str(data)).split()
    with closing(Terminal(sys.executable, "-m", "sticker_uq.cli", *words, folder=tmp_path)) as terminal:
        terminal.wait_for(under_way)
        children = psutil.Process(terminal.process.pid).children(recursive=True)
        assert terminal.interrupt() == 130, terminal.text
    assert "interrupted" in terminal.text
    assert "Traceback" not in terminal.text
    assert "leaked" not in terminal.text
    assert ("--resume continues from out/state.pt" in terminal.text) == ("out/state.pt" in left)
    assert psutil.wait_procs(children, 60)[1] == []
    assert set(tmp_path.rglob("*")) == {path for pattern in left for path in tmp_path.glob(pattern)}


HANGS = """
import threading
from sticker_uq.io.stopping import end_on_interrupt
from sticker_uq.io.files import atomic_write
end_on_interrupt()
with atomic_write("file"):
    try:
        print("under way", flush=True)
        threading.Event().wait()
    finally:
        threading.Event().wait()
"""


def test_what_does_not_end_by_itself_is_ended(tmp_path):
    with closing(Terminal(sys.executable, "-c", HANGS, folder=tmp_path)) as terminal:
        terminal.wait_for("under way")
        assert terminal.interrupt() == 130, terminal.text
    assert terminal.text.endswith("interrupted\r\n")
    assert list(tmp_path.iterdir()) == []


def test_it_ends_where_nobody_reads_any_more_what_it_says(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HANGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == b"under way\n"
        process.stdout.close()
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(_HUNG_S) == 130
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []

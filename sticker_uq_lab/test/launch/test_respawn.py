# SPDX-License-Identifier: Apache-2.0
"""``respawn:=true`` under ``ros2 launch``: each node that is killed comes back, and the cell works on."""

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sticker_uq.testing.bench import run_bench
from test.helpers.cell import START_PATIENCE_S, CellWatch, write_parameters

pytestmark = pytest.mark.timeout(900)  # five nodes start, are killed and start again
ROOT = Path(__file__).parents[3]
NODES = ("detector", "supervisor", "console", "recorder", "cell_sim")


class Launch:
    """``ros2 launch`` of the cell; its output is read while it runs."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "RCUTILS_COLORIZED_OUTPUT": "0", "PYTHONUNBUFFERED": "1"}
        command = ["ros2", "launch", "sticker_uq", "cell.launch.py", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line)

    def poll(self) -> None:
        """Take in what was said since."""
        while not self._queue.empty():
            self.lines.append(self._queue.get())

    def pids(self, node: str) -> list[int]:
        """The process ids that the node has had, the newest one last."""
        self.poll()
        started = re.compile(rf"\[{node}-\d+\]: process started with pid \[(\d+)\]")
        return [int(found[1]) for line in self.lines if (found := started.search(line))]

    def stop(self) -> int:
        """Ctrl-C; the exit code of the launch."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(120.0)


@pytest.fixture
def launched(ros_domain: int, tmp_path: Path) -> Iterator[Launch]:
    launch = Launch(
        "sim:=true", "respawn:=true", "console:=true", "console_port:=0", f"record:={tmp_path / 'bag'}",
        f"audit:={tmp_path / 'audit'}", f"params_file:={write_parameters(tmp_path)}",
    )  # fmt: skip
    try:
        yield launch
    finally:
        if launch.process.poll() is None:
            os.killpg(launch.process.pid, signal.SIGKILL)


def test_every_node_that_is_killed_comes_back_under_launch(launched, tmp_path):
    with run_bench() as probe:
        watch = CellWatch(probe)

        def until(condition: Callable[[], object], what: str) -> None:
            try:
                probe.until(condition, what, START_PATIENCE_S)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{''.join(launched.lines[-60:])}") from None

        until(lambda: len(watch.scenes) >= 2, "scenes")
        for node in NODES:
            killed = launched.pids(node)
            os.kill(killed[-1], signal.SIGKILL)
            until(lambda n=node, k=killed: len(launched.pids(n)) > len(k), f"{node} started again")
            mark, said = time.time_ns(), len(watch.gates)
            fresh = lambda: any(stamp_ns(scene) > mark for scene in watch.scenes)  # noqa: B023, E731
            until(fresh, f"scenes after the death of {node}")
            until(lambda s=said: any(sees(g) for g in watch.gates[s:]), "a gate that sees them")
        until(lambda: (tmp_path / "bag_2").is_dir(), "the second recording")
        assert launched.stop() == 0


def sees(gate: object) -> bool:
    """Whether the supervisor is active and has seen a scene."""
    reasons = gate.reasons
    return not reasons & (gate.REASON_NO_SCENE | gate.REASON_NOT_ACTIVE | gate.REASON_STALE_SCENE)


def stamp_ns(message: object) -> int:
    """The stamp of a message."""
    stamp = message.header.stamp
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)

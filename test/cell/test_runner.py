# SPDX-License-Identifier: Apache-2.0
"""The runner with real processes: it stops all of them, and dies loudly with the first that dies."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace

import pytest

from sticker_uq.cell import runner
from sticker_uq.cell.processes import ProcessSpec
from sticker_uq.cell.runner import ProcessGroup, run_processes
from sticker_uq.io.share import share_folder
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.bench import PATIENCE_S

WAITS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("up", flush=True)
signal.sigwait([signal.SIGINT])
print("down", flush=True)
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Lets a spec's executable be a little program instead of a node."""

    def spec(name, program):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(program))
        return ProcessSpec(name, name, "", share_folder() / "config" / "cell.yaml")

    def command(self, parameters):
        return [sys.executable, str(tmp_path / f"{self.executable}.py")]

    monkeypatch.setattr(ProcessSpec, "command", command)
    return spec


class Lines(list):
    """Output that can be awaited."""

    def __init__(self):
        super().__init__()
        self._condition = threading.Condition()

    def __call__(self, line):
        with self._condition:
            self.append(line)
            self._condition.notify_all()

    def wait_for(self, line, count=1):
        with self._condition:
            assert self._condition.wait_for(lambda: self.count(line) >= count, PATIENCE_S), (
                f"{line!r} never came: {self}"
            )


def test_leaving_the_group_stops_every_process_by_sigint(programs):
    lines = Lines()
    with ProcessGroup([programs("a", WAITS), programs("b", WAITS)], lines) as group:
        lines.wait_for("[a] up")
        lines.wait_for("[b] up")
        pids = [group.pid("a"), group.pid("b")]
    assert {"[a] down", "[b] down"} <= set(lines)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_deaf_process_is_killed(programs, monkeypatch):
    monkeypatch.setattr(runner, "STOP_TIMEOUT_S", 0.3)
    deaf = """
        import signal
        for s in (signal.SIGINT, signal.SIGTERM):
            signal.signal(s, signal.SIG_IGN)
        print("up", flush=True)
        while True:
            signal.pause()
    """
    lines = Lines()
    with ProcessGroup([programs("deaf", deaf)], lines) as group:
        lines.wait_for("[deaf] up")
        pid = group.pid("deaf")
    assert f"[runner] process {pid} ignored SIGTERM" in lines
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_death_of_one_ends_all_and_is_loud(programs):
    lines = Lines()
    assert run_processes([programs("stays", WAITS), programs("dies", "raise SystemExit(3)")], lines) == 1
    assert "[runner] dies DIED with exit code 3; stopping the others" in lines


def test_a_node_that_ends_by_itself_ends_the_cell_in_order(programs):
    assert run_processes([programs("stays", WAITS), programs("done", "print('finished')")], Lines()) == 0


def test_a_respawned_process_comes_back(programs, monkeypatch):
    monkeypatch.setattr(runner, "RESPAWN_PAUSE_S", 0.01)
    spec = replace(programs("again", "print('up', flush=True); raise SystemExit(3)"), respawn=True)
    lines = Lines()
    with ProcessGroup([spec], lines) as group:
        waiter = threading.Thread(target=group.wait_for_exit, args=[PATIENCE_S], daemon=True)
        waiter.start()
        lines.wait_for("[again] up", count=2)


@pytest.mark.parametrize(
    ("stop", "status", "code"),
    [(signal.SIGINT, 0, 0), (signal.SIGTERM, 0, 0), (signal.SIGHUP, 0, 0), (signal.SIGINT, 1, 1)],
)
def test_a_signal_stops_the_cell_with_exit_code_0_unless_a_node_reports_an_error(
    tmp_path, stop, status, code
):
    (tmp_path / "waits.py").write_text(f"{textwrap.dedent(WAITS)}\nraise SystemExit({status})")
    program = f"""
        import sys
        from sticker_uq.cell.processes import ProcessSpec, share_folder
        from sticker_uq.cell.runner import run_processes
        ProcessSpec.command = lambda self, parameters: [sys.executable, {str(tmp_path / "waits.py")!r}]
        sys.exit(run_processes([ProcessSpec("waits", "waits", "", share_folder() / "config" / "cell.yaml")]))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "[waits] up\n"
    process.send_signal(stop)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert "[waits] down" in output
    assert ("[runner] waits ended with exit code 1" in output) == bool(status)


def test_without_ros_nothing_is_started(monkeypatch):
    monkeypatch.setattr(
        "sticker_uq.cell.runner.find_spec", lambda name: None if name == "rclpy" else object()
    )
    with pytest.raises(InvalidInput, match=r"rclpy cannot be imported by .*: the nodes of a cell need ROS 2"):
        ProcessGroup([])

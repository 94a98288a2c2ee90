# SPDX-License-Identifier: Apache-2.0
"""Runs the processes of a cell without ROS launch: one operating-system process per node.

Prefixes the output of each node with its name, stops all nodes on Ctrl-C or SIGTERM, and stops all others with exit code 1
when a node dies that the cell cannot do without.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sticker_uq.cell.processes import ProcessSpec
from sticker_uq.io.share import INSTALL_LAB, LAB, has_lab
from sticker_uq.scene import InvalidInput

STOP_TIMEOUT_S = 8.0
RESPAWN_PAUSE_S = 1.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Output = Callable[[str], None]


class ProcessGroup:
    """Starts, monitors and stops processes. Use as a context manager: leaving it stops all of them.

    In the main thread SIGTERM and SIGHUP end the body as Ctrl-C does, so that no process is left running; further signals
    are ignored during the stop.
    """

    def __init__(self, specs: Sequence[ProcessSpec], output: Output = print) -> None:
        """``output`` is called with every line that a process prints. Raises InvalidInput where there is no ROS 2."""
        for module in ("rclpy", "sticker_uq_msgs"):
            if find_spec(module) is None:
                raise InvalidInput(
                    f"{module} cannot be imported by {sys.executable}: the nodes of a cell need ROS 2. Source the setup file of "
                    "the workspace, or run scripts/setup and this command through scripts/run; replay, train, evaluate and "
                    "the Python interface work without ROS"
                )
        for spec in specs:
            if spec.package == LAB and not has_lab():
                raise InvalidInput(f"{spec.name} is a node of {LAB}, which is not installed: {INSTALL_LAB}")
        self._specs = {spec.name: spec for spec in specs}
        self._output = output
        self._folder = tempfile.TemporaryDirectory(prefix="sticker_uq_")
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._exits: queue.Queue[tuple[str, int]] = queue.Queue()
        self._stopping = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> ProcessGroup:
        self._previous = _on_stop_signals(dict.fromkeys(STOP_SIGNALS, signal.default_int_handler))
        try:
            for spec in self._specs.values():
                self._start(spec)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        _on_stop_signals(dict.fromkeys(STOP_SIGNALS, signal.SIG_IGN))
        try:
            self.stop()
        finally:
            _on_stop_signals(self._previous)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def wait_for_exit(self, timeout: float | None = None) -> tuple[str, int] | None:
        """Wait until a process ends: returns its name and exit code, or ``None`` after ``timeout`` seconds.

        A process with ``respawn`` is restarted after a pause instead of being reported.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                name, code = self._exits.get(timeout=left)
            except queue.Empty:
                return None
            spec = self._specs[name]
            if spec.respawn and code != 0:
                self._output(f"[runner] {name} died with exit code {code}; restarting it")
                threading.Timer(RESPAWN_PAUSE_S, self._start, [spec]).start()
            else:
                return name, code

    def stop(self) -> dict[str, int]:
        """Stop every process with SIGINT, after a timeout SIGTERM and SIGKILL; returns the exit codes. Can be called again."""
        self._stopping = True
        for stop_signal in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            alive = [p for p in self._processes.values() if p.poll() is None]
            for process in alive:
                process.send_signal(stop_signal)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            for process in alive:
                try:
                    process.wait(max(0.05, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self._output(f"[runner] process {process.pid} ignored {stop_signal.name}")
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        self._folder.cleanup()
        return {name: process.wait() for name, process in self._processes.items()}

    def _start(self, spec: ProcessSpec) -> None:
        if self._stopping:  # while it waited to be restarted
            return
        command = spec.command(spec.write_parameters(Path(self._folder.name)))
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        # a session of its own: Ctrl-C in the terminal reaches only the runner, which stops the nodes in order
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
            start_new_session=True,
        )  # fmt: skip
        self._processes[spec.name] = process
        reader = threading.Thread(target=self._read, args=(spec.name, process), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._output(f"[{name}] {line.rstrip()}")
        code = process.wait()
        if not self._stopping:
            self._exits.put((name, code))


def _on_stop_signals(handlers: dict[signal.Signals, Any]) -> dict[signal.Signals, Any]:
    """Set the handlers and return the previous ones; does nothing outside the main thread, where Python does not allow it."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}


def run_processes(specs: Sequence[ProcessSpec], output: Output = lambda line: print(line, flush=True)) -> int:
    """Run until Ctrl-C, SIGTERM, SIGHUP or the end of a node; returns the exit code of the command.

    0 after one of those signals or when a node ended with 0; 1 when a node died, or ended with an error when it was stopped,
    as a recorder that has lost messages.
    """

    group = ProcessGroup(specs, output)
    try:
        with group:
            ended = group.wait_for_exit()
            assert ended is not None
            name, code = ended
            if code == 0:
                output(f"[runner] {name} has ended; stopping the others")
                return 0
            output(f"[runner] {name} DIED with exit code {code}; stopping the others")
            return 1
    except KeyboardInterrupt:
        codes = group.stop()
        failed = [name for name, code in codes.items() if code > 0]
        for name in failed:
            output(f"[runner] {name} ended with exit code {codes[name]}")
        output("[runner] stopped")
        return int(bool(failed))

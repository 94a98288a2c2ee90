# SPDX-License-Identifier: Apache-2.0
"""How long the simulated cell takes to work again after one of its processes was killed, and what it waits for; and how long
until the gate closes when a second publisher offers images.

    python -m benchmarks.recovery --out FILE --repetitions 5 --load 0    rows are added to FILE
    python -m benchmarks.recovery --print FILE                           the table of docs/faults.md

The packaged detector, the supervisor, and the simulated camera and arm run as `sticker-uq cell sim:=true respawn:=true` starts
them. While the gate is open one of them is killed with SIGKILL; a person resets a fault as soon as the cell is ready for it.
Times count from the kill, or from the creation of the second publisher, which is destroyed once the gate is closed and sends
nothing: discovery is part of the time. ``load`` more processes want a core all the time.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import Trigger

from benchmarks.result_files import checked_file
from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.cell.transport import free_domain
from sticker_uq.io.files import atomic_write
from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import Bench, run_bench
from sticker_uq_msgs.msg import GateState, SceneAssessment

SECOND = "second image publisher"
KILLED = ("detector", "supervisor", "cell_sim", SECOND)
IMAGES = {"sensor_msgs/msg/Image": Image, "sensor_msgs/msg/CompressedImage": CompressedImage}
STAGES = ("closed", "started", "ready", "scene", "open")
"""Gate closed (where the supervisor lives); the new process has joined ROS; it is configured; a scene came; the gate opened."""
PATIENCE_S = 240.0
RESET_EVERY_S = 1.0


@dataclass(frozen=True)
class Row:
    """One kill; seconds after it, None for what the process does not have."""

    killed: str
    load: int
    cores: int
    mean_load: float
    closed: float | None
    started: float | None
    ready: float | None
    scene: float | None
    open: float


class Cell:
    """The running cell and what is heard of it."""

    def __init__(self, bench: Bench, group: ProcessGroup, lines: list[tuple[float, str]]) -> None:
        self._bench, self._group, self._lines = bench, group, lines
        self._gates: list[GateState] = bench.collect(GateState, "gate", qos.LATCHED)
        self._scenes: list[SceneAssessment] = bench.collect(SceneAssessment, "scene")
        self._reset = bench.probe.create_client(Trigger, "reset")
        self._next_reset = 0.0

    def until_open(self) -> None:
        """Wait for an open gate."""
        self._bench.until(self._is_open, "an open gate", PATIENCE_S)

    def _is_open(self) -> bool:
        gate = self._gates[-1] if self._gates else None
        now = time.monotonic()
        if gate is not None and gate.state == GateState.STATE_FAULT and now > self._next_reset:
            if self._reset.service_is_ready():
                self._reset.call_async(Trigger.Request())
            self._next_reset = now + RESET_EVERY_S
        return gate is not None and bool(gate.open)

    def _images(self) -> tuple[str, type] | None:
        """Topic and type of the images that the detector takes, once discovery knows them."""
        for topic, kinds in self._bench.probe.get_topic_names_and_types():
            for found in self._bench.probe.get_subscriptions_info_by_topic(topic):
                if found.node_name == "detector" and kinds[0] in IMAGES:
                    return topic, IMAGES[kinds[0]]
        return None

    def second_publisher(self) -> dict[str, float | None]:
        """Offer images of the cell's camera too until the gate closes, and wait until the cell works again."""
        self.until_open()
        topic, kind = self._bench.until(self._images, "the camera's topic")
        self._gates.clear()
        begun = time.monotonic()
        second = self._bench.publisher(kind, topic)
        reason = GateState.REASON_SECOND_IMAGE_PUBLISHER
        self._bench.until(
            lambda: any(gate.reasons & reason for gate in self._gates), "a gate closed for it", PATIENCE_S
        )
        closed = time.monotonic() - begun
        self._bench.probe.destroy_publisher(second)
        self._gates.clear()
        self.until_open()
        return {**dict.fromkeys(STAGES), "closed": closed, "open": time.monotonic() - begun}

    def kill(self, name: str) -> dict[str, float | None]:
        """Kill ``name`` and wait until the cell works again."""
        self.until_open()
        for heard in (self._gates, self._scenes, self._lines):
            heard.clear()
        killed_at = time.monotonic()
        os.kill(self._group.pid(name), signal.SIGKILL)
        seen: dict[str, float] = {}

        def again() -> bool:
            now = time.monotonic() - killed_at
            if self._gates and not self._gates[-1].open:
                seen.setdefault("closed", now)
            if name == "supervisor" and self._gates:
                seen.setdefault("closed", now)  # the next supervisor begins closed
            if "started" not in seen:
                self._scenes.clear()
                if self._line(name, "starts;") is not None:
                    seen["started"] = now
            elif self._scenes:
                seen.setdefault("scene", now)
            return "closed" in seen and "started" in seen and self._is_open()

        self._bench.until(again, f"a cell that works again after {name} was killed", PATIENCE_S)
        ready = self._line(name, "activate: done")
        return {
            **{stage: seen.get(stage) for stage in STAGES},
            "closed": None if name == "supervisor" else seen["closed"],
            "ready": None if ready is None else ready - killed_at,
            "open": time.monotonic() - killed_at,
        }

    def _line(self, name: str, words: str) -> float | None:
        return next(
            (at for at, line in list(self._lines) if line.startswith(f"[{name}]") and words in line), None
        )


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many more processes want a core."""
    # each in a session of its own: Linux shares the cores between sessions first
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(repetitions: int, load: int, folder: Path, faults: Sequence[str]) -> list[Row]:
    """Cause each of ``faults`` so often, in turn."""
    os.environ |= {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_LOG_DIR": str(folder)}
    lines: list[tuple[float, str]] = []
    options: dict[str, Any] = {"sim": True, "sim_person": "ground_truth", "sim_laptops": 0, "respawn": True}
    rows: list[Row] = []
    with free_domain() as domain:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        specs = cell_processes(CellOptions(audit=str(folder / "audit"), **options))
        with (
            busy(load),
            ProcessGroup(specs, lambda line: lines.append((time.monotonic(), line))) as group,
            run_bench() as bench,
        ):
            threading.Thread(target=group.wait_for_exit, daemon=True).start()
            cell = Cell(bench, group, lines)
            for _ in range(repetitions):
                for name in faults:
                    times: dict[str, Any] = cell.second_publisher() if name == SECOND else cell.kill(name)
                    rows.append(Row(name, load, os.cpu_count() or 0, os.getloadavg()[0], **times))
                    print(rows[-1], flush=True)
    return rows


def table(rows: Sequence[Row]) -> str:
    """``rows`` in Markdown: the median of each stage, and the slowest recovery."""
    lines = [
        "| fault | load average | n | gate closed | process started | configured | scene | gate open, median | slowest |",
        "|---" * 9 + "|",
    ]
    for load in sorted({row.load for row in rows}):
        for name in KILLED:
            some = [row for row in rows if (row.killed, row.load) == (name, load)]
            if some:
                stages = {s: [v for row in some if (v := getattr(row, s)) is not None] for s in STAGES}
                words = [
                    f"{median(values):.{2 if stage == 'closed' else 1}f}" if values else "-"
                    for stage, values in stages.items()
                ]
                slowest = max(row.open for row in some)
                mean = sum(row.mean_load for row in some) / len(some)
                lines.append(f"| {name} | {mean:.1f} | {len(some)} | {' | '.join(words)} | {slowest:.1f} |")
    return "\n".join(lines)


def read(file: Path) -> list[Row]:
    """The rows in ``file``."""
    return [Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))]


def main(
    out: Annotated[
        Path | None, typer.Option(help="JSON file to which the rows are added.", callback=checked_file)
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Kills of each process.")] = 5,
    load: Annotated[int, typer.Option(min=0, help="So many processes want a core beside.")] = 0,
    fault: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(KILLED)}; default: all.")] = None,
    print_: Annotated[Path | None, typer.Option("--print", help="Measure nothing, print this file.")] = None,
) -> None:
    """Measure, or print what was measured."""
    if print_ is not None:
        print(table(read(print_)))
        return
    known = read(out) if out is not None and out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(repetitions, load, Path(folder), fault or KILLED)
    print(table(rows))
    if out is not None:
        rows = [*known, *rows]
        with atomic_write(out, "w") as file:
            json.dump([asdict(row) for row in rows], file, indent=1)


if __name__ == "__main__":
    typer.run(main)

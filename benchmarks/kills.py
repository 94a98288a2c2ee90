# SPDX-License-Identifier: Apache-2.0
"""For how long anybody receives no images after processes of the cell were killed.

    python -m benchmarks.kills --out FILE --kills 300 --load 0       one run; its row is added to FILE
    python -m benchmarks.kills --out FILE --transport shared_memory  with the Fast DDS profile of release 0.1.0
    python -m benchmarks.kills --print FILE                          the table of docs/faults.md

A camera publishes images of 1280x960 px at 10 Hz. The detector, the console, the recorder and three plain subscriptions receive
them. At random moments one of the receivers is killed with SIGKILL and started again. A receiver is deaf while no image
arrives between the moment from which it listens and its death; pauses longer than 2 s count. ``load`` more processes want a core
all the time.

Side by side: runs of both transports with the same seed kill the same processes after the same pauses.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.result_files import checked_file
from sticker_uq.cell.domain import free_domain
from sticker_uq.cell.transport import PROFILE_VARIABLES
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder

DEAF_S = 2.0
SIZE, RATE_HZ = "1280x960", 10.0
PAUSES_S = (0.3, 2.0)
"""Between two kills, at random: a process may die while it starts."""
TRANSPORTS = {
    "udp": share_folder() / "config" / "fastdds_localhost.xml",
    "shared_memory": Path(__file__).with_name("fastdds_shared_memory.xml"),
}


@dataclass(frozen=True)
class Row:
    """One run. ``pauses``: those longer than 2 s as (receiver, start or midway, s); ages and durations are ms."""

    transport: str
    kills: int
    load: int
    cores: int
    mean_load: float
    pauses: list[tuple[str, str, float]]
    first_image_p50_s: float
    first_image_max_s: float
    age_p50: float
    age_p95: float
    publish_max: float
    segments_left: int
    megabytes_left: float


@dataclass
class Life:
    """One process of a receiver from its start to its death; seconds on the monotonic clock."""

    listening: float | None = None
    images: list[float] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    ended: float = 0.0

    def pauses(self) -> list[tuple[str, float]]:
        """The time without an image: from where it listens, between two images, until the death."""
        if self.listening is None:
            return []
        marks = [self.listening, *(at for at in self.images if at > self.listening), self.ended]
        kinds = ["start"] + ["midway"] * (len(marks) - 2)
        return [(kind, b - a) for kind, (a, b) in zip(kinds, pairwise(marks), strict=True)]


class Receiver:
    """A process that is killed and started again."""

    def __init__(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.lives: list[Life] = []
        self.output: list[str] = []
        self.segments: set[Path] = set()
        self._command = [sys.executable, "-m", "benchmarks.kills_process", *arguments]
        self._environment = dict(environment)

    def start(self) -> None:
        """Start a new process."""
        life = Life()
        self.lives.append(life)
        self.process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process, life), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str], life: Life) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            match line.split():
                case ["listening", at]:
                    life.listening = life.listening or float(at)
                case ["image" | "published", at, *age]:
                    life.images.append(float(at))
                    life.ages += map(float, age)
                case _:
                    self.output.append(line.rstrip())

    def kill(self) -> None:
        """End the process with SIGKILL, whatever it does. Raises SystemExit with its output when it has ended by itself."""
        _alive(self)
        maps = Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8")
        self.segments |= {Path(line.split()[-1]) for line in maps.splitlines() if "/dev/shm/fast" in line}
        self.end()

    def end(self) -> None:
        """Let no process be left behind, whether it still runs or not."""
        if not self.lives:
            return
        self.lives[-1].ended = self.lives[-1].ended or time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()


@contextlib.contextmanager
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


def measure(transport: str, kills: int, load: int, seed: int, folder: Path) -> Row:
    """Kill and start receivers ``kills`` times."""
    chance = random.Random(seed)
    node = ["--ros-args", "-p"]
    with free_domain() as domain:
        environment = os.environ | dict.fromkeys(PROFILE_VARIABLES, str(TRANSPORTS[transport]))
        environment |= {
            "ROS_DOMAIN_ID": str(domain),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",
            "OMP_NUM_THREADS": "1",
            "RCUTILS_COLORIZED_OUTPUT": "0",
        }
        camera = Receiver("camera", ["camera", SIZE, str(RATE_HZ)], environment)
        receivers = [
            Receiver("detector", ["detector", *node, "autostart:=true", "-p", "passes:=2"], environment),
            Receiver("console", ["console", *node, "port:=0"], environment),
            Receiver(
                "recorder",
                ["recorder", *node, f"bag:={folder / 'bag'}", "-p", "number_if_exists:=true"],
                environment,
            ),
            Receiver("reliable subscription", ["subscriber", "reliable"], environment),
            Receiver("second reliable subscription", ["subscriber", "reliable"], environment),
            Receiver("best-effort subscription", ["subscriber", "best_effort"], environment),
        ]
        loads = []
        try:
            for receiver in (camera, *receivers):
                receiver.start()
            while not all(receiver.lives[0].images for receiver in (camera, *receivers)):
                _alive(camera, *receivers)
                time.sleep(0.1)
            with busy(load):
                for number in range(kills):
                    time.sleep(chance.uniform(*PAUSES_S))
                    victim = chance.choice(receivers)
                    victim.kill()
                    victim.start()
                    loads.append(os.getloadavg()[0])
                    print(f"\r{transport}, load {load}: {number + 1} of {kills}", end="", flush=True)
                time.sleep(10.0)  # whoever is deaf now has the time to show it
            for receiver in (camera, *receivers):
                receiver.kill()
        finally:
            for receiver in (camera, *receivers):
                receiver.end()
    print()
    mapped = set().union(*(receiver.segments for receiver in (camera, *receivers)))
    left = [file.stat().st_blocks * 512 for file in mapped if file.exists()]
    lives = [(receiver.name, life) for receiver in receivers for life in receiver.lives]
    firsts = [life.images[0] - life.listening for _, life in lives if life.listening and life.images]
    ages = [age for _, life in lives for age in life.ages]
    pauses = [
        (name, kind, round(seconds, 2))
        for name, life in lives
        for kind, seconds in life.pauses()
        if seconds > DEAF_S
    ]
    return Row(
        transport=transport,
        kills=kills,
        load=load,
        cores=os.cpu_count() or 0,
        mean_load=float(np.mean(loads)),
        pauses=sorted(pauses, key=lambda pause: -pause[2]),
        first_image_p50_s=float(np.median(firsts)),
        first_image_max_s=max(firsts),
        age_p50=float(np.median(ages)),
        age_p95=float(np.percentile(ages, 95)),
        publish_max=max(camera.lives[0].ages),
        segments_left=len(left),
        megabytes_left=sum(left) / 1e6,
    )


def _alive(*receivers: Receiver) -> None:
    for receiver in receivers:
        if receiver.process.poll() is not None:
            raise SystemExit("\n".join([f"{receiver.name} has ended by itself:", *receiver.output[-20:]]))


def table(rows: Sequence[Row]) -> str:
    """``rows`` in Markdown."""
    names = {"udp": "UDP", "shared_memory": "shared memory"}
    head = (
        "| transport | kills | load average | pauses > 2 s | longest, s | first image p50 / max, s | image age p50 / p95, ms "
        "| longest publish call, ms | segments left in /dev/shm |\n" + "|---" * 9 + "|"
    )
    lines = [
        f"| {names[row.transport]} | {row.kills} | {row.mean_load:.1f} | {len(row.pauses)} | "
        f"{row.pauses[0][2] if row.pauses else 0:g} | {row.first_image_p50_s:.2f} / {row.first_image_max_s:.2f} | "
        f"{row.age_p50:.0f} / {row.age_p95:.0f} | {row.publish_max:.0f} | "
        f"{row.segments_left} ({row.megabytes_left:.0f} MB) |"
        for row in rows
    ]
    return "\n".join([head, *lines])


def read(file: Path) -> list[Row]:
    """The rows in ``file``."""
    return [Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))]


def main(
    out: Annotated[
        Path | None, typer.Option(help="JSON file to which the row is added.", callback=checked_file)
    ] = None,
    transport: Annotated[str, typer.Option(help=" or ".join(TRANSPORTS))] = "udp",
    kills: Annotated[int, typer.Option(min=1)] = 300,
    load: Annotated[int, typer.Option(min=0, help="So many processes want a core beside.")] = 0,
    seed: Annotated[int, typer.Option()] = 1,
    print_: Annotated[Path | None, typer.Option("--print", help="Measure nothing, print this file.")] = None,
) -> None:
    """Measure, or print what was measured."""
    if print_ is not None:
        print(table(read(print_)))
        return
    if transport not in TRANSPORTS:
        raise typer.BadParameter(f"transport {transport!r}: expected {' or '.join(TRANSPORTS)}")
    rows = read(out) if out is not None and out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        row = measure(transport, kills, load, seed, Path(folder))
    print(table([row]))
    print(row.pauses)
    if out is not None:
        with atomic_write(out, "w") as file:
            json.dump([*map(asdict, rows), asdict(row)], file, indent=1)


if __name__ == "__main__":
    typer.run(main)

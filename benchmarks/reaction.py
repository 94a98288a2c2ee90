"""How long a fault leaves the gate open: ``python -m benchmarks.reaction --out out/reaction.json``.

Real processes (supervisor, detector with a perception that takes no time, arm) over DDS on this machine; the camera, the person
and the faults come from here. For the last rows the packaged detector takes the place of the other one: one picture among the
rendered lids that it is busy with. A fault begins when it can be observed: for a picture or a scene at its stamp, for silence
once the newest scene is older than ``max_scene_age`` allows, for a killed or hanging process when that is done. It ends with
the stamp of the first gate message that is closed; for a killed supervisor, whom nobody can hear, with the arm's last step.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rclpy.time import Time
from rich.console import Console
from rich.table import Table
from sensor_msgs.msg import Image

from sticker_uq.datasets.files import atomic_write
from sticker_uq.nodes.conversions import scene_to_msg, stamp_to_ns
from sticker_uq.nodes.images import bgr_to_image
from sticker_uq.nodes.processes import ProcessSpec, share_folder
from sticker_uq.nodes.simulation import SimulatedCell, SimulationSettings
from sticker_uq.supervision import Closed
from sticker_uq_msgs.msg import GateState
from test.faults.scripted_detector import STICKER
from test.helpers import ros
from test.helpers.assessments import assessment
from test.helpers.fault_cell import FaultCell, Seen

LEASE_S = 0.5
ARM_SILENCE_S = 0.25
LID_RATE_HZ = 5.0
REAL = "packaged detector"
MAX_SCENE_AGE_S = 2.0
LIMIT_MS = 300.0
SETTINGS = {"lease": LEASE_S, "max_scene_age": MAX_SCENE_AGE_S, "arm_silence": ARM_SILENCE_S}
PERCENTILES = (50, 95, 99)


class Reactions:
    """Runs one fault after the other in ``cell``; each method returns the milliseconds of one repetition."""

    def __init__(self, cell: FaultCell) -> None:
        self._cell = cell
        self._hung = False
        self._said = 0

    def _closed_ns(self, reason: Closed) -> int:
        self._cell.until(
            lambda: any(g.reasons & reason for g in self._heard()), f"a gate closed for {reason!r}"
        )
        first = next(g for g in self._heard() if not g.open)
        return stamp_to_ns(first.header.stamp)

    def _heard(self) -> list[GateState]:
        return self._cell.gates[self._said :]

    def _mark(self) -> None:
        self._said = len(self._cell.gates)

    def picture(self, seen: Seen, reason: Closed, **changes: Any) -> float:
        """From the stamp of one picture to the gate."""
        self._cell.camera.shows()
        image = self._cell.camera.picture(seen)
        for name, value in changes.items():
            setattr(image, name, value)
        self._mark()
        self._cell.camera.publish(image)
        return (self._closed_ns(reason) - stamp_to_ns(image.header.stamp)) / 1e6

    def late_stamp(self) -> float:
        """From the publication of a picture that is older than the one before it."""
        self._cell.camera.shows()
        image = self._cell.camera.picture(Seen.STICKER, stamp_ns=self._cell.now_ns() - 10**9)
        self._mark()
        start = self._cell.now_ns()
        self._cell.camera.publish(image)
        return (self._closed_ns(Closed.STAMP_ORDER) - start) / 1e6

    def unknown_status(self) -> float:
        """From the stamp of a scene whose status nobody knows."""
        publisher = self._cell.scene_publisher()
        message = scene_to_msg(assessment(STICKER, stamp_ns=self._cell.now_ns()))
        message.status = 200
        self._mark()
        publisher.publish(message)
        return (self._closed_ns(Closed.FAILED_SCENE) - stamp_to_ns(message.header.stamp)) / 1e6

    def silence(self, cause: Callable[[], None]) -> float:
        """From the time at which the newest scene became too old."""
        self._mark()
        cause()
        closed = self._closed_ns(Closed.STALE_SCENE)
        newest = max(stamp_to_ns(scene.header.stamp) for scene in self._cell.scenes)
        return (closed - newest) / 1e6 - MAX_SCENE_AGE_S * 1e3

    def person(self) -> float:
        """From the call of the service ``hold``."""
        self._mark()
        start = self._cell.now_ns()
        self._cell.hold(True)
        closed = self._closed_ns(Closed.HELD)
        self._cell.hold(False)
        return (closed - start) / 1e6

    def killed_supervisor(self) -> float:
        """From the kill to the last step of the arm."""
        cell = self._cell
        killed = cell.gates[-1].supervisor
        start = cell.now_ns()
        cell.kill("supervisor")
        cell.until(lambda: cell.gates[-1].supervisor != killed, "the next supervisor")
        last = next(g for g in reversed(cell.gates) if g.supervisor == killed)
        moved = [stamp_to_ns(s.header.stamp) for s in cell.steps if s.decision_id == last.decision_id]
        return max(0.0, (max(moved) - start) / 1e6)

    def killed_arm(self) -> float:
        """From the kill to the gate; an arm that is dead does not move."""
        cell = self._cell
        before = cell.arm_servers()
        self._mark()
        start = cell.now_ns()
        cell.kill("arm")
        closed = self._closed_ns(Closed.ARM_FAILED)
        cell.until(lambda: len(cell.arm_servers()) == 1 and cell.arm_servers() != before, "the next arm")
        cell.quiet()
        cell.hold(False)
        return (closed - start) / 1e6

    def hanging_arm(self) -> float:
        """From the moment at which the arm runs no further to the gate."""
        cell = self._cell
        self._mark()
        start = cell.now_ns()
        cell.stop("arm", True)
        try:
            return (self._closed_ns(Closed.ARM_FAILED) - start) / 1e6
        finally:
            cell.stop("arm", False)

    def classes(self) -> dict[str, tuple[Callable[[], float], int, str]]:
        """Name of the fault to how it is done, the share of the repetitions it gets, and since when it counts."""
        camera = self._cell.camera
        stamp, silent = "stamp of the picture", f"newest scene older than {MAX_SCENE_AGE_S:g} s"
        return {
            "NaN in the scene": (lambda: self.picture(Seen.NAN, Closed.IMPLAUSIBLE_SCENE), 1, stamp),
            "perception raises": (lambda: self.picture(Seen.CRASH, Closed.FAILED_SCENE), 1, stamp),
            "wrong encoding": (
                lambda: self.picture(Seen.STICKER, Closed.FAILED_SCENE, encoding="nonsense"),
                1,
                stamp,
            ),
            "reordered stamps": (self.late_stamp, 1, "publication of the picture"),
            "unknown enumeration": (self.unknown_status, 1, "stamp of the scene"),
            "hold by a person": (self.person, 1, "call of the service"),
            "camera stall": (lambda: self.silence(camera.shows), 2, silent),
            "detector hang": (lambda: self.silence(self._hang), 4, silent),
            "detector killed": (lambda: self.silence(lambda: self._cell.kill("detector")), 4, silent),
            "supervisor killed": (
                self.killed_supervisor,
                10,
                f"kill; the arm's last step, lease {LEASE_S:g} s",
            ),
            "arm killed": (self.killed_arm, 4, f"kill; silence of {ARM_SILENCE_S:g} s counts"),
            "arm hangs": (self.hanging_arm, 4, f"SIGSTOP; silence of {ARM_SILENCE_S:g} s counts"),
        }

    def _hang(self) -> None:
        self._hung = True
        self._cell.camera.shows(Seen.HANG)

    def recover(self) -> None:
        """Bring the arm to move again."""
        cell = self._cell
        if self._hung:
            self._hung = False
            cell.kill("detector")
        cell.quiet()  # the supervisor asks a person after a number of stops
        cell.hold(False)
        cell.works()


class RealCell(FaultCell):
    """The same cell with the packaged detector, which looks at rendered lids."""

    def node(self, name: str) -> ProcessSpec:
        """The packaged detector, the scripted arm."""
        if name != "detector":
            return super().node(name)
        packaged = share_folder() / "config" / "cell.yaml"
        return ProcessSpec("detector", "detector", "", packaged, {"autostart": True})

    def film(self) -> None:
        """Show lids from now on; the detector is always busy with one."""
        simulated = SimulatedCell(SimulationSettings())
        self._lids = itertools.cycle([simulated.picture() for _ in range(10)])
        self._shows = True
        self.bench.probe.create_timer(1.0 / LID_RATE_HZ, self._show)
        self.until(lambda: len(self.scenes) >= 3, "scenes of the packaged detector")

    def _show(self) -> None:
        if self._shows:
            self.camera.publish(self.lid(next(self._lids)))

    def lid(self, picture: Any, **changes: Any) -> Image:
        """``picture`` as an image taken now."""
        stamp = Time(nanoseconds=self.now_ns()).to_msg()
        image = bgr_to_image(picture, stamp, "camera")
        for name, value in changes.items():
            setattr(image, name, value)
        return image

    def one(self, reason: Closed, dark: bool, **changes: Any) -> float:
        """From the stamp of one picture among others to the first gate message that is closed for its ``reason``; ms."""
        seen = len(self.scenes)
        self.until(
            lambda: len(self.scenes) > seen, "a scene"
        )  # the detector begins with the next picture now
        self.until(lambda: not self.gates[-1].reasons & reason, "a gate without that reason")
        picture = next(self._lids)
        said = len(self.gates)
        image = self.lid(picture * 0 if dark else picture, **changes)
        self.camera.publish(image)
        self._shows = False  # a newer picture would take its place

        def closed() -> GateState | None:
            return next((g for g in self.gates[said:] if g.reasons & reason), None)

        gate = self.until(closed, f"a gate closed for {reason!r}")
        self._shows = True
        return (stamp_to_ns(gate.header.stamp) - stamp_to_ns(image.header.stamp)) / 1e6


def measure_real(cell: RealCell, repetitions: int, console: Console) -> list[dict[str, Any]]:
    """The rows of the packaged detector."""
    cell.film()
    since = f"stamp of the picture; {REAL}"
    rows = [
        _row("black picture", since, [cell.one(Closed.EXPOSURE, True) for _ in range(repetitions)]),
        _row(
            "wrong encoding",
            since,
            [cell.one(Closed.FAILED_SCENE, False, encoding="nonsense") for _ in range(repetitions)],
        ),
    ]
    for row in rows:
        console.print(f"{row['fault']}, packaged detector: {row['max']:.0f} ms at most")
    return rows


def _row(fault: str, since: str, values: list[float]) -> dict[str, Any]:
    percentiles = {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES}
    return {"fault": fault, "since": since, "repetitions": len(values), **percentiles, "max": max(values)}


def measure(cell: FaultCell, repetitions: int, console: Console, wanted: list[str]) -> list[dict[str, Any]]:
    """One row per class of faults; with ``wanted`` only of these."""
    reactions, rows = Reactions(cell), []
    for name, (one, share, since) in reactions.classes().items():
        if wanted and name not in wanted:
            continue
        values = []
        for _ in range(max(3, repetitions // share)):
            reactions.recover()
            values.append(one())
        console.print(f"{name}: {len(values)} repetitions, {max(values):.0f} ms at most")
        rows.append(_row(name, since, values))
    reactions.recover()
    cell.check_motion()
    cell.check_audit()
    return rows


def main(
    out: Annotated[Path, typer.Option(help="JSON file of the figures.")] = Path("out/reaction.json"),
    repetitions: Annotated[int, typer.Option(min=3, help="Of the quick faults; slow ones get fewer.")] = 50,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="Only this row, e.g. 'arm killed' or 'packaged detector'; may be repeated."),
    ] = None,
) -> None:
    """Measure, write the figures and print them as a table."""
    console = Console(stderr=True)
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROS_LOG_DIR"] = folder
        with (
            ros.bench() as bench,
            FaultCell(bench, Path(folder) / "scripted", **SETTINGS) as cell,
        ):
            rows = [] if fault == [REAL] else measure(cell, repetitions, console, fault or [])
        os.environ["ROS_DOMAIN_ID"] = str(1 + int(os.environ["ROS_DOMAIN_ID"]) % 100)
        if not fault or REAL in fault:
            with ros.bench() as bench, RealCell(bench, Path(folder) / "real", **SETTINGS) as cell:
                rows += measure_real(cell, repetitions, console)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out, "w") as file:
        json.dump(
            {"machine": machine, "time": time.time(), "limit_ms": LIMIT_MS, "rows": rows}, file, indent=1
        )
    table = Table(title=f"Milliseconds until the gate is closed ({machine})")
    for column in ("fault", "counted from", "n", "p50", "p95", "p99", "max"):
        table.add_column(column, justify="left" if column in ("fault", "counted from") else "right")
    for row in rows:
        numbers = [f"{row[name]:.0f}" for name in ("p50", "p95", "p99", "max")]
        table.add_row(row["fault"], row["since"], str(row["repetitions"]), *numbers)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)

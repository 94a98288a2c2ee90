# SPDX-License-Identifier: Apache-2.0
"""How long a fault leaves the gate open: ``python -m benchmarks.reaction --out out/reaction.json``.

Real processes (supervisor, detector with a perception that takes no time, arm) over DDS on this machine, with the settings of a
cell (the defaults); the camera, the person and the faults come from here. For the rows of the packaged detector that one takes
the place of the other: one bad picture among rendered lids, which come faster than it can look at them. A fault begins when it
is done or can be observed: for a picture or a scene at its stamp or publication, for silence once the newest scene is older
than ``max_scene_age_s`` allows, for a process when it is killed or stopped. It ends with the stamp of the first gate message that
is closed; where the supervisor itself is hit, with the moment at which the arm stops; where the clock jumps, with the arrival
of that message.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.reaction_faults import FAULTS, Reactions, clock_jump
from benchmarks.reaction_real import PICTURES, RealCell
from benchmarks.result_files import checked_file
from sticker_uq.cell.domain import free_domain
from sticker_uq.cell.supervisor_settings import SupervisorNodeSettings
from sticker_uq.io.files import atomic_write
from sticker_uq.testing.bench import Bench, running_bench
from sticker_uq.testing.clock import SimulatedClock
from sticker_uq.testing.fault_cell import SUPERVISOR, FaultCell

DEFAULTS = SupervisorNodeSettings()
TIMES = ("lease_s", "max_scene_age_s", "arm_heartbeat_timeout_s", "accept_timeout_s", "cancel_timeout_s")
SETTINGS = {name: getattr(DEFAULTS, name) for name in TIMES if name in SUPERVISOR}
JUMPS = {"clock jumps back": -60.0, "clock jumps forward": 60.0}
REAL = "packaged detector: "
LIMIT_MS = 300.0
PERCENTILES = (50, 95, 99)
Row = dict[str, Any]
C = TypeVar("C", bound=FaultCell)


def _row(fault: str, since: str, values: list[float]) -> Row:
    percentiles = {f"p{p}": float(np.percentile(values, p)) for p in PERCENTILES}
    load = os.getloadavg()[0]
    return {
        "fault": fault,
        "since": since,
        "repetitions": len(values),
        **percentiles,
        "max": max(values),
        "load": load,
        "values": values,
    }


@contextmanager
def _bench(cell: Callable[[Bench], C]) -> Iterator[C]:
    """A cell on a domain of its own."""
    with free_domain() as domain:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        with running_bench() as bench, cell(bench) as made:
            yield made


def measure(folder: Path, repetitions: int, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """The rows of the perception that takes no time."""
    with _bench(lambda bench: FaultCell(bench, folder, **SETTINGS)) as cell:
        reactions = Reactions(cell, DEFAULTS.max_scene_age_s)
        for name, fault in FAULTS.items():
            if not wanted(name):
                continue
            values = []
            for _ in range(max(3, repetitions // fault.share)):
                reactions.recover()
                values.append(fault.once(reactions))
            yield _row(name, fault.since, values)
        reactions.recover()
        cell.check_motion()
        cell.check_audit()


def measure_clock(folder: Path, repetitions: int, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """The rows of a simulated clock that jumps."""
    clocks: list[SimulatedClock] = []

    def clocked(bench: Bench) -> FaultCell:
        clocks.append(SimulatedClock(bench))
        clocks[0].runs = True
        return FaultCell(bench, folder, now_ns=clocks[0].now_ns, namespace="clocked", **SETTINGS)

    with _bench(clocked) as cell:
        for name, seconds in JUMPS.items():
            if wanted(name):
                values = [clock_jump(cell, clocks[0], seconds) for _ in range(max(3, repetitions // 4))]
                yield _row(name, "the jump", values)


def measure_real(folder: Path, repetitions: int, wanted: Callable[[str], bool]) -> Iterator[Row]:
    """The rows of the packaged detector."""
    with _bench(lambda bench: RealCell(bench, folder, **SETTINGS)) as cell:
        cell.film()
        for name in PICTURES:
            if wanted(REAL + name):
                yield _row(REAL + name, "its publication", [cell.reaction(name) for _ in range(repetitions)])


def write(out: Path, rows: list[Row]) -> None:
    """Keep what was measured so far."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    figures = {
        "machine": machine,
        "time": time.time(),
        "limit_ms": LIMIT_MS,
        "settings": SETTINGS,
        "rows": rows,
    }
    with atomic_write(out, "w") as file:
        json.dump(figures, file, indent=1)


def main(
    out: Annotated[Path, typer.Option(help="JSON file of the figures.", callback=checked_file)] = Path(
        "out/reaction.json"
    ),
    repetitions: Annotated[int, typer.Option(min=3, help="Of the quick faults; slow ones get fewer.")] = 40,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="Only rows whose name begins so, e.g. 'arm' or 'packaged detector'; may be repeated."
        ),
    ] = None,
) -> None:
    """Measure, write the figures after each row and print them as a table."""
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    rows: list[Row] = []

    def wanted(name: str) -> bool:
        return not fault or name.startswith(tuple(fault))

    names = (
        (measure, list(FAULTS)),
        (measure_clock, list(JUMPS)),
        (measure_real, [REAL + name for name in PICTURES]),
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROS_LOG_DIR"] = folder
        for part, known in names:
            if not any(map(wanted, known)):
                continue
            for row in part(Path(folder) / part.__name__, repetitions, wanted):
                rows.append(row)
                write(out, rows)
                Console(stderr=True).print(f"{row['fault']}: {row['max']:.0f} ms at most")
    table = Table(
        title=f"Milliseconds until the gate is closed ({platform.machine()}, {os.cpu_count()} cores)"
    )
    for column in ("fault", "counted from", "n", "p50", "p95", "p99", "max", "load"):
        table.add_column(column, justify="left" if column in ("fault", "counted from") else "right")
    for row in rows:
        numbers = [f"{row[name]:.0f}" for name in ("p50", "p95", "p99", "max", "load")]
        table.add_row(row["fault"], row["since"], str(row["repetitions"]), *numbers)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)

# SPDX-License-Identifier: Apache-2.0
"""How old an image is when its scene is published: real processes over DDS, a camera, the detector and somebody who listens.

    python -m benchmarks.latency --json FILE      all combinations, some 12 minutes; again, it goes on where it was ended
    python -m benchmarks.latency --print FILE     what is in the file, as a table
    python -m benchmarks.latency --rates 15 --sizes 1280x960 --transports profile --seconds 20
    python -m benchmarks.latency --busy 0 4       beside no other and beside four busy processes: results/latency_busy.json

Per combination of rate, size, transport of images (raw, compressed), reliability and Fast DDS's transport: the age of the image
when its scene is received (p50, p95, p99); of the sent images the share that arrived at the detector, how many it reported as
lost and how many as skipped (replaced before it took them, or dropped by the camera), the share that was assessed; the
detector's processor time per second, the network's own time and what the detector adds to it (`overhead_ms` of its
diagnostics). Beside that, while the model is busy: the 95th percentile of the answers of get_parameters and get_state, and the
longest pause between two diagnostics beyond their second. The transports: `profile` is what the launch files set (UDP with large
buffers), `default` is Fast DDS's own, `large_data` is LARGE_DATA with the options that images need; the last two are
measured with --other-sizes only. With --busy N as many processes that only compute run meanwhile (`beside`); `load` is that of
the whole machine, whoever makes it. A line that ends with LOST WITHOUT A WORD had images that neither arrived nor were reported.

The combinations of one transport share three processes: between two of them the detector is deactivated, which sets its counts
to zero, and the camera's publisher is made anew.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.cell.transport import PROFILE_VARIABLES, free_domain, transport_environment
from sticker_uq.io.files import atomic_write
from sticker_uq.perception.settings import MODEL_STAGES

LARGE_DATA = "LARGE_DATA?max_msg_size=1MB&sockets_size=8MB&non_blocking=true"
WARM_UP_S = 1.0
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Ends with the process that started it, however that ends."""
ORDER = ("profile", "default", "large_data")
HEAD = (
    "| beside | transport | size | images | reliability | Hz | arrived | reported lost | skipped | used "
    "| age p50 / p95 / p99, ms | model, ms | overhead, ms | cores | parameters / lifecycle / diagnostics, ms | load |\n"
    + "|---" * 16
    + "|"
)


@dataclass(frozen=True)
class Case:
    """One combination."""

    rate: float
    width: int
    height: int
    images: str
    reliability: str
    transport: str
    busy: int = 0
    """Processes beside it that only compute."""


@dataclass(frozen=True)
class Row:
    """What was measured; times are ms, shares of the images sent, ``cpu`` processor seconds per second, NaN without scenes."""

    case: Case
    sent: int
    arrived: float
    lost: int
    skipped: int | None
    used: float
    age_p50: float
    age_p95: float
    age_p99: float
    model_ms: float
    overhead_ms: float
    cpu: float
    parameters_ms: float
    lifecycle_ms: float
    diagnostics_ms: float
    silent: bool
    load: float
    seconds: float


def main() -> None:
    """Measure the combinations that are not in the file yet, or print those that are."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this ends the processes too
    if arguments.print:
        print(table(read(arguments.print)))
        return
    rows = read(arguments.json) if arguments.json and arguments.json.exists() else []
    known = {row.case for row in rows if row.seconds == arguments.seconds}
    wanted = [case for case in _cases(arguments) if case not in known]
    print(
        f"{len(wanted)} combinations, {arguments.seconds:g} s each; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f} at the start\n\n{HEAD}",
        flush=True,
    )
    for transport, cases in itertools.groupby(wanted, lambda case: case.transport):
        with Session(transport, arguments.seconds, arguments.sizes + arguments.other_sizes) as session:
            for case in cases:
                rows.append(session.measure(case))
                print(_line(rows[-1]), flush=True)
                if arguments.json:
                    with atomic_write(arguments.json, "w") as stream:
                        json.dump([asdict(row) for row in rows], stream, indent=2)


def _cases(arguments: argparse.Namespace) -> list[Case]:
    return [
        Case(rate, *pixels(size), images, reliability, transport, busy)
        for transport in arguments.transports
        for size, images, reliability, rate, busy in itertools.product(
            arguments.sizes if transport == "profile" else arguments.other_sizes,
            arguments.images,
            arguments.reliabilities,
            arguments.rates,
            arguments.busy,
        )
    ]


def pixels(size: str) -> tuple[int, int]:
    """Width and height of ``WIDTHxHEIGHT``."""
    width, height = map(int, size.split("x"))
    return width, height


def read(file: Path) -> list[Row]:
    """The rows in ``file``. Raises SystemExit when there are none."""
    try:
        return [Row(**{**row, "case": Case(**row["case"])}) for row in json.loads(file.read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(f"{file}: expected rows of this benchmark: {error}") from None


def table(rows: Sequence[Row]) -> str:
    """``rows`` as a table in Markdown, in the order of their combinations; of several of one combination the last."""
    newest = {row.case: row for row in rows}
    order = sorted(
        newest,
        key=lambda c: (
            ORDER.index(c.transport),
            c.width,
            c.images == "compressed",
            c.reliability,
            c.rate,
            c.busy,
        ),
    )
    return "\n".join([HEAD, *(_line(newest[case]) for case in order)])


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--rates", type=float, nargs="*", default=[5.0, 15.0, 30.0])
    parser.add_argument("--sizes", nargs="*", default=["640x480", "1280x960", "1920x1080"])
    parser.add_argument("--other-sizes", nargs="*", default=["1280x960"], help="of transports but profile")
    parser.add_argument("--images", nargs="*", default=["raw", "compressed"], choices=("raw", "compressed"))
    parser.add_argument(
        "--reliabilities", nargs="*", default=["best_effort", "reliable"], choices=("best_effort", "reliable")
    )
    parser.add_argument("--transports", nargs="*", default=list(ORDER), choices=ORDER)
    parser.add_argument(
        "--busy",
        type=_busy,
        nargs="*",
        default=[0],
        metavar="N",
        help="processes that only compute beside it",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each combination")
    parser.add_argument(
        "--json", type=result_file, help="where rows are kept; those that are there are not repeated"
    )
    parser.add_argument("--print", type=Path, metavar="FILE", help="measure nothing, print what is in FILE")
    return parser.parse_args()


def _busy(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected how many processes, 0 for none")
    return int(text)


def environment_of(transport: str) -> dict[str, str]:
    """The variables of every process of a combination."""
    plain = {
        k: v for k, v in os.environ.items() if k not in (*PROFILE_VARIABLES, "FASTDDS_BUILTIN_TRANSPORTS")
    }
    plain |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    if transport == "profile":
        return plain | transport_environment(plain)
    return plain | ({"FASTDDS_BUILTIN_TRANSPORTS": LARGE_DATA} if transport == "large_data" else {})


class Session:
    """The three processes of the combinations with one transport; a context manager."""

    def __init__(self, transport: str, seconds: float, sizes: Sequence[str]) -> None:
        self._transport, self._seconds, self._sizes = transport, seconds, sorted(set(sizes))
        self._processes = ExitStack()

    def __enter__(self) -> Session:
        start = self._processes.enter_context
        environment = environment_of(self._transport) | {"ROS_DOMAIN_ID": str(start(free_domain()))}
        given = ["-p", "autostart:=true", "-p", "device:=cpu"]
        detector = [sys.executable, "-m", "sticker_uq.nodes", "detector", "--ros-args", *given]
        listener = [sys.executable, "-m", "benchmarks.latency_listener", str(self._seconds), str(WARM_UP_S)]
        camera = [sys.executable, "-m", "benchmarks.latency_camera", *self._sizes]
        self._node = psutil.Process(start(_process(detector, environment)).pid)
        self._listener = start(_process(listener, environment))
        self._camera = start(_process(camera, environment))
        _line_with(self._camera, "ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def measure(self, case: Case) -> Row:
        """One combination. Raises SystemExit when a process has ended."""
        with ExitStack() as load:
            for _ in range(case.busy):
                load.enter_context(_process([sys.executable, "-c", BUSY], dict(os.environ)))
            return self._measured(case)

    def _measured(self, case: Case) -> Row:
        text = json.dumps(asdict(case))
        _tell(self._listener, text)
        _line_with(self._listener, "ready")
        _tell(self._camera, text)
        _line_with(self._camera, "sending")
        _tell(self._listener, "it has begun")
        _line_with(self._listener, "measuring")
        before, started = self._node.cpu_times(), time.monotonic()
        heard = json.loads(_line_with(self._listener, "{"))
        after, lasted = self._node.cpu_times(), time.monotonic() - started
        _tell(self._camera, "enough")
        sent = json.loads(_line_with(self._camera, "["))
        cpu = (after.user + after.system - before.user - before.system) / lasted
        return _row(case, heard, sent, cpu, self._seconds)


def _row(case: Case, heard: dict[str, Any], sent: list[int], cpu: float, seconds: float) -> Row:
    first, last = heard["window"]
    stamps = [stamp for stamp in sent if first <= stamp < last]
    ages = {int(stamp): age for stamp, age in heard["ages"].items()}
    used = [ages[stamp] for stamp in stamps if stamp in ages]
    models = [sum(t.get(stage, 0.0) for stage in MODEL_STAGES) for t in heard["timings"]]
    overheads = [float(v) for v in heard["overheads"] if v != "n/a"]
    accounted = heard["received"] + heard["lost"] + (heard["skipped"] or 0)
    p50, p95, p99 = np.percentile(used, [50, 95, 99]) if used else [np.nan] * 3
    return Row(
        case=case,
        sent=len(stamps),
        arrived=heard["received"] / max(len(stamps), 1),
        lost=heard["lost"],
        skipped=heard["skipped"],
        used=len(used) / max(len(stamps), 1),
        age_p50=float(p50),
        age_p95=float(p95),
        age_p99=float(p99),
        model_ms=median(models) if models else float("nan"),
        overhead_ms=median(overheads) if overheads else float("nan"),
        cpu=cpu,
        parameters_ms=_slow(heard["parameters_ms"]),
        lifecycle_ms=_slow(heard["lifecycle_ms"]),
        diagnostics_ms=heard["diagnostics_ms"],
        silent=accounted < 0.9 * len(stamps) and not heard["complained"],
        load=os.getloadavg()[0],
        seconds=seconds,
    )


def _slow(times: list[float]) -> float:
    return float(np.percentile(times, 95)) if times else float("nan")


def _line(row: Row) -> str:
    case = row.case
    cells = (
        f"{case.busy} busy" if case.busy else "none",
        case.transport,
        f"{case.width}x{case.height}",
        case.images,
        case.reliability.replace("_", " "),
        f"{case.rate:g}",
        f"{row.arrived:.0%}",
        str(row.lost),
        "n/a" if row.skipped is None else str(row.skipped),
        f"{row.used:.0%}",
        _rounded(row.age_p50, row.age_p95, row.age_p99),
        _rounded(row.model_ms),
        _rounded(row.overhead_ms, digits=1),
        f"{row.cpu:.2f}",
        _rounded(row.parameters_ms, row.lifecycle_ms, row.diagnostics_ms),
        f"{row.load:.0f}",
    )
    return f"| {' | '.join(cells)} |{' LOST WITHOUT A WORD' if row.silent else ''}"


def _rounded(*values: float, digits: int = 0) -> str:
    return " / ".join("-" if math.isnan(value) else f"{value:.{digits}f}" for value in values)


@contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _line_with(process: subprocess.Popen[str], start: str) -> str:
    """The next line of output that begins with ``start``; whoever writes it has a deadline of its own."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line
    raise SystemExit(f"a process ended without a line {start!r}: {process.args!r}")


if __name__ == "__main__":
    main()

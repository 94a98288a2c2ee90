"""How old an image is when its scene is published: real processes over DDS, a camera, the detector and somebody who listens.

    python -m benchmarks.latency                                        all combinations, some 25 minutes
    python -m benchmarks.latency --rates 15 --sizes 1280x960 --transports profile --seconds 20

Per combination of rate, size, transport of images (raw, compressed), reliability and Fast DDS's transport: the age of the image
when its scene is received (p50, p95, p99), the share of the sent images that arrived at the detector, how many it reported as
lost, the share that was assessed, the detector's processor time per second, the network's own time and what the detector adds to
it (`overhead_ms` of its diagnostics). Beside that, while the model is busy: the 95th percentile of the answers of get_parameters
and get_state, and the longest pause between two diagnostics beyond their second. The transports: `profile` is what the launch
files set (64 MiB of shared memory), `default` is Fast DDS's own, `large_data` is LARGE_DATA with the options that images need.
A line that ends with LOST WITHOUT A WORD had images that neither arrived nor were reported.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from sticker_uq.datasets.files import atomic_write
from sticker_uq.nodes.processes import transport_environment
from sticker_uq.perception.stages import MODEL_STAGES

PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
LARGE_DATA = "LARGE_DATA?max_msg_size=1MB&sockets_size=8MB&non_blocking=true"
WARM_UP_S = 3.0


@dataclass(frozen=True)
class Case:
    """One combination."""

    rate: float
    width: int
    height: int
    images: str
    reliability: str
    transport: str


@dataclass(frozen=True)
class Row:
    """What was measured; times are ms, shares of the images sent, ``cpu`` processor seconds per second, NaN without scenes."""

    case: Case
    sent: int
    arrived: float
    lost: int
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


def main() -> None:
    """Measure the combinations, print one line each."""
    arguments = _arguments()
    cases = [
        Case(rate, *map(int, size.split("x")), images, reliability, transport)
        for size, transport, images, reliability, rate in itertools.product(
            arguments.sizes,
            arguments.transports,
            arguments.images,
            arguments.reliabilities,
            arguments.rates,
        )
    ]
    load = os.getloadavg()[0]
    print(
        f"{len(cases)} combinations, {arguments.seconds:g} s each; {os.cpu_count()} cores, load {load:.1f} at the start\n"
    )
    print(
        "| Hz | size | images | reliability | transport | arrived | reported lost | used | age p50 / p95 / p99, ms "
        "| model, ms | overhead, ms | cores | parameters / lifecycle / diagnostics, ms | load |"
    )
    print("|---" * 14 + "|", flush=True)
    rows = []
    for case in cases:
        row = measure(case, arguments.seconds)
        rows.append(row)
        print(_line(row), flush=True)
    if arguments.json:
        with atomic_write(arguments.json, "w") as stream:
            json.dump([asdict(row) for row in rows], stream, indent=2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=float, nargs="*", default=[5.0, 15.0, 30.0])
    parser.add_argument("--sizes", nargs="*", default=["640x480", "1280x960", "1920x1080"])
    parser.add_argument("--images", nargs="*", default=["raw", "compressed"], choices=("raw", "compressed"))
    parser.add_argument(
        "--reliabilities", nargs="*", default=["best_effort", "reliable"], choices=("best_effort", "reliable")
    )
    parser.add_argument(
        "--transports",
        nargs="*",
        default=["profile", "default", "large_data"],
        choices=("profile", "default", "large_data"),
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each combination")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def environment_of(transport: str) -> dict[str, str]:
    """The variables of every process of a combination."""
    plain = {
        k: v for k, v in os.environ.items() if k not in (*PROFILE_VARIABLES, "FASTDDS_BUILTIN_TRANSPORTS")
    }
    plain |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    if transport == "profile":
        return plain | transport_environment(plain)
    return plain | ({"FASTDDS_BUILTIN_TRANSPORTS": LARGE_DATA} if transport == "large_data" else {})


def measure(case: Case, seconds: float) -> Row:
    """One combination in processes of its own."""
    # above those that the tests use
    domain = str(216 + os.getpid() % 16)
    environment = environment_of(case.transport) | {"ROS_DOMAIN_ID": domain}
    parameters = {"autostart": "true", "image_transport": case.images, "device": "cpu"}
    given = [part for name, value in parameters.items() for part in ("-p", f"{name}:={value}")]
    detector = [sys.executable, "-m", "sticker_uq.nodes", "detector", "--ros-args", *given]
    with _process(detector, environment) as node:
        listener = [sys.executable, "-m", "benchmarks.latency_listener", str(seconds), str(WARM_UP_S)]
        with _process(listener, environment) as ears:
            _line_with(ears, "ready")
            camera = [sys.executable, "-m", "benchmarks.latency_camera", json.dumps(asdict(case))]
            with _process(camera, environment) as eyes:
                _line_with(ears, "measuring")
                busy = psutil.Process(node.pid)
                before, started = busy.cpu_times(), time.monotonic()
                heard = json.loads(_line_with(ears, "{"))
                after, lasted = busy.cpu_times(), time.monotonic() - started
                eyes.send_signal(signal.SIGTERM)
                sent = json.loads(_line_with(eyes, "["))
    cpu = (after.user + after.system - before.user - before.system) / lasted
    return _row(case, heard, sent, cpu)


def _row(case: Case, heard: dict[str, Any], sent: list[int], cpu: float) -> Row:
    first, last = heard["window"]
    stamps = [stamp for stamp in sent if first <= stamp < last]
    ages = {int(stamp): age for stamp, age in heard["ages"].items()}
    used = [ages[stamp] for stamp in stamps if stamp in ages]
    models = [sum(t.get(stage, 0.0) for stage in MODEL_STAGES) for t in heard["timings"]]
    overheads = [float(v) for v in heard["overheads"] if v != "n/a"]
    p50, p95, p99 = np.percentile(used, [50, 95, 99]) if used else [np.nan] * 3
    return Row(
        case=case,
        sent=len(stamps),
        arrived=heard["received"] / max(len(stamps), 1),
        lost=heard["lost"],
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
        silent=bool(stamps) and heard["received"] < 0.9 * len(stamps) and not heard["complained"],
    )


def _slow(times: list[float]) -> float:
    return float(np.percentile(times, 95)) if times else float("nan")


def _line(row: Row) -> str:
    case = row.case
    return (
        f"| {case.rate:g} | {case.width}x{case.height} | {case.images} | {case.reliability} | {case.transport} "
        f"| {row.arrived:.0%} | {row.lost} | {row.used:.0%} | {row.age_p50:.0f} / {row.age_p95:.0f} / {row.age_p99:.0f} "
        f"| {row.model_ms:.0f} | {row.overhead_ms:.1f} | {row.cpu:.2f} "
        f"| {row.parameters_ms:.0f} / {row.lifecycle_ms:.0f} / {row.diagnostics_ms:.0f} "
        f"| {os.getloadavg()[0]:.0f} |{' LOST WITHOUT A WORD' if row.silent else ''}"
    )


@contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _line_with(process: subprocess.Popen[str], start: str) -> str:
    """The next line of output that begins with ``start``; whoever writes it has a deadline of its own."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line
    raise SystemExit(f"a process ended without a line {start!r}: {process.args}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""`python -m test.fuzz --minutes N [--target T]`: random inputs for N minutes, each target in a process with limits.

Says how many inputs were tried. Exits with 1 when there are findings, and writes their inputs to `--out`: kept below
`test/fuzz/seeds/TARGET/`, they become tests.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis

from test.fuzz.targets import TARGETS, Target, tried

MEMORY = 3 << 30
"""Bytes of address space that reading may add to what Python and the libraries have. A picture of the largest size has 0.8 GB."""
PROCESSOR_S = 10.0
"""Seconds of processor time that one input may take."""
SILENT_S = 120.0
"""Seconds after which an input that is still being read counts as endless."""
FILE = 256 << 20
"""Bytes of a file that may be written."""
ROUND = 100
_INPUT = "input.bin"


@dataclass
class Result:
    """What came of one target: numbers of inputs, and the text of each finding by the place it comes from."""

    tried: int = 0
    taken: int = 0
    slowest_s: float = 0.0
    findings: dict[str, str] = field(default_factory=dict)


class TooSlow(Exception):
    """An input took longer than any may."""


def explore(target: Target, seed: int, folder: Path, result: Result, examples: int = ROUND) -> None:
    """Try ``examples`` random inputs of ``target``. The input at hand is kept in ``folder``: the process may not survive it."""

    @hypothesis.seed(seed)
    @hypothesis.given(target.inputs())
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    def run(data: bytes) -> None:
        (folder / _INPUT).write_bytes(data)
        began = time.process_time()
        result.tried += 1
        result.taken += tried(target, data, folder / "read")
        took = time.process_time() - began
        result.slowest_s = max(result.slowest_s, took)
        if took > PROCESSOR_S:
            raise TooSlow(f"{took:.1f} s of processor time, expected at most {PROCESSOR_S:.0f} s")

    try:
        run()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        place = place_of(error)
        if place not in result.findings:
            result.findings[place] = "".join(traceback.format_exception(error)[-12:])
            digest = hashlib.sha256((folder / _INPUT).read_bytes()).hexdigest()[:12]
            (folder / _INPUT).rename(folder / f"finding-{digest}.bin")


def place_of(error: BaseException) -> str:
    """The kind of ``error`` and the last line of the package that it passed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "sticker_uq" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
    return f"{type(error).__name__} at {where}"


def _child(name: str, seconds: float, seed: int, folder: Path) -> None:
    """Explore for ``seconds`` within the limits; a line of JSON after each round."""
    target, result, rng = TARGETS[name], Result(), random.Random(seed)
    tried(target, b"", folder / "read")  # imports what it needs
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        explore(target, rng.getrandbits(32), folder, result)
        print(json.dumps(vars(result)), flush=True)


def campaign(name: str, seconds: float, seed: int, out: Path) -> Result:
    """Explore one target in a process of its own for ``seconds``; findings go to ``out``/NAME."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        command = [sys.executable, "-m", "test.fuzz", "--child", name, str(seconds), str(seed), place]
        with (folder / "said").open("wb") as said, (folder / "errors").open("wb") as errors:
            process = subprocess.Popen(command, stdout=said, stderr=errors)
            end = time.monotonic() + seconds + SILENT_S
            problem = ""
            while process.poll() is None and not problem:
                time.sleep(0.2)
                if time.monotonic() > end:
                    process.kill()
                    problem = f"still reading after {SILENT_S:.0f} s"
            code = process.wait()
        lines = (folder / "said").read_text().splitlines()
        result = Result(**json.loads(lines[-1])) if lines else Result()
        if code and not problem:
            problem = f"the process ended with {code}"
        if problem:
            result.findings[problem] = (folder / "errors").read_text(errors="replace")[-3000:]
            if (folder / _INPUT).exists():
                (folder / _INPUT).rename(folder / "finding-fatal.bin")
        for file in folder.glob("finding-*"):
            (out / name).mkdir(parents=True, exist_ok=True)
            (out / name / file.name).write_bytes(file.read_bytes())
    return result


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser("python -m test.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="folder for inputs that fail")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    given: Any = parser.parse_args(arguments)
    if given.child:
        name, seconds, seed, folder = given.child
        _child(name, float(seconds), int(seed), Path(folder))
        return 0
    sys.stdout.reconfigure(errors="backslashreplace")
    names = given.target or list(TARGETS)
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    print(
        f"seed {seed}\n\n| target | inputs | taken | slowest, s | findings |\n|---|---|---|---|---|",
        flush=True,
    )
    found: dict[str, str] = {}
    total = 0
    for number, name in enumerate(names):
        result = campaign(name, given.minutes * 60 / len(names), seed + number, given.out)
        total += result.tried
        found |= {f"{name}: {place}": text for place, text in result.findings.items()}
        print(
            f"| {name} | {result.tried} | {result.taken} | {result.slowest_s:.2f} | {len(result.findings)} |",
            flush=True,
        )
    print(f"\n{total} inputs, {len(found)} findings")
    for place, text in found.items():
        print(f"\n== {place}\n{text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

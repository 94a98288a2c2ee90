# SPDX-License-Identifier: Apache-2.0
"""What importing torchvision costs with torch's compiler and without it (``sticker_uq/imports.py``).

    python -m benchmarks.imports --out benchmarks/results/imports.json

New processes in turn, each of which imports torch, torchvision by itself, or torchvision after ``sticker_uq``: medians of the
processor's time in seconds, and of the most memory in MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.result_files import result_file

IMPORTS = {
    "torch": "import torch",
    "torchvision": "import torchvision",
    "torchvision after sticker_uq": "import sticker_uq, torchvision",
}


def cost(program: str) -> tuple[float, float]:
    """Seconds of processor time and MB of memory that a new Python takes for ``program``.

    Raises RuntimeError when it fails.
    """
    asked = f"{program}\nimport resource\n" + (
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "most = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(used.ru_utime + used.ru_stime, most.split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program!r} ended with status {done.returncode}: {done.stderr.strip()}")
    seconds, kilobytes = done.stdout.split()[-2:]
    return float(seconds), float(kilobytes) / 1024


def measure(times: int) -> list[dict[str, Any]]:
    """One row per import, from ``times`` processes each, in turn after one that is not counted."""
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPORTS}
    for turn in range(times + 1):
        for name, program in IMPORTS.items():
            found = cost(program)
            if turn:
                costs[name].append(found)
    return [
        {
            "imports": name,
            "times": times,
            "seconds": median(s for s, _ in rows),
            "mb": median(m for _, m in rows),
        }
        for name, rows in costs.items()
    ]


def read(file: Path) -> list[dict[str, Any]]:
    """The rows in ``file``."""
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """``rows`` in Markdown, with the time as a share of torchvision's by itself."""
    whole = next(row["seconds"] for row in rows if row["imports"] == "torchvision")
    lines = [
        f"| {row['imports']} | {row['seconds']:.2f} | {row['seconds'] / whole:.2f} | {row['mb']:.0f} |"
        for row in rows
    ]
    return "\n".join(["| imports | processor, s | ratio | memory, MB |", "|---|---|---|---|", *lines])


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--out", type=result_file)
    arguments = parser.parse_args()
    rows = measure(arguments.times)
    print(table(rows))
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

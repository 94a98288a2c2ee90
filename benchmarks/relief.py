# SPDX-License-Identifier: Apache-2.0
"""The demo's cell with a second measurement and without, on the same laptops.

python -m benchmarks.relief --out benchmarks/results/relief.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.result_files import result_file

COLUMNS = (
    "seed",
    "relief",
    "stickers",
    "left",
    "prints, residue, objects attacked",
    "logos or lid",
    "questions",
)


def measure(seed: int, relief: bool) -> list[object]:
    """Run the demo once and count what its gate did."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "sticker_uq.cli",
            "demo",
            "--seed",
            str(seed),
            "--out",
            f"{folder}/out",
        ]
        command += ["--timeout", "1800", "--port", "0", *(["--relief"] if relief else [])]
        subprocess.run(command, check=True, stdout=sys.stderr)
        gate = json.loads(Path(folder, "out", "summary.json").read_text())["comparison"]["gate"]
    wrong = [gate["others"], gate["logos"] + gate["lid"]]
    return [
        seed, "required" if relief else "off", gate["stickers"], gate["left"], *wrong, gate["questions"]
    ]  # fmt: skip


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 107, 207, 307])
    parser.add_argument("--out", type=result_file, required=True)
    arguments = parser.parse_args()
    rows = [measure(seed, relief) for seed in arguments.seeds for relief in (False, True)]
    with arguments.out.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()

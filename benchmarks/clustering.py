# SPDX-License-Identifier: Apache-2.0
"""What clustering the boxes of all passes costs on one core: 600 boxes, of a network with random weights and of the packaged one.

OMP_NUM_THREADS=1 python -m benchmarks.clustering --json benchmarks/results/clustering.json
"""

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.mc_dropout import pictures
from benchmarks.random_weights import calibrated_model
from benchmarks.result_files import argument_parser, result_file
from sticker_uq.detection import DetectorSettings, load_detector
from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import StochasticSamples
from sticker_uq.uncertainty import cluster, observe

BOXES, PASSES, ROUNDS = 600, 20, 40
RANDOM = DetectorSettings(model="ssd300_vgg16", device="cpu", passes=PASSES)


def main() -> None:
    """Measure both and write the file."""
    parser = argument_parser(__doc__)
    parser.add_argument("--json", type=result_file, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    images = pictures()
    random = StochasticDetector(calibrated_model(RANDOM, images, 0), RANDOM, "random")
    packaged = load_detector(DetectorSettings(device="cpu", passes=PASSES))
    measured = {
        name: [_row(detector.sample(detector.encode(image), PASSES, 1)) for image in images]
        for name, detector in (("random weights", random), ("packaged weights", packaged))
    }
    with atomic_write(arguments.json, "w") as stream:
        json.dump(measured, stream, indent=2)


def _row(samples: StochasticSamples) -> dict[str, float]:
    """Boxes, objects and processor milliseconds of the first BOXES boxes, as many of each pass."""
    chosen = [np.flatnonzero(samples.pass_index == number)[: BOXES // PASSES] for number in range(PASSES)]
    some = samples.taken(np.concatenate(chosen))
    labels = cluster(some)
    spent: dict[str, list[float]] = {"cluster_ms": [], "observe_ms": []}
    for _ in range(ROUNDS):
        for name, work in (("cluster_ms", cluster), ("observe_ms", observe)):
            start = time.thread_time()
            work(some)
            spent[name].append((time.thread_time() - start) * 1e3)
    counts = {"boxes": len(some), "objects": int(labels.max(initial=-1)) + 1}
    return counts | {name: round(median(times), 1) for name, times in spent.items()}


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def table(found: dict[str, Any]) -> str:
    """The table of docs/gpu.md: a line per image."""
    lines = [
        "| network | boxes | objects | clustered, ms | with all uncertainties, ms |",
        "|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        for row in rows:
            lines.append(f"| {name} | {' | '.join(str(value) for value in row.values())} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

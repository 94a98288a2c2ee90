# SPDX-License-Identifier: Apache-2.0
"""What clustering the boxes of all passes costs on one core: 600 boxes, of a network with random weights and of the packaged one.

OMP_NUM_THREADS=1 python -m benchmarks.clustering --json benchmarks/results/clustering.json

"labels" is a digest of the labels of random scenes with objects that overlap: it changes where a box changes its object.
"""

import hashlib
import json
import time
from collections.abc import Iterator
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

BOXES, PASSES, ROUNDS, SCENES = 600, 20, 40, 2000
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
    measured: dict[str, Any] = {
        name: [_row(detector.sample(detector.encode(image), PASSES, 1)) for image in images]
        for name, detector in (("random weights", random), ("packaged weights", packaged))
    }
    measured |= {"labels": {"scenes": SCENES, "sha256": labels_digest(SCENES)}}
    with atomic_write(arguments.json, "w") as stream:
        json.dump(measured, stream, indent=2)


def _row(samples: StochasticSamples) -> dict[str, float]:
    """Boxes, objects and processor milliseconds of the first BOXES boxes, as many of each pass."""
    chosen = [np.flatnonzero(samples.pass_index == number)[: BOXES // PASSES] for number in range(PASSES)]
    some = samples.select(np.concatenate(chosen))
    labels = cluster(some)
    spent: dict[str, list[float]] = {"cluster_ms": [], "observe_ms": []}
    for _ in range(ROUNDS):
        for name, work in (("cluster_ms", cluster), ("observe_ms", observe)):
            start = time.thread_time()
            work(some)
            spent[name].append((time.thread_time() - start) * 1e3)
    counts = {"boxes": len(some), "objects": int(labels.max(initial=-1)) + 1}
    return counts | {name: round(median(times), 1) for name, times in spent.items()}


def labels_digest(scenes: int) -> str:
    """SHA-256 of the labels of the boxes in so many of :func:`random_scenes`."""
    digest = hashlib.sha256()
    for _, samples in zip(range(scenes), random_scenes(), strict=False):
        digest.update(cluster(samples).tobytes())
    return digest.hexdigest()


def random_scenes() -> Iterator[StochasticSamples]:
    """Scenes of up to 24 objects or pairs that overlap, which passes see and miss, on whole pixels or not: always the same."""
    random = np.random.default_rng(1)
    while True:
        passes, grid = int(random.integers(3, 21)), random.choice([0, 1, 8])
        boxes, numbers = [], []
        for _ in range(random.integers(1, 25)):
            corner, size = random.uniform(0, 400, 2), random.uniform(20, 200, 2)
            for beside in range(0, 20 * random.integers(1, 3), 20):
                for number in np.flatnonzero(random.random(passes) < random.choice([0.3, 0.7, 1.0])):
                    noise = random.choice([0, 1, 6, 15]) * random.standard_normal(4)
                    boxes.append(np.concatenate([corner, corner + size]) + beside + noise)
                    numbers.append(number)
        drawn = np.array(boxes).reshape(-1, 4)
        drawn = np.round(drawn / grid) * grid if grid else drawn
        scores = random.dirichlet([0.3, 0.3, 3.0], len(drawn)).astype(np.float32)
        yield StochasticSamples(drawn.astype(np.float32), scores, np.array(numbers, np.int64), passes)


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def table(found: dict[str, Any]) -> str:
    """The table of docs/gpu.md: a line per image."""
    lines = [
        "| network | boxes | objects | clustered, ms | with all uncertainties, ms |",
        "|---|---|---|---|---|",
    ]
    for name in ("random weights", "packaged weights"):
        for row in found[name]:
            lines.append(f"| {name} | {' | '.join(str(value) for value in row.values())} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

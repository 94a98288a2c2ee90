# SPDX-License-Identifier: Apache-2.0
"""How long clustering and metrics take for the boxes of one image.

    OMP_NUM_THREADS=1 python -m benchmarks.clustering

Two kinds of boxes: `apart`, objects of 20 boxes each that nothing touches, and `crowded`, where half of the objects overlap
another one and every tenth box is an outlier. Medians of the processor's time, ms; 500 boxes are to stay below 10 ms.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sticker_uq.scene import StochasticSamples
from sticker_uq.uncertainty import observe

PASSES = 20
ROUNDS = 30


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boxes", type=int, nargs="*", default=[100, 200, 500, 1000])
    arguments = parser.parse_args()
    print("| boxes | apart, ms | crowded, ms |\n|---|---|---|")
    for count in arguments.boxes:
        apart, crowded = (_median_ms(count, crowd) for crowd in (False, True))
        print(f"| {count} | {apart:.1f} | {crowded:.1f} |")


def _median_ms(count: int, crowd: bool) -> float:
    times = []
    for seed in range(ROUNDS + 1):
        samples = boxes_of_passes(count, crowd, seed)
        started = time.thread_time()
        observe(samples)
        times.append((time.thread_time() - started) * 1e3)
    return float(np.median(times[1:]))  # the first loads libraries


def boxes_of_passes(count: int, crowd: bool, seed: int) -> StochasticSamples:
    """``count`` boxes of 20 passes over a grid of objects."""
    generator = np.random.default_rng(seed)
    objects = max(count // PASSES, 1)
    corners = np.stack(np.divmod(np.arange(objects), 8), axis=1)[:, ::-1] * 160.0 + generator.uniform(
        0, 40, (objects, 2)
    )
    if crowd:
        corners[1::2] = corners[: len(corners[1::2]) * 2 : 2] + generator.uniform(
            20, 60, (len(corners[1::2]), 2)
        )
    index = np.arange(count) % objects
    passes = (np.arange(count) // objects) % PASSES
    spread = np.where(crowd & (generator.random(count) < 0.1), 30.0, 2.0)[:, None]
    boxes = (
        np.concatenate([corners[index], corners[index] + 100.0], axis=1)
        + generator.normal(0, 1, (count, 4)) * spread
    )
    probabilities = generator.dirichlet([1, 2, 8], count)
    return StochasticSamples(
        boxes.astype(np.float32), probabilities.astype(np.float32), passes.astype(np.int64), PASSES
    )


if __name__ == "__main__":
    main()

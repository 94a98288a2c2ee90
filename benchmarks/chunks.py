# SPDX-License-Identifier: Apache-2.0
"""Whether the number of passes that are computed at once changes the bits of what they see, and what it costs.

    OMP_NUM_THREADS=1 python -m benchmarks.chunks [--models ...] [--min-size 480]

Per model with random weights that let about 40 boxes survive: 20 passes over two rendered scenes in groups of 1, 2, 4, 5, 10
and 20; whether boxes, class vectors and passes are those of groups of 1 bit for bit, the largest difference of a class vector
where as many boxes come out, and time of the processor per pass, best of the rounds, groups of different sizes taking turns.
Where the bits differ, another size changes what a replay of a recording says.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.random_weights import calibrated_model
from sticker_uq.detection import MODEL_NAMES, DetectorSettings, StochasticDetector
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.scene import StochasticSamples

SIZES = (1, 2, 4, 5, 10, 20)
PASSES = 20
SCENES = (1, 2)


def main() -> None:
    """Print one line per model and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODEL_NAMES), choices=MODEL_NAMES)
    parser.add_argument("--min-size", type=int, default=DetectorSettings().min_size)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    images = [render(sample_scene(seed)).image for seed in SCENES]
    print(
        "| model | passes at once | bits of one at once | largest difference | ms per pass |\n|---|---|---|---|---|"
    )
    for name in arguments.models:
        settings = DetectorSettings(
            model=name,
            min_size=arguments.min_size,
            passes=PASSES,
            device="cpu",
            precision=arguments.precision,
        )
        detector = StochasticDetector(calibrated_model(settings, images, 0), settings, "")
        features = [detector.encode(image) for image in images]
        samples: dict[int, list[StochasticSamples]] = {}
        times: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(arguments.rounds + 1):
            for size in SIZES:
                detector.chunk = size
                started = time.process_time()
                samples[size] = [detector.sample(one, PASSES, seed) for seed, one in enumerate(features)]
                times[size].append((time.process_time() - started) * 1e3 / PASSES / len(images))
        for size in SIZES:
            pairs = list(zip(samples[1], samples[size], strict=True))
            same = all(_bits(one) == _bits(other) for one, other in pairs)
            difference = max(_difference(one, other) for one, other in pairs)
            fastest = min(times[size][1:])  # the first round makes primitives
            print(
                f"| {name} | {size} | {'yes' if same else 'no'} | {difference:.1g} | {fastest:.1f} |",
                flush=True,
            )


def _bits(samples: StochasticSamples) -> tuple[bytes, ...]:
    return tuple(
        np.ascontiguousarray(a).tobytes() for a in (samples.boxes, samples.probabilities, samples.pass_index)
    )


def _difference(one: StochasticSamples, other: StochasticSamples) -> float:
    if not np.array_equal(one.pass_index, other.pass_index):
        return float("inf")
    return float(np.abs(one.probabilities - other.probabilities).max(initial=0.0))


if __name__ == "__main__":
    main()

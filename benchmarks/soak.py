# SPDX-License-Identifier: Apache-2.0
"""Whether memory and time of perception stay what they are over many images of changing sizes.

    OMP_NUM_THREADS=1 python -m benchmarks.soak --images 10000

Rendered laptops of three sizes, shifted so that no two images are alike, through everything that the live node computes. Printed
for every tenth: processor time per image, resident memory, objects alive in Python; at the end the growth over the second half.
"""

from __future__ import annotations

import argparse
import gc
import json
import time

import numpy as np
import psutil

from benchmarks.result_files import result_file
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import Perception, PerceptionSettings

SIZES = ((320, 240), (400, 300), (256, 192))
SCENES = 30


def main() -> None:
    """Assess the images, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--model", default=PerceptionSettings().model)
    parser.add_argument("--weights", default="")
    parser.add_argument("--min-size", type=int, default=128)
    parser.add_argument("--passes", type=int, default=PerceptionSettings().passes)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--json", type=result_file)
    arguments = parser.parse_args()
    settings = PerceptionSettings(
        model=arguments.model,
        weights=arguments.weights,
        min_size=arguments.min_size,
        passes=arguments.passes,
        precision=arguments.precision,
        device="cpu",
    )
    perception = Perception(settings)
    perception.warm_up()
    scenes = [render(sample_scene(seed), SIZES[seed % len(SIZES)]).image for seed in range(SCENES)]
    process = psutil.Process()
    every = max(arguments.images // 10, 1)
    rows: list[dict[str, float]] = []
    busy, objects = time.process_time(), 0
    print("| images | ms of the processor per image | memory, MB | Python objects | objects per image |")
    print("|---|---|---|---|---|", flush=True)
    for number in range(1, arguments.images + 1):
        picture = np.roll(scenes[number % SCENES], number // SCENES, axis=1)
        objects += len(perception.assess(picture, number).objects)
        if number % every == 0:
            gc.collect()
            row = {
                "images": number,
                "ms": (time.process_time() - busy) * 1e3 / every,
                "memory_mb": process.memory_info().rss / 2**20,
                "python_objects": len(gc.get_objects()),
                "objects": objects / every,
            }
            rows.append(row)
            print(
                f"| {number} | {row['ms']:.1f} | {row['memory_mb']:.1f} | {row['python_objects']:.0f} "
                f"| {row['objects']:.2f} |",
                flush=True,
            )
            busy, objects = time.process_time(), 0
    half = rows[len(rows) // 2 - 1 :]
    thousands = max((half[-1]["images"] - half[0]["images"]) / 1e3, 1e-9)
    growth = (half[-1]["memory_mb"] - half[0]["memory_mb"]) / thousands
    more = half[-1]["python_objects"] - half[0]["python_objects"]
    print(f"\nover the second half: {growth:+.2f} MB per 1000 images, {more:+.0f} Python objects")
    if arguments.json:
        with atomic_write(arguments.json, "w") as stream:
            json.dump(rows, stream, indent=2)


if __name__ == "__main__":
    main()

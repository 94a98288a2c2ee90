# SPDX-License-Identifier: Apache-2.0
"""A replay of a long recording: whether the model is kept busy, time grows linearly and memory does not.

    OMP_NUM_THREADS=1 python -m benchmarks.bulk --images 10000

The recording is synthetic: rendered laptops, 320x240 px, each image with other pixels. It is replayed as `sticker-uq replay
--jobs 1 --pictures none` does. Printed for every tenth of it: seconds on the wall and of the processor per 1000 images, resident
memory; then the share of the time in which the model computed, the growth of memory over the second half, and the correlation of
processor time with the number of images.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.result_files import result_file
from sticker_uq.gate import Policy
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.share import share_folder
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.perception import PerceptionSettings

SIZE = (320, 240)
SCENES = 50


@dataclass(frozen=True)
class Mark:
    """Where the replay was after ``images``: seconds on the wall and of the processor since the first, memory in MB."""

    images: int
    wall_s: float
    busy_s: float
    memory_mb: float


def main() -> None:
    """Make the recording, replay it, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--model", default=PerceptionSettings().model)
    parser.add_argument("--weights", default="")
    parser.add_argument("--passes", type=int, default=PerceptionSettings().passes)
    parser.add_argument("--json", type=result_file)
    arguments = parser.parse_args()
    settings = PerceptionSettings(
        model=arguments.model, weights=arguments.weights, passes=arguments.passes, device="cpu"
    )
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        # in a process of its own, so that its memory is not counted
        writer = multiprocessing.get_context("spawn").Process(target=write_bag, args=(bag, arguments.images))
        writer.start()
        writer.join()
        if writer.exitcode != 0:
            raise SystemExit("the recording could not be written")
        marks, summary = _replayed(bag, settings, Path(folder) / "out", arguments.images)
    _print_marks(marks)
    print(f"\nmodel busy: {summary.model_busy:.1%} of {summary.seconds:.0f} s, {summary.images} images")
    steady = [mark for mark in marks if mark.images >= arguments.images / 2]
    growth = (steady[-1].memory_mb - steady[0].memory_mb) / (steady[-1].images - steady[0].images) * 1e3
    print(f"memory over the second half: {growth:+.2f} MB per 1000 images")
    line = np.corrcoef([m.images for m in marks], [m.busy_s for m in marks])[0, 1]
    print(f"correlation of processor time and number of images: {line:.5f}")
    if arguments.json:
        content = {
            "marks": [mark.__dict__ for mark in marks],
            "model_busy": summary.model_busy,
            "timings_ms": dict(summary.timings_ms),
        }
        with atomic_write(arguments.json, "w") as stream:
            json.dump(content, stream, indent=2)


def write_bag(path: Path, count: int) -> None:
    """A recording of ``count`` compressed images of rendered laptops, no two alike."""
    from rclpy.serialization import serialize_message
    from sensor_msgs.msg import CompressedImage

    from sticker_uq.nodes.common.conversions import header_of

    scenes = [render(sample_scene(seed), SIZE).image for seed in range(min(SCENES, count))]
    with BagWriter(path) as bag:
        bag.add_topic("/image/compressed", "sensor_msgs/msg/CompressedImage")
        for index in range(count):
            picture = np.roll(scenes[index % len(scenes)], index // len(scenes), axis=1)
            stamp = (index + 1) * 33_333_333
            message = CompressedImage(
                header=header_of(stamp, "camera"), format="jpeg", data=encode_jpeg(picture)
            )
            bag.write("/image/compressed", stamp, serialize_message(message))


def _replayed(bag: Path, settings: PerceptionSettings, out: Path, images: int) -> tuple[Sequence[Mark], Any]:
    from sticker_uq.cli.replay_job import ReplayJob
    from sticker_uq.perception.factory import load_perception

    policy = Policy.load(share_folder() / "config" / "policy.yaml")
    replay = ReplayJob(bag, None, settings, policy, out, "parquet", 0, False, 1)
    process = psutil.Process()
    marks: list[Mark] = []
    start: list[float] = []
    count = 0

    def on_image() -> None:
        nonlocal count
        count += 1
        if not start:
            start.extend((time.perf_counter(), time.process_time()))
        if count == 1 or count % max(images // 10, 1) == 0:
            wall, busy = time.perf_counter() - start[0], time.process_time() - start[1]
            marks.append(Mark(count, wall, busy, process.memory_info().rss / 2**20))

    return marks, replay.run(load_perception, on_image).summary


def _print_marks(marks: Sequence[Mark]) -> None:
    print("| images | s on the wall per 1000 | s of the processor per 1000 | memory, MB |")
    print("|---|---|---|---|")
    for before, mark in itertools.pairwise(marks):
        thousands = (mark.images - before.images) / 1e3
        print(
            f"| {mark.images} | {(mark.wall_s - before.wall_s) / thousands:.1f} "
            f"| {(mark.busy_s - before.busy_s) / thousands:.1f} | {mark.memory_mb:.0f} |"
        )


if __name__ == "__main__":
    main()

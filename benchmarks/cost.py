# SPDX-License-Identifier: Apache-2.0
"""What an image costs, in processor time with one torch thread: by objects and passes, by its size.

OMP_NUM_THREADS=1 python -m benchmarks.cost --json benchmarks/results/cost.json --figure docs/images/cost.svg
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
import torch

from benchmarks.result_files import argument_parser, result_file
from sticker_uq.detection.kernels.pixels import network_input
from sticker_uq.evaluation.reporting.document import COLOURS, MARKERS, svg
from sticker_uq.io.files import atomic_write
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.perception.image_facts import image_digest, measure_exposure
from sticker_uq.scene import StochasticSamples
from sticker_uq.uncertainty import TooManyBoxes, observe
from sticker_uq_lab.rendering import render, sample_scene

OBJECTS = (1, 3, 10, 30, 100)
PASSES = (5, 20, 80)
SAMPLED = (5, 10, 20, 40, 80)
SIZES = ((640, 480), (960, 720), (1920, 1080), (2592, 1944), (4000, 3000))
ROUNDS = 9


def main() -> None:
    """Measure all and write the file."""
    parser = argument_parser(__doc__)
    parser.add_argument("--json", type=result_file, required=True)
    parser.add_argument("--figure", type=result_file, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    picture = render(sample_scene(5)).image
    perception = Perception(PerceptionSettings(device="cpu"))
    clocks: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        threads, process = time.thread_time(), time.process_time()
        perception.assess(picture)
        clocks.append((time.thread_time() - threads, time.process_time() - process))
    detector = perception.detector
    transform, features = detector.model.transform, detector.encode(picture)
    measured: dict[str, Any] = {
        "assessment": [median(clock) * 1e3 for clock in zip(*clocks, strict=True)],
        "objects": {
            f"{passes} {kind}": [_clustering(count, passes, step) for count in OBJECTS]
            for kind, step in (("apart", 1.1), ("a chain", 0.3))
            for passes in PASSES
        },
        "passes": {passes: _ms(lambda: detector.sample(features, passes, 0)) for passes in SAMPLED},  # noqa: B023
        "pixels": {},
    }
    for width, height in SIZES:
        image = cv2.resize(picture, (width, height))
        stages = (lambda i: network_input(transform, i)), image_digest, measure_exposure
        measured["pixels"][f"{width}x{height}"] = [_ms(lambda: stage(image)) for stage in stages]  # noqa: B023
    with atomic_write(arguments.json, "w") as stream:
        json.dump(measured, stream, indent=2)
    with atomic_write(arguments.figure, "w") as stream:
        stream.write(drawn(read(arguments.json)))


def read(path: Path) -> dict[str, Any]:
    """What was measured, ms."""
    made: dict[str, Any] = json.loads(path.read_text())
    return made


def table(measured: dict[str, Any]) -> str:
    """An assessment with the packaged weights."""
    main_thread, every = measured["assessment"]
    return (
        "| main thread, ms | all threads, ms | images/s of two cores, computed |\n|---|---|---|\n"
        f"| {main_thread:.1f} | {every:.1f} | {2000 / every:.1f} |\n"
    )


def drawn(measured: dict[str, Any]) -> str:
    """Charts over objects, passes and size, SVG."""

    def draw(figure: Any) -> None:
        objects, passes, pixels = figure.subplots(1, 3)
        for number, (label, values) in enumerate(measured["objects"].items()):
            known = [
                (count, value) for count, value in zip(OBJECTS, values, strict=True) if value is not None
            ]
            kind, style = number % len(PASSES), "-" if "apart" in label else "--"
            objects.plot(
                *zip(*known, strict=True), style, color=COLOURS[kind], marker=MARKERS[kind], label=label
            )
        objects.set_xlabel("objects, by passes")
        objects.set_title("clusters and metrics, ms")
        sampled = {int(count): value for count, value in measured["passes"].items()}
        passes.plot(list(sampled), list(sampled.values()), marker="o")
        passes.set_xlabel("passes")
        passes.set_title("stochastic passes, ms")
        passes.set_ylim(0)
        megapixels = [np.prod([int(side) for side in size.split("x")]) / 1e6 for size in measured["pixels"]]
        for number, stage in enumerate(("resizing", "digest", "exposure")):
            values = [of_size[number] for of_size in measured["pixels"].values()]
            pixels.plot(megapixels, values, color=COLOURS[number], marker=MARKERS[number], label=stage)
        pixels.set_xlabel("megapixels")
        pixels.set_title("of the picture, ms")
        objects.set_xscale("log")
        objects.set_yscale("log")
        for axes in (objects, pixels):
            axes.legend(fontsize=6)

    return f"{svg(draw, 8.0, 2.8, 'cost of an image over objects, passes and size')}\n"


def _clustering(objects: int, passes: int, step: float) -> float | None:
    """ms for clusters and metrics of squares ``step`` sides apart, seen in every pass; None where they are too many."""
    generator = np.random.default_rng(0)
    corner = np.stack([np.arange(objects) * 100 * step, np.zeros(objects)], axis=1)
    places = np.tile(np.hstack([corner, corner + 100]), (passes, 1))
    boxes = (places + generator.normal(0, 2, places.shape)).astype(np.float32)
    probabilities = np.tile(np.array([0.1, 0.2, 0.7], np.float32), (len(boxes), 1))
    samples = StochasticSamples(boxes, probabilities, np.repeat(np.arange(passes), objects), passes)
    try:
        return _ms(lambda: observe(samples))
    except TooManyBoxes:
        return None


def _ms(action: Callable[[], object]) -> float:
    """Median processor time of ``action``; an action of seconds is measured once."""
    spent: list[float] = []
    while len(spent) <= ROUNDS and sum(spent) < 1:
        started = time.process_time()
        action()
        spent.append(time.process_time() - started)
    return median(spent[1:] or spent) * 1e3


if __name__ == "__main__":
    main()

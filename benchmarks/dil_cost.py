# SPDX-License-Identifier: Apache-2.0
"""What distinctive localization costs on top of the stochastic passes, in passes.

    OMP_NUM_THREADS=1 python -m benchmarks.dil_cost [--models ...] [--turns 4]

Three kinds of pass: a complete one of torchvision's model from the pixels on, which is what each of the T costs as published;
one more stochastic pass of the engine, from the features that all share to suppressed boxes; and the share of one pass in a
group of them, as many as the engine computes at once. The deterministic pass, the saliency and the regions are timed in
turn with these, on the same picture, in one process and one thread; the shortest of several turns counts, in time of the
processor, which other programs lengthen least. The weights are the packaged ones, or random ones of which about 40 boxes
survive a pass. The novelty network is timed with its reading of the picture; it is one for every model. Peak
memory is that of the process after the model has run.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.naive import published_pass
from benchmarks.random_weights import calibrated_model
from sticker_uq.detection import (
    MODEL_NAMES,
    DetectorSettings,
    DeterministicPass,
    Features,
    StochasticDetector,
    load_detector,
)
from sticker_uq.detection.weights import packaged_weights
from sticker_uq.dil import LocalizationSettings, localize
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.novelty.network import NoveltyNetwork, novelty_maps, ready

SCENE = 5
"""Seed of the rendered scene, 1280x960 px."""
ASKED = LocalizationSettings()


def main() -> None:
    """Print one line per model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODEL_NAMES), choices=MODEL_NAMES)
    parser.add_argument("--turns", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    image = render(sample_scene(SCENE)).image
    network = ready(NoveltyNetwork())
    print(
        "| model | complete pass, ms | one pass more, ms | pass of a group, ms | deterministic, ms | saliency and regions, ms "
        "| DiL in complete passes | in passes more | in passes of a group | network, ms | with it in complete passes "
        "| peak memory, MB |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.models:
        detector = _detector(name, image)
        features = detector.encode(image)
        deterministic = detector.deterministic_pass(features)
        times: dict[str, float] = {}
        for _ in range(arguments.turns):
            _time(times, "complete", lambda: published_pass(detector.model, detector.settings, image))  # noqa: B023
            _time(times, "more", lambda: detector.sample(features, 1, 1))  # noqa: B023
            _time(times, "group", lambda: detector.sample(features, detector.chunk, 1))  # noqa: B023
            features._derived.pop("head_maps", None)  # the maps without dropout are part of the cost
            _time(times, "deterministic", lambda: _deterministic(detector, features))  # noqa: B023
            deterministic = _deterministic(detector, features)
            _time(times, "rest", lambda: localize(deterministic, ASKED))  # noqa: B023
            _time(times, "network", lambda: novelty_maps(network, image))
        complete, once = times["complete"], times["group"] / detector.chunk
        dil, novel = times["deterministic"] + times["rest"], times["network"]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {name} | {complete * 1e3:.0f} | {times['more'] * 1e3:.1f} | {once * 1e3:.1f} | "
            f"{times['deterministic'] * 1e3:.1f} "
            f"| {times['rest'] * 1e3:.1f} | {dil / complete:.2f} | {dil / times['more']:.2f} | {dil / once:.2f} "
            f"| {novel * 1e3:.0f} | {(dil + novel) / complete:.2f} | {memory:.0f} |",
            flush=True,
        )


def _detector(name: str, image: NDArray[np.uint8]) -> StochasticDetector:
    settings = DetectorSettings(model=name, device="cpu")
    if packaged_weights(name):
        return load_detector(settings)
    return StochasticDetector(calibrated_model(settings, [image], 0), settings, "")


def _deterministic(detector: StochasticDetector, features: Features) -> DeterministicPass:
    return detector.deterministic_pass(features, least_score=ASKED.decision_threshold)


def _time(times: dict[str, float], name: str, action: Callable[[], object]) -> None:
    """Keep the fewest seconds of the processor that ``action`` has taken."""
    started = time.process_time()
    action()
    times[name] = min(times.get(name, float("inf")), time.process_time() - started)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""torch.compile for the stochastic part, side by side with the engine as it is.

    OMP_NUM_THREADS=1 python -m benchmarks.compiled [--models ...] [--min-size 240]

The same passes with the same masks, interleaved in one process: by the engine, and by an engine whose masks or heads are compiled
by Inductor with its default options. Heads have torch's own convolutions then, since what the engine calls of oneDNN cannot
be traced. Printed per model: time of the processor for T passes of the engine, the ratio of its time to that of the compiled
one (above 1 the compiled one is faster), the largest difference of a probability and of an edge in px between the two, and what
the first call took, compilers included. Needs a C++ compiler, which the product itself does not.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch._dynamo
import torch._inductor.config
from torch import nn

from benchmarks.random_weights import calibrated_model
from sticker_uq.detection import MODEL_NAMES, DetectorSettings, StochasticDetector, dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.registry import detector_entry
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.scene import StochasticSamples

SCENES = (5, 6, 7)
MODELS = ("ssdlite320_mobilenet_v3_large", "ssd300_vgg16", "retinanet_resnet50_fpn")
_RECOMPILATIONS = 64  # a map of each size is a compilation of its own

Kernel = Callable[..., Any]


@dataclass
class Variant:
    """An engine some of whose parts are compiled, and what its first passes took, s."""

    name: str
    engine: StochasticDetector
    masks: Kernel
    first: float = 0.0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Masks are drawn by this variant's kernel in the block."""
        with patch.object(dropout, "drawn", self.masks):
            yield

    def passes(self, features: Features, number: int) -> tuple[StochasticSamples, float]:
        """All passes of the image, and the time of the processor that they took, s."""
        with self.active():
            started = time.process_time()
            samples = self.engine.sample(features, self.engine.settings.passes, number)
            return samples, time.process_time() - started


def main() -> None:
    """Print one row per model and variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODEL_NAMES)
    parser.add_argument("--min-size", type=int, default=DetectorSettings().min_size)
    parser.add_argument("--passes", type=int, default=DetectorSettings().passes)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    if not (shutil.which("g++") or shutil.which("clang++")):
        raise SystemExit("no C++ compiler (g++, clang++) in PATH: torch.compile needs one")
    torch._dynamo.config.recompile_limit = _RECOMPILATIONS
    torch._inductor.config.force_disable_caches = True  # what a first start takes
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.rounds} rounds, {arguments.passes} passes"
    )
    print(
        "| model | engine, ms | compiled | ratio | most a probability differs | an edge, px | first call, s |"
    )
    print("|---" * 7 + "|", flush=True)
    for name in arguments.models:
        settings = DetectorSettings(
            model=name, min_size=arguments.min_size, passes=arguments.passes, device="cpu"
        )
        for line in _rows(settings, arguments.rounds):
            print(line, flush=True)


def _rows(settings: DetectorSettings, rounds: int) -> Iterator[str]:
    images = [render(sample_scene(seed)).image for seed in SCENES]
    model = calibrated_model(settings, images, 0)
    plain = Variant("engine", StochasticDetector(model, settings, ""), dropout.drawn)
    features = plain.engine.encode(images[0])
    plain.passes(features, 0)
    for variant in _variants(model, settings):
        torch._dynamo.reset()
        started = _spent()
        variant.passes(features, 0)
        variant.first = _spent() - started
        times, ratios = [], []
        for number in range(rounds):
            wanted, own = plain.passes(features, number)
            found, compiled = variant.passes(features, number)
            times.append(own)
            ratios.append(own / compiled)
        edge, probability = _differences(wanted, found)
        yield (
            f"| {settings.model} | {median(times) * 1e3:.0f} | {variant.name} | {median(ratios):.2f} | {probability:.1e} "
            f"| {edge:.1e} | {variant.first:.0f} |"
        )


def _variants(model: Any, settings: DetectorSettings) -> Iterator[Variant]:
    compiled = torch.compile(dropout.drawn, dynamic=False)
    yield Variant("masks", StochasticDetector(model, settings, ""), compiled)
    yield Variant("heads", _with_compiled_heads(model, settings), dropout.drawn)


def _with_compiled_heads(model: Any, settings: DetectorSettings) -> StochasticDetector:
    engine = StochasticDetector(model, settings, "")
    family: Any = engine._engine
    network = family._model
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.__class__ = nn.Conv2d  # what the engine calls of oneDNN cannot be traced
    compile_ = torch.compile(dynamic=False)
    family_name = detector_entry(settings.model).family
    if family_name in ("ssd", "ssdlite"):
        family._convolutions = compile_(family._convolutions)
    elif family_name == "retinanet":
        network.head.forward = compile_(network.head.forward)
    else:
        network.rpn.head.forward = compile_(network.rpn.head.forward)
        network.roi_heads.box_head.forward = compile_(network.roi_heads.box_head.forward)
    return engine


def _differences(wanted: StochasticSamples, found: StochasticSamples) -> tuple[float, float]:
    """Largest difference of an edge, px, and of a probability; infinity for other numbers of boxes."""
    if len(wanted) != len(found):
        return np.inf, np.inf
    pairs = ((wanted.boxes, found.boxes), (wanted.probabilities, found.probabilities))
    edge, probability = (float(np.abs(a - b).max(initial=0.0)) for a, b in pairs)
    return edge, probability


def _spent() -> float:
    """Time of the processor of this process and of the compilers that it started and that ended, s."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usage)


if __name__ == "__main__":
    main()

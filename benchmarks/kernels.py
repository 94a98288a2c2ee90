# SPDX-License-Identifier: Apache-2.0
"""What each kernel of the engine is worth: processor time of an image without it over that with all of them, one torch thread.

    OMP_NUM_THREADS=1 python -m benchmarks.kernels --json benchmarks/results/kernels.json

An image is `encode`, 20 passes, and the pass without dropout with the gradients of distinctive localization; the FPN models make
one pass, which counts as 20. Engine and engine without the kernel take turns in one process; median of the ratios. What the file
holds is not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.random_weights import calibrated_model
from benchmarks.result_files import result_file
from sticker_uq.detection import MODEL_NAMES, DetectorSettings, StochasticDetector, detector, dropout
from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels import fast_ssd, frozen
from sticker_uq.detection.kernels.fast_faster_rcnn import FastFasterRcnn
from sticker_uq.detection.kernels.fast_ssd import Dense, FastSsd, Separable
from sticker_uq.detection.kernels.pixels import rgb_input
from sticker_uq.detection.models.faster_rcnn import FasterRcnn
from sticker_uq.detection.models.ssd import Ssd
from sticker_uq.dil import localize
from sticker_uq.dil.settings import LocalizationSettings
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.scene import CLASS_COUNT

SCENES = (5, 6, 7)
PASSES = 20
ROUNDS = {True: 15, False: 3}
"""Of an SSD, of an FPN model."""
_SSD, _PYRAMID, _REGIONS = "ssd", "resnet50", "fasterrcnn"


def _whole_maps(self: Any, features: Features, masks: Dropout) -> list[Tensor]:
    if masks is no_dropout:
        return Ssd.head_maps(self, features, masks)
    return [masks.masks(m).mul_(m) for m in self._scaled(features)]


def _all_pixels(transform: Any, image: NDArray[np.uint8], device: torch.device) -> Any:
    batch = transform([rgb_input(image, device)])[0]
    batch.tensors = batch.tensors.contiguous(memory_format=torch.channels_last)
    return batch


KERNELS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "SSDs: boxes of candidates only": (
        _SSD,
        [(FastSsd, "candidates", Ssd.candidates), (FastSsd, "head_maps", _whole_maps)],
    ),
    "SSDs: class logits less the background's": (
        _SSD,
        [
            (fast_ssd, "levels_above_background", fast_ssd.levels_of),
            (FastSsd, "_foreground", property(lambda self: CLASS_COUNT, lambda self, value: None)),
            (fast_ssd, "functional", SimpleNamespace(pad=lambda logits, _: logits)),
        ],
    ),
    "SSDs: boxes of many places by the whole map": (_SSD, [(Dense, "few", 0), (Separable, "few", 0)]),
    "SSD300: nine places as one product": ("ssd300", [(fast_ssd, "_MANY_PLACES", 10**9)]),
    "3x3 convolutions by minimal filtering": (
        "",
        [(frozen, "use_winograd", lambda module: None)],
    ),
    "convolutions by oneDNN in any case": ("", [(frozen, "OneDnn", nn.Conv2d)]),
    "normalisations folded": (_PYRAMID, [(frozen, "_fold", lambda module: None)]),
    "Faster R-CNN: proposals until there are enough": (
        _REGIONS,
        [(FastFasterRcnn, "_propose", FasterRcnn._propose)],
    ),
    "Faster R-CNN: RoIAlign as weighted rows": (
        _REGIONS,
        [(FastFasterRcnn, "_vectors", FasterRcnn._vectors)],
    ),
    "Faster R-CNN: dense layers as convolutions": (_REGIONS, [(frozen, "BoxHead", lambda head, bins: head)]),
    "masks by NumPy": ("", [(dropout, "_hashed_on_processor", dropout._hashed)]),
    "only the pixels that are used": ("", [(detector, "network_input", _all_pixels)]),
}
"""Of each kernel the models that have it, by parts of their names, and what takes its place."""


def main() -> None:
    """Measure what the file lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODEL_NAMES), choices=MODEL_NAMES)
    parser.add_argument("--json", type=result_file, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    done = read(arguments.json) if arguments.json.exists() else {}
    images = [render(sample_scene(seed)).image for seed in SCENES]
    for name in arguments.models:
        of_model = [k for k, (parts, _) in KERNELS.items() if any(part in name for part in parts.split(" "))]
        missing = [kernel for kernel in of_model if kernel not in done.get(name, {})]
        if not missing:
            continue
        settings = DetectorSettings(model=name, device="cpu")
        model = calibrated_model(settings, images, 0)
        whole = StochasticDetector(model, settings, "")
        for kernel in missing:
            done.setdefault(name, {})[kernel] = _worth(kernel, whole, images[0])
            print(f"{name}: {kernel}: {done[name][kernel]:.2f}", flush=True)
            with atomic_write(arguments.json, "w") as stream:
                json.dump(done, stream, indent=2)


def read(path: Path) -> dict[str, dict[str, float]]:
    """Time without each kernel over the time with it, by model and kernel."""
    made: dict[str, dict[str, float]] = json.loads(path.read_text())
    return made


def table(done: dict[str, dict[str, float]]) -> str:
    """The kernels in rows, the models in columns; what the engine has no more is marked as gone."""
    columns = [name for name in MODEL_NAMES if name in done]
    rows = [f"| {' | '.join(['kernel', *columns])} |", f"|{'---|' * (len(columns) + 1)}"]
    for kernel in {kernel: None for of_model in done.values() for kernel in of_model}:
        cells = [f"{done[name][kernel]:.2f}" if kernel in done[name] else "-" for name in columns]
        rows.append(f"| {' | '.join([kernel if kernel in KERNELS else f'{kernel} (gone)', *cells])} |")
    return "\n".join([*rows, ""])


def _worth(kernel: str, whole: StochasticDetector, image: NDArray[np.uint8]) -> float:
    with _without(kernel):
        lacking = StochasticDetector(whole.model, whole.settings, "")
        if "candidates only" in kernel:
            lacking.chunk = 5  # with whole boxes 20 passes would leave the caches
    ratios = []
    for _ in range(ROUNDS["ssd" in whole.name] + 1):
        with_it = _seconds(whole, image)
        with _without(kernel):
            ratios.append(_seconds(lacking, image) / with_it)
    return median(ratios[1:])  # the first calls make primitives


@contextmanager
def _without(kernel: str) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, value in KERNELS[kernel][1]:
            stack.enter_context(patch.object(owner, name, value, create=name == "_foreground"))
        yield


def _seconds(engine: StochasticDetector, image: NDArray[np.uint8]) -> float:
    """Processor time of one image."""
    measured = PASSES if "ssd" in engine.name else 1
    clock = [time.process_time()]
    features = engine.encode(image)
    clock.append(time.process_time())
    engine.sample(features, measured, 0)
    clock.append(time.process_time())
    localize(engine.deterministic_pass(features), LocalizationSettings())
    clock.append(time.process_time())
    encode, sample, rest = np.diff(clock)
    return float(encode + sample * PASSES / measured + rest)


if __name__ == "__main__":
    main()

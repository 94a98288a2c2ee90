# SPDX-License-Identifier: Apache-2.0
"""The objects of a detector as monitors see them: its own maps at the boxes, crops, what the T passes say."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision.ops import roi_align

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.features import Features
from sticker_uq.io.crops import cut_crops
from sticker_uq.perception.monitors.dissector import perceptron
from sticker_uq.perception.monitors.interface import Objects
from sticker_uq.scene import CLASS_COUNT, FloatArray, IntArray, StochasticSamples
from sticker_uq.uncertainty import iou_matrix

CROP_SIZE = 24
LEVELS = 3
"""Maps of the detector that are pooled, from the finest on: coarser ones see more of the scene than of an object."""
SAME_OBJECT = 0.5
"""IoU from which a box of another pass shows the same object."""


class Probe:
    """A softmax perceptron from pooled maps to classes, for the logits that a detector's heads do not give for a box.

    ``weight`` (3, F), ``bias`` (3,).
    """

    def __init__(self, weight: FloatArray, bias: FloatArray) -> None:
        self.weight, self.bias = weight, bias

    @classmethod
    def fit(cls, features: FloatArray, labels: IntArray) -> Probe:
        return cls(*perceptron(features, labels, CLASS_COUNT))

    def logits(self, features: FloatArray) -> FloatArray:
        return features @ self.weight.T + self.bias


def pool_layers(
    detector: StochasticDetector, features: Features, boxes: FloatArray
) -> tuple[FloatArray, ...]:
    """Means over ``boxes`` (N, 4) px of the finest maps that enter the heads, (N, C_l) each."""
    width, height = features.image_size
    scale = np.array([features.resized[1] / width, features.resized[0] / height] * 2, np.float32)
    rows = torch.from_numpy(np.asarray(boxes, np.float32).reshape(-1, 4) * scale).to(detector.device)
    found = []
    for level in detector.head_maps(features)[:LEVELS]:
        stride = level.shape[-1] / features.padded[1]
        pooled = roi_align(level, [rows], (2, 2), stride, sampling_ratio=2, aligned=True)
        found.append(pooled.mean(dim=(2, 3)).double().cpu().numpy())
    return tuple(found)


def vectors_of(boxes: FloatArray, seen: StochasticSamples) -> FloatArray:
    """Class vectors (T, N, 3) by which each of the passes ``seen`` sees ``boxes`` (N, 4): of the box that overlaps most.

    NaN where none shows the same object.
    """
    found = np.full((seen.passes, len(boxes), CLASS_COUNT), np.nan)
    for number in range(seen.passes):
        rows = seen.pass_index == number
        if not rows.any() or not len(boxes):
            continue
        overlaps = iou_matrix(np.asarray(boxes, np.float32), seen.boxes[rows])
        best = overlaps.argmax(axis=1)
        same = overlaps[np.arange(len(boxes)), best] >= SAME_OBJECT
        found[number, same] = seen.probabilities[rows][best[same]]
    return found


def observe_boxes(
    detector: StochasticDetector,
    image: NDArray[np.uint8],
    features: Features,
    boxes: FloatArray,
    probabilities: FloatArray,
    samples: StochasticSamples,
    probe: Probe | None = None,
) -> Objects:
    """The objects in ``boxes`` (N, 4) px of ``image`` with class vectors ``probabilities`` (N, 3).

    ``features`` and ``samples``: what the detector made of the image and what its T passes saw; ``probe``: for logits.
    """
    layers = pool_layers(detector, features, boxes)
    flat = np.concatenate(layers, axis=1)
    return Objects(
        probabilities=np.asarray(probabilities, np.float64),
        logits=None if probe is None else probe.logits(flat),
        samples=vectors_of(boxes, samples),
        features=flat,
        layers=layers,
        crops=cut_crops(image, boxes, CROP_SIZE),
    )

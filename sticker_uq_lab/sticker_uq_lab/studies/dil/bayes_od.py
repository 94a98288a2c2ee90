# SPDX-License-Identifier: Apache-2.0
"""Bayes-OD (Harakeh et al. 2020), which the DiL paper compares with: what suppression would drop is evidence, and is fused."""

from typing import NamedTuple

import numpy as np
import torch

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.deterministic_pass import flat
from sticker_uq.detection.features import Features
from sticker_uq.scene import FloatArray
from sticker_uq.uncertainty.overlap import iou_matrix

_FLOOR = 0.1
"""Mean objectness from which an anchor is evidence of an object; without, all anchors of the background would be."""
_LEAST_VARIANCE = 1.0
"""px^2, of each coordinate: where all passes agree a Gaussian would be certain."""


class Fused(NamedTuple):
    """Objects by falling score of their first anchor: posterior mean ``boxes`` (G, 4) px and ``covariances`` (G, 4, 4) px^2, and
    the posterior mean ``probability`` (G,) that each is an object.
    """

    boxes: FloatArray
    covariances: FloatArray
    probability: FloatArray

    def uncertainty(self) -> tuple[float, float]:
        """Means over the objects: entropy of the class, 0..1 bits, and trace of the box's covariance, px^2; 0 without any."""
        if not len(self.boxes):
            return 0.0, 0.0
        each = np.stack([self.probability, 1 - self.probability])
        entropy = -(each * np.log2(each)).sum(axis=0)
        return float(entropy.mean()), float(np.trace(self.covariances, axis1=1, axis2=2).mean())


def fuse(boxes: FloatArray, objectness: FloatArray, same: float) -> Fused:
    """Anchors that overlap the best one by ``same`` or more, as one object, in place of non-maximum suppression.

    ``boxes`` (T, A, 4) px and ``objectness`` (T, A) 0..1 of every anchor in T passes. The box of each anchor is a Gaussian with
    the mean and covariance of its passes. That of an object is their product, from a prior without information; its probability
    is the mean of a Beta distribution, uniform before, that every anchor updates by its mean objectness.
    """
    score = objectness.mean(axis=0)
    left = np.flatnonzero(score >= _FLOOR)
    left = left[np.argsort(-score[left], kind="stable")]
    means = boxes.mean(axis=0)
    found: list[tuple[FloatArray, FloatArray, float]] = []
    while len(left):
        together = iou_matrix(means[left[:1]], means[left])[0] >= same
        together[0] = True  # also a box without area
        members, left = left[together], left[~together]
        apart = boxes[:, members] - means[members]
        covariances = np.einsum("tai,taj->aij", apart, apart) / max(len(boxes) - 1, 1)
        precisions = np.linalg.inv(covariances + _LEAST_VARIANCE * np.eye(4))
        covariance = np.linalg.inv(precisions.sum(axis=0))
        box = covariance @ np.einsum("aij,aj->i", precisions, means[members])
        found.append((box, covariance, (1 + score[members].sum()) / (2 + len(members))))
    return Fused(
        np.array([box for box, _, _ in found]).reshape(-1, 4),
        np.array([covariance for _, covariance, _ in found]).reshape(-1, 4, 4),
        np.array([probability for _, _, probability in found]),
    )


def bayes_od(detector: StochasticDetector, features: Features, seed: int) -> Fused:
    """The fused objects of a one-stage ``detector`` with dropout on the maps that enter its heads (``dropout_site`` in)."""
    settings, exact = detector.settings, features.as_float32()
    maps = detector.family.head_maps(exact, detector.dropout(seed, range(settings.passes)))
    boxes, objectness = [], []
    for number in range(settings.passes):
        outputs = detector.family.head_outputs(exact, [m[number : number + 1] for m in maps], 1.0)
        scores = flat([level.detach() for level in outputs.objectness])[0]
        every = torch.arange(len(scores), device=scores.device)
        boxes.append(outputs.decode_boxes(every).double().cpu().numpy())
        objectness.append(scores.double().cpu().numpy())
    (height, width), (original_width, original_height) = features.resized, features.image_size
    scale = np.array([original_width / width, original_height / height] * 2)
    return fuse(np.stack(boxes) * scale, np.stack(objectness), settings.nms_threshold)

# SPDX-License-Identifier: Apache-2.0
"""One picture of the detector study with adversarial patches on its stickers, made for this picture and this model."""

from __future__ import annotations

import numpy as np

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.evaluation.metrics.matching import DECISION_SCORE, MATCH_IOU, overlapping
from sticker_uq.io.coco import LabelledImage, read_picture
from sticker_uq.lab.attacks.dpatch import craft_patch
from sticker_uq.lab.attacks.white_box import Adversarial
from sticker_uq.lab.datasets.abnormal import patched
from sticker_uq.scene import FloatArray, ObjectClass
from sticker_uq.uncertainty import iou_matrix


def patch_picture(detector: StochasticDetector, item: LabelledImage, steps: int, seed: int) -> Adversarial:
    """The adversarial ``item``: a patch on one or two stickers, made in ``steps`` against ``detector``.

    The patch is a DPatch (Liu et al. 2019).

    ``targets``: stickers with a patch; ``fooled``: those of them that the model without dropout no longer detects. A picture
    without stickers stays as it is. Raises InvalidInput for a picture that cannot be read.
    """
    clean = read_picture(item)
    if not (item.labels == ObjectClass.STICKER).any():
        return Adversarial(clean, 0, 0.0, 0.0, 0, 0)
    patch = craft_patch(detector, [item], steps=steps, seed=seed, batch=1)
    rng = np.random.default_rng([seed, 1])
    scene = patched(clean, item.boxes, item.labels, rng, patch)
    change = scene.image.astype(np.float64) - clean
    stickers = item.boxes[item.labels == ObjectClass.STICKER]
    attacked = stickers[np.unique(iou_matrix(scene.added, stickers).argmax(axis=1))]
    return Adversarial(
        image=scene.image,
        iterations=steps,
        linf=float(np.abs(change).max()),
        rms=float(np.sqrt(np.square(change).mean())),
        targets=len(attacked),
        fooled=int((~_detected(detector, scene.image, attacked)).sum()),
    )


def _detected(detector: StochasticDetector, image: np.ndarray, boxes: FloatArray) -> np.ndarray:
    """Which of ``boxes`` (N, 4) of stickers a pass without dropout detects, (N,) bool."""
    found = detector.detect(detector.encode(image))
    sure = (found.foreground_labels == ObjectClass.STICKER) & (found.scores >= DECISION_SCORE)
    return overlapping(boxes, found.boxes[sure], MATCH_IOU)

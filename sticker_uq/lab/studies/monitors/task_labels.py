# SPDX-License-Identifier: Apache-2.0
"""Crops with a probability of removable sticker, for the networks of :mod:`sticker_uq.lab.studies.monitors.task_networks`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np

from sticker_uq.lab.studies.ambiguity.raae import Raae, train_raaes
from sticker_uq.lab.studies.ambiguity.sampling import generate
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

KERNELS = (0, 3, 7, 11)
"""Side of the Gaussian kernel of each blur level, px; 0: not blurred (Section V-C of the paper and its code)."""
STICKER_LABELS = (1.0, 0.9, 0.7, 0.5)
OTHER_LABELS = (0.0, 0.1, 0.2, 0.3)
"""Probability of sticker at each blur level, of what is a sticker and of what is not, the paper's for pedestrians."""
ANNOTATORS = 5
_SIGMA = 3.0  # px, at every kernel


@dataclass(frozen=True)
class LabelledCrops:
    """``crops`` (N, C, h, w) float32 0..1 with their probability of sticker ``probabilities`` (N,).

    ``sources`` (N,): crops of the same number come from the same picture of an object.
    """

    crops: FloatArray
    probabilities: FloatArray
    sources: IntArray


TrainAndTest = tuple[LabelledCrops, LabelledCrops]


def sticker_class(material: Material) -> int:
    """Which of the classes is the sticker; InvalidInput where none is."""
    if "sticker" not in material.classes:
        raise InvalidInput(f"{material.name} has no stickers, expected cell or a COCO folder")
    return material.classes.index("sticker")


def blur_labels(material: Material) -> TrainAndTest:
    """Every crop at every blur level, the probability by the level."""
    sticker = sticker_class(material)
    return (
        _blurred(material.train, material.train_labels == sticker),
        _blurred(material.test, material.test_labels == sticker),
    )


def ambiguess_labels(material: Material, count: int) -> TrainAndTest:
    """Sure crops, and ``count`` between sticker and another class by AmbiGuess's
    probability.

    Half as many to test with.
    """
    sticker = sticker_class(material)
    raaes = train_raaes(material.train, material.train_labels, material.pairs, material.raae)
    return (
        _with_ambiguous(material, material.train, material.train_labels == sticker, raaes, count, seed=1),
        _with_ambiguous(
            material, material.test, material.test_labels == sticker, raaes, max(1, count // 2), seed=2
        ),
    )


def annotator_labels(labelled: LabelledCrops) -> LabelledCrops:
    """The same crops, each with the share of ANNOTATORS who called it a sticker.

    No person was asked: each annotator says sticker with the crop's probability.
    """
    votes = np.random.default_rng(3).binomial(ANNOTATORS, labelled.probabilities)
    return replace(labelled, probabilities=votes / ANNOTATORS)


def _blurred(crops: FloatArray, stickers: FloatArray) -> LabelledCrops:
    pictures, probabilities = [], []
    for kernel, of_sticker, of_other in zip(KERNELS, STICKER_LABELS, OTHER_LABELS, strict=True):
        pictures.append(crops if kernel == 0 else np.stack([_blur(crop, kernel) for crop in crops]))
        probabilities.append(np.where(stickers, of_sticker, of_other))
    return LabelledCrops(
        np.concatenate(pictures), np.concatenate(probabilities), np.tile(np.arange(len(crops)), len(KERNELS))
    )


def _blur(crop: FloatArray, kernel: int) -> FloatArray:
    picture = np.ascontiguousarray(crop.transpose(1, 2, 0))
    blurred = cv2.GaussianBlur(picture, (kernel, kernel), _SIGMA)
    return np.asarray(blurred.reshape(picture.shape).transpose(2, 0, 1), np.float32)


def _with_ambiguous(
    material: Material, crops: FloatArray, stickers: FloatArray, raaes: list[Raae], count: int, seed: int
) -> LabelledCrops:
    # any difference of the two probabilities, so that there are labels on both sides of every threshold
    made = generate(raaes, count, delta_max=1.0, seed=seed)
    probabilities = made.vectors(len(material.classes))[:, sticker_class(material)]
    everything = np.concatenate([np.asarray(crops, np.float32), made.images])
    return LabelledCrops(
        everything, np.concatenate([stickers.astype(np.float64), probabilities]), np.arange(len(everything))
    )

# SPDX-License-Identifier: Apache-2.0
"""Confidence against what came true: reliability diagrams, and calibration errors of detectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.probability_quality import BINS, bin_index
from sticker_uq.evaluation.metrics.statistics import wilson
from sticker_uq.scene import FloatArray

LAECE_BINS = 25


@dataclass(frozen=True)
class Bin:
    """Objects whose confidence lies in (``low``, ``high``]: how many, their mean ``confidence`` and the share that is right
    with its 95 % Wilson interval. NaN in an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float
    right: float
    right_low: float
    right_high: float


def reliability(confidence: FloatArray, right: NDArray[np.bool_], bins: int = BINS) -> tuple[Bin, ...]:
    """Bins of a reliability diagram of ``confidence`` (N,) in [0, 1], lowest first (Guo et al. 2017)."""
    index = bin_index(confidence, bins)
    found = []
    for number in range(bins):
        inside = index == number
        count = int(inside.sum())
        hits = int(right[inside].sum())
        found.append(
            Bin(
                number / bins,
                (number + 1) / bins,
                count,
                float(confidence[inside].mean()) if count else math.nan,
                hits / count if count else math.nan,
                *wilson(hits, count),
            )
        )
    return tuple(found)


def localization_aware_calibration_error(
    score: FloatArray, right: NDArray[np.bool_], iou: FloatArray, bins: int = LAECE_BINS
) -> float:
    """Calibration error LaECE of a class, 0..1: a score should be precision times mean IoU of its bin's hits (Oksuz et al.
    2023, eq 5).

    The LaECE of a detector is the mean over its classes. ``iou`` (N,) of each hit with its object; NaN without detections.
    """
    if not len(score):
        return math.nan
    index = bin_index(score, bins)
    # per bin: count times precision times mean IoU of the hits is the sum of their IoU
    gap = np.bincount(index, np.where(right, iou, 0.0) - score.astype(np.float64), bins)
    return float(np.abs(gap).sum() / len(score))

# SPDX-License-Identifier: Apache-2.0
"""Box quality of one image in the detector study, beside average precision: LRP and PDQ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr

from sticker_uq.evaluation.metrics.accuracy import as_detections
from sticker_uq.evaluation.metrics.matching import DECISION_SCORE, MATCH_IOU, match_classes
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import FloatArray, ObservedObject

_LEAST_DEVIATION = 0.5
"""Standard deviation of a corner below which a box cannot be drawn, px."""
_REACH = 4.0
_SMALLEST = 1e-14


@dataclass(frozen=True)
class BoxQuality:
    """Box quality of one image: matched pairs, wrong detections, missed objects; sums of localization error and pPDQ over
    pairs.
    """

    true_positives: int
    false_positives: int
    false_negatives: int
    localization_error: float
    pdq_sum: float

    @property
    def lrp(self) -> float:
        """Localization recall precision error 0..1 (Oksuz et al. 2018), lower is better; NaN without objects and
        detections.
        """
        total = self.true_positives + self.false_positives + self.false_negatives
        return (
            (self.localization_error + self.false_positives + self.false_negatives) / total
            if total
            else math.nan
        )

    @property
    def pdq(self) -> float:
        """Box quality PDQ: probability-based detection quality 0..1 (Hall et al. 2020); NaN without objects and detections."""
        total = self.true_positives + self.false_positives + self.false_negatives
        return self.pdq_sum / total if total else math.nan


def box_quality(objects: Sequence[ObservedObject], truth: LabelledImage) -> BoxQuality:
    """Box quality of clustered ``objects`` with a score from DECISION_SCORE on, against the labels of
    ``truth``.

    LRP matches at IoU 0.5 within a class, the surest first; PDQ matches for the largest sum of pairwise qualities, in which the
    corners of a box are Gaussian with the variances over the passes.
    """
    found = [o for o in objects if o.score >= DECISION_SCORE and o.label != 0]
    places, overlaps = match_classes(as_detections(found), truth)
    hits = int((places >= 0).sum())
    error = float((1.0 - overlaps[places >= 0]).sum()) / (1.0 - MATCH_IOU)
    pairs = np.array(
        [
            [pairwise_pdq(o, box, int(c)) for box, c in zip(truth.boxes, truth.labels, strict=True)]
            for o in found
        ]
    ).reshape(len(found), len(truth.boxes))
    rows, columns = linear_sum_assignment(pairs, maximize=True)
    return BoxQuality(
        hits, len(found) - hits, len(truth.boxes) - hits, error, float(pairs[rows, columns].sum())
    )


def pairwise_pdq(found: ObservedObject, box: FloatArray, label: int) -> float:
    """Box quality pPDQ 0..1 of one detection and one object: sqrt(spatial quality times probability of the object's class)."""
    deviation = np.maximum(np.sqrt(np.diag(found.box_covariance)), _LEAST_DEVIATION)
    low = np.floor(np.minimum(box[:2], found.box[:2] - _REACH * deviation[:2])).astype(int)
    high = np.ceil(np.maximum(box[2:], found.box[2:] + _REACH * deviation[2:])).astype(int)
    covered, inside = [], []
    for axis in (0, 1):
        pixels = np.arange(low[axis], high[axis]) + 0.5
        begins = ndtr((pixels - found.box[axis]) / deviation[axis])
        ends = ndtr((found.box[axis + 2] - pixels) / deviation[axis + 2])
        covered.append(begins * ends)
        inside.append((pixels > box[axis]) & (pixels < box[axis + 2]))
    within = float(inside[0].sum() * inside[1].sum())
    if not within or not np.isfinite(deviation).all():
        return 0.0
    logs = [np.log(np.maximum(c[i], _SMALLEST)).mean() for c, i in zip(covered, inside, strict=True)]
    foreground = -float(sum(logs))  # the pixel's probability is the product of its row's and its column's
    probability = np.outer(covered[1], covered[0])
    probability[np.outer(inside[1], inside[0])] = 0.0
    background = -float(np.log1p(-np.minimum(probability, 1 - _SMALLEST)).sum()) / within
    return math.sqrt(math.exp(-(foreground + background)) * float(found.probabilities[label]))

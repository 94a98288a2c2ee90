# SPDX-License-Identifier: Apache-2.0
"""What a dynamic decision threshold gains over the fixed one: the figures of the DiL paper's Table 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from sticker_uq.dil.settings import LocalizationSettings, ThresholdRule
from sticker_uq.dil.thresholds import above_dil_threshold
from sticker_uq.evaluation.metrics.matching import match_classes
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, InvalidInput, Localization

_DEFAULTS = LocalizationSettings()


@dataclass(frozen=True)
class ThresholdResult:
    """Detections against ground truth under one rule; gains are relative to the fixed threshold, 0.1 is 10 % more.

    ``recall``, ``precision``, ``f1``: over all objects of all images, a detection being right when its class is and its IoU is at
    least 0.5; ``tpr``: the mean over images with objects of the part found. NaN where there is nothing to measure on.
    """

    rule: ThresholdRule
    recall: float
    precision: float
    f1: float
    tpr: float
    recall_gain: float
    precision_gain: float
    f1_gain: float
    tpr_gain: float


def threshold_gains(
    detections: Sequence[Detections],
    localizations: Sequence[Localization | None],
    truths: Sequence[LabelledImage],
    decision_threshold: float = _DEFAULTS.decision_threshold,
    alpha: float = _DEFAULTS.alpha,
) -> tuple[ThresholdResult, ...]:
    """One result for each threshold rule, the fixed one first (DiL paper, Table 3, for one case and one model).

    ``detections``: those without dropout, from the score floor on. Raises InvalidInput when the three do not have one entry for
    each image.
    """
    if not len(detections) == len(localizations) == len(truths):
        raise InvalidInput(
            f"{len(detections)} detections, {len(localizations)} localizations and {len(truths)} labelled images, expected "
            "one of each for every image"
        )
    results: list[ThresholdResult] = []
    for rule in get_args(ThresholdRule):
        found = np.array(
            [
                _counts(above_dil_threshold(d, where, rule, decision_threshold, alpha), truth)
                for d, where, truth in zip(detections, localizations, truths, strict=True)
            ],
            np.float64,
        ).reshape(-1, 3)
        values = _figures(*found.T)
        base = (
            values
            if not results
            else (results[0].recall, results[0].precision, results[0].f1, results[0].tpr)
        )
        gains = [_ratio(value - first, first) for value, first in zip(values, base, strict=True)]
        results.append(ThresholdResult(rule, *values, *gains))
    return tuple(results)


def _figures(hits: np.ndarray, predicted: np.ndarray, objects: np.ndarray) -> tuple[float, ...]:
    recall = _ratio(hits.sum(), objects.sum())
    precision = _ratio(hits.sum(), predicted.sum())
    with_objects = objects > 0
    tpr = float((hits[with_objects] / objects[with_objects]).mean()) if with_objects.any() else float("nan")
    return recall, precision, _ratio(2.0 * hits.sum(), predicted.sum() + objects.sum()), tpr


def _counts(found: Detections, truth: LabelledImage) -> tuple[int, int, int]:
    """Right detections, detections and objects of one image."""
    hits = int((match_classes(found, truth)[0] >= 0).sum())
    return hits, len(found), len(truth.labels)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")

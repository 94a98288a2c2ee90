# SPDX-License-Identifier: Apache-2.0
"""Which detections count under a fixed, a dynamic and a regional decision threshold (DiL paper, sections 3.2.3 and 7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sticker_uq.dil.score import dynamic_threshold
from sticker_uq.dil.settings import LocalizationSettings, ThresholdRule
from sticker_uq.scene import Detections, FloatArray, Localization

_DEFAULTS = LocalizationSettings()
_INSIDE = 0.5  # part of a detection's box that must lie in a region to belong to it


def decision_thresholds(
    detections: Detections,
    localization: Localization | None,
    rule: ThresholdRule,
    decision_threshold: float = _DEFAULTS.decision_threshold,
    alpha: float = _DEFAULTS.alpha,
) -> FloatArray:
    """The score that each of ``detections`` must reach under a DiL threshold, (N,) probabilities.

    "fixed": FDT, the ``decision_threshold``. "paper": FDT - ``alpha`` * DiL in the whole image (DiL paper, eq 6). "regional":
    FDT - ``alpha`` in the unexplained regions, FDT elsewhere: no box explains anything in them, so that their own DiL is 1.
    Without a ``localization`` every rule is the fixed one.
    """
    thresholds = np.full(len(detections), decision_threshold)
    if localization is None or rule == "fixed":
        return thresholds
    if rule == "paper":
        thresholds[:] = dynamic_threshold(localization.dil, decision_threshold, alpha)
        return thresholds
    for region in localization.unexplained:
        inside = _part_inside(detections.boxes, region.box) >= _INSIDE
        thresholds[inside] = dynamic_threshold(1.0, decision_threshold, alpha)
    return thresholds


def above_dil_threshold(
    detections: Detections,
    localization: Localization | None,
    rule: ThresholdRule,
    decision_threshold: float = _DEFAULTS.decision_threshold,
    alpha: float = _DEFAULTS.alpha,
) -> Detections:
    """The detections that reach their DiL threshold (see :func:`decision_thresholds`), in their order."""
    kept: NDArray[np.bool_] = detections.scores >= decision_thresholds(
        detections, localization, rule, decision_threshold, alpha
    )
    return Detections(detections.boxes[kept], detections.probabilities[kept])


def _part_inside(boxes: FloatArray, region: FloatArray) -> FloatArray:
    """Part of the area of each of ``boxes`` (N, 4) that lies in ``region`` (4,), (N,) 0..1."""
    boxes = np.asarray(boxes, np.float64)
    sides = np.minimum(boxes[:, 2:], region[2:]) - np.maximum(boxes[:, :2], region[:2])
    areas = np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None).prod(axis=1)
    return np.clip(sides, 0.0, None).prod(axis=1) / np.maximum(areas, 1e-9)

# SPDX-License-Identifier: Apache-2.0
"""CL, BL, DiL and the dynamic decision threshold from a saliency map and boxes (DiL paper, section 3.1, eq 3-6), and which
detections count under a fixed, a dynamic and a regional one (sections 3.2.3 and 7); for studies, live it is dil.py.
"""

import math

import numpy as np
from numpy.typing import NDArray

from sticker_uq.perception.dil.settings import LocalizationSettings, ThresholdRule
from sticker_uq.scene import Detections, FloatArray, IntArray, Localization


def covered_pixels(boxes: FloatArray, height: int, width: int) -> NDArray[np.bool_]:
    """Pixels in at least one of the predicted ``boxes`` (N, 4), (height, width) bool; see :func:`pixel_edges`."""
    covered = np.zeros((height, width), np.bool_)
    for left, top, right, bottom in pixel_edges(boxes, height, width):
        covered[top:bottom, left:right] = True
    return covered


def pixel_edges(boxes: FloatArray, height: int, width: int) -> IntArray:
    """The pixels of each of ``boxes`` (N, 4) as (N, 4) first column, first row, last column + 1, last row + 1.

    A pixel belongs to a box when its centre does: x1 <= column + 0.5 < x2, and the same for rows.
    """
    limits = np.array([width, height, width, height])
    return np.clip(np.ceil(np.asarray(boxes, np.float64).reshape(-1, 4) - 0.5), 0, limits).astype(np.int64)


def distinctive_localization(saliency: FloatArray, boxes: FloatArray) -> tuple[float, float, float]:
    """Complete localization CL, background localization BL and DiL = BL / CL (DiL paper, eq 3-5).

    ``saliency`` (H, W) >= 0; ``boxes`` (N, 4) predicted boxes in its pixels. DiL is in [0, 1]: 1 when there is saliency but
    no box, 0 when all saliency lies in boxes, NaN when there is no saliency at all.
    """
    outside = np.where(covered_pixels(boxes, *saliency.shape), np.zeros((), saliency.dtype), saliency)
    # Both sums add in the same order, so BL cannot exceed CL by rounding.
    complete = float(saliency.sum(dtype=np.float64))
    background = float(outside.sum(dtype=np.float64))
    return complete, background, background / complete if complete > 0.0 else float("nan")


def dynamic_threshold(dil: float, decision_threshold: float, alpha: float) -> float:
    """``decision_threshold`` lowered by ``alpha * dil``, a probability >= 0 (DiL paper, eq 6); as it is when ``dil`` is NaN."""
    return decision_threshold if math.isnan(dil) else max(0.0, decision_threshold - alpha * dil)


_DEFAULTS = LocalizationSettings()
_INSIDE = 0.5  # part of a detection's box that must lie in a region to belong to it


def decision_thresholds(
    detections: Detections,
    localization: Localization | None,
    rule: ThresholdRule,
    decision_threshold: float = _DEFAULTS.decision_threshold,
    alpha: float = _DEFAULTS.alpha,
) -> FloatArray:
    """The score that each of ``detections`` must reach under ``rule``, (N,) probabilities.

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
    """The detections that reach their threshold (see :func:`decision_thresholds`), in their order."""
    least = decision_thresholds(detections, localization, rule, decision_threshold, alpha)
    kept: NDArray[np.bool_] = detections.scores >= least
    return Detections(detections.boxes[kept], detections.probabilities[kept])


def _part_inside(boxes: FloatArray, region: FloatArray) -> FloatArray:
    """Part of the area of each of ``boxes`` (N, 4) that lies in ``region`` (4,), (N,) 0..1."""
    boxes = np.asarray(boxes, np.float64)
    sides = np.minimum(boxes[:, 2:], region[2:]) - np.maximum(boxes[:, :2], region[:2])
    areas = np.clip(boxes[:, 2:] - boxes[:, :2], 0.0, None).prod(axis=1)
    return np.clip(sides, 0.0, None).prod(axis=1) / np.maximum(areas, 1e-9)

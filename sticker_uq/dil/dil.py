# SPDX-License-Identifier: Apache-2.0
"""Distinctive localization of one image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sticker_uq.detection import DeterministicPass, Features, NonFiniteOutput
from sticker_uq.detection.transfer import to_host
from sticker_uq.dil.regions import CONNECTED_IOU, MAX_REGIONS, Unexplained, apart, unexplained_anchors
from sticker_uq.dil.saliency import activation_maps, cell_sums, enlarge
from sticker_uq.dil.score import dynamic_threshold, pixel_edges
from sticker_uq.dil.settings import LocalizationSettings
from sticker_uq.novelty.network import NoveltyMaps
from sticker_uq.novelty.regions import missed_sticker_probability, unexplained_places
from sticker_uq.scene import FloatArray, Localization, UnexplainedRegion
from sticker_uq.uncertainty import iou_matrix


def localize(
    deterministic: DeterministicPass,
    settings: LocalizationSettings,
    keep_saliency: bool = False,
    novelty: NoveltyMaps | None = None,
) -> Localization:
    """DiL: how well the predicted boxes explain the objectness of the image of ``deterministic`` (DiL paper, eq 1-6).

    Predicted boxes are the detections whose score reaches the fixed decision threshold. The saliency map stays
    in the result if ``keep_saliency``. ``novelty``: output of the novelty network; what no box explains of
    it joins the unexplained places. Raises NonFiniteOutput when the saliency is NaN or infinite.
    """
    features, detections = deterministic.features, deterministic.detections
    maps, floor = activation_maps(deterministic, settings.technique), settings.region_objectness
    predicted = detections.boxes[detections.scores >= settings.decision_threshold]
    # everything at once: a GPU is waited for here and, where it is kept, for the saliency map
    *levels, places, objectness = to_host(*maps, *unexplained_anchors(deterministic, predicted, floor))
    found = apart(deterministic, places, objectness, floor)
    if novelty is not None:
        found = _joined(found, novelty, predicted)
    complete, background, shares = _sums(levels, features, predicted, found.boxes)
    if not math.isfinite(complete):
        raise NonFiniteOutput(f"the objectness saliency sums to {complete}, expected a finite number")
    dil = background / complete if complete > 0.0 else math.nan
    return Localization(
        complete_localization=complete,
        background_localization=background,
        dil=dil,
        decision_threshold=dynamic_threshold(dil, settings.decision_threshold, settings.alpha),
        unexplained_objectness=found.objectness,
        unexplained=_regions(found, shares),
        missed_sticker_probability=math.nan
        if novelty is None
        else missed_sticker_probability(novelty, predicted),
        saliency=enlarge(maps, features) if keep_saliency else None,
    )


def _joined(found: Unexplained, maps: NoveltyMaps, predicted: FloatArray) -> Unexplained:
    """``found`` and, after it, the places of ``maps`` that are not among them."""
    boxes, values = unexplained_places(maps, predicted)
    new = iou_matrix(boxes, found.boxes).max(axis=1, initial=0.0) <= CONNECTED_IOU
    return replace(
        found,
        boxes=np.concatenate([found.boxes, boxes[new]])[:MAX_REGIONS],
        values=np.concatenate([found.values, values[new]])[:MAX_REGIONS],
    )


def _sums(
    levels: Sequence[Tensor], features: Features, predicted: FloatArray, regions: FloatArray
) -> tuple[float, float, list[float]]:
    """CL, BL, and the share of BL in each of ``regions`` (K, 4), 0..1 (DiL paper, eq 3-4).

    The edges of all boxes cut the image into cells; each cell is summed as a whole.
    """
    width, height = features.image_size
    both = pixel_edges(np.concatenate([predicted, regions]), height, width)
    boxes, places = both[: len(predicted)], both[len(predicted) :]
    columns = np.array(sorted({0, width, *both[:, 0::2].ravel().tolist()}))
    rows = np.array(sorted({0, height, *both[:, 1::2].ravel().tolist()}))
    sums = cell_sums(levels, features, rows, columns)
    covered = np.zeros(sums.shape, np.bool_)
    for box in boxes:
        covered |= _cells(box, rows, columns)
    outside = np.where(covered, 0.0, sums)
    # Both sums add in the same order, so BL cannot exceed CL by rounding.
    complete, background = float(sums.sum()), float(outside.sum())
    inside = [float(np.where(_cells(place, rows, columns), outside, 0.0).sum()) for place in places]
    return complete, background, [part / background if background > 0.0 else 0.0 for part in inside]


def _cells(box: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which cells between ``rows`` (R + 1,) and ``columns`` (C + 1,) lie in ``box`` (4,), (R, C)."""
    left, top, right, bottom = box
    down = (rows[:-1] >= top) & (rows[1:] <= bottom)
    across = (columns[:-1] >= left) & (columns[1:] <= right)
    return np.asarray(down[:, None] & across[None])


def _regions(found: Unexplained, shares: Sequence[float]) -> tuple[UnexplainedRegion, ...]:
    return tuple(
        UnexplainedRegion(box=box, objectness=float(value), share=share)
        for box, value, share in zip(found.boxes, found.values, shares, strict=True)
    )

# SPDX-License-Identifier: Apache-2.0
"""Stickers and foreign objects of the novelty network that no predicted box explains."""

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from sticker_uq.perception.novelty.network import NoveltyMaps
from sticker_uq.scene import FloatArray
from sticker_uq.uncertainty import iou_matrix

MOST_CELLS = 8
"""Cells that a picture's novelty is the mean of, as log odds."""
PLACE_PROBABILITY = 0.5
"""Probability of a foreign object or sticker from which a cell belongs to a place."""
_LEAST_CELLS = 2
_EXPLAINED = 0.5
"""Part of a place in predicted boxes from which these explain it."""
SHOWN_IOU = 0.4
"""IoU with a predicted box from which this shows the same sticker, however badly it is drawn."""
_NEAREST = 1e-6
"""Least distance of a probability from 0 and 1."""


def scene_novelty(maps: NoveltyMaps) -> float:
    """Mean log odds of a foreign object in the MOST_CELLS strongest cells, as a probability."""
    strongest = np.sort(maps.foreign.astype(np.float64), axis=None)[-MOST_CELLS:]
    return float(expit(logit(np.clip(strongest, _NEAREST, 1 - _NEAREST)).mean()))


def missed_stickers(maps: NoveltyMaps, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Detected stickers that none of the ``predicted`` boxes (N, 4) px shows, the surest first.

    Boxes (K, 4) float32 px and how probably each is a sticker, (K,) float32.
    """
    alone = iou_matrix(maps.boxes, predicted).max(axis=1, initial=0.0) < SHOWN_IOU
    return maps.boxes[alone], maps.scores[alone]


def missed_sticker_probability(maps: NoveltyMaps, predicted: FloatArray) -> float:
    """Probability that a sticker is visible that no ``predicted`` box (N, 4) px shows: of the surest missed one."""
    return float(missed_stickers(maps, predicted)[1].max(initial=0.0))


def unexplained_places(maps: NoveltyMaps, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Stickers and foreign objects that the ``predicted`` boxes (N, 4) px do not explain.

    Boxes (K, 4) float32 px and probabilities (K,) float32: :func:`missed_stickers` of PLACE_PROBABILITY or more, then connected
    cells with a foreign object or a sticker of which no such box covers half; both the surest first.
    """
    stickers, sure = missed_stickers(maps, predicted)
    stickers, sure = stickers[sure >= PLACE_PROBABILITY], sure[sure >= PLACE_PROBABILITY]
    boxes, values = _connect_regions(maps, np.concatenate([predicted, stickers]))
    return np.concatenate([stickers, boxes]), np.concatenate([sure, values])


def _connect_regions(maps: NoveltyMaps, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Boxes (K, 4) px around connected cells with a foreign object or a sticker, and their probabilities (K,), falling."""
    seen = np.maximum(maps.foreign, maps.sticker)
    covered = _mask_covered(maps, predicted)
    count, numbers, found, _ = cv2.connectedComponentsWithStats(
        (seen >= PLACE_PROBABILITY).astype(np.uint8), connectivity=4
    )
    boxes, values = [], []
    for place in range(1, count):
        cells = numbers == place
        if cells.sum() < _LEAST_CELLS or covered[cells].mean() >= _EXPLAINED:
            continue
        left, top, width, height = found[place][:4]
        boxes.append((left, top, left + width, top + height))
        values.append(seen[cells & ~covered].max())
    order = np.argsort(-np.array(values, np.float32), kind="stable")
    edges = np.array(boxes, np.float32).reshape(-1, 4)[order] * np.array([*maps.cell, *maps.cell], np.float32)
    limits = np.array([*maps.image_size, *maps.image_size], np.float32)
    return np.minimum(edges, limits), np.array(values, np.float32)[order]


def _mask_covered(maps: NoveltyMaps, boxes: FloatArray) -> NDArray[np.bool_]:
    """Cells (h, w) whose centre lies in one of ``boxes`` (N, 4) px."""
    sides = zip(maps.foreign.shape, maps.cell[::-1], strict=True)
    rows, columns = ((np.arange(n) + 0.5) * size for n, size in sides)
    covered = np.zeros(maps.foreign.shape, np.bool_)
    for left, top, right, bottom in np.asarray(boxes, np.float64).reshape(-1, 4):
        covered |= ((rows >= top) & (rows < bottom))[:, None] & ((columns >= left) & (columns < right))[None]
    return covered

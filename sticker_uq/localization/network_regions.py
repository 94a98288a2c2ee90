"""Where the network that looks for strangers sees something that no predicted box explains."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from sticker_uq.localization.network import StrangerMaps
from sticker_uq.scene import FloatArray

MOST_CELLS = 8
"""Cells that a picture's strangeness is the mean of, as log odds."""
SEEN = 0.5
"""Probability of a stranger or sticker from which a cell belongs to a place."""
_LEAST_CELLS = 2
_EXPLAINED = 0.5
"""Part of a place in predicted boxes from which these explain it."""
_NEAREST = 1e-6
"""Least distance of a probability from 0 and 1."""


def scene_strangeness(maps: StrangerMaps) -> float:
    """Strangeness of a picture: of its MOST_CELLS strongest cells the mean log odds of a stranger, as a probability."""
    return _strongest(maps.stranger)


def overlooked(maps: StrangerMaps, predicted: FloatArray) -> float:
    """How strange the picture is outside of the ``predicted`` boxes (N, 4) px, as :func:`scene_strangeness`."""
    return _strongest(np.where(_covered(maps, predicted), np.float32(0), maps.stranger))


def _strongest(cells: FloatArray) -> float:
    strongest = np.clip(np.sort(cells.astype(np.float64), axis=None)[-MOST_CELLS:], _NEAREST, 1 - _NEAREST)
    return float(expit(logit(strongest).mean()))


def unseen_places(maps: StrangerMaps, predicted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Places with a stranger or a sticker that the ``predicted`` boxes (N, 4) px do not explain, the surest first.

    Boxes (K, 4) float32 px of the picture around connected cells, and their probabilities (K,) float32.
    """
    seen = np.maximum(maps.stranger, maps.sticker)
    covered = _covered(maps, predicted)
    count, numbers, found, _ = cv2.connectedComponentsWithStats(
        (seen >= SEEN).astype(np.uint8), connectivity=4
    )
    boxes, values = [], []
    for place in range(1, count):
        cells = numbers == place
        if cells.sum() < _LEAST_CELLS or covered[cells].mean() > _EXPLAINED:
            continue
        left, top, width, height = found[place][:4]
        boxes.append((left, top, left + width, top + height))
        values.append(seen[cells & ~covered].max())
    order = np.argsort(-np.array(values, np.float32), kind="stable")
    edges = np.array(boxes, np.float32).reshape(-1, 4)[order] * np.array([*maps.cell, *maps.cell], np.float32)
    limits = np.array([*maps.image_size, *maps.image_size], np.float32)
    return np.minimum(edges, limits), np.array(values, np.float32)[order]


def _covered(maps: StrangerMaps, boxes: FloatArray) -> NDArray[np.bool_]:
    """Cells (h, w) whose centre lies in one of ``boxes`` (N, 4) px."""
    rows, columns = (
        (np.arange(n) + 0.5) * size for n, size in zip(maps.stranger.shape, maps.cell[::-1], strict=True)
    )
    covered = np.zeros(maps.stranger.shape, np.bool_)
    for left, top, right, bottom in np.asarray(boxes, np.float64).reshape(-1, 4):
        covered |= ((rows >= top) & (rows < bottom))[:, None] & ((columns >= left) & (columns < right))[None]
    return covered

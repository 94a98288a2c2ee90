# SPDX-License-Identifier: Apache-2.0
"""The box deltas of an SSD's default boxes, of those that are wanted: of some thousands few survive their scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sticker_uq.detection.kernels.ssd_branches import Level
from sticker_uq.detection.selection import check_finite
from sticker_uq.scene import FloatArray, IntArray

_FEW = 6
"""Up to one place in so many of a level is computed by itself, from there on the whole level."""


class SsdDeltas:
    """Box deltas (n, N, 4) of the maps of n images, on a processor, computed where somebody asks."""

    def __init__(self, levels: Sequence[Level], maps: Sequence[Tensor], counts: Sequence[int]) -> None:
        """``levels``: of the regression head; ``maps``: (n, C, h, w) per level; ``counts``: default boxes per level."""
        self._levels, self._maps, self._ends = levels, maps, np.cumsum(counts)
        self._counts = counts
        self._outputs: dict[int, Tensor] = {}

    def __call__(self, image: int | Tensor, rows: Tensor) -> Tensor:
        """The deltas (K, 4) of the boxes ``rows`` (K,) of one image, or of the image of each. NonFiniteOutput if any is not."""
        images = image.numpy() if isinstance(image, Tensor) else np.full(len(rows), image)
        numbers = rows.numpy()
        level_of = np.searchsorted(self._ends, numbers, side="right")
        deltas = np.empty((len(rows), 4), np.float32)
        for level in set(level_of.tolist()):
            members = np.flatnonzero(level_of == level)
            start = self._ends[level] - self._counts[level]
            deltas[members] = self._of_level(level, images[members], numbers[members] - start)
        found = torch.from_numpy(deltas)
        check_finite(found)
        return found

    def _of_level(self, level: int, images: IntArray, rows: IntArray) -> FloatArray:
        x = self._maps[level]
        n, _, height, width = x.shape
        boxes = self._counts[level] // (height * width)
        place, box = images * (height * width) + rows // boxes, rows % boxes
        outputs = self._outputs.get(level)
        if outputs is None:
            places, place_of = np.unique(place, return_inverse=True)
            if _FEW * len(places) <= n * height * width:
                outputs, place = self._levels[level].at(_patches(x, places)), place_of
            else:
                outputs = self._outputs[level] = self._levels[level].rows(x)[0]
        return np.asarray(outputs.view(-1, boxes, 4).numpy()[place, box])


def _patches(x: Tensor, places: IntArray) -> Tensor:
    """The neighbourhoods (K, 9, C) of ``places`` (K,), counted over images, rows and columns of ``x`` (n, C, h, w).

    Zeros beyond the edges.
    """
    n, channels, height, width = x.shape
    row, column = places // width % height, places % width
    step = np.arange(-1, 2)
    down, across = row[:, None, None] + step[:, None], column[:, None, None] + step
    inside = (down >= 0) & (down < height) & (across >= 0) & (across < width)
    index = places[:, None, None] + step[:, None] * width + step
    table = x.permute(0, 2, 3, 1).reshape(n * height * width, channels)
    found = table.index_select(0, torch.from_numpy(np.where(inside, index, 0).ravel()))
    if not inside.all():
        found *= torch.from_numpy(inside.reshape(-1, 1))
    return found.view(len(places), 9, channels)

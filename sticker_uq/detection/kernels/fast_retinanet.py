# SPDX-License-Identifier: Apache-2.0
"""RetinaNet's stochastic passes over a frozen model, with box deltas computed for the levels that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.fast_pyramid import FastPyramid
from sticker_uq.detection.models.retinanet import RetinaNet
from sticker_uq.detection.selection import check_finite
from sticker_uq.detection.settings import DetectorSettings


class LazyDeltas:
    """Box deltas (n, N, 4) whose regression branch computes a level only when one of its anchors is wanted.

    Objects of a picture are on one level or two; the branch costs as much as that of the class scores. For a processor.
    """

    def __init__(self, images: int, counts: Sequence[int], compute: Callable[[int], Tensor]) -> None:
        """``counts``: anchors of every level; ``compute``: the deltas (n, count, 4) of a level, of all ``images``."""
        self._compute = compute
        self._ends = np.cumsum(counts)
        self._deltas = torch.empty(images, int(self._ends[-1]), 4)
        self._known: set[int] = set()

    def __call__(self, image: int | Tensor, rows: Tensor) -> Tensor:
        """The deltas (K, 4) of the anchors ``rows`` (K,) of one image, or of the image of each. NonFiniteOutput if any is not."""
        wanted = set(np.searchsorted(self._ends, rows.numpy(), side="right").tolist())
        for level in wanted - self._known:
            made = self._compute(level)
            check_finite(made)
            end = int(self._ends[level])
            self._deltas[:, end - made.shape[1] : end] = made
        self._known |= wanted
        return self._deltas[image, rows]


class FastRetinaNet(RetinaNet):
    """``RetinaNet`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        super().__init__(model, settings)
        self._pyramid = FastPyramid(model.backbone.fpn, settings.dropout_rate)

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        if dropout is no_dropout:
            return super().head_maps(features, dropout)
        return self._pyramid.maps(features, dropout)

    def _deltas(self, maps: list[Tensor], counts: list[int]) -> tuple[Any, ...]:
        if maps[0].device.type != "cpu":
            return super()._deltas(maps, counts)
        branch = self._model.head.regression_head
        return (LazyDeltas(len(maps[0]), counts, lambda level: branch([maps[level]])),)

# SPDX-License-Identifier: Apache-2.0
"""RetinaNet's stochastic passes over a frozen model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.box_deltas import LazyDeltas
from sticker_uq.detection.kernels.fast_pyramid import FastPyramid
from sticker_uq.detection.models.retinanet import RetinaNet
from sticker_uq.detection.settings import DetectorSettings


class FastRetinaNet(RetinaNet):
    """``RetinaNet`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        super().__init__(model, settings)
        self._pyramid = FastPyramid(model.backbone.fpn, settings.dropout_rate)

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        """Fast RetinaNet kernel: the pyramid's maps P3..P7."""
        if dropout is no_dropout:
            return super().head_maps(features, dropout)
        return self._pyramid.maps(features, dropout)

    def _deltas(self, maps: list[Tensor], counts: list[int]) -> tuple[Any, ...]:
        if maps[0].device.type != "cpu":
            return super()._deltas(maps, counts)
        branch = self._model.head.regression_head
        return (LazyDeltas(len(maps[0]), counts, lambda level: branch([maps[level]])),)

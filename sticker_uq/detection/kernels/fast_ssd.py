# SPDX-License-Identifier: Apache-2.0
"""The SSDs' passes over a frozen model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.ssd_branches import ClassScores, levels_of
from sticker_uq.detection.kernels.ssd_deltas import SsdDeltas
from sticker_uq.detection.models.family import HeadOutputs, anchor_outputs, anchors_of
from sticker_uq.detection.models.ssd import Ssd
from sticker_uq.detection.selection import all_finite
from sticker_uq.detection.settings import DetectorSettings


class FastSsd(Ssd):
    """``Ssd`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        super().__init__(model, settings)
        self._keep = 1.0 - settings.dropout_rate
        self._classes = levels_of(model.head.classification_head)
        self._boxes = levels_of(model.head.regression_head)

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        """Fast SSD kernel: the backbone's six maps, with dropout where the site is "in"."""
        if dropout is no_dropout or self._site == "out":
            return super().head_maps(features, dropout)
        scaled = features.derive("scaled", lambda: [m / self._keep for m in features.maps])
        return [dropout.masks(m).mul_(m) for m in scaled]

    def head_outputs(self, features: Features, maps: list[Tensor], score_floor: float) -> HeadOutputs:
        """Fast SSD kernel: head outputs; objectness is the probability of a default box that it is not background."""
        if maps[0].device.type != "cpu":
            return super().head_outputs(features, maps, score_floor)
        plain = [m.detach() for m in maps]
        scores = ClassScores(self._classes, self._model.head.classification_head.num_columns, plain)
        counts = [level[0].numel() for level in scores.objectness]
        outputs = anchor_outputs(
            self._model,
            scores.objectness,
            anchors_of(self._model, features, maps),
            scores.probabilities,
            SsdDeltas(self._boxes, plain, counts),
            all_finite(scores.probabilities),
            score_floor,
        )
        return outputs._replace(gradients=scores.gradients)

# SPDX-License-Identifier: Apache-2.0
"""RetinaNet: dropout in the feature pyramid, one sigmoid per class and anchor."""

import torch

from sticker_uq.detection.deterministic_pass import by_level
from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.models.family import (
    HeadOutputs,
    anchor_candidates,
    anchor_outputs,
    anchors_of,
    take_deltas,
)
from sticker_uq.detection.models.pyramid import PyramidModel
from sticker_uq.detection.selection import Rows, all_finite, sigmoid_distribution


class RetinaNet(PyramidModel):
    two_stage = False

    def candidates(self, features: Features, maps: Maps, dropout: Dropout, score_floor: float) -> Rows:
        outputs = self._model.head(maps)
        probabilities, deltas = sigmoid_distribution(outputs["cls_logits"]), outputs["bbox_regression"]
        return anchor_candidates(self._model, features, maps, probabilities, deltas, score_floor)

    def head_outputs(self, features: Features, maps: Maps, score_floor: float) -> HeadOutputs:
        """Objectness is the largest sigmoid of the foreground classes: there is no objectness head."""
        head = self._model.head
        with torch.enable_grad():
            logits = head.classification_head(maps)
            scores = torch.sigmoid(logits[..., 1:]).amax(dim=2)
            objectness = by_level(scores, maps, self._model.anchor_generator.num_anchors_per_location())
        probabilities = sigmoid_distribution(logits.detach())
        anchors = anchors_of(self._model, features, maps)
        deltas = self._model.head.regression_head([m.detach() for m in maps])
        model, of, finite = self._model, take_deltas(deltas), all_finite(probabilities, deltas)
        return anchor_outputs(model, objectness, anchors, probabilities, of, finite, score_floor)

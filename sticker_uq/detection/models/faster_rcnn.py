# SPDX-License-Identifier: Apache-2.0
"""Faster R-CNN: dropout in the feature pyramid, proposals and boxes once per pass."""

import torch
from torch import Tensor
from torchvision.models.detection.rpn import concat_box_prediction_layers

from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.models.family import HeadOutputs
from sticker_uq.detection.models.pyramid import PyramidModel
from sticker_uq.detection.selection import Rows, check_finite, decode_deltas, softmax_distribution, strongest


class FasterRcnn(PyramidModel):
    two_stage = True

    def candidates(self, features: Features, maps: Maps, dropout: Dropout, score_floor: float) -> Rows:
        objectness, deltas = self._model.rpn.head(maps)
        return self._rows(features, maps, objectness, deltas, score_floor)

    def head_outputs(self, features: Features, maps: Maps, score_floor: float) -> HeadOutputs:
        """Objectness is the region proposal network's logit, before suppression (DiL paper, section 3)."""
        rpn = self._model.rpn
        with torch.enable_grad():
            objectness, deltas = rpn.head(maps)
        # the rest of the network's forward, on the same outputs
        plain, columns = [m.detach() for m in maps], [d.detach() for d in deltas]
        rows = self._rows(features, plain, [o.detach() for o in objectness], columns, score_floor)
        anchors = features.anchors(rpn.anchor_generator, plain)
        flat = torch.cat([d[0].permute(1, 2, 0).reshape(-1, 4) for d in columns])

        def decode_boxes(index: Tensor) -> Tensor:
            return decode_deltas(rpn.box_coder, flat[index], anchors[index])

        return HeadOutputs(tuple(objectness), anchors, decode_boxes, rows)

    def _rows(self, features: Features, maps: Maps, objectness: Maps, deltas: Maps, floor: float) -> Rows:
        """The candidates of ``maps``, of which the region proposal network says ``objectness`` and ``deltas``."""
        # the region proposal network silently leaves out proposals that are not finite
        check_finite(*objectness, *deltas)
        proposals = self._propose(features, maps, objectness, deltas)
        logits, moves = self._vectors(features, maps, proposals)
        check_finite(logits, moves)
        counts = [len(boxes) for boxes in proposals]
        distribution = softmax_distribution(logits).split(counts)
        boxes, probabilities, moves = (
            torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
            for parts in (proposals, distribution, moves.split(counts))
        )
        return self._choose(boxes, probabilities, moves, floor)

    def _choose(self, boxes: Tensor, probabilities: Tensor, deltas: Tensor, score_floor: float) -> Rows:
        """The strongest of the proposals ``boxes`` (n, P, 4) with their ``probabilities`` (n, P, 3) and ``deltas`` (n, P, 12).

        Where a pass has no proposal, the probabilities are 0.
        """
        pass_index, chosen = strongest(probabilities, score_floor)
        vectors = probabilities[pass_index, chosen]
        labels = vectors[:, 1:].argmax(dim=1) + 1
        own_class = deltas.unflatten(2, (-1, 4))[pass_index, chosen, labels].to(torch.float32)
        found = decode_deltas(self._model.roi_heads.box_coder, own_class, boxes[pass_index, chosen])
        return Rows(found, vectors, pass_index)

    def _propose(self, features: Features, maps: Maps, objectness: Maps, deltas: Maps) -> Maps:
        """Proposals (P, 4) px of the resized image for each of the n ``maps``, by falling score."""
        rpn, sizes = self._model.rpn, [features.resized] * len(maps[0])
        anchors = features.anchors(rpn.anchor_generator, maps)
        counts = [level[0].numel() for level in objectness]
        logits, columns = concat_box_prediction_layers(list(objectness), list(deltas))
        decoded = rpn.box_coder.decode(columns, [anchors] * len(sizes)).view(len(sizes), -1, 4)
        proposals: Maps = rpn.filter_proposals(decoded, logits, sizes, counts)[0]
        return proposals

    def _name_maps(self, maps: Maps) -> dict[str, Tensor]:
        return dict(zip([*self._model.roi_heads.box_roi_pool.featmap_names, "pool"], maps, strict=True))

    def _vectors(self, features: Features, maps: Maps, proposals: Maps) -> tuple[Tensor, Tensor]:
        """Class logits (R, 3) and box deltas (R, 12) of all proposals."""
        heads = self._model.roi_heads
        pooled = heads.box_roi_pool(self._name_maps(maps), proposals, [features.resized] * len(proposals))
        logits, deltas = heads.box_predictor(heads.box_head(pooled))
        return logits, deltas

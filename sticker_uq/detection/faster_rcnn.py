"""Faster R-CNN: dropout in the feature pyramid, proposals and boxes once per pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers

from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.families import Sight
from sticker_uq.detection.features import Features
from sticker_uq.detection.pyramid import encode_pyramid, pyramid_maps
from sticker_uq.detection.selection import Rows, check_finite, softmax_distribution, strongest


class FasterRcnn:
    """Family of fasterrcnn_resnet50_fpn and its v2."""

    two_stage = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def encode(self, images: ImageList, image_size: tuple[int, int]) -> Features:
        """Backbone and inner convolutions of the FPN."""
        return encode_pyramid(self._model.backbone, images, image_size)

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        """P2..P5 and the pooled map that only the region proposal network sees."""
        return pyramid_maps(self._model.backbone.fpn, features, dropout)

    def candidates(
        self, features: Features, maps: list[Tensor], dropout: Dropout, score_floor: float
    ) -> Rows:
        """Proposals and their class-specific boxes; the dropout is already in ``maps``."""
        objectness, deltas = self._model.rpn.head(maps)
        # the region proposal network silently leaves out proposals that are not finite
        check_finite(*objectness, *deltas)
        proposals = self._propose(features, maps, objectness, deltas)
        return self._boxes(features, maps, proposals, score_floor)

    def look(self, features: Features, maps: list[Tensor], score_floor: float) -> Sight:
        """Objectness is the logit of the region proposal network, before suppression (DiL paper, section 3)."""
        rpn = self._model.rpn
        with torch.enable_grad():
            objectness, deltas = rpn.head(maps)
        check_finite(*(o.detach() for o in objectness), *deltas)
        # the rest of the network's forward, on the same outputs
        plain, columns = [m.detach() for m in maps], [d.detach() for d in deltas]
        proposals = self._propose(features, plain, [o.detach() for o in objectness], columns)
        rows = self._boxes(features, plain, proposals, score_floor)
        anchors = features.anchors(rpn.anchor_generator, plain)
        flat = torch.cat([d.permute(0, 2, 3, 1).reshape(len(d), -1, 4) for d in columns], dim=1)

        def decode(image: int, index: Tensor) -> Tensor:
            return rpn.box_coder.decode_single(flat[image, index], anchors[index])

        return Sight(tuple(objectness), anchors, decode, rows)

    def _propose(
        self, features: Features, maps: list[Tensor], objectness: list[Tensor], deltas: list[Tensor]
    ) -> list[Tensor]:
        """Proposals (P, 4) px of the resized image for each of the n ``maps``, by falling score."""
        rpn, sizes = self._model.rpn, [features.resized] * len(maps[0])
        anchors = features.anchors(rpn.anchor_generator, maps)
        counts = [level[0].numel() for level in objectness]
        logits, columns = concat_box_prediction_layers(list(objectness), list(deltas))
        decoded = rpn.box_coder.decode(columns, [anchors] * len(sizes)).view(len(sizes), -1, 4)
        proposals: list[Tensor] = rpn.filter_proposals(decoded, logits, sizes, counts)[0]
        return proposals

    def _named(self, maps: list[Tensor]) -> dict[str, Tensor]:
        return dict(zip([*self._model.roi_heads.box_roi_pool.featmap_names, "pool"], maps, strict=True))

    def _vectors(
        self, features: Features, maps: list[Tensor], proposals: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Class logits (R, 3) and box deltas (R, 12) of all proposals."""
        heads = self._model.roi_heads
        pooled = heads.box_roi_pool(self._named(maps), proposals, [features.resized] * len(proposals))
        logits, deltas = heads.box_predictor(heads.box_head(pooled))
        return logits, deltas

    def _boxes(
        self, features: Features, maps: list[Tensor], proposals: list[Tensor], score_floor: float
    ) -> Rows:
        logits, deltas = self._vectors(features, maps, proposals)
        check_finite(logits, deltas)

        counts = [len(boxes) for boxes in proposals]
        distribution = softmax_distribution(logits).split(counts)
        padded = torch.nn.utils.rnn.pad_sequence(list(distribution), batch_first=True)
        pass_index, chosen = strongest(padded, score_floor)
        offsets = torch.tensor([0, *counts], device=logits.device).cumsum(0)
        rows = offsets[pass_index] + chosen
        probabilities = padded[pass_index, chosen]
        labels = probabilities[:, 1:].argmax(dim=1) + 1
        own_class = deltas.view(len(deltas), -1, 4)[rows, labels].to(torch.float32)
        boxes = self._model.roi_heads.box_coder.decode_single(own_class, torch.cat(list(proposals))[rows])
        return Rows(boxes, probabilities, pass_index)

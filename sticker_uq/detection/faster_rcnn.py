"""Faster R-CNN: dropout in the feature pyramid, proposals and boxes once per pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import concat_box_prediction_layers

from sticker_uq.detection.families import Dropout, Sight
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
        images = features.image_list(len(maps[0]))
        named = self._named(maps)
        proposals, _ = self._model.rpn(images, named)
        return self._boxes(images, named, proposals, score_floor)

    def look(self, features: Features, maps: list[Tensor], score_floor: float) -> Sight:
        """Objectness is the logit of the region proposal network, before suppression (DiL paper, section 3)."""
        rpn, images = self._model.rpn, features.image_list(len(maps[0]))
        with torch.enable_grad():
            objectness, deltas = rpn.head(maps)
        # the rest of the network's forward, on the same outputs
        plain = [m.detach() for m in maps]
        anchors = rpn.anchor_generator(images, plain)
        logits, columns = concat_box_prediction_layers(
            [o.detach() for o in objectness], [d.detach() for d in deltas]
        )
        decoded = rpn.box_coder.decode(columns, anchors).view(len(anchors), -1, 4)
        counts = [level[0].numel() for level in objectness]
        proposals, _ = rpn.filter_proposals(decoded, logits, images.image_sizes, counts)
        rows = self._boxes(images, self._named(plain), proposals, score_floor)
        return Sight(tuple(objectness), anchors[0], lambda image, index: decoded[image, index], rows)

    def _named(self, maps: list[Tensor]) -> dict[str, Tensor]:
        return dict(zip([*self._model.roi_heads.box_roi_pool.featmap_names, "pool"], maps, strict=True))

    def _boxes(
        self, images: ImageList, named: dict[str, Tensor], proposals: list[Tensor], score_floor: float
    ) -> Rows:
        heads = self._model.roi_heads
        pooled = heads.box_roi_pool(named, proposals, images.image_sizes)
        logits, deltas = heads.box_predictor(heads.box_head(pooled))
        # the maps too: the region proposal network silently leaves out proposals that are not finite
        check_finite(*named.values(), logits, deltas)

        counts = [len(boxes) for boxes in proposals]
        distribution = softmax_distribution(logits).split(counts)
        padded = torch.nn.utils.rnn.pad_sequence(list(distribution), batch_first=True)
        pass_index, chosen = strongest(padded, score_floor)
        offsets = torch.tensor([0, *counts], device=logits.device).cumsum(0)
        rows = offsets[pass_index] + chosen
        probabilities = padded[pass_index, chosen]
        labels = probabilities[:, 1:].argmax(dim=1) + 1
        own_class = deltas.view(len(deltas), -1, 4)[rows, labels]
        boxes = heads.box_coder.decode_single(own_class, torch.cat(list(proposals))[rows])
        return Rows(boxes, probabilities, pass_index)

"""Faster R-CNN: dropout in the feature pyramid, proposals and boxes once per pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.families import Dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.pyramid import encode_pyramid, pyramid_maps
from sticker_uq.detection.selection import Rows, check_finite, softmax_distribution, strongest


class FasterRcnn:
    """Family of fasterrcnn_resnet50_fpn and its v2."""

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
        passes, heads = len(maps[0]), self._model.roi_heads
        images = features.image_list(passes)
        names = [*heads.box_roi_pool.featmap_names, "pool"]
        named = dict(zip(names, maps, strict=True))
        proposals, _ = self._model.rpn(images, named)
        pooled = heads.box_roi_pool(named, proposals, images.image_sizes)
        logits, deltas = heads.box_predictor(heads.box_head(pooled))
        # the maps too: the region proposal network silently leaves out proposals that are not finite
        check_finite(*maps, logits, deltas)

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

    def objectness(self, maps: list[Tensor]) -> list[Tensor]:
        """Logits of the region proposal network's objectness head, before suppression (DiL paper, section 3)."""
        logits, _ = self._model.rpn.head(maps)
        return [level[0] for level in logits]

# SPDX-License-Identifier: Apache-2.0
"""Faster R-CNN's passes over a frozen model: RoIAlign, proposals and dense layers in forms that a processor is fast at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import clip_boxes_to_image, nms

from sticker_uq.detection.boxes import decoded
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.roi_pooling import BagPooling
from sticker_uq.detection.models.faster_rcnn import FasterRcnn
from sticker_uq.detection.settings import DetectorSettings

_FIRST_ATTEMPT = 1.6
"""Of so many times the wanted proposals the best are suppressed first; mostly that suffices."""


class FastFasterRcnn(FasterRcnn):
    """``FasterRcnn`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        super().__init__(model, settings)
        self._pooling = BagPooling(model.roi_heads.box_roi_pool)

    def _propose(
        self, features: Features, maps: list[Tensor], objectness: list[Tensor], deltas: list[Tensor]
    ) -> list[Tensor]:
        """As torchvision proposes, but boxes are decoded after the choice, and suppressed until there are enough."""
        parts = self._best(features, maps, objectness, deltas)
        levels = [torch.full_like(s, n, dtype=torch.int64) for n, (_, s) in enumerate(parts)]
        boxes, scores = (torch.cat(column, dim=1) for column in zip(*parts, strict=True))
        columns = zip(boxes, scores, torch.cat(levels, dim=1), strict=True)
        return [self._suppressed(b, s, n, features.resized) for b, s, n in columns]

    def _best(
        self, features: Features, maps: list[Tensor], objectness: list[Tensor], deltas: list[Tensor]
    ) -> list[tuple[Tensor, Tensor]]:
        """Boxes (n, K, 4) px and scores (n, K) of the best anchors of each level, by falling logit."""
        rpn = self._model.rpn
        anchors = features.anchors(rpn.anchor_generator, maps).split(
            [level[0].numel() for level in objectness]
        )
        best = []
        for logits, moves, own in zip(objectness, deltas, anchors, strict=True):
            values = logits.permute(0, 2, 3, 1).flatten(1)
            index = self._largest(values, min(rpn.pre_nms_top_n(), values.shape[1]))
            rows = moves.permute(0, 2, 3, 1).reshape(len(values), -1, 4)
            chosen = rows.gather(1, index[..., None].expand(-1, -1, 4)).to(torch.float32)
            boxes = decoded(rpn.box_coder, chosen.view(-1, 4), own[index].view(-1, 4)).view_as(chosen)
            best.append((boxes, torch.sigmoid(values.gather(1, index).to(torch.float32))))
        return best

    def _largest(self, values: Tensor, count: int) -> Tensor:
        """Indices (n, count) of the largest of ``values`` (n, N), by falling value."""
        return values.topk(count, dim=1).indices

    def _suppressed(self, boxes: Tensor, scores: Tensor, levels: Tensor, size: tuple[int, int]) -> Tensor:
        """The proposals of one pass by falling score, suppressed within their level."""
        rpn, wanted = self._model.rpn, self._model.rpn.post_nms_top_n()
        boxes = clip_boxes_to_image(boxes, size)
        sides = boxes[:, 2:] - boxes[:, :2]
        usable = ((sides >= rpn.min_size).all(dim=1) & (scores >= rpn.score_thresh)).nonzero()[:, 0]
        order = usable[scores[usable].argsort(descending=True, stable=True)]
        # a box is suppressed by better ones only: the best of them need not know about the others
        for count in (int(_FIRST_ATTEMPT * wanted), len(order)):
            best = order[:count]
            kept = torch.zeros(len(best), dtype=torch.bool, device=boxes.device)
            for level in range(int(levels[-1]) + 1):
                members = (levels[best] == level).nonzero()[:, 0]
                rows = best[members]
                kept[members[nms(boxes[rows], scores[rows], rpn.nms_thresh)]] = True
            found = best[kept]
            if len(found) >= wanted:
                break
        return boxes[found[:wanted]]

    def _vectors(
        self, features: Features, maps: list[Tensor], proposals: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        image = torch.repeat_interleave(torch.tensor([len(p) for p in proposals]))
        return self._judged(features, maps, torch.cat(proposals), image)

    def _judged(
        self, features: Features, maps: list[Tensor], boxes: Tensor, image: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Class logits (R, 3) and box deltas (R, 12) of ``boxes`` (R, 4) in the passes ``image`` (R,)."""
        heads = self._model.roi_heads
        vectors = heads.box_head(self._pooling(maps[:-1], boxes, image, features.padded))
        return heads.box_predictor.cls_score(vectors), heads.box_predictor.bbox_pred(vectors)

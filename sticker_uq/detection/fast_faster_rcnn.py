"""Faster R-CNN's passes over a frozen model: RoIAlign, proposals and dense layers in forms that a processor is fast at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import clip_boxes_to_image, nms

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.fast_pyramid import FastPyramid
from sticker_uq.detection.faster_rcnn import FasterRcnn
from sticker_uq.detection.features import Features
from sticker_uq.detection.roi_pooling import BagPooling

_FIRST_ATTEMPT = 1.6
"""Of so many times the wanted proposals the best are suppressed first; mostly that suffices."""


class FastFasterRcnn(FasterRcnn):
    """``FasterRcnn`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, rate: float) -> None:
        super().__init__(model)
        self._pyramid = FastPyramid(model.backbone.fpn, rate)
        self._on_cpu = next(model.parameters()).device.type == "cpu"
        self._pooling = BagPooling(model.roi_heads.box_roi_pool)

    def head_maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        """P2..P5 and the pooled map that only the region proposal network sees."""
        if dropout is no_dropout:
            return super().head_maps(features, dropout)
        return self._pyramid.maps(features, dropout)

    def _propose(
        self, features: Features, maps: list[Tensor], objectness: list[Tensor], deltas: list[Tensor]
    ) -> list[Tensor]:
        """As torchvision proposes, but boxes are decoded after the choice, and suppressed until there are enough."""
        rpn = self._model.rpn
        anchors = features.anchors(rpn.anchor_generator, maps).split(
            [level[0].numel() for level in objectness]
        )
        scores, boxes, levels = [], [], []
        for number, (logits, moves, own) in enumerate(zip(objectness, deltas, anchors, strict=True)):
            values = logits.permute(0, 2, 3, 1).flatten(1)
            best, index = values.topk(min(rpn.pre_nms_top_n(), values.shape[1]), dim=1)
            rows = moves.permute(0, 2, 3, 1).reshape(len(values), -1, 4)
            chosen = rows.gather(1, index[..., None].expand(-1, -1, 4)).to(torch.float32)
            boxes.append(
                rpn.box_coder.decode_single(chosen.view(-1, 4), own[index].view(-1, 4)).view_as(chosen)
            )
            scores.append(torch.sigmoid(best.to(torch.float32)))
            levels.append(torch.full_like(index, number))
        columns = (torch.cat(parts, dim=1) for parts in (boxes, scores, levels))
        return [self._suppressed(b, s, n, features.resized) for b, s, n in zip(*columns, strict=True)]

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
        heads = self._model.roi_heads
        if self._on_cpu:
            boxes = torch.cat(proposals)
            image = torch.repeat_interleave(torch.tensor([len(p) for p in proposals]))
            x = self._pooling(maps[:-1], boxes, image, features.padded)
        else:
            # torchvision's RoIAlign wants maps of the boxes' type, and half precision is too coarse for pixels
            wide = self._named([m.to(torch.float32) for m in maps])
            x = heads.box_roi_pool(wide, proposals, features.image_list(len(proposals)).image_sizes)
            x = x.to(maps[0].dtype).contiguous(memory_format=torch.channels_last)
        vectors = heads.box_head(x)
        predictor = heads.box_predictor
        return predictor.cls_score(vectors), predictor.bbox_pred(vectors)

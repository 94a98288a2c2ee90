# SPDX-License-Identifier: Apache-2.0
"""Faster R-CNN's passes on a GPU: all of them at once, in tensors whose sizes do not depend on the image."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import clip_boxes_to_image

from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.batched_nms import greedy_nms
from sticker_uq.detection.kernels.fast_faster_rcnn import FastFasterRcnn
from sticker_uq.detection.selection import Rows, all_finite, softmax_distribution, top_ranked


class BatchedFasterRcnn(FastFasterRcnn):
    """``FastFasterRcnn`` with the same proposals, for which the processor waits once instead of in every pass and level.

    A pass with fewer proposals than the region proposal network may have computes the heads for places that hold none.
    """

    def _rows(
        self,
        features: Features,
        maps: list[Tensor],
        objectness: list[Tensor],
        deltas: list[Tensor],
        score_floor: float,
    ) -> Rows:
        boxes, used = self._proposals(features, maps, objectness, deltas)
        image = torch.arange(used.numel(), device=used.device).div(used.shape[1], rounding_mode="floor")
        logits, moves = self._judged(features, maps, boxes.flatten(0, 1), image)
        probabilities = softmax_distribution(logits).unflatten(0, used.shape) * used[..., None]
        rows = self._chosen(boxes, probabilities, moves.unflatten(0, used.shape), score_floor)
        finite = all_finite(*objectness, *deltas, logits, moves)
        return Rows(rows.boxes, rows.probabilities, rows.pass_index, finite)

    def _proposals(
        self, features: Features, maps: list[Tensor], objectness: list[Tensor], deltas: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Places (n, P, 4) px for the proposals of each pass, by falling score, and which of them (n, P) are used."""
        rpn = self._model.rpn
        parts = self._best(features, maps, objectness, deltas)
        # (n, L, K): as many places in each level; no score is negative
        boxes = pad_sequence([b.transpose(0, 1) for b, _ in parts]).permute(2, 1, 0, 3)
        scores = pad_sequence([s.T for _, s in parts], padding_value=-1.0).permute(2, 1, 0)
        # non-finite boxes, which are reported at the end, must not index outside of a map
        boxes = clip_boxes_to_image(boxes, features.resized).nan_to_num()
        sides = boxes[..., 2:] - boxes[..., :2]
        usable = (sides >= rpn.min_size).all(dim=-1) & (scores >= max(rpn.score_thresh, 0.0))
        kept = greedy_nms(boxes.flatten(0, 1), usable.flatten(0, 1), rpn.nms_thresh).view_as(usable)
        left = scores.masked_fill(~kept, -1.0).flatten(1)
        best = self._largest(left, min(rpn.post_nms_top_n(), left.shape[1]))
        return boxes.flatten(1, 2).gather(1, best[..., None].expand(-1, -1, 4)), left.gather(1, best) >= 0

    def _largest(self, values: Tensor, count: int) -> Tensor:
        return top_ranked(values, count)

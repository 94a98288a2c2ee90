# SPDX-License-Identifier: Apache-2.0
"""Faster R-CNN's passes on a GPU: all of them at once, in tensors whose sizes do not depend on the image.

torchvision's suppression takes one group per call and returns as many rows as it kept, a number for which the processor has to
wait. Here all groups are tensor operations of fixed sizes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import clip_boxes_to_image

from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.fast_faster_rcnn import FastFasterRcnn
from sticker_uq.detection.selection import Rows, all_finite, softmax_distribution, top_ranked

ROUNDS = 24
"""Rounds of suppression between two questions whether it has come to its end. The processor waits for each answer; a round that
changes nothing any more costs a reading of the overlaps.
"""
_PAIRS_AT_ONCE = 1 << 24
"""Pairs of boxes whose overlap is computed at once: four times 64 MiB in float32."""


def greedy_nms(boxes: Tensor, usable: Tensor, threshold: float) -> Tensor:
    """Non-maximum suppression of groups of boxes: kept ones, (G, K) bool, exactly those of ``torchvision.ops.nms`` on a
    processor.

    ``boxes`` (G, K, 4) of G groups, by falling score in each; those that are not ``usable`` (G, K) take no part. A box is
    suppressed by a better kept one of its group with an IoU above ``threshold``.

    A round lets all boxes suppress that the round before left (Cluster-NMS, Zheng et al. 2020, algorithm 2). After r rounds the
    boxes are right on which a chain of up to r suppressions bears, and once a round changes nothing all are. Of K boxes takes
    2 G K^2 bytes and four times up to 64 MiB: less than 450 MiB for 100 groups of 1000.
    """
    count = boxes.shape[1]
    overlaps = boxes.new_empty((len(boxes), count, count), dtype=torch.float16)
    at_once = max(1, _PAIRS_AT_ONCE // max(1, count**2))
    for part, result in zip(boxes.split(at_once), overlaps.split(at_once), strict=True):
        result.copy_(_suppressing(part, threshold))
    kept = usable
    while True:
        for _ in range(ROUNDS):
            before = kept
            # counts up to K are exact enough in half precision: all that matters is whether they are 0
            hits = torch.bmm(kept[:, None].to(overlaps.dtype), overlaps)[:, 0]
            kept = usable & (hits == 0)
        if bool((kept == before).all()):
            return kept


def _suppressing(boxes: Tensor, threshold: float) -> Tensor:
    """Whether box i would suppress box j of its group, i < j, (G, K, K) bool.

    In float32 and in the order of torchvision's operations, so that no pair is judged differently.
    """
    low, high = boxes[..., :2], boxes[..., 2:]
    x, y = (
        torch.minimum(high[:, :, None, axis], high[:, None, :, axis])
        .sub_(torch.maximum(low[:, :, None, axis], low[:, None, :, axis]))
        .clamp_min_(0)
        for axis in (0, 1)
    )
    shared = x.mul_(y)
    areas = (high - low).prod(dim=-1)
    union = (areas[:, :, None] + areas[:, None]).sub_(shared)
    # without an area 0 / 0 is NaN, which is above nothing
    return (shared.div_(union) > _rounded_down(threshold)).triu_(diagonal=1)


def _rounded_down(threshold: float) -> float:
    """The largest float32 up to ``threshold``: torchvision compares in double precision, a tensor with the next float32."""
    nearest = np.float32(threshold)
    return float(nearest if float(nearest) <= threshold else np.nextafter(nearest, np.float32(-np.inf)))


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

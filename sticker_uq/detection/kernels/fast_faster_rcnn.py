# SPDX-License-Identifier: Apache-2.0
"""Faster R-CNN's passes over a frozen model: RoIAlign, proposals and dense layers in forms that a processor is fast at.

On a GPU all passes at once, in tensors whose sizes do not depend on the image: torchvision's suppression takes one group per call
and returns as many rows as it kept, a number for which the processor has to wait. Here all groups are tensor operations of fixed
sizes.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import clip_boxes_to_image, nms

from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.models.faster_rcnn import FasterRcnn
from sticker_uq.detection.selection import Rows, all_finite, decode_deltas, softmax_distribution, top_ranked
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.detection.transfer import to_device


# RoIAlign as weighted sums of table rows: on a processor torchvision computes them in one thread, on a GPU level by level.
class BagPooling:
    """torchvision's MultiScaleRoIAlign over maps that lie channels last.

    Every bin of RoIAlign is a weighted sum of 16 places of a map (4 bilinear samples of 4 places each). The places of all
    maps are rows of one table, so all bins are one ``embedding_bag``, which uses all threads and whole vectors.
    """

    def __init__(self, pool: Any) -> None:
        """``pool``: the MultiScaleRoIAlign to imitate. Raises ValueError for one with another number of samples per bin."""
        if pool.sampling_ratio != 2 or pool.output_size[0] != pool.output_size[1]:
            raise ValueError(
                f"RoIAlign with {pool.sampling_ratio} samples and {pool.output_size} bins, expected 2 and a square"
            )
        self._bins: int = pool.output_size[0]
        self._area: float = float(pool.canonical_scale) ** 2
        self._level: int = pool.canonical_level

    def __call__(self, maps: Maps, boxes: Tensor, image: Tensor, padded: tuple[int, int]) -> Tensor:
        """Features (R, C, bins, bins), channels last, of ``boxes`` (R, 4) px of the network's input.

        ``maps``: (n, C, h, w) per level, fine to coarse, for inputs of ``padded`` (height, width); ``image`` (R,): which of the
        n each box belongs to.
        """
        passes, channels = maps[0].shape[:2]
        shapes = to_device(torch.tensor([m.shape[-2:] for m in maps]), boxes.device)
        exponents = [round(math.log2(m.shape[-2] / padded[0])) for m in maps]
        scales = to_device(torch.tensor([2.0**e for e in exponents]), boxes.device)
        sizes = torch.tensor([0, *(m.shape[-1] * m.shape[-2] for m in maps)])
        first = to_device(sizes.cumsum(0), boxes.device)
        table = torch.cat([m.permute(0, 2, 3, 1).reshape(passes, -1, channels) for m in maps], dim=1)

        level = self._levels(boxes, -exponents[0], -exponents[-1])
        height, width = shapes[level].unbind(1)
        x1, y1, x2, y2 = (boxes * scales[level, None]).unbind(1)
        rows, row_weights = self._taps(y1, y2, height)
        columns, column_weights = self._taps(x1, x2, width)
        origin = image * first[-1] + first[level]
        rows = rows * width[:, None, None] + origin[:, None, None]
        index = rows[:, :, None, :, None] + columns[:, None, :, None, :]
        weights = row_weights[:, :, None, :, None] * column_weights[:, None, :, None, :]
        taps = index.shape[-1] ** 2
        pooled = F.embedding_bag(
            index.view(-1, taps),
            table.view(-1, channels),
            mode="sum",
            per_sample_weights=weights.view(-1, taps).to(table.dtype),
        )
        return pooled.view(-1, self._bins, self._bins, channels).permute(0, 3, 1, 2)

    def _levels(self, boxes: Tensor, finest: int, coarsest: int) -> Tensor:
        """Which map each box is pooled from (Lin et al. 2017, eq 1), as torchvision's LevelMapper rounds it."""
        sides = boxes[:, 2:] - boxes[:, :2]
        size = torch.sqrt(sides[:, 0] * sides[:, 1])
        wanted = torch.floor(self._level + torch.log2(size / math.sqrt(self._area)) + 1e-6)
        return wanted.clamp(finest, coarsest).to(torch.int64) - finest

    def _taps(self, low: Tensor, high: Tensor, extent: Tensor) -> tuple[Tensor, Tensor]:
        step = (high - low).clamp_min(1.0) / (2 * self._bins)
        samples = torch.arange(2 * self._bins, device=low.device) + 0.5
        position = low[:, None] + samples * step[:, None]
        last = (extent - 1)[:, None]
        # a sample more than a cell outside the map counts as 0; one at most a cell outside takes the outermost cell
        inside = (position >= -1) & (position <= extent[:, None])
        position = position.clamp_min(0)
        below = torch.minimum(position.to(torch.int64), last)
        share = (position - below).masked_fill_(below >= last, 0.0)
        cells = torch.stack([below, torch.minimum(below + 1, last)], dim=-1)
        weights = torch.stack([1 - share, share], dim=-1) * (inside[..., None] / 2)
        shape = (len(low), self._bins, 4)
        return cells.view(shape), weights.view(shape)


_Pair = tuple[Tensor, Tensor]
_FIRST_ATTEMPT = 1.6
"""Of so many times the wanted proposals the best are suppressed first; mostly that suffices."""


class FastFasterRcnn(FasterRcnn):
    """``FasterRcnn`` over a frozen model, for one dropout rate."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        super().__init__(model, settings)
        self._pooling = BagPooling(model.roi_heads.box_roi_pool)

    def _propose(self, features: Features, maps: Maps, objectness: Maps, deltas: Maps) -> Maps:
        """As torchvision proposes, but boxes are decoded after the choice, and suppressed until there are enough."""
        parts = self._best(features, maps, objectness, deltas)
        levels = [torch.full_like(s, n, dtype=torch.int64) for n, (_, s) in enumerate(parts)]
        boxes, scores = (torch.cat(column, dim=1) for column in zip(*parts, strict=True))
        columns = zip(boxes, scores, torch.cat(levels, dim=1), strict=True)
        return [self._suppress(b, s, n, features.resized) for b, s, n in columns]

    def _best(self, features: Features, maps: Maps, objectness: Maps, deltas: Maps) -> list[_Pair]:
        """Boxes (n, K, 4) px and scores (n, K) of the best anchors of each level, by falling logit."""
        rpn = self._model.rpn
        counts = [level[0].numel() for level in objectness]
        anchors = features.anchors(rpn.anchor_generator, maps).split(counts)
        best = []
        for logits, moves, own in zip(objectness, deltas, anchors, strict=True):
            values = logits.permute(0, 2, 3, 1).flatten(1)
            index = self._largest(values, min(rpn.pre_nms_top_n(), values.shape[1]))
            rows = moves.permute(0, 2, 3, 1).reshape(len(values), -1, 4)
            chosen = rows.gather(1, index[..., None].expand(-1, -1, 4)).to(torch.float32)
            boxes = decode_deltas(rpn.box_coder, chosen.view(-1, 4), own[index].view(-1, 4)).view_as(chosen)
            best.append((boxes, torch.sigmoid(values.gather(1, index).to(torch.float32))))
        return best

    def _largest(self, values: Tensor, count: int) -> Tensor:
        """Indices (n, count) of the largest of ``values`` (n, N), by falling value."""
        return values.topk(count, dim=1).indices

    def _suppress(self, boxes: Tensor, scores: Tensor, levels: Tensor, size: tuple[int, int]) -> Tensor:
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

    def _vectors(self, features: Features, maps: Maps, proposals: Maps) -> tuple[Tensor, Tensor]:
        image = torch.repeat_interleave(torch.tensor([len(p) for p in proposals]))
        return self._classify(features, maps, torch.cat(proposals), image)

    def _classify(self, features: Features, maps: Maps, boxes: Tensor, image: Tensor) -> _Pair:
        """Class logits (R, 3) and box deltas (R, 12) of ``boxes`` (R, 4) in the passes ``image`` (R,)."""
        heads = self._model.roi_heads
        vectors = heads.box_head(self._pooling(maps[:-1], boxes, image, features.padded))
        return heads.box_predictor.cls_score(vectors), heads.box_predictor.bbox_pred(vectors)


ROUNDS = 24
"""Rounds of suppression between two questions whether it has come to its end. The processor waits for each answer; a round that
changes nothing any more costs a reading of the overlaps.
"""
_PAIRS_AT_ONCE = 1 << 24
"""Pairs of boxes whose overlap is computed at once: four times 64 MiB in float32."""


def greedy_nms(boxes: Tensor, usable: Tensor, threshold: float) -> Tensor:
    """The boxes of each group that are kept, (G, K) bool, exactly those of ``torchvision.ops.nms`` on a processor.

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
        result.copy_(_suppression_matrix(part, threshold))
    kept = usable
    while True:
        for _ in range(ROUNDS):
            before = kept
            # counts up to K are exact enough in half precision: all that matters is whether they are 0
            hits = torch.bmm(kept[:, None].to(overlaps.dtype), overlaps)[:, 0]
            kept = usable & (hits == 0)
        if bool((kept == before).all()):
            return kept


def _suppression_matrix(boxes: Tensor, threshold: float) -> Tensor:
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
    return (shared.div_(union) > _round_down(threshold)).triu_(diagonal=1)


def _round_down(threshold: float) -> float:
    """The largest float32 up to ``threshold``: torchvision compares in double precision, a tensor with the next float32."""
    nearest = np.float32(threshold)
    return float(nearest if float(nearest) <= threshold else np.nextafter(nearest, np.float32(-np.inf)))


class BatchedFasterRcnn(FastFasterRcnn):
    """``FastFasterRcnn`` with the same proposals, for which the processor waits once instead of in every pass and level.

    A pass with fewer proposals than the region proposal network may have computes the heads for places that hold none.
    """

    def _rows(self, features: Features, maps: Maps, objectness: Maps, deltas: Maps, floor: float) -> Rows:
        boxes, used = self._proposals(features, maps, objectness, deltas)
        image = torch.arange(used.numel(), device=used.device).div(used.shape[1], rounding_mode="floor")
        logits, moves = self._classify(features, maps, boxes.flatten(0, 1), image)
        probabilities = softmax_distribution(logits).unflatten(0, used.shape) * used[..., None]
        rows = self._choose(boxes, probabilities, moves.unflatten(0, used.shape), floor)
        finite = all_finite(*objectness, *deltas, logits, moves)
        return Rows(rows.boxes, rows.probabilities, rows.pass_index, finite)

    def _proposals(self, features: Features, maps: Maps, objectness: Maps, deltas: Maps) -> _Pair:
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

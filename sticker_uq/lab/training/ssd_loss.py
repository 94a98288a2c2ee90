# SPDX-License-Identifier: Apache-2.0
"""The SSD training loss for a whole batch at once.

torchvision computes it image by image and forces the single best default box on every object. SSDLite's
smallest default box is a fifth of the picture, so small objects would get one positive each, and equally
good boxes would be negatives. Here every object gets its best few default boxes and the nearly as good ones are
ignored; loss and hard negative mining are otherwise those of SSD (Liu et al. 2016, sections
2.2) as torchvision has them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import box_iou, distance_box_iou

CLAIMED = 4
"""Lowest number of default boxes per object."""
_MATCH = 0.5  # IoU from which a default box is positive
_IGNORE = 0.4  # IoU from which a default box is not a negative
_NEARLY = 0.85  # share of the best IoU of an object from which a default box is not a negative
_NEGATIVES = 3  # per positive
_CODER = (10.0, 10.0, 5.0, 5.0)  # torchvision's box coder weights for the SSDs


def match(anchors: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """For each default box (A, 4) its object in ``boxes`` (N, 4) or -1, and whether it may be
    background.
    """
    count = len(anchors)
    if not len(boxes):
        nobody = torch.full((count,), -1, device=anchors.device)
        return nobody, torch.ones_like(nobody, dtype=torch.bool)
    iou = box_iou(boxes, anchors)
    best, owner = iou.max(dim=0)
    matched = torch.where(best >= _MATCH, owner, torch.full_like(owner, -1))
    # ties: many default boxes around a small object have the same IoU, so the distance of the centres decides
    claimed = distance_box_iou(boxes, anchors).topk(min(CLAIMED, count), dim=1).indices
    # worst first, so that an object keeps its best default box where objects overlap
    for rank in reversed(range(claimed.shape[1])):
        matched[claimed[:, rank]] = torch.arange(len(boxes), device=boxes.device)
    nearly = (iou >= _NEARLY * iou.amax(dim=1, keepdim=True)).any(dim=0)
    background = (matched < 0) & (best < _IGNORE) & ~nearly
    return matched, background


def encode(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Regression targets (N, 4) of ``boxes`` with respect to ``anchors``, as torchvision's BoxCoder."""
    size, other = anchors[:, 2:] - anchors[:, :2], boxes[:, 2:] - boxes[:, :2]
    centre, wanted = anchors[:, :2] + size / 2, boxes[:, :2] + other / 2
    weights = anchors.new_tensor(_CODER)
    return torch.cat([(wanted - centre) / size, torch.log(other / size)], dim=1) * weights


def ssd_loss(deltas: Tensor, logits: Tensor, anchors: Tensor, targets: list[dict[str, Tensor]]) -> Tensor:
    """SSD training's localisation plus classification loss of a batch, per positive default box.

    ``deltas`` (n, A, 4), ``logits`` (n, A, classes), ``anchors`` (A, 4) px, ``targets`` n dicts of torchvision's
    ``boxes`` (px) and ``labels``.
    """
    classes = torch.zeros(logits.shape[:2], dtype=torch.int64, device=logits.device)
    may_be_background = torch.empty_like(classes, dtype=torch.bool)
    wanted, rows = [], []
    for i, target in enumerate(targets):
        matched, may_be_background[i] = match(anchors, target["boxes"])
        mine = (matched >= 0).nonzero()[:, 0]
        classes[i, mine] = target["labels"][matched[mine]]
        wanted.append(encode(target["boxes"][matched[mine]], anchors[mine]))
        rows.append(mine + i * len(anchors))
    positive = torch.cat(rows)
    found = max(1, len(positive))
    localisation = F.smooth_l1_loss(deltas.flatten(0, 1)[positive], torch.cat(wanted), reduction="sum")
    entropy = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), reduction="none").view_as(classes)
    foreground = classes > 0
    negative = entropy.detach().masked_fill(~may_be_background, -1)
    wanted_negatives = (_NEGATIVES * foreground.sum(dim=1)).clamp_min(_NEGATIVES)
    rank = negative.argsort(dim=1, descending=True).argsort(dim=1)
    hard = (rank < wanted_negatives[:, None]) & may_be_background
    return (localisation + entropy[foreground | hard].sum()) / found

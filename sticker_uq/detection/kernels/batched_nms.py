# SPDX-License-Identifier: Apache-2.0
"""Greedy non-maximum suppression of many groups of boxes at once, and the choice before it, without waiting for a GPU in between.

torchvision's suppression takes one group per call and returns as many rows as it kept, a number for which the processor has to
wait. Here all groups are tensor operations of fixed sizes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

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

# SPDX-License-Identifier: Apache-2.0
"""Cannot-link: two boxes that one pass drew are two objects, unless they are twins of the same one.

Density clustering merges stickers that overlap by half or more. But a pass that sees both draws two boxes, and several such
passes are evidence of two objects. The split is a constrained 2-means (Wagstaff et al. 2001, COP-k-means) in IoU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from sticker_uq.scene import FloatArray, IntArray
from sticker_uq.uncertainty.overlap import iou_matrix, paired_iou

TWIN_IOU = 0.7
"""Mean boxes that overlap more than this outline the same thing, e.g. once as a logo and once as a sticker."""

_MAX_ROUNDS = 20
_TIE = 1e-9  # differences of sums of overlaps up to which the general assignment decides


def split_objects(boxes: np.ndarray, passes: IntArray, min_passes: int) -> list[IntArray]:
    """Indices of the boxes of each distinct object in one cluster, in the order of their first member.

    ``boxes`` (N, 4) px and ``passes`` (N,), the pass of each. A cluster is split in two, and the halves again, where at least
    ``min_passes`` passes drew a box in both halves and the mean boxes of the halves overlap by no more than ``TWIN_IOU``.
    Otherwise it stays whole, even with several boxes of one pass.
    """
    waiting, found = [(np.arange(len(boxes)), _Pairs.of_one_pass(boxes, passes))], []
    while waiting:
        rows, together = waiting.pop()
        halves = _accepted(boxes[rows], passes[rows], together, min_passes)
        if halves is None:
            found.append(rows)
        else:
            waiting += [(rows[half], together.within(half)) for half in (halves, ~halves)]
    return sorted(found, key=lambda part: int(part[0]))


class _Pairs(NamedTuple):
    """Boxes that one pass drew: rows ``first`` < ``second`` (K,), in the order of both, and their ``overlap`` (K,)."""

    first: IntArray
    second: IntArray
    overlap: FloatArray

    @classmethod
    def of_one_pass(cls, boxes: FloatArray, passes: IntArray) -> _Pairs:
        order = np.argsort(passes, kind="stable")
        ends = np.searchsorted(passes[order], passes[order], side="right")
        place = np.arange(len(order))
        partners = ends - place - 1
        start = np.repeat(np.cumsum(partners) - partners, partners)
        first = np.repeat(place, partners)
        second = first + 1 + np.arange(len(first)) - start
        first, second = order[first], order[second]
        sequence = np.lexsort((second, first))
        first, second = first[sequence], second[sequence]
        return cls(first, second, paired_iou(boxes[first], boxes[second]))

    def within(self, chosen: NDArray[np.bool_]) -> _Pairs:
        """Those of the ``chosen`` rows (N,), numbered among them."""
        kept = chosen[self.first] & chosen[self.second]
        number = np.cumsum(chosen) - 1
        return _Pairs(number[self.first[kept]], number[self.second[kept]], self.overlap[kept])

    def furthest(self) -> tuple[int, int]:
        """The two that overlap least, of several the first."""
        least = int(self.overlap.argmin())
        return int(self.first[least]), int(self.second[least])


def _accepted(
    boxes: FloatArray, passes: IntArray, together: _Pairs, min_passes: int
) -> NDArray[np.bool_] | None:
    """Which boxes are the first of two objects, (N,); None where they are one."""
    halves = _halve(boxes, passes, together.furthest()) if _repeated(passes) >= min_passes else None
    if halves is None:
        return None
    means = np.stack([boxes[halves].mean(axis=0), boxes[~halves].mean(axis=0)])
    both = np.intersect1d(passes[halves], passes[~halves])
    return halves if len(both) >= min_passes and iou_matrix(means[:1], means[1:])[0, 0] <= TWIN_IOU else None


def _repeated(passes: IntArray) -> int:
    """How many passes occur more than once."""
    return int(np.count_nonzero(np.bincount(passes) > 1))


def _halve(boxes: FloatArray, passes: IntArray, seeds: tuple[int, int]) -> NDArray[np.bool_] | None:
    """True for the boxes of the first half, False for the second, (N,) bool; None when there are no two halves."""
    centres = boxes[list(seeds)]
    halves: NDArray[np.bool_] | None = None
    pairs, larger = _same_pass(passes)
    for _ in range(_MAX_ROUNDS):
        closeness = iou_matrix(boxes, centres)
        assigned = closeness[:, 0] >= closeness[:, 1]
        gain = _gain_of_order(closeness, pairs)
        assigned[pairs[:, 0]], assigned[pairs[:, 1]] = gain > 0, gain < 0
        for rows in (*pairs[np.abs(gain) <= _TIE], *larger):
            chosen, side = linear_sum_assignment(closeness[rows], maximize=True)
            assigned[rows[chosen]] = side == 0
        if assigned.all() or not assigned.any():
            return None
        if halves is not None and (assigned == halves).all():
            break
        halves = assigned
        centres = np.stack([boxes[halves].mean(axis=0), boxes[~halves].mean(axis=0)])
    return halves


def _same_pass(passes: IntArray) -> tuple[IntArray, list[IntArray]]:
    """The rows of each pass with two boxes, (K, 2), and those of each pass with more."""
    order = np.argsort(passes, kind="stable")
    _, starts = np.unique(passes[order], return_index=True)
    groups = np.split(order, starts[1:])
    pairs = [rows for rows in groups if len(rows) == 2]
    return np.array(pairs, np.int64).reshape(-1, 2), [rows for rows in groups if len(rows) > 2]


def _gain_of_order(closeness: np.ndarray, pairs: IntArray) -> np.ndarray:
    """By how much the first row of each pair belongs to the first centre and the second to the second rather than crossed."""
    first, second = closeness[pairs[:, 0]], closeness[pairs[:, 1]]
    return np.asarray((first[:, 0] + second[:, 1]) - (first[:, 1] + second[:, 0]))

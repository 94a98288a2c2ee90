# SPDX-License-Identifier: Apache-2.0
"""Overlap of two boxes at a time, in plain numbers, as the gate and the operator's answers need it.

The gate's state must be hashable, so a box is a tuple here. Whatever is not a proper box overlaps nothing.
"""

import math
from collections.abc import Iterable

import numpy as np

from sticker_uq.scene import FloatArray, InvalidInput

Box = tuple[float, float, float, float]
"""``(x1, y1, x2, y2)`` in px of the original image."""

SAME_PLACE_IOU = 0.5
"""Two boxes that overlap at least this much are the same place: an answer is found again by it."""


def as_box(values: FloatArray | tuple[float, ...]) -> Box:
    if len(values) != 4:
        raise InvalidInput(f"a box has 4 coordinates, got {len(values)}")
    x1, y1, x2, y2 = (float(value) for value in values)
    return x1, y1, x2, y2


def is_proper(box: Box) -> bool:
    return all(math.isfinite(value) for value in box) and box[2] > box[0] and box[3] > box[1]


def area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1]) if is_proper(box) else 0.0


def intersection(first: Box, second: Box) -> float:
    """Area that two boxes both cover, px^2; 0 when one of them is not a proper box."""
    if not (is_proper(first) and is_proper(second)):
        return 0.0
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(width, 0.0) * max(height, 0.0)


def iou(first: Box, second: Box) -> float:
    shared = intersection(first, second)
    return shared / (area(first) + area(second) - shared) if shared > 0.0 else 0.0


def cover(first: Box, second: Box) -> float:
    """Share of the smaller of two boxes that the other one covers, 0..1: 1 when one lies inside the other."""
    shared = intersection(first, second)
    return shared / min(area(first), area(second)) if shared > 0.0 else 0.0


def covered_share(box: Box, others: Iterable[Box]) -> float:
    """Share of ``box`` that lies in at least one of ``others``, 0..1; 0 when it is not a proper box."""
    parts = [
        (max(x1, box[0]), max(y1, box[1]), min(x2, box[2]), min(y2, box[3]))
        for x1, y1, x2, y2 in filter(is_proper, others)
    ]
    parts = [part for part in parts if is_proper(part)]
    if not parts or not is_proper(box):
        return 0.0
    # the edges cut the plane into cells, each of which is inside a part or outside
    xs = np.unique([x for x1, _, x2, _ in parts for x in (x1, x2)])
    ys = np.unique([y for _, y1, _, y2 in parts for y in (y1, y2)])
    inside = np.zeros((len(ys) - 1, len(xs) - 1), bool)
    for x1, y1, x2, y2 in parts:
        rows = slice(np.searchsorted(ys, y1), np.searchsorted(ys, y2))
        inside[rows, np.searchsorted(xs, x1) : np.searchsorted(xs, x2)] = True
    return float(np.diff(ys) @ inside @ np.diff(xs)) / area(box)


def same_place(first: Box, second: Box) -> bool:
    """Whether two boxes mean the same place (IoU of at least :data:`SAME_PLACE_IOU`)."""
    return iou(first, second) >= SAME_PLACE_IOU

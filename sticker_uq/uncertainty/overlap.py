# SPDX-License-Identifier: Apache-2.0
"""Overlap of axis-aligned boxes: intersection over union and the groups it connects."""

import numpy as np
import scipy

from sticker_uq.scene import FloatArray, IntArray

_PAIRS_AT_ONCE = 1 << 14
"""What is made of so many stays in the processor's cache, and none of it is asked of the system anew."""


def iou_matrix(first: FloatArray, second: FloatArray) -> FloatArray:
    """Intersection over union of every box of ``first`` (N, 4) with every box of ``second`` (M, 4), (N, M) float64, 0..1.

    Boxes are ``(x1, y1, x2, y2)``. A box without area overlaps nothing, not even itself.
    """
    a, b = _columns(first), _columns(second)
    made = np.empty((a.shape[1], b.shape[1]))
    rows = max(_PAIRS_AT_ONCE // max(b.shape[1], 1), 1)
    for start in range(0, len(made), rows):
        made[start : start + rows] = _iou(a[:, start : start + rows, None], b[:, None])
    return made


def paired_iou(first: FloatArray, second: FloatArray) -> FloatArray:
    """Intersection over union of each box of ``first`` (N, 4) with that of ``second`` (N, 4), (N,) float64."""
    return _iou(_columns(first), _columns(second))


def box_areas(boxes: FloatArray) -> FloatArray:
    """Area of each of ``boxes`` (N, 4), (N,) float64 px^2; 0 for one whose corners are in the wrong order."""
    return _columns(boxes)[4]


def overlap_groups(boxes: FloatArray, min_iou: float) -> IntArray:
    """Groups of boxes that hang together through chains of neighbours that overlap by at least ``min_iou`` > 0.

    Returns the group of each of the ``boxes`` (N, 4), (N,) int64, numbered from 0 in the order of their first member.
    """
    n = len(boxes)
    if n == 0:
        return np.zeros(0, np.int64)
    columns = _columns(boxes)
    order = np.argsort(columns[0], kind="stable")
    columns = columns[:, order]
    # From left to right: only boxes that begin before this one, or one further left, ends can overlap it.
    ends = np.maximum.accumulate(np.searchsorted(columns[0], columns[2], side="left"))
    labels = np.arange(n)
    near: list[IntArray] = []
    start = 0
    while start < n:
        most = max(_PAIRS_AT_ONCE // max(int(ends[start]) - start, 1), 1)
        reach = ends[start : start + most] - start
        pairs = np.arange(1, len(reach) + 1) * reach
        stop = start + max(int(np.searchsorted(pairs, _PAIRS_AT_ONCE, side="right")), 1)
        overlap = _iou(columns[:, start:stop, None], columns[:, None, start : ends[stop - 1]])
        near.append(start + np.argwhere(overlap >= min_iou))
        if stop == n or sum(map(len, near)) > _PAIRS_AT_ONCE:
            edges = labels[np.concatenate(near)]
            graph = scipy.sparse.coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
            labels = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][labels]
            near = []
        start = stop
    found = np.empty(n, np.int64)
    found[order] = labels
    return in_order_of_appearance(found)


def _columns(boxes: FloatArray) -> FloatArray:
    """``x1, y1, x2, y2`` and area of ``boxes`` (N, 4), (5, N): numbers that lie side by side are computed at once."""
    corners = np.asarray(boxes, np.float64).reshape(-1, 4)
    made = np.empty((5, len(corners)))
    made[:4] = corners.T
    made[4] = np.maximum(made[2] - made[0], 0.0) * np.maximum(made[3] - made[1], 0.0)
    return made


def _iou(a: FloatArray, b: FloatArray) -> FloatArray:
    """IoU of boxes as :func:`_columns` makes them, (5, ...), whose further shapes broadcast."""
    shared = np.minimum(a[2], b[2])
    shared -= np.maximum(a[0], b[0])
    np.maximum(shared, 0.0, out=shared)
    height = np.minimum(a[3], b[3])
    height -= np.maximum(a[1], b[1])
    shared *= np.maximum(height, 0.0, out=height)
    union = a[4] + b[4]
    union -= shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0.0)


def in_order_of_appearance(labels: IntArray) -> IntArray:
    """``labels`` renumbered 0, 1, ... in the order in which each first appears; negative ones stay."""
    labels = np.asarray(labels, np.int64)
    values, first = np.unique(labels[labels >= 0], return_index=True)
    rank = np.empty(len(values), np.int64)
    rank[np.argsort(first)] = np.arange(len(values))
    renumbered = labels.copy()
    renumbered[labels >= 0] = rank[np.searchsorted(values, labels[labels >= 0])]
    return renumbered

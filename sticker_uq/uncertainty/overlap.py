# SPDX-License-Identifier: Apache-2.0
"""Overlap of axis-aligned boxes: intersection over union and the groups it connects."""

import numpy as np
import scipy

from sticker_uq.scene import FloatArray, IntArray

_PAIRS_AT_ONCE = 1 << 15  # in the processor's cache: the operations on one pair are few


def iou_matrix(first: FloatArray, second: FloatArray) -> FloatArray:
    """Intersection over union of every box of ``first`` (N, 4) with every box of ``second`` (M, 4), (N, M) float64, 0..1.

    Boxes are ``(x1, y1, x2, y2)``. A box without area overlaps nothing, not even itself.
    """
    a = np.asarray(first, np.float64).reshape(-1, 4)
    b = np.asarray(second, np.float64).reshape(-1, 4)
    if len(a) * len(b) <= _PAIRS_AT_ONCE:
        return paired_iou(a[:, None], b[None])
    made = np.empty((len(a), len(b)))
    rows = max(_PAIRS_AT_ONCE // len(b), 1)
    for start in range(0, len(a), rows):
        made[start : start + rows] = paired_iou(a[start : start + rows, None], b[None])
    return made


def box_areas(boxes: FloatArray) -> FloatArray:
    """Area of each of ``boxes`` (N, 4), (N,) float64 px^2; 0 for one whose corners are in the wrong order."""
    return _areas(np.asarray(boxes, np.float64))


def _areas(boxes: FloatArray) -> FloatArray:
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return np.asarray(np.maximum(width, 0.0) * np.maximum(height, 0.0))


def overlap_groups(boxes: FloatArray, min_iou: float) -> IntArray:
    """Groups of boxes that hang together through chains of neighbours that overlap by at least ``min_iou`` > 0.

    Returns the group of each of the ``boxes`` (N, 4), (N,) int64, numbered from 0 in the order of their first member.
    """
    n = len(boxes)
    if n == 0:
        return np.zeros(0, np.int64)
    corners = np.asarray(boxes, np.float64)
    order = np.argsort(corners[:, 0], kind="stable")
    corners = corners[order]
    # From left to right: only boxes that begin before this one ends can overlap it.
    end = np.searchsorted(corners[:, 0], corners[:, 2], side="left")
    top, bottom = np.ascontiguousarray(corners[:, 1]), np.ascontiguousarray(corners[:, 3])
    counts = np.maximum(end - np.arange(n) - 1, 0)
    pairs_up_to = np.cumsum(counts)
    labels = np.arange(n)
    start = 0
    while start < n:
        before = pairs_up_to[start] - counts[start]
        stop = max(int(np.searchsorted(pairs_up_to, before + _PAIRS_AT_ONCE, side="right")), start + 1)
        first = np.repeat(np.arange(start, stop), counts[start:stop])
        second = first + 1 + np.arange(len(first)) - (pairs_up_to - counts)[first] + before
        # most of them lie above or below each other
        level = (top[first] < bottom[second]) & (top[second] < bottom[first])
        first, second = first[level], second[level]
        near = paired_iou(corners[first], corners[second]) >= min_iou
        edges = labels[first[near]], labels[second[near]]
        graph = scipy.sparse.coo_array((np.ones(len(edges[0])), edges), shape=(n, n))
        labels = scipy.sparse.csgraph.connected_components(graph, directed=False)[1][labels]
        start = stop
    found = np.empty(n, np.int64)
    found[order] = labels
    return in_order_of_appearance(found)


def paired_iou(a: FloatArray, b: FloatArray) -> FloatArray:
    """IoU of boxes (..., 4) whose leading shapes broadcast."""
    width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    shared = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    union = _areas(a) + _areas(b) - shared
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

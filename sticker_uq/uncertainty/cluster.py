# SPDX-License-Identifier: Apache-2.0
"""Which boxes of the T stochastic passes are the same object.

HDBSCAN on the distance 1 - IoU (Lu et al., section 3.2.2, with minimum cluster size and minimum samples 3). As published, on
raw coordinates, it never finds a lone object, because the root of its tree is excluded; here the root may be a cluster.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads its parts when they are first used: most nodes need the settings only
from numpy.typing import NDArray
from pydantic import Field

from sticker_uq.io.setting_fields import Frozen
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, StochasticSamples
from sticker_uq.uncertainty.overlap import in_order_of_appearance, iou_matrix, overlap_groups, paired_iou

# Cannot-link: two boxes that one pass drew are two objects, unless they are twins of the same one.
# Density clustering merges stickers that overlap by half or more. But a pass that sees both draws two boxes, and several such
# passes are evidence of two objects. The split is a constrained 2-means (Wagstaff et al. 2001, COP-k-means) in IoU.
TWIN_IOU = 0.7
"""Mean boxes that overlap more than this outline the same thing, e.g. once as a logo and once as a sticker."""

_MAX_ROUNDS = 20
_MOST_RIVALS = 16  # boxes of one pass whose pairs are all looked at
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
        halves = _split_in_two(boxes[rows], passes[rows], together, min_passes)
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


def _split_in_two(
    boxes: FloatArray, passes: IntArray, together: _Pairs, min_passes: int
) -> NDArray[np.bool_] | None:
    """Which boxes are the first of two objects, (N,); None where they are one."""
    halves = _halve(boxes, passes, together.furthest()) if _count_repeated(passes) >= min_passes else None
    if halves is None:
        return None
    means = _mean_boxes(boxes, halves)
    both = np.intersect1d(passes[halves], passes[~halves])
    return halves if len(both) >= min_passes and iou_matrix(means[:1], means[1:])[0, 0] <= TWIN_IOU else None


def _count_repeated(passes: IntArray) -> int:
    """How many passes occur more than once."""
    return int(np.count_nonzero(np.bincount(passes) > 1))


def _halve(boxes: FloatArray, passes: IntArray, seeds: tuple[int, int]) -> NDArray[np.bool_] | None:
    """True for the boxes of the first half, False for the second, (N,) bool; None when there are no two halves."""
    centres = boxes[list(seeds)]
    halves: NDArray[np.bool_] | None = None
    rivals, larger = _same_pass(passes)
    nobody = np.append(boxes, np.zeros((1, 4)), axis=0)  # row N, of which `rivals` are full
    for _ in range(_MAX_ROUNDS):
        closeness = iou_matrix(centres, nobody)
        assigned = closeness[0, :-1] >= closeness[1, :-1]
        closeness[:, -1] = -np.inf
        first, second, doubtful = _assign_rivals(closeness, rivals)
        assigned[first], assigned[second] = True, False
        for rows in (*doubtful, *larger):
            chosen, side = scipy.optimize.linear_sum_assignment(closeness[:, rows].T, maximize=True)
            assigned[rows[chosen]] = side == 0
        if assigned.all() or not assigned.any():
            return None
        if halves is not None and (assigned == halves).all():
            break
        halves = assigned
        centres = _mean_boxes(boxes, halves)
    return halves


def _mean_boxes(boxes: FloatArray, halves: NDArray[np.bool_]) -> FloatArray:
    """The mean box of the first half and that of the second, (2, 4)."""
    first, second = boxes[halves], boxes[~halves]
    return np.array([np.add.reduce(first) / len(first), np.add.reduce(second) / len(second)])


def _same_pass(passes: IntArray) -> tuple[IntArray, list[IntArray]]:
    """The rows of each pass with 2 to ``_MOST_RIVALS`` boxes, (K, most of them), and those of each pass with more.

    Rows are ascending; where a pass has fewer than the most, ``len(passes)`` follows.
    """
    counts = np.bincount(passes)
    order = np.argsort(passes, kind="stable")
    starts = np.cumsum(counts) - counts
    few = np.flatnonzero((counts > 1) & (counts <= _MOST_RIVALS))
    place = np.arange(counts[few].max(initial=2))
    filled = np.append(order, np.full(len(place), len(passes)))
    rivals = np.where(place < counts[few, None], filled[starts[few, None] + place], len(passes))
    larger = np.flatnonzero(counts > _MOST_RIVALS)
    return rivals, [order[starts[one] : starts[one] + counts[one]] for one in larger]


def _assign_rivals(closeness: FloatArray, rivals: IntArray) -> tuple[IntArray, IntArray, list[IntArray]]:
    """The rows of each of the ``rivals`` that are closest, together, to the first centre and to the second.

    ``closeness`` (2, N + 1) is -inf in its last column. Also the rows of each pass in which others are as close up to
    ``_TIE``: there the general assignment decides.
    """
    count, most = rivals.shape
    there = closeness[:, rivals]
    sums = (there[0, :, :, None] + there[1, :, None, :]).reshape(count, most * most)
    sums[:, :: most + 1] = -np.inf  # one box is no pair
    best = sums.argmax(axis=1)
    numbers = np.arange(count)
    least = sums[numbers, best] - _TIE
    sums[numbers, best] = -np.inf
    doubtful = rivals[sums.max(axis=1) >= least]
    ends = closeness.shape[1] - 1
    return rivals[numbers, best // most], rivals[numbers, best % most], [row[row < ends] for row in doubtful]


NOISE = -1
MOST_BOXES = 20_000
"""Boxes of all passes that are clustered: time and memory grow with the square of their number in the worst case."""
MOST_TOGETHER = 4_000
"""Boxes that may hang together through overlaps: their distances fill a table."""


class TooManyBoxes(InvalidInput):
    """More boxes than can be clustered in the time of an image. Such an image has no objects to trust: it closes the gate."""


class ClusterSettings(Frozen):
    """How boxes are clustered to objects."""

    min_cluster_size: int = Field(3, ge=2, le=100)
    """Passes that must have seen an object before it counts as clustered, count."""
    min_samples: int = Field(3, ge=1, le=100)
    """Neighbours that make a box the core of a cluster (HDBSCAN min_samples), count."""
    epsilon: float = Field(0.5, ge=0.05, le=0.95)
    """Distance 1 - IoU up to which boxes belong together, dimensionless."""


def cluster(samples: StochasticSamples, settings: ClusterSettings | None = None) -> IntArray:
    """The object of each box of ``samples``, (N,) int64: 0, 1, ..., or -1 for a box of no clustered object.

    Every label belongs to an object that at least ``min_cluster_size`` passes saw; boxes of an object that fewer passes saw
    are -1. Neither the order of the rows nor the numbering of the passes changes which boxes are together. Boxes that do not
    hang together through overlaps of ``1 - epsilon`` never share a label, and an object's boxes do not depend on what else is
    in the image. Two objects that overlap are told apart where several passes show both.

    Raises InvalidInput when a box or a probability is not finite, and TooManyBoxes.
    """
    order = canonical_order(samples)
    labels = np.full(len(samples), NOISE, np.int64)
    labels[order] = cluster_ordered(samples.select(order), settings or ClusterSettings())
    return labels


def cluster_ordered(samples: StochasticSamples, settings: ClusterSettings) -> IntArray:
    """:func:`cluster` of the boxes of ``samples`` whose rows are in canonical order."""
    _algorithm()  # so that a call without boxes is enough to warm up
    if not (np.isfinite(samples.boxes).all() and np.isfinite(samples.probabilities).all()):
        raise InvalidInput("boxes and probabilities to cluster must be finite, got NaN or infinity")
    _check_bound(len(samples), MOST_BOXES, "boxes of all passes")
    return _cluster_sorted(samples.boxes.astype(np.float64), np.asarray(samples.pass_index), settings)


@functools.cache
def _algorithm() -> Any:
    """HDBSCAN. Loaded when first used, because scikit-learn and pandas come along: settings must be quick to import."""
    from hdbscan import hdbscan

    return hdbscan


def canonical_order(samples: StochasticSamples) -> IntArray:
    """The order in which boxes are clustered: rows by box, then probabilities, then pass, (N,) int64.

    Sums over rows taken in this order are bit-identical however the rows arrive.
    """
    return np.lexsort((samples.pass_index, *samples.probabilities.T[::-1], *samples.boxes.T[::-1]))


def distinct(passes: IntArray) -> int:
    """How many different passes there are in ``passes`` (N,)."""
    return int(np.count_nonzero(np.bincount(passes)))


def rows_of(labels: IntArray) -> list[IntArray]:
    """The rows of each object 0, 1, ... of ``labels`` (N,), ascending; negative labels are left out."""
    kept = np.flatnonzero(labels >= 0)
    if not len(kept):
        return []
    order = kept[np.argsort(labels[kept], kind="stable")]
    ends = np.cumsum(np.bincount(labels[kept])).tolist()
    return [order[start:end] for start, end in itertools.pairwise([0, *ends])]


def _cluster_sorted(boxes: np.ndarray, passes: IntArray, settings: ClusterSettings) -> IntArray:
    # HDBSCAN sees one connected group at a time. Between groups every distance is 1 (or nearly): in one common tree these ties
    # are broken by the order of the rows, and far away boxes end up as outlying members of somebody else's cluster.
    groups = overlap_groups(boxes, 1.0 - settings.epsilon)
    labels = np.full(len(boxes), NOISE, np.int64)
    found = 0
    for members in rows_of(groups):
        if len(members) < settings.min_cluster_size:
            continue
        for part in _objects_of_group(boxes[members], passes[members], settings):
            labels[members[part]] = found
            found += 1
    return in_order_of_appearance(labels)


def _objects_of_group(boxes: np.ndarray, passes: IntArray, settings: ClusterSettings) -> list[IntArray]:
    """Indices of the boxes of each object among connected ``boxes``; boxes in none of them are noise."""
    if distinct(passes) < settings.min_cluster_size:
        return []
    _check_bound(len(boxes), MOST_TOGETHER, "boxes that hang together")
    distance = 1.0 - iou_matrix(boxes, boxes)
    np.fill_diagonal(distance, 0.0)
    found = _hdbscan(distance, settings)
    clusters = [c for c in rows_of(found) if distinct(passes[c]) >= settings.min_cluster_size]
    taken = np.concatenate(clusters) if clusters else np.zeros(0, np.int64)
    rest = np.delete(np.arange(len(boxes)), taken)
    # HDBSCAN does not count a box as its own neighbour, so it calls an object with as many boxes as min_samples noise as soon as
    # another box is near. Enough passes that agree are an object all the same.
    if distinct(passes[rest]) >= settings.min_cluster_size:
        for rows in rows_of(_connected_components(distance[np.ix_(rest, rest)] <= settings.epsilon)):
            if distinct(passes[rest[rows]]) >= settings.min_cluster_size:
                clusters.append(rest[rows])
    return [
        members[part]
        for members in clusters
        for part in split_objects(boxes[members], passes[members], settings.min_cluster_size)
    ]


def _check_bound(count: int, most: int, what: str) -> None:
    if count > most:
        raise TooManyBoxes(
            f"{count} {what}, expected at most {most}: raise score_floor, or lower passes or max_detections"
        )


def _connected_components(near: NDArray[np.bool_]) -> IntArray:
    """Groups of boxes that hang together through neighbours, which ``near`` (N, N) tells, in the order of their first member."""
    labels = np.full(len(near), NOISE, np.int64)
    for first in range(len(near)):
        if labels[first] != NOISE:
            continue
        reached, size = near[first], 0
        while (now := int(np.count_nonzero(reached))) > size:
            reached, size = near[reached].any(axis=0), now
        labels[reached] = labels.max() + 1
    return labels


def _hdbscan(distance: FloatArray, settings: ClusterSettings) -> IntArray:
    if len(distance) >= settings.min_cluster_size and distance.max() < settings.epsilon:
        # Nothing in here can part at a distance of epsilon or more, so HDBSCAN would answer one cluster of everything.
        return np.zeros(len(distance), np.int64)
    labels = _algorithm()(
        distance,
        metric="precomputed",
        min_cluster_size=settings.min_cluster_size,
        min_samples=settings.min_samples,
        cluster_selection_epsilon=settings.epsilon,
        allow_single_cluster=True,
        core_dist_n_jobs=1,
    )[0]
    return np.asarray(labels, np.int64)

# SPDX-License-Identifier: Apache-2.0
"""The uncertainty metrics of all objects of an image at once (Lu et al., section 3.2, eq 2-11); `scene.METRICS` explains them.

Calls for each of many small objects cost more than the numbers do. Sums are taken in the order in which NumPy takes those of
one object: row after row for means, which is why no ``reduceat`` is used, whose order differs. Entropies are in bits and
unrounded, with 0 log 0 = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
import shapely

from sticker_uq.scene import CLASS_COUNT, METRICS, FloatArray, IntArray, StochasticSamples
from sticker_uq.uncertainty.overlap import box_areas

CORNERS = ((0, 1), (2, 1), (0, 3), (2, 3))
"""Columns of a box that make its top left, top right, bottom left and bottom right corner."""


@dataclass(frozen=True)
class GroupedSamples:
    """The rows of G objects one after the other: ``boxes`` (N, 4) and class ``vectors`` (N, 3), both float64, with the object
    of each row in ``owner`` (N,), 0 .. G-1 ascending; ``sizes`` (G,) rows of each, ``passes`` (G,) distinct passes of each.
    """

    boxes: FloatArray
    vectors: FloatArray
    owner: IntArray
    sizes: IntArray
    passes: IntArray

    @classmethod
    def of(cls, samples: StochasticSamples, members: Sequence[IntArray]) -> GroupedSamples:
        """The objects whose rows in ``samples`` are ``members``: at least one, each with at least one row."""
        rows = np.concatenate(members)
        sizes = np.array([len(one) for one in members])
        owner = np.repeat(np.arange(len(members)), sizes)
        in_pass = np.zeros((len(members), int(samples.pass_index.max()) + 1), bool)
        in_pass[owner, samples.pass_index[rows]] = True
        vectors = samples.probabilities[rows].astype(np.float64)
        # float32 rows sum to 1 only within rounding, which would push an entropy out of its range
        vectors /= vectors.sum(axis=1, keepdims=True)
        return cls(samples.boxes[rows].astype(np.float64), vectors, owner, sizes, in_pass.sum(axis=1))

    @cached_property
    def slices(self) -> list[slice]:
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes.tolist(), strict=True)]

    @cached_property
    def mean_boxes(self) -> FloatArray:
        return self._means(self.boxes)

    @cached_property
    def mean_vectors(self) -> FloatArray:
        """Mean class vector of each object, (G, 3), rows sum to 1 (Lu et al., eq 1)."""
        return self._means(self.vectors)

    @cached_property
    def covariances(self) -> FloatArray:
        """Covariance of (x1, y1, x2, y2) over the M boxes of each object, (G, 4, 4) px^2, divided by M (Lu et al., eq 7)."""
        centred = self.boxes - self.mean_boxes[self.owner]
        parts = (centred[rows] for rows in self.slices)
        return np.stack([part.T @ part / len(part) for part in parts])

    @cached_property
    def corner_hulls(self) -> list[tuple[FloatArray, ...]]:
        """Convex hulls of the four corners' positions of each object, four (V, 2) float32 polygons px each (Lu et al., eq 9-10).

        In the order top left, top right, bottom left, bottom right; vertices in order, the first one not repeated. A hull of
        identical positions has one vertex, of positions in one line two.
        """
        rings, owner = shapely.get_coordinates(self._hulls, return_index=True)
        polygons = np.split(rings, np.searchsorted(owner, np.arange(1, len(self._hulls))))
        # GEOS closes a polygon with its first vertex; a point or a line has no vertex to spare
        opened = [(ring[:-1] if len(ring) > 2 else ring).astype(np.float32) for ring in polygons]
        return [tuple(opened[4 * g : 4 * g + 4]) for g in range(len(self.sizes))]

    @cached_property
    def hull_areas(self) -> FloatArray:
        """Areas of each object's corner hulls, (G, 4) px^2; one without area counts as 0."""
        return np.asarray(shapely.area(self._hulls).reshape(-1, 4))

    @cached_property
    def _hulls(self) -> FloatArray:
        # as lines, which have the hull of their points: a geometry for every point costs more than the hulls. The first point
        # comes twice, because a line has at least two.
        corners = [self.boxes[rows][:, CORNERS].transpose(1, 0, 2) for rows in self.slices]
        closed = [np.concatenate([corner, corner[:, :1]], axis=1).reshape(-1, 2) for corner in corners]
        counts = np.repeat(self.sizes + 1, 4)
        lines = shapely.linestrings(np.concatenate(closed), indices=np.repeat(np.arange(len(counts)), counts))
        return np.asarray(shapely.convex_hull(lines))

    def _means(self, values: FloatArray) -> FloatArray:
        """Mean over each object's rows of ``values`` (N, K), (G, K)."""
        width = values.shape[1]
        sums = np.zeros(len(self.sizes) * width)
        np.add.at(sums, (self.owner[:, None] * width + np.arange(width)).ravel(), values.ravel())
        return sums.reshape(-1, width) / self.sizes[:, None]


def entropy(vectors: FloatArray) -> FloatArray:
    """Shannon entropy of class vectors (..., K) that sum to 1, 0..log2 K bits, of shape (...)."""
    # Adding 0.0 turns the -0.0 of a certain vector into 0.0.
    return np.asarray(-scipy.special.xlogy(vectors, vectors).sum(axis=-1) / np.log(2.0) + 0.0)


def variation_ratio(objects: GroupedSamples) -> FloatArray:
    """VR: share of the passes' boxes whose most probable class is not the commonest, (G,) 0..2/3 (Lu et al., eq 2-4).

    A tie within one row goes to the lower class.
    """
    votes = np.bincount(
        objects.owner * CLASS_COUNT + objects.vectors.argmax(axis=1),
        minlength=len(objects.sizes) * CLASS_COUNT,
    )
    return np.asarray(1.0 - votes.reshape(-1, CLASS_COUNT).max(axis=1) / objects.sizes)


def shannon_entropy(objects: GroupedSamples) -> FloatArray:
    """SE: entropy of the mean class vector, (G,) 0..log2(3) bits (Lu et al., eq 5)."""
    return entropy(objects.mean_vectors)


def mutual_information(objects: GroupedSamples) -> FloatArray:
    """MI: entropy of the mean class vector minus the mean entropy of the vectors, (G,) 0..log2(3) bits (Lu et al., eq 6).

    Never above SE; rounding errors below 0 are cut off.
    """
    each = entropy(objects.vectors)
    expected = [each[rows].mean() for rows in objects.slices]
    return np.asarray(np.maximum(0.0, entropy(objects.mean_vectors) - expected))


def total_variance(objects: GroupedSamples) -> FloatArray:
    """TV: trace of the box covariance, (G,) >= 0 px^2 (Lu et al., eq 7-8)."""
    return np.asarray(np.trace(objects.covariances, axis1=1, axis2=2))


def predictive_surface(objects: GroupedSamples) -> FloatArray:
    """PS: mean area of the four corner hulls, (G,) >= 0 px^2 (Lu et al., eq 11)."""
    return np.asarray(objects.hull_areas.mean(axis=1))


_FUNCTIONS: dict[str, Callable[[GroupedSamples], FloatArray]] = {
    function.__name__: function
    for function in (variation_ratio, shannon_entropy, mutual_information, total_variance, predictive_surface)
}


def measure(objects: GroupedSamples) -> dict[str, FloatArray]:
    """Every metric of `scene.METRICS` by name, (G,) each; relative ones are NaN for a mean box without area."""
    measured = {name: function(objects) for name, function in _FUNCTIONS.items()}
    area = box_areas(objects.mean_boxes)
    area = np.where(area > 0.0, area, np.nan)
    relative = {metric.relative: measured[name] / area for name, metric in METRICS.items() if metric.relative}
    return measured | relative

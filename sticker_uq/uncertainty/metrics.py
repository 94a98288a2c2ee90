"""The five uncertainty metrics of one object (Wu et al., section 3.2, eq 2-11), for the boxes of one cluster.

Every function takes the M detections of one object and raises InvalidInput when there are none or the shape is wrong.
Entropies are in bits and unrounded, with 0 log 0 = 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import shapely
from scipy.special import xlogy

from sticker_uq.scene import CLASS_COUNT, FloatArray, InvalidInput

CORNERS = ((0, 1), (2, 1), (0, 3), (2, 3))
"""Columns of a box that make its top left, top right, bottom left and bottom right corner."""


def mean_probabilities(probabilities: FloatArray) -> FloatArray:
    """Mean class vector of one object, (3,) float64 that sums to 1 (Wu et al., eq 1)."""
    return np.asarray(distributions(probabilities).mean(axis=0))


def variation_ratio(probabilities: FloatArray) -> float:
    """VR: share of the detections whose most probable class is not the commonest one, 0..2/3 (Wu et al., eq 2-4).

    ``probabilities`` (M, 3). A tie within one detection goes to the lower class.
    """
    labels = distributions(probabilities).argmax(axis=1)
    return float(1.0 - np.bincount(labels, minlength=CLASS_COUNT).max() / len(labels))


def shannon_entropy(probabilities: FloatArray) -> float:
    """SE: entropy of the mean class vector of ``probabilities`` (M, 3), 0..log2(3) bits (Wu et al., eq 5)."""
    return float(entropy(mean_probabilities(probabilities)))


def mutual_information(probabilities: FloatArray) -> float:
    """MI: entropy of the mean class vector minus the mean entropy of the vectors, 0..log2(3) bits (Wu et al., eq 6).

    Never above SE; rounding errors below 0 are cut off.
    """
    vectors = distributions(probabilities)
    return max(0.0, float(entropy(vectors.mean(axis=0)) - entropy(vectors).mean()))


def box_covariance(boxes: FloatArray) -> FloatArray:
    """Covariance of (x1, y1, x2, y2) over the M detections, (4, 4) float64 px^2, divided by M (Wu et al., eq 7)."""
    centred = _boxes(boxes)
    centred = centred - centred.mean(axis=0)
    return np.asarray(centred.T @ centred / len(centred))


def total_variance(boxes: FloatArray) -> float:
    """TV: trace of the box covariance of ``boxes`` (M, 4), >= 0 px^2 (Wu et al., eq 7-8)."""
    return float(np.trace(box_covariance(boxes)))


def corner_hulls(boxes: FloatArray) -> tuple[FloatArray, ...]:
    """Convex hulls of the positions of the four corners, four (V, 2) float32 polygons in px (Wu et al., eq 9-10).

    In the order top left, top right, bottom left, bottom right; vertices in order, the first one not repeated. A hull of
    identical positions has one vertex, of positions in one line two.
    """
    return surface_and_hulls(boxes)[1]


def predictive_surface(boxes: FloatArray) -> float:
    """PS: mean area of the four corner hulls of ``boxes`` (M, 4), >= 0 px^2 (Wu et al., eq 11).

    A hull without area counts as 0.
    """
    return surface_and_hulls(boxes)[0]


def surface_and_hulls(boxes: FloatArray) -> tuple[float, tuple[FloatArray, ...]]:
    """:func:`predictive_surface` and :func:`corner_hulls` of ``boxes`` (M, 4) in one go."""
    return surfaces_and_hulls([boxes])[0]


def surfaces_and_hulls(groups: Sequence[FloatArray]) -> list[tuple[float, tuple[FloatArray, ...]]]:
    """:func:`surface_and_hulls` of each of ``groups``, all in one call of GEOS."""
    if not groups:
        return []
    # as lines, which have the hull of their points: a geometry for every point costs more than the hulls. The first point comes
    # twice, because a line has at least two.
    corners = [_boxes(boxes)[:, CORNERS].transpose(1, 0, 2) for boxes in groups]
    closed = [np.concatenate([corner, corner[:, :1]], axis=1).reshape(-1, 2) for corner in corners]
    counts = np.repeat([len(boxes) + 1 for boxes in groups], 4)
    hulls = shapely.convex_hull(
        shapely.linestrings(np.concatenate(closed), indices=np.repeat(np.arange(len(counts)), counts))
    )
    areas = shapely.area(hulls).reshape(-1, 4)
    rings, owner = shapely.get_coordinates(hulls, return_index=True)
    polygons = np.split(rings, np.searchsorted(owner, np.arange(1, len(counts))))
    # GEOS closes a polygon with its first vertex; a point or a line has no vertex to spare.
    opened = [(ring[:-1] if len(ring) > 2 else ring).astype(np.float32) for ring in polygons]
    return [(float(area.mean()), tuple(opened[4 * g : 4 * g + 4])) for g, area in enumerate(areas)]


def entropy(vectors: FloatArray) -> FloatArray:
    """Entropy of each of ``vectors`` (..., 3) that sum to 1, (...) bits."""
    # Adding 0.0 turns the -0.0 of a certain vector into 0.0.
    return -xlogy(vectors, vectors).sum(axis=-1) / np.log(2.0) + 0.0


def distributions(probabilities: FloatArray) -> FloatArray:
    """``probabilities`` (M, 3) as float64 rows that sum to 1."""
    vectors = np.asarray(probabilities, np.float64)
    if vectors.ndim != 2 or vectors.shape[1] != CLASS_COUNT or len(vectors) == 0:
        raise InvalidInput(
            f"probabilities of an object must have shape (M, {CLASS_COUNT}) with M >= 1, got {vectors.shape}"
        )
    # float32 rows sum to 1 only within rounding, which would push an entropy out of its range.
    return np.asarray(vectors / vectors.sum(axis=1, keepdims=True))


def _boxes(boxes: FloatArray) -> FloatArray:
    corners = np.asarray(boxes, np.float64)
    if corners.ndim != 2 or corners.shape[1] != 4 or len(corners) == 0:
        raise InvalidInput(f"boxes of an object must have shape (M, 4) with M >= 1, got {corners.shape}")
    return corners

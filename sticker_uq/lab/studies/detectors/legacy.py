# SPDX-License-Identifier: Apache-2.0
"""The uncertainty metrics as the published code computes them (profile simula_rp), quirks included, for regression only.

Boxes below a score of 0.6 and of the class logo are dropped, raw corners and centres are clustered, noise counts as one more
object, entropies are rounded, and PS is the sum of four hull perimeters, -1 where a hull is degenerate.
"""

from __future__ import annotations

import math

import numpy as np
import shapely
from hdbscan import HDBSCAN

from sticker_uq.lab.studies.detectors.measures import UNCERTAINTY
from sticker_uq.scene import FloatArray, ObjectClass, StochasticSamples
from sticker_uq.uncertainty.metrics import GroupedSamples, total_variance, variation_ratio

MIN_SCORE = 0.6
_CLUSTER = 3
_EPSILON = 1e-15
_DIGITS = 5


def legacy_metrics(samples: StochasticSamples) -> dict[str, float]:
    """Uncertainty metrics as Lu et al.'s code has them: VR, SE, MI, TV, PS over clusters, ``clusters``; NaN
    without any.
    """
    chosen = (samples.probabilities.argmax(axis=1) == ObjectClass.STICKER) & (
        samples.probabilities[:, ObjectClass.STICKER] >= MIN_SCORE
    )
    boxes = samples.boxes[chosen].astype(np.float64)
    vectors = samples.probabilities[chosen].astype(np.float64)
    names = tuple(measure.name for measure in UNCERTAINTY)
    if len(boxes) < _CLUSTER:
        return dict.fromkeys(names, math.nan) | {"clusters": 0.0}
    centres = ((boxes[:, :2] + boxes[:, 2:]) / 2).astype(int)
    labels = HDBSCAN(min_cluster_size=_CLUSTER).fit_predict(np.column_stack([boxes, centres]))
    rows = []
    clusters = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    grouped = GroupedSamples.of(samples, [np.flatnonzero(chosen)[members] for members in clusters])
    ratios, variances = variation_ratio(grouped), total_variance(grouped)
    for number, members in enumerate(clusters):
        entropy = round(_entropy(vectors[members].mean(axis=0)), _DIGITS)
        expected = float(np.mean([_entropy(v) for v in vectors[members]]))
        rows.append(
            (
                ratios[number],
                entropy,
                entropy - expected,
                variances[number],
                perimeter_sum(boxes[members]),
            )
        )
    means = np.mean(rows, axis=0).tolist()
    return dict(zip(names, means, strict=True)) | {"clusters": float(len(rows))}


def perimeter_sum(boxes: FloatArray) -> float:
    """PS in Lu et al.'s code, of boxes (M, 4): sum of the perimeters of the corner hulls, px; -1 for fewer than 3 boxes or a
    hull
    without an area.
    """
    total = 0.0
    for x, y in ((0, 1), (2, 1), (0, 3), (2, 3)):
        hull = shapely.convex_hull(shapely.multipoints(boxes[:, [x, y]]))
        if len(boxes) < _CLUSTER or hull.area == 0:
            return -1.0
        total += float(hull.length)
    return total


def _entropy(vector: FloatArray) -> float:
    return -float(np.sum(vector * np.log2(vector + _EPSILON)))

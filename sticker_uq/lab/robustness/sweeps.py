# SPDX-License-Identifier: Apache-2.0
"""Severity sweep: at which strength a circumstance breaks a system, found instead of asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from sticker_uq.lab.corruptions import transformation_named
from sticker_uq.lab.robustness.performance import GATE_METRICS
from sticker_uq.lab.robustness.result import SweepPoint, SweepResult
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.lab.robustness.verdicts import Paired, bootstrap, resampled_weights

_RESAMPLES = 500
"""Of a sweep at most: its intervals are for reading off a plot, they decide nothing."""

Matrix = NDArray[np.float64]


def sweep_result(
    spec: Specification, circumstance: str, steps: Sequence[tuple[float, Paired]]
) -> tuple[SweepResult, ...]:
    """Severity sweep of a circumstance: performance over d for every metric with a relation and for the gate's.

    ``steps``: (strength, pairs), mildest first, the same source images in each.
    """
    known = spec.circumstance(circumstance)
    unit = transformation_named(known.transformation).unit if known.transformation else ""
    metrics = [*spec.relations, *(name for name in GATE_METRICS if name not in spec.relations)]
    resamples = min(spec.resamples, _RESAMPLES)
    source = steps[0][1].source
    weights = resampled_weights(len(source.images), resamples, spec.seed)
    before = bootstrap(source, metrics, weights)
    after = [bootstrap(pairs.target, metrics, weights[:, pairs.origin]) for _, pairs in steps]
    distances = np.array([[pairs.distance_of(row) for _, pairs in steps] for row in weights])
    tails = ((1 - spec.confidence) / 2, (1 + spec.confidence) / 2)
    results = []
    for metric in metrics:
        points = []
        for (strength, pairs), values in zip(steps, after, strict=True):
            usable = values[metric][np.isfinite(values[metric])]
            low, high = np.quantile(usable, tails) if len(usable) else (math.nan, math.nan)
            points.append(
                SweepPoint(
                    strength=strength,
                    distance=pairs.distance,
                    epsilon=_allowed(spec, metric, pairs.distance, known.significance),
                    value=pairs.target.value(metric),
                    low=float(low),
                    high=float(high),
                )
            )
        breaks = np.full(3, math.nan)
        mildest = False
        if metric in spec.relations:
            strengths = np.array([strength for strength, _ in steps])
            change = np.array([p.value for p in points]) - source.value(metric)
            allowed = np.array([p.epsilon for p in points])
            place = first_break(np.abs(change), allowed)
            mildest = place == 0
            drawn = []
            for row in range(resamples):
                changed = np.array([values[metric][row] for values in after]) - before[metric][row]
                limit = [_allowed(spec, metric, d, known.significance) for d in distances[row]]
                drawn.append(first_break(np.abs(changed), np.array(limit)))
            around = np.quantile(drawn, tails, method="inverted_cdf")
            breaks = np.array([_strength(p, strengths) for p in (place, *around)])
        results.append(
            SweepResult(
                circumstance=circumstance,
                metric=metric,
                unit=unit,
                source=source.value(metric),
                points=tuple(points),
                breaks_at=breaks[0],
                breaks_low=breaks[1],
                breaks_high=breaks[2],
                at_mildest=mildest,
            )
        )
    return tuple(results)


def first_break(difference: Matrix, allowed: Matrix) -> float:
    """At which step of a circumstance's sweep, from 0, ``difference`` (steps,) first exceeds ``allowed`` (steps,); infinite if
    never.

    More of a circumstance is taken to be no easier: differences are made monotone (isotonic regression) and joined by straight
    lines. A difference that cannot be measured counts as none.
    """
    risen = isotonic_regression(np.nan_to_num(difference)).x
    excess = risen - allowed
    beyond = np.flatnonzero(excess > 1e-12)
    if not len(beyond):
        return math.inf
    step = int(beyond[0])
    if step == 0:
        return 0.0
    return step - float(excess[step] / (excess[step] - excess[step - 1]))


def _strength(place: float, strengths: Matrix) -> float:
    """The strength at a place between the steps, NaN for none."""
    return float(np.interp(place, np.arange(len(strengths)), strengths)) if math.isfinite(place) else math.nan


def _allowed(spec: Specification, metric: str, distance: float, significance: int) -> float:
    return spec.epsilon(metric, distance, significance) if metric in spec.relations else math.nan

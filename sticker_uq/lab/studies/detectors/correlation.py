# SPDX-License-Identifier: Apache-2.0
"""Does uncertainty tell where a model is wrong: rank correlation of mAP with each uncertainty metric (Lu et al., RQ4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap
from sticker_uq.lab.studies.detectors.significance import Alternative, holm
from sticker_uq.scene import FloatArray, IntArray

_FEWEST = 3
"""Images below which a correlation says nothing."""


@dataclass(frozen=True)
class Correlation:
    """Rank correlation ``rho`` -1..1 of mAP with one uncertainty metric over ``images``;
    ``p_holm`` corrected over the metrics of a model.

    ``pearson`` and ``pearson_p_holm``: the same of the values instead of their ranks, which the published code has too. NaN where
    one of the two does not vary.
    """

    images: int
    rho: float
    p: float
    p_holm: float
    pearson: float
    pearson_p_holm: float


@dataclass(frozen=True)
class PooledCorrelation:
    """Rank correlation of mAP with uncertainty over all data sets and rates of ``images`` images, 95 % interval of the cluster
    bootstrap.
    """

    images: int
    rows: int
    rho: float
    low: float
    high: float


def spearman(
    first: FloatArray, second: FloatArray, alternative: Alternative = "two-sided"
) -> tuple[float, float]:
    """Spearman's rho of mAP and uncertainty, and its p; NaN for fewer than 3 values or where one does not
    vary.
    """
    if len(first) < _FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan, math.nan
    found = stats.spearmanr(first, second, alternative=alternative)
    return float(found.statistic), float(found.pvalue)


def pearson(
    first: FloatArray, second: FloatArray, alternative: Alternative = "two-sided"
) -> tuple[float, float]:
    """Pearson's correlation of mAP and uncertainty, and its p; NaN for fewer than 3 values or where one does
    not vary.
    """
    if len(first) < _FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan, math.nan
    found = stats.pearsonr(first, second, alternative=alternative)
    return float(found.statistic), float(found.pvalue)


def correlations(
    accuracy: FloatArray, metrics: Sequence[FloatArray], alternative: Alternative = "two-sided"
) -> list[Correlation]:
    """Rank correlation of ``accuracy`` (N,) with each uncertainty of ``metrics`` (N,) of a model, Holm over
    the metrics.

    Pairs in which one of the two was not measured are left out.
    """
    found = []
    for values in metrics:
        known = ~(np.isnan(accuracy) | np.isnan(values))
        both = accuracy[known], values[known], alternative
        found.append((int(known.sum()), spearman(*both), pearson(*both)))
    by_rank = holm(np.array([p for _, (_, p), _ in found])).tolist()
    by_value = holm(np.array([p for *_, (_, p) in found])).tolist()
    return [
        Correlation(n, rho, p, p_holm, r, r_holm)
        for (n, (rho, p), (r, _)), p_holm, r_holm in zip(found, by_rank, by_value, strict=True)
    ]


def pooled_correlation(
    accuracy: FloatArray, values: FloatArray, images: IntArray, resamples: int, seed: int = 0
) -> PooledCorrelation:
    """Correlation of mAP and uncertainty over all rows, interval by drawing whole images (``images`` (N,): of
    each row).

    The rows of one image at several rates are not independent, so a p value over all rows would mean nothing.
    """
    known = ~(np.isnan(accuracy) | np.isnan(values))
    accuracy, values, images = accuracy[known], values[known], images[known]

    def statistic(chosen: IntArray) -> FloatArray:
        return np.array([spearman(accuracy[chosen], values[chosen])[0]])

    rho = float(statistic(np.arange(len(accuracy)))[0])
    low = high = math.nan
    if resamples and not math.isnan(rho):
        lows, highs = cluster_bootstrap(statistic, images, resamples, seed)
        low, high = float(lows[0]), float(highs[0])
    return PooledCorrelation(len(np.unique(images)), len(accuracy), rho, low, high)

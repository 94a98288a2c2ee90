# SPDX-License-Identifier: Apache-2.0
"""Statistics of measures: intervals and comparisons of samples: exact and bootstrap intervals, area under the ROC curve."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are first used: a node that reads a bundle needs none of them
from numpy.typing import ArrayLike

from sticker_uq.scene import FloatArray, IntArray

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure with its confidence interval; all NaN where nothing can be measured."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return "-" if math.isnan(self.value) else f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


NOTHING = Interval(math.nan, math.nan, math.nan)
"""The interval of what cannot be measured."""


def upper_bound(events: int, count: int, delta: float) -> float:
    """Upper end of a Clopper-Pearson interval: the rate that ``events`` of ``count`` exclude with confidence 1 - ``delta``."""
    return 1.0 if events >= count else float(scipy.stats.beta.ppf(1.0 - delta, events + 1, count - events))


def clopper_pearson(events: int, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact two-sided Clopper-Pearson interval of a rate, 0..1; (0, 1) without a trial."""
    tail = (1.0 - confidence) / 2.0
    low = float(scipy.stats.beta.ppf(tail, events, count - events + 1)) if events else 0.0
    return low, upper_bound(events, count, tail)


def bootstrap(
    statistic: Callable[..., ArrayLike], sizes: Sequence[int], resamples: int = RESAMPLES, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Percentile interval of ``statistic``, called with the rows drawn from each sample; ``sizes``: of the samples.

    Rows are drawn with replacement. NaN results of single resamples are left out; NaN where all of them are.
    """
    rng = np.random.default_rng(seed)
    drawn = np.array([statistic(*(rng.integers(0, n, n) for n in sizes)) for _ in range(resamples)], float)
    known = ~np.isnan(drawn).all(axis=0)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(np.where(known, drawn, 0.0), [tail, 1 - tail], axis=0)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def cluster_bootstrap(
    statistic: Callable[[IntArray], FloatArray], units: IntArray, resamples: int, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Percentile interval of ``statistic``, an array computed from the indices of the objects drawn.

    Whole ``units`` (N,) (the images that the objects are in) are drawn with replacement, because the objects of one image are
    not independent. NaN without objects.
    """
    found, owner = np.unique(units, return_inverse=True)
    if not len(found) or not resamples:
        empty = np.full_like(statistic(np.arange(len(units))), np.nan)
        return empty, empty
    members = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1])
    return bootstrap(
        lambda drawn: statistic(np.concatenate([members[i] for i in drawn])), [len(found)], resamples, seed
    )


def mean_interval(values: FloatArray, seed: int = 0) -> Interval:
    """Mean of the values that are numbers, with its percentile interval by bootstrap."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return NOTHING
    low, high = bootstrap(lambda rows: known[rows].mean(), [len(known)], seed=seed)
    return Interval(float(known.mean()), float(low), float(high))


def bca_mean_interval(values: FloatArray, resamples: int, seed: int = 0) -> Interval:
    """Mean of ``values`` (N,) with its 95 % bootstrap interval (BCa), NaN where there is nothing to draw from."""
    if not len(values):
        return NOTHING
    mean = float(np.mean(values))
    if not resamples or len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    if np.ptp(values) == 0:
        return Interval(mean, mean, mean)
    rng = np.random.default_rng(seed)
    found = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=resamples, method="BCa", rng=rng
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def holm(p: FloatArray) -> FloatArray:
    """Holm-Bonferroni adjusted ``p`` (N,) of several tests; an undefined one stays NaN but counts in the family, ranked last."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")  # NaN last
    factors = len(values) - np.arange(len(values))
    adjusted = np.fmax.accumulate(values[order] * factors)
    result = np.empty_like(values)
    result[order] = np.minimum(adjusted, 1.0)
    result[np.isnan(values)] = np.nan
    return result


def area_under_roc(negative: FloatArray, positive: FloatArray) -> float:
    """Probability that a ``positive`` (M,) is above a ``negative`` (N,), ties counting half; NaN when one is empty.

    This is the area under the ROC curve (Mann-Whitney U over N * M). NaN, an object that nothing is known about, counts as
    infinite.
    """
    n, m = len(negative), len(positive)
    if not n or not m:
        return math.nan
    below, above = (np.where(np.isnan(values), np.inf, values) for values in (negative, positive))
    ordered = np.sort(below)
    not_above, under = (np.searchsorted(ordered, above, side) for side in ("right", "left"))
    return float((not_above.sum() + under.sum()) / 2 / (n * m))


def roc_interval(negative: FloatArray, positive: FloatArray, seed: int = 0) -> Interval:
    """:func:`area_under_roc` with the percentile bootstrap over both samples."""
    n, m = len(negative), len(positive)
    if not n or not m:
        return NOTHING
    low, high = bootstrap(lambda a, b: area_under_roc(negative[a], positive[b]), [n, m], seed=seed)
    return Interval(area_under_roc(negative, positive), float(low), float(high))


def share_above(values: FloatArray, cut_off: float) -> float:
    """Share of ``values`` above ``cut_off``; NaN without any."""
    return float((values > cut_off).mean()) if len(values) else math.nan

# SPDX-License-Identifier: Apache-2.0
"""Which of two detectors is better: paired tests, effect sizes, corrections (Lu et al., section 4.6), the tiers that follow, and
whether uncertainty tells where a model is wrong (RQ4).

Everything is paired by image. Values that cannot be computed are NaN.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap
from sticker_uq.lab.studies.detectors.measures import Measure, Profile
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

ALPHA = 0.05
Alternative = Literal["two-sided", "greater", "less"]
_DEVIATIONS = 2.0
"""The published direction rule looks whether 0 is within so many median absolute deviations of the median."""
_BANDS = ((0.1, "negligible"), (0.3, "small"), (0.5, "medium"))
RELEVANT = ("medium", "large")
"""Effects that count for an order of models."""


@dataclass(frozen=True)
class Friedman:
    """Friedman's test over the detectors. ``statistic``: chi-square with ``models`` - 1 degrees of freedom,
    corrected for ties.
    """

    images: int
    models: int
    statistic: float
    p: float


@dataclass(frozen=True)
class ModelPair:
    """One pair of detectors tested, d = first - second over ``images``.

    ``alternative`` that was tested; ``p`` of Wilcoxon's signed-rank test and ``p_holm`` corrected over all pairs; ``rbc``:
    matched-pairs rank-biserial correlation -1..1 with its ``band``; ``effect_r``: \\|z\\|/sqrt(n); ``better``: the model that is
    better, empty where the difference is not significant or not relevant (medium or large); ``md``: see :func:`published_md`.
    """

    first: str
    second: str
    images: int
    median: float
    alternative: Alternative
    p: float
    p_holm: float
    rbc: float
    band: str
    effect_r: float
    better: str
    md: float


def friedman(values: FloatArray) -> Friedman:
    """Friedman's test of ``values`` (N, K), N images seen by K models. NaN for less than three or without differences."""
    images, models = values.shape
    if models < 3 or images < 2:
        return Friedman(images, models, math.nan, math.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = scipy.stats.friedmanchisquare(*values.T)
    return Friedman(images, models, float(found.statistic), float(found.pvalue))


def direction(difference: FloatArray) -> Alternative:
    """The published rule for a pair: one-sided if 0 is over two median absolute deviations from its median difference."""
    median = float(np.median(difference))
    reach = _DEVIATIONS * float(np.median(np.abs(difference - median)))
    if median - reach <= 0.0 <= median + reach:
        return "two-sided"
    return "greater" if median > 0.0 else "less"


def signed_rank(difference: FloatArray, alternative: Alternative = "two-sided") -> float:
    """Wilcoxon's signed-rank test of ``difference`` (N,): p, zeros by Pratt's method; 1 if all are zero, NaN for N = 0."""
    if not len(difference):
        return math.nan
    if not np.any(difference):
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scipy warns that small samples with ties use the normal approximation
        return float(scipy.stats.wilcoxon(difference, zero_method="pratt", alternative=alternative).pvalue)


def rank_biserial(difference: FloatArray) -> float:
    """Matched-pairs rank-biserial correlation -1..1 of non-zero differences (Kerby 2014): (W+ - W-) / (n (n + 1) / 2).

    Positive: the first model has the larger values. NaN where all are zero.
    """
    rising, falling, count = _rank_sums(difference)
    return (rising - falling) / (count * (count + 1) / 2) if count else math.nan


def effect_r(difference: FloatArray) -> float:
    r"""\|z\| / sqrt(n) of the signed-rank sum of the n non-zero differences, no correction for ties; NaN without any."""
    rising, falling, count = _rank_sums(difference)
    if not count:
        return math.nan
    middle = count * (count + 1) / 4
    spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    return abs(min(rising, falling) - middle) / spread / math.sqrt(count)


def published_md(difference: FloatArray) -> float:
    """The "MD" of Lu et al.'s code, mean of d / (d + 1) over the non-zero differences; NaN without any.

    To compare with published tables only: it has no bounds, is infinite for a d of -1, and its sign misleads below that.
    """
    moved = difference[difference != 0]
    with np.errstate(divide="ignore"):
        return float(np.mean(moved / (moved + 1))) if len(moved) else math.nan


def band(value: float) -> str:
    """How large a pair's rank-biserial correlation is: negligible, small, medium, large; "no" for none."""
    if math.isnan(value) or value == 0.0:
        return "no"
    return next((name for limit, name in _BANDS if abs(value) < limit), "large")


def holm(p: FloatArray) -> NDArray[np.float64]:
    """Holm-Bonferroni adjusted ``p`` (N,) of pairs; an undefined one stays NaN but counts in the family, ranked last."""
    values = np.asarray(p, np.float64)
    order = np.argsort(values, kind="stable")  # NaN last
    factors = len(values) - np.arange(len(values))
    adjusted = np.fmax.accumulate(values[order] * factors)
    result = np.empty_like(values)
    result[order] = np.minimum(adjusted, 1.0)
    result[np.isnan(values)] = np.nan
    return result


def compare_pairs(
    values: FloatArray, models: list[str], measure: Measure, profile: Profile
) -> list[ModelPair]:
    """Statistical test of every pair of the K ``models`` on ``values`` (N, K) of ``measure``, Holm over the pairs.

    Profile ``paper`` tests two-sided, ``simula_rp`` in the direction of :func:`direction`. Raises InvalidInput for NaN.
    """
    if np.isnan(values).any():
        raise InvalidInput(
            f"{measure.short}: has values that are not numbers, expected images measured by every model"
        )
    drafts = []
    for i, j in combinations(range(len(models)), 2):
        difference = values[:, i] - values[:, j]
        alternative: Alternative = (
            "two-sided" if profile == "paper" or not len(difference) else direction(difference)
        )
        drafts.append((models[i], models[j], difference, alternative, signed_rank(difference, alternative)))
    adjusted = holm(np.array([p for *_, p in drafts], np.float64))
    pairs = []
    for (first, second, difference, alternative, p), p_holm in zip(drafts, adjusted.tolist(), strict=True):
        rbc = rank_biserial(difference)
        better = ""
        if p_holm < ALPHA and band(rbc) in RELEVANT:
            better = first if (rbc > 0) == measure.higher_is_better else second
        median = float(np.median(difference)) if len(difference) else math.nan
        effect = effect_r(difference)
        pairs.append(
            ModelPair(
                first,
                second,
                len(difference),
                median,
                alternative,
                p,
                p_holm,
                rbc,
                band(rbc),
                effect,
                better,
                published_md(difference),
            )
        )
    return pairs


def _rank_sums(difference: FloatArray) -> tuple[float, float, int]:
    """Rank sums of the positive and of the negative differences, and how many are not zero."""
    moved = difference[difference != 0]
    ranks = scipy.stats.rankdata(np.abs(moved))
    return float(ranks[moved > 0].sum()), float(ranks[moved < 0].sum()), len(moved)


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


def correlated(
    first: FloatArray, second: FloatArray, alternative: Alternative = "two-sided", ranks: bool = True
) -> tuple[float, float]:
    """Spearman's rho of mAP and uncertainty, or Pearson's correlation, and its p; NaN for fewer than 3 values or where one does
    not vary.
    """
    if len(first) < _FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan, math.nan
    test = scipy.stats.spearmanr if ranks else scipy.stats.pearsonr
    found = test(first, second, alternative=alternative)
    return float(found.statistic), float(found.pvalue)


def correlations(
    accuracy: FloatArray, metrics: Sequence[FloatArray], alternative: Alternative = "two-sided"
) -> list[Correlation]:
    """Rank correlation of ``accuracy`` (N,) with each uncertainty of ``metrics`` (N,) of a model, Holm over the metrics.

    Pairs in which one of the two was not measured are left out.
    """
    found = []
    for values in metrics:
        known = ~(np.isnan(accuracy) | np.isnan(values))
        both = accuracy[known], values[known], alternative
        found.append((int(known.sum()), correlated(*both), correlated(*both, ranks=False)))
    by_rank = holm(np.array([p for _, (_, p), _ in found])).tolist()
    by_value = holm(np.array([p for *_, (_, p) in found])).tolist()
    return [
        Correlation(n, rho, p, p_holm, r, r_holm)
        for (n, (rho, p), (r, _)), p_holm, r_holm in zip(found, by_rank, by_value, strict=True)
    ]


def pooled_correlation(
    accuracy: FloatArray, values: FloatArray, images: IntArray, resamples: int, seed: int = 0
) -> PooledCorrelation:
    """Correlation of mAP and uncertainty over all rows, interval by drawing whole images (``images`` (N,): of each row).

    The rows of one image at several rates are not independent, so a p value over all rows would mean nothing.
    """
    known = ~(np.isnan(accuracy) | np.isnan(values))
    accuracy, values, images = accuracy[known], values[known], images[known]

    def statistic(chosen: IntArray) -> FloatArray:
        return np.array([correlated(accuracy[chosen], values[chosen])[0]])

    rho = float(statistic(np.arange(len(accuracy)))[0])
    low = high = math.nan
    if resamples and not math.isnan(rho):
        lows, highs = cluster_bootstrap(statistic, images, resamples, seed)
        low, high = float(lows[0]), float(highs[0])
    return PooledCorrelation(len(np.unique(images)), len(accuracy), rho, low, high)


Tiers = tuple[tuple[str, ...], ...]
"""Groups of models that are tied, the best first."""


def tiers(models: Sequence[str], pairs: Iterable[ModelPair], profile: Profile) -> Tiers:
    """The ``models`` in tiers by "better" of ``pairs``.

    ``paper``: the first tier holds the models that no other beats, the second those that none of the rest beats, and so on;
    models that beat each other in a circle are tied. It does not depend on the order of the models. ``simula_rp``: the published
    single pass of swaps and comparison of neighbours, which does.
    """
    beats = {(p.better, p.second if p.better == p.first else p.first) for p in pairs if p.better}
    return _published(list(models), beats) if profile == "simula_rp" else _layers(models, beats)


def best_everywhere(tops: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The detectors that are in every one of ``tops``, in the order of the first: a cell of Lu et al.'s Table 3; may be empty."""
    if not tops:
        return ()
    return tuple(model for model in tops[0] if all(model in top for top in tops))


def recommended(cells: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The last row of the Table 3: the models best on every data set, or else the set best on most of them."""
    shared = best_everywhere(cells)
    if shared:
        return shared
    counts = Counter(cell for cell in cells if cell)
    return counts.most_common(1)[0][0] if counts else ()


def _layers(models: Sequence[str], beats: set[tuple[str, str]]) -> Tiers:
    index = {model: number for number, model in enumerate(models)}
    reach = np.zeros((len(models), len(models)), bool)
    for winner, loser in beats:
        reach[index[winner], index[loser]] = True
    for middle in range(len(models)):  # Warshall's closure
        reach |= reach[:, [middle]] & reach[[middle], :]
    above = reach & ~reach.T
    left = list(models)
    found = []
    while left:
        tier = tuple(m for m in left if not any(above[index[other], index[m]] for other in left))
        found.append(tier)
        left = [m for m in left if m not in tier]
    return tuple(found)


def _published(order: list[str], beats: set[tuple[str, str]]) -> Tiers:
    for i in range(len(order)):
        for j in range(i + 1, len(order)):
            if (order[i], order[j]) in beats:
                order[i], order[j] = order[j], order[i]
    groups = [[order[0]]]
    for before, model in pairwise(order):
        if (model, before) in beats:
            groups.append([])
        groups[-1].append(model)
    return tuple(tuple(group) for group in reversed(groups))

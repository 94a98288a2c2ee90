# SPDX-License-Identifier: Apache-2.0
"""Which of two detectors is better: paired tests, effect sizes, corrections (Lu et al., section 4.6), the tiers that follow, and
whether uncertainty tells where a model is wrong (RQ4).

Everything is paired by image. Values that cannot be computed are NaN.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Any, Literal

import numpy as np
import scipy

from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap, holm
from sticker_uq.scene import FloatArray, IntArray, InvalidInput
from sticker_uq_lab.studies.detectors.measures import Measure, Profile

ALPHA = 0.05
Alternative = Literal["two-sided", "greater", "less"]
_DEVIATIONS = 2.0
"""The published direction rule looks whether 0 is within so many median absolute deviations of the median."""
_BANDS = ((0.1, "negligible"), (0.3, "small"), (0.5, "medium"))
RELEVANT = ("medium", "large")
"""Effects that count for an order of models."""


Row = dict[str, Any]
"""A row of a table of the detector study."""


def friedman(values: FloatArray) -> Row:
    """Friedman's test of ``values`` (N, K): chi-square ``statistic``, corrected for ties, and ``p``; NaN for K below 3."""
    images, models = values.shape
    found = {"images": images, "models": models}
    if models < 3 or images < 2:
        return found | {"statistic": math.nan, "p": math.nan}
    with np.errstate(invalid="ignore", divide="ignore"):
        test = scipy.stats.friedmanchisquare(*values.T)
    return found | {"statistic": float(test.statistic), "p": float(test.pvalue)}


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
        # scipy warns that small samples with ties use the normal approximation
        warnings.simplefilter("ignore")
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


def compare_pairs(values: FloatArray, models: list[str], measure: Measure, profile: Profile) -> list[Row]:
    """Statistical test of every pair of the K ``models`` on ``values`` (N, K) of ``measure``, d = first - second.

    ``alternative`` that was tested: two-sided, in the profile ``simula_rp`` that of :func:`direction`; ``p`` of Wilcoxon's
    signed-rank test and ``p_holm`` corrected over the pairs; ``rbc``: matched-pairs rank-biserial correlation -1..1 with its
    ``band``; ``effect_r``: \\|z\\|/sqrt(n); ``better``: the better model, empty where the difference is not significant
    or not relevant (medium or large); ``md``: see :func:`published_md`. Raises InvalidInput for NaN.
    """
    if np.isnan(values).any():
        raise InvalidInput(
            f"{measure.short}: has values that are not numbers, expected images measured by every model"
        )
    pairs: list[Row] = []
    for i, j in combinations(range(len(models)), 2):
        difference = values[:, i] - values[:, j]
        two_sided = profile == "paper" or not len(difference)
        alternative: Alternative = "two-sided" if two_sided else direction(difference)
        rbc = rank_biserial(difference)
        pairs.append(
            {
                "first": models[i],
                "second": models[j],
                "images": len(difference),
                "median": float(np.median(difference)) if len(difference) else math.nan,
                "alternative": alternative,
                "p": signed_rank(difference, alternative),
                "p_holm": math.nan,
                "rbc": rbc,
                "band": band(rbc),
                "effect_r": effect_r(difference),
                "better": "",
                "md": published_md(difference),
            }
        )
    for pair, p_holm in zip(pairs, holm(np.array([pair["p"] for pair in pairs])).tolist(), strict=True):
        pair["p_holm"] = p_holm
        if p_holm < ALPHA and pair["band"] in RELEVANT:
            pair["better"] = pair["first" if (pair["rbc"] > 0) == measure.higher_is_better else "second"]
    return pairs


def _rank_sums(difference: FloatArray) -> tuple[float, float, int]:
    """Rank sums of the positive and of the negative differences, and how many are not zero."""
    moved = difference[difference != 0]
    ranks = scipy.stats.rankdata(np.abs(moved))
    return float(ranks[moved > 0].sum()), float(ranks[moved < 0].sum()), len(moved)


_FEWEST = 3  # images below which a correlation says nothing


def correlate(
    first: FloatArray, second: FloatArray, alternative: Alternative = "two-sided", ranks: bool = True
) -> tuple[float, float]:
    """Spearman's rho, or Pearson's correlation, and its p; NaN for fewer than 3 values or where one does not vary."""
    if len(first) < _FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan, math.nan
    test = scipy.stats.spearmanr if ranks else scipy.stats.pearsonr
    found = test(first, second, alternative=alternative)
    return float(found.statistic), float(found.pvalue)


def correlations(
    accuracy: FloatArray, metrics: Sequence[FloatArray], alternative: Alternative = "two-sided"
) -> list[Row]:
    """Correlation of ``accuracy`` (N,) with each uncertainty of ``metrics`` (N,) of a model, Holm over the metrics.

    ``rho``, ``p`` and ``p_holm`` of the ranks; ``pearson`` and ``pearson_p_holm`` of the values, which the published code has
    too. Images on which one of the two was not measured are left out. NaN where one does not vary.
    """
    rows, by_value = [], []
    for values in metrics:
        known = ~(np.isnan(accuracy) | np.isnan(values))
        both = accuracy[known], values[known], alternative
        rho, p = correlate(*both)
        pearson, pearson_p = correlate(*both, ranks=False)
        rows.append({"images": int(known.sum()), "rho": rho, "p": p, "p_holm": p, "pearson": pearson})
        by_value.append(pearson_p)
    by_rank = holm(np.array([row["p"] for row in rows])).tolist()
    return [
        row | {"p_holm": p_holm, "pearson_p_holm": pearson_p_holm}
        for row, p_holm, pearson_p_holm in zip(rows, by_rank, holm(np.array(by_value)).tolist(), strict=True)
    ]


def pooled_correlation(
    accuracy: FloatArray, values: FloatArray, images: IntArray, resamples: int, seed: int = 0
) -> Row:
    """Rank correlation of mAP and uncertainty over all rows, 95 % interval by drawing whole ``images`` (N,).

    The rows of one image at several rates are not independent, so a p value over all rows would mean nothing.
    """
    known = ~(np.isnan(accuracy) | np.isnan(values))
    accuracy, values, images = accuracy[known], values[known], images[known]

    def statistic(chosen: IntArray) -> FloatArray:
        return np.array([correlate(accuracy[chosen], values[chosen])[0]])

    rho = float(statistic(np.arange(len(accuracy)))[0])
    low = high = math.nan
    if resamples and not math.isnan(rho):
        (low,), (high,) = (ends.tolist() for ends in cluster_bootstrap(statistic, images, resamples, seed))
    return {"images": len(np.unique(images)), "rows": len(accuracy), "rho": rho, "low": low, "high": high}


Tiers = tuple[tuple[str, ...], ...]
"""Groups of models that are tied, the best first."""


def tiers(models: Sequence[str], pairs: Iterable[Row], profile: Profile) -> Tiers:
    """The ``models`` in tiers by "better" of ``pairs``.

    ``paper``: the first tier holds the models that no other beats, the second those that none of the rest beats, and so on;
    models that beat each other in a circle are tied. It does not depend on the order of the models. ``simula_rp``: the published
    single pass of swaps and comparison of neighbours, which does.
    """
    beats = {
        (pair["better"], pair["second" if pair["better"] == pair["first"] else "first"])
        for pair in pairs
        if pair["better"]
    }
    return _published_tiers(list(models), beats) if profile == "simula_rp" else _layers(models, beats)


def best_everywhere(tops: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The models in every one of ``tops``, in the order of the first: a cell of Lu et al.'s Table 3; may be empty."""
    return tuple(model for model in tops[0] if all(model in top for top in tops)) if tops else ()


def recommend(cells: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The last row of Table 3: the models best on every data set, or else the set best on most of them."""
    if shared := best_everywhere(cells):
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


def _published_tiers(order: list[str], beats: set[tuple[str, str]]) -> Tiers:
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

# SPDX-License-Identifier: Apache-2.0
"""Verdict: change of performance against epsilon(d), with an interval (Wozniak et al., task 7).

The paper compares two numbers. Here every number comes with the uncertainty of the images it was measured on: source images are
drawn again with replacement, and their follow-ups with them (a paired bootstrap), so that the relation can also be undecided.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.robustness.performance import Performance

Samples = NDArray[np.float64]

FEWEST_IMAGES = 10
"""With fewer source images nothing is decided."""


class Finding(StrEnum):
    """Whether a system keeps to the metamorphic relation."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class RelationCheck:
    """One metamorphic relation checked in one set of circumstances.

    ``source`` and ``target``: performance; ``change``: target minus source, in [``low``, ``high``] with the specification's
    confidence (NaN without an interval); ``distance`` d and ``epsilon`` epsilon(d); ``reason``: why it is undecided, if not
    because of the interval.
    """

    # the stored assessment holds it
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    circumstance: str
    metric: str
    images: int
    source: float
    target: float
    change: float
    low: float
    high: float
    distance: float
    epsilon: float
    finding: Finding
    reason: str = ""


@dataclass(frozen=True)
class Paired:
    """Source and follow-up images that belong together.

    ``source``: performance on the source images; ``target``: on the follow-ups; ``origin`` (targets,): index of the source image
    of each follow-up; ``distances`` (targets,): d of each pair, or one number for the two sets as a whole.
    """

    source: Performance
    target: Performance
    origin: NDArray[np.intp]
    distances: NDArray[np.float64]

    def __post_init__(self) -> None:
        wanted = len(self.target.images)
        if self.origin.shape != (wanted,) or self.distances.shape not in ((wanted,), (1,)):
            raise InvalidInput(
                f"{wanted} follow-ups with origins {self.origin.shape} and distances {self.distances.shape}"
            )

    @property
    def distance(self) -> float:
        return float(self.distances.mean())

    def distance_of(self, weights: NDArray[np.float64]) -> float:
        """d of a selection of source images from their follow-ups."""
        if len(self.distances) == 1:
            return float(self.distances[0])
        return float(np.average(self.distances, weights=weights[self.origin]))


def check_relations(
    paired: Paired,
    epsilons: Mapping[str, Callable[[float], float]],
    circumstance: str = "all",
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> list[RelationCheck]:
    """Whether performance changes by at most ``epsilons`` (d), by metric, from source to follow-ups: the metamorphic relations.

    One holds when the interval of the change lies within epsilon on both sides, is violated when the interval lies beyond it, and
    is undecided otherwise. Epsilon is that of each resample's own d. The interval is the percentile interval over source images,
    widened by the images that were not seen: a share u = 1 - (alpha / 2)^(1 / n) of all images may show an effect that none of
    n did, and changes a metric between 0 and 1 by up to u. Without it a rare effect makes the percentile interval too narrow;
    with it the interval contains that of Clopper and Pearson where the metric is a share of the images.
    """
    images, distance = len(paired.source.images), paired.distance
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(images, np.full(images, 1 / images), size=resamples).astype(np.float64)
    before = bootstrap(paired.source, list(epsilons), weights)
    after = bootstrap(paired.target, list(epsilons), weights[:, paired.origin])
    tail = (1 - confidence) / 2
    tails = [tail, 1 - tail]

    def check(metric: str, epsilon: Callable[[float], float]) -> RelationCheck:
        source, target = paired.source.value(metric), paired.target.value(metric)
        change, allowed = target - source, epsilon(distance)
        undecided = RelationCheck(
            *(circumstance, metric, images, source, target, change, math.nan, math.nan, distance, allowed),
            Finding.UNDECIDED,
        )
        if math.isnan(change):
            return replace(undecided, reason="there is nothing to measure it on")
        if math.isnan(allowed):
            return replace(undecided, reason="the distance is not known")
        changes = after[metric] - before[metric]
        margins = np.array([epsilon(paired.distance_of(w)) for w in weights])
        usable = np.isfinite(changes)
        if usable.sum() < resamples / 2:
            return replace(undecided, reason="too few objects for an interval")
        low, high = np.quantile(changes[usable], tails)
        unseen = 1 - tail ** (1 / images)
        down, up = unseen * (1 + low), unseen * (1 - high)
        above = np.quantile(changes[usable] - margins[usable], tails) + np.array([-down, up])
        below = np.quantile(-changes[usable] - margins[usable], tails) + np.array([-up, down])
        found = replace(undecided, low=low - down, high=high + up)
        if images < FEWEST_IMAGES:
            return replace(found, reason=f"fewer than {FEWEST_IMAGES} source images")
        if max(above[1], below[1]) <= 0:
            return replace(found, finding=Finding.HOLDS)
        return replace(found, finding=Finding.VIOLATED) if max(above[0], below[0]) > 0 else found

    return [check(*one) for one in epsilons.items()]


def bootstrap(performance: Performance, metrics: Sequence[str], weights: Samples) -> dict[str, Samples]:
    calculate = performance.several(metrics)
    table = np.array([calculate(row) for row in weights]).reshape(len(weights), len(metrics))
    return dict(zip(metrics, table.T, strict=True))


def overall_verdict(checks: Sequence[RelationCheck], significance: Mapping[str, int]) -> dict[str, Any]:
    """What all ``checks`` say together: ``finding``, ``by_circumstance``, and ``significance_shares``, the share of the
    ``significance`` of each finding; circumstances without significance (the whole target set) carry no weight.

    The relation is meant for every pair of circumstances (Wozniak et al., section 5.8): it is violated overall as soon as it is
    violated somewhere, and holds only if it holds everywhere.
    """
    if not checks:
        raise InvalidInput("no relation was checked")
    grouped: dict[str, list[Finding]] = {}
    for check in checks:
        grouped.setdefault(check.circumstance, []).append(check.finding)
    by_circumstance = {name: _together(findings) for name, findings in grouped.items()}
    amounts = dict.fromkeys(Finding, 0)
    for name, finding in by_circumstance.items():
        amounts[finding] += significance.get(name, 0)
    total = sum(amounts.values()) or 1
    return {
        "finding": _together(list(by_circumstance.values())),
        "significance_shares": {finding: amount / total for finding, amount in amounts.items()},
        "by_circumstance": by_circumstance,
    }


def _together(findings: Sequence[Finding]) -> Finding:
    if Finding.VIOLATED in findings:
        return Finding.VIOLATED
    return Finding.UNDECIDED if Finding.UNDECIDED in findings else Finding.HOLDS

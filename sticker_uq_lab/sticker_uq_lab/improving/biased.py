# SPDX-License-Identifier: Apache-2.0
"""A guarantee from a cell's answers, although the policy chose what was asked.

The active policy asks about the laptops that it doubts (group A) and releases the others (group B), of which a random share is
spot checked. Labels therefore come from all of A and from a sample of B, and their plain share of bad laptops says nothing about
all laptops. With q = P(A) the rate of bad laptops of another policy is

    R = q r_A + (1 - q) r_B.

q is in [L, H] with confidence 1 - d_q from the counts of all laptops (Clopper and Pearson 1934). The rates are bounded together,
by a test that is exact at any sample size (Buehler 1957): given the number of laptops of each group, the bad ones k_A, k_B of
the n_A answered and n_B spot checked ones are binomial, and the rates at which T = w k_A / n_A + (1 - w) k_B / n_B is as small as
here with a chance of at least d_R,

    S = {(r_A, r_B): P(T <= t; r_A, r_B) >= d_R},

hold the true ones with confidence 1 - d_R. R is linear in q, so with confidence 1 - (d_R + d_q)

    R <= max over q in {L, H} and (r_A, r_B) in S of q r_A + (1 - q) r_B.

This holds for laptops that are drawn alike and independently, and for spot checks whose rate follows neither from the laptop
nor from earlier answers: it may rise for a time after a promotion. (Where it doubles after every bad laptop, the level held in
simulation.) No weight 1/rate is needed, which would make the bound as large as the smallest rate makes it. Weighting by inverse
probability (Horvitz and Thompson 1952) has the same estimate: n_B is N_B times the mean rate.

The rate of stickers left is that of a subset C, the laptops that had a sticker and are finished alone. A has the weight
q a / (q a + (1 - q) b), a = P(C | A) and b = P(C | B), which rises with q and a and falls with b; each is bounded in the same
way and takes its part of delta.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy

from sticker_uq.calibration.control import Trial
from sticker_uq.calibration.outcomes import MATCH_IOU, outcomes_of
from sticker_uq.calibration.proving import Tested, Trials, run_trials
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.evaluation.metrics.statistics import clopper_pearson, upper_bound
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.familiarity import MIN_SCENES
from sticker_uq.scene import FloatArray

_RATES, _WEIGHT = 0.85, 0.15
"""Parts of delta: for both rates, and for the weight."""
_CELLS, _HALVINGS = 64, 25
_MOST_CHECKS = 20_000


@dataclass(frozen=True)
class Population:
    """How many laptops the active policy asked about (A), and how many it released, spot checked or not (B)."""

    asked: int
    released: int


@dataclass(frozen=True)
class BiasedTrial(Trial):
    """A :class:`Trial` on laptops of both groups. ``asked``, ``checked``: bad ones of those of A and B that the limit decides
    about; ``of_asked``, ``of_checked``: all laptops of A and B with a label.
    """

    asked: Count
    checked: Count
    of_asked: int
    of_checked: int
    population: Population

    method: ClassVar[str] = "bound by groups (asked, spot checked), exact test of both"
    sample: ClassVar[bool] = False

    def bound(self, delta: float) -> float:
        low, high = self._weights(_WEIGHT * delta)
        asked, checked = self._rates((low + high) / 2, _RATES * delta)
        return float(max((weight * asked + (1 - weight) * checked).max() for weight in (low, high)))

    def _rates(self, weight: float, delta: float) -> tuple[FloatArray, FloatArray]:
        """Rates (N,) of bad ones of A and B that no pair exceeds in both which the estimate of ``weight`` leaves possible."""
        asked, checked = self.asked, self.checked
        of_asked, of_checked = max(asked.of, 1), max(checked.of, 1)
        other = 1 - weight
        estimate = weight * asked.events / of_asked + other * checked.events / of_checked + 1e-12
        bad_checked = np.arange(checked.of + 1)
        bad_checked = bad_checked[other * bad_checked / of_checked <= estimate]
        room = (estimate - other * bad_checked / of_checked) * of_asked
        bad_asked = np.minimum(np.floor(room / max(weight, 1e-9)), asked.of)
        rates = np.linspace(0.0, upper_bound(int(bad_asked[0]), asked.of, delta), _CELLS + 1)
        chances = scipy.stats.binom.cdf(bad_asked, asked.of, rates[:-1, None])
        low, high = np.zeros(_CELLS), np.ones(_CELLS)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            chance = scipy.stats.binom.pmf(bad_checked, checked.of, middle[:, None]) * chances
            possible = chance.sum(axis=1) >= delta
            low, high = np.where(possible, middle, low), np.where(possible, high, middle)
        return rates[
            1:
        ], high  # of each cell the higher rate of A, and of B that at its lower one: none is missed

    def _weights(self, delta: float) -> tuple[float, float]:
        """The interval of A's share of the laptops that the limit decides about."""
        everything = (self.asked.of, self.checked.of) == (self.of_asked, self.of_checked)
        total = self.population.asked + self.population.released
        confidence = 1 - (delta if everything else delta / 3)
        share = clopper_pearson(self.population.asked, total, confidence)
        if everything:
            return share
        in_asked = clopper_pearson(self.asked.of, self.of_asked, confidence)
        in_checked = clopper_pearson(self.checked.of, self.of_checked, confidence)
        ends = zip(share, in_asked, reversed(in_checked), strict=True)
        low, high = (_share(q * a, (1 - q) * b) for q, a, b in ends)
        return low, high

    def smallest_level(self, delta: float) -> float:
        none = replace(self, asked=Count(0, self.asked.of), checked=Count(0, self.checked.of))
        return none.bound(delta)

    def explain_shortfall(self, level: float, delta: float, bad: str) -> str:
        left = f"which leaves up to {self.bound(delta):.3g}"
        told = f"{self.asked} answered laptops and {self.checked} spot checked ones are {bad}, {left}"
        needed = spot_checks_needed(self, level, delta)
        more = (
            f"about {needed} spot checks without a bad one, with more answers alike, would prove it"
            if needed
            else "so many bad ones among the answered laptops exclude it"
        )
        return (
            f"{told}; {more}: wait for more, raise spot_check_rate, or choose a larger level before you look at a result (one "
            "chosen by it proves nothing)"
        )


def _share(first: float, second: float) -> float:
    return first / (first + second) if first + second > 0 else 1.0


def spot_checks_needed(trial: BiasedTrial, level: float, delta: float) -> int:
    """How many spot checks prove ``level`` if there is ever more of what there is, and no bad one among them; 0: no number."""
    present = max(trial.checked.of, 1)

    def proves(factor: float) -> bool:
        return _grow(trial, factor).bound(delta) <= level

    low, high = 1.0, 1.0
    while not proves(high):
        low, high = high, 2 * high
        if present * high > _MOST_CHECKS:
            return 0
    while high / low > 1.03:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if proves(middle) else (middle, high)
    return math.ceil(present * high)


def too_few(fitted: int, asked: int, checked: int, population: Population, level: float, delta: float) -> str:
    """Why these laptops cannot prove ``level`` for wrongful removals even without a bad one, "" where they could.

    ``fitted``: those that limits are fitted on; ``asked``, ``checked``: answered and spot checked ones of the proof.
    """
    wanting = []
    if fitted < MIN_SCENES:
        wanting.append(f"{fitted} laptops to fit limits on, expected {MIN_SCENES} or more")
    if (population.released and not checked) or (population.asked and not asked):
        wanting.append(
            f"{asked} answered and {checked} spot checked laptops to prove a policy on: expected some of each; set "
            "spot_check_rate of the supervisor, and wait for more laptops"
        )
    else:
        best = BiasedTrial(
            1.0, asked + checked, 0, Count(0, asked), Count(0, checked), asked, checked, population
        )
        if best.bound(delta) > level:
            reason = best.explain_shortfall(level, delta, "wrongful")
            wanting.append(f"--alpha {level:g} cannot be proved even without a wrongful removal: {reason}")
    return "; ".join(wanting)


def _grow(trial: BiasedTrial, factor: float) -> BiasedTrial:
    def grow(number: int) -> int:
        return round(max(number, 1) * factor)

    return replace(
        trial,
        asked=Count(round(trial.asked.events * factor), grow(trial.asked.of)),
        checked=Count(0, grow(trial.checked.of)),
        of_asked=grow(trial.of_asked),
        of_checked=grow(trial.of_checked),
        population=Population(grow(trial.population.asked), grow(trial.population.released)),
    )


class BiasedTrials(Trials):
    """What answers prove about the policy ``draft``: the records of laptops that the active policy ``asked`` about and those that
    were spot ``checked``, and how many laptops there were of either kind in all.

    A record with an unknown label has to count as the worst. ``fit``: what the draft was fitted on, any laptops but these.
    """

    def __init__(
        self,
        draft: Policy,
        fit: Sequence[Record],
        asked: Sequence[Record],
        checked: Sequence[Record],
        population: Population,
        match_iou: float = MATCH_IOU,
    ) -> None:
        super().__init__(draft, fit, [*asked, *checked], match_iou)
        self._two = [outcomes_of(records, draft, match_iou) for records in (asked, checked)]
        self._population = population

    def _run_trials(self, left: float) -> tuple[Tested, dict[str, Tested]]:
        asked, checked = (run_trials(one, self._limits, left) for one in self._two)
        return Tested(self._join(asked.removals, checked.removals), self._join(asked.ends, checked.ends)), {}

    def _join(self, asked: Sequence[Trial], checked: Sequence[Trial]) -> list[Trial]:
        of_asked, of_checked = (one.images for one in self._two)
        return [
            BiasedTrial(
                one.limit,
                one.images + two.images,
                one.events + two.events,
                Count(one.events, one.images),
                Count(two.events, two.images),
                of_asked,
                of_checked,
                self._population,
            )
            for one, two in zip(asked, checked, strict=True)
        ]

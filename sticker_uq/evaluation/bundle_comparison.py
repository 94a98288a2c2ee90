# SPDX-License-Identifier: Apache-2.0
"""A candidate bundle compared with the active one, laptop by laptop: a verdict, and how many more laptops would tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, Field

from sticker_uq.evaluation.metrics.statistics import CONFIDENCE, Interval, clopper_pearson
from sticker_uq.io.setting_fields import Frozen

COMPARISON = "comparison.json"
QUESTIONS, WRONGFUL, DIRTY = "questions", "wrongful releases", "dirty laptops"
"""Names of the risks in the file, which files of before have too: one under another name would not be compared."""
RISKS = (WRONGFUL, DIRTY)
Verdict = Literal["better", "worse", "cannot tell yet"]
_MOST_GROWTH = 200.0


@dataclass(frozen=True)
class Pairs:
    """On how many of ``of`` laptops something happens with both bundles, and with one of them only."""

    both: int
    candidate: int
    active: int
    of: int

    def difference(self, confidence: float = CONFIDENCE) -> Interval:
        """The candidate's rate minus the active bundle's, with an interval that holds at any number of laptops.

        The shares of laptops on which only one of the two does it are each bounded by Clopper and Pearson at half the error.
        """
        if not self.of:
            return Interval(0.0, -1.0, 1.0)
        half = (1 + confidence) / 2
        (low, high), (less, more) = (clopper_pearson(n, self.of, half) for n in (self.candidate, self.active))
        return Interval((self.candidate - self.active) / self.of, low - more, high - less)

    def grown(self, factor: float) -> Pairs:
        return Pairs(*(round(n * factor) for n in (self.both, self.candidate, self.active, self.of)))


@dataclass(frozen=True)
class GroupedPairs:
    """Pairs on laptops that the active bundle asked about, and on spot-checked ones among those that it released.

    ``population``: how many laptops of either kind there were; each group stands for all of its kind.
    """

    asked: Pairs
    checked: Pairs
    population: tuple[int, int]

    @property
    def of(self) -> int:
        return sum(self.population)

    def rates(self) -> tuple[float, float]:
        """The estimated rates of candidate and active bundle, NaN where a kind of laptop has no labels."""
        kinds = zip((self.asked, self.checked), self.population, strict=True)
        parts = [(pairs, count / self.of) for pairs, count in kinds if count]
        candidate, active = (
            sum(share * (p.both + getattr(p, only)) / p.of if p.of else math.nan for p, share in parts)
            for only in ("candidate", "active")
        )
        return candidate, active

    def difference(self, confidence: float = CONFIDENCE) -> Interval:
        part = 1 - (1 - confidence) / 3
        asked, checked = (pairs.difference(part) for pairs in (self.asked, self.checked))
        weights = clopper_pearson(self.population[0], self.of, part)
        share = self.population[0] / self.of if self.of else 0.5
        return Interval(
            share * asked.value + (1 - share) * checked.value,
            min(w * asked.low + (1 - w) * checked.low for w in weights),
            max(w * asked.high + (1 - w) * checked.high for w in weights),
        )

    def grown(self, factor: float) -> GroupedPairs:
        population = (round(self.population[0] * factor), round(self.population[1] * factor))
        return GroupedPairs(self.asked.grown(factor), self.checked.grown(factor), population)


@dataclass(frozen=True)
class Compared:
    """What both bundles decide about the newest laptops and, where there is one, about an old test set with labels.

    ``guaranteed``: the promises of the candidate are proved, at levels not above those of the active bundle. Then no risk may be
    found higher by more than ``tolerance``; otherwise a larger increase must be excluded.
    """

    questions: Pairs
    risks: Mapping[str, GroupedPairs]
    old: Mapping[str, Pairs]
    guaranteed: bool
    tolerance: float

    def verdict(self) -> tuple[Verdict, tuple[str, ...]]:
        asked = self.questions.difference()
        risks = {f"{name}, newest laptops": pairs.difference() for name, pairs in self.risks.items()}
        old = {name: pairs for name, pairs in self.old.items() if name in RISKS}
        risks |= {f"{name}, old test set": pairs.difference() for name, pairs in old.items()}
        worse = [f"more {name}" for name, one in risks.items() if one.low > 0]
        worse += ["more questions"] if asked.low > 0 else []
        if worse:
            return "worse", tuple(worse)
        open_ = [] if asked.high < 0 else ["that it asks less is not shown"]
        for name in self._unmeasured_risks():
            del risks[f"{name}, newest laptops"]
            open_.append(f"{name} are unknown: no answered or no spot checked one of the newest laptops")
        for name, one in risks.items():
            # what is proved need not be shown again, but must not look wrong either
            risk, how = (one.value, "is") if self.guaranteed else (one.high, "may be")
            if risk > self.tolerance:
                open_.append(f"{name} {how} higher by {risk:.3f}, more than {self.tolerance:g}")
        if open_:
            return "cannot tell yet", tuple(open_)
        kept = (
            "the guarantee is proved"
            if self.guaranteed
            else f"no risk is higher by more than {self.tolerance:g}"
        )
        return "better", (f"fewer questions, and {kept}",)

    def more_laptops(self) -> int | None:
        """How many more laptops would decide it, if like those so far; 0: it is decided, None: none worth waiting for."""
        if self._unmeasured_risks():
            return None
        factor = 1.0
        while factor <= _MOST_GROWTH:
            if self.grown(factor).verdict()[0] != "cannot tell yet":
                return math.ceil(self.questions.of * (factor - 1.0))
            factor *= 1.1
        return None

    def _unmeasured_risks(self) -> list[str]:
        """Risks that have to be shown, but for which one kind of laptop has no label."""
        return [
            name
            for name, one in ({} if self.guaranteed else self.risks).items()
            if any(map(math.isnan, one.rates())) and one.difference().high > self.tolerance
        ]

    def grown(self, factor: float) -> Compared:
        risks = {name: pairs.grown(factor) for name, pairs in self.risks.items()}
        return Compared(self.questions.grown(factor), risks, self.old, self.guaranteed, self.tolerance)


class BundleComparison(Frozen):
    """The file :data:`COMPARISON` of a candidate: what was compared with what, and the verdict.

    ``saved``: questions saved per hundred laptops, with the ends of its interval.
    """

    model_config = ConfigDict(ser_json_inf_nan="strings")

    format: Literal[1] = 1
    active: str = Field(description="SHA-256 of the manifest of the active bundle")
    model_hash: str
    settings_hash: str
    policy_hash: str
    verdict: Verdict
    reasons: tuple[str, ...]
    laptops: int
    saved: tuple[float, float, float]
    more_laptops: int | None

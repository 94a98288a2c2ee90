# SPDX-License-Identifier: Apache-2.0
"""The guarantee of a policy: limits proved on labelled images that it was not fitted on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from sticker_uq.calibration import control, outcomes
from sticker_uq.calibration.control import Trial
from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.records import Record, first_of_each
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.policy_schema import Guarantee, Proof
from sticker_uq.gate.policy.reference import Reference
from sticker_uq.scene import FloatArray, InvalidInput

LEFT_LIMITS = (
    *(1.0, 0.5, 0.4, 0.3, 0.25, 0.2, 0.17, 0.15, 0.13, 0.12, 0.11, 0.1, 0.09, 0.08, 0.07),
    *(0.06, 0.05, 0.04, 0.03, 0.025, 0.02, 0.015, 0.01),
)
"""Limits to choose from for the probability that a sticker is left on a finished laptop."""
SURE = 0.9
"""Chance, by what the images fitted on say, with which the limit chosen there is proved on the others: one that just does there
is proved on others in half of all cases."""
FIXED_LIMITS = 1000
"""Limits tried on a risk score that was fitted elsewhere."""


@dataclass(frozen=True)
class Attempt:
    """How far images bear out one promise: what its limit on them does, proved or the first that could not be.

    ``bad`` of the laptops it decides about; ``bound``: the rate that this excludes, in the worst part; ``done``: stickers
    released of all, or laptops finished alone of all that showed a sticker.
    """

    level: float
    bad: Count
    bound: float
    done: Count


@dataclass(frozen=True)
class Tested:
    """What a part of the laptops says about every limit on the risk, strict to loose: of removals, and of ends."""

    removals: list[Trial]
    ends: list[Trial]


_Kind = Literal["removals", "ends"]
_ORDERS: dict[_Kind, str] = {"removals": "strict to loose", "ends": "loose to strict"}


class Trials:
    """What labelled ``records`` prove about the policy ``draft``, which has no guarantee yet.

    ``fit``: the images that it was fitted on, which give the limits on the risk to try and the limit on what is left alone.
    Without any, limits on the whole range of its risk are tried, and its own limit on what is left alone. ``parts``: for each
    part of the laptops that the promises hold for the numbers of its records; none: for all together. ``fit_parts``: the
    same of ``fit``.

    Wrongful removals are tested from the strictest limit on, stickers left from a loose one on (:meth:`_loosest`), each until
    one fails. What both sequences reach is proved for both, and the loosest such limit is taken.
    """

    def __init__(
        self,
        draft: Policy,
        fit: Sequence[Record],
        records: Sequence[Record],
        match_iou: float = outcomes.MATCH_IOU,
        parts: Mapping[str, Sequence[int]] | None = None,
        fit_parts: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self._draft, self._records, self._match_iou = draft, records, match_iou
        self._seen = outcomes.outcomes_of(records, draft, match_iou)
        self._fitted = outcomes.outcomes_of(fit, draft, match_iou) if fit else None
        limits = (
            _all_limits(draft) if self._fitted is None else limits_to_try(self._fitted.select_removable()[1])
        )
        self._limits = limits.tolist()

        def divide(images: Sequence[Record], by: Mapping[str, Sequence[int]]) -> dict[str, outcomes.Outcomes]:
            return {
                name: outcomes.outcomes_of([images[number] for number in numbers], draft, match_iou)
                for name, numbers in by.items()
                if numbers
            }

        self._parts = divide(records, parts or {})
        self._fitted_parts = divide(fit, fit_parts or {})
        if self._fitted is not None and not self._fitted_parts:
            self._fitted_parts = {"": self._fitted}

    def _run_trials(self, left: float) -> tuple[Tested, dict[str, Tested]]:
        """All laptops and each part, where what is left alone is limited to ``left``."""
        whole = run_trials(self._seen, self._limits, left)
        return whole, {name: run_trials(part, self._limits, left) for name, part in self._parts.items()}

    def policy(self, levels: Levels) -> Policy:
        """The policy with the loosest limit that is proved, the proofs and the reference for run time.

        Raises :class:`InvalidInput` when a promise cannot be proved, saying how many laptops it takes.
        """
        assert self._draft.risk is not None
        left = self._find_left_limit(levels)
        whole, parts = self._run_trials(left)
        number = self._find_removal_limit(whole, parts, levels)
        removal = self._proof(whole.removals, parts, "removals", number, levels.alpha, levels.delta)
        kept = None
        if levels.beta:
            number = min(number, self._loosest(levels))
            removal = self._proof(whole.removals, parts, "removals", number, levels.alpha, levels.delta)
            tests = self._ends(whole, parts, levels)
            if (reached := _find_strictest(tests, levels)) > number:
                raise InvalidInput(self._why_left(tests, reached, levels))
            kept = self._proof(whole.ends, parts, "ends", number, levels.beta, levels.delta)
        guarantee = Guarantee(match_iou=self._match_iou, wrongful_removal=removal, sticker_left=kept)
        return outcomes.with_limits(
            self._draft, self._limits[number], left if levels.beta else 1.0
        ).model_copy(
            update={
                "guarantee": guarantee,
                "reference": Reference.of(r.assessment for r in first_of_each(self._records)),
            }
        )

    def attempts(self, levels: Levels) -> tuple[Attempt, Attempt | None]:
        """What is known of each promise, wrongful removals and stickers left, also where :meth:`policy` refuses.

        None of stickers left without that promise.
        """
        whole, parts = self._run_trials(self._find_left_limit(levels))
        groups = self._groups(whole, parts)
        if not self._limits:  # nothing could be released, which proves nothing
            nothing = Attempt(levels.alpha, Count(0, 0), 1.0, Count(0, self._seen.stickers))
            return nothing, Attempt(levels.beta, Count(0, 0), 1.0, Count(0, 0)) if levels.beta else None
        held = _held([one.removals for one in groups], levels.alpha, levels.delta)
        number = max(held - 1, 0)
        objects, risk = self._seen.select_removable()
        stickers = np.unique(objects.truth[objects.right & (risk <= self._limits[number])])
        released = Count(len(stickers), self._seen.stickers)
        removal = _attempt(
            [one.removals for one in groups], whole.removals, number, levels.alpha, levels.delta, released
        )
        if not levels.beta:
            return removal, None
        tests = self._ends(whole, parts, levels)
        last = len(tests[0]) - 1
        at = min(max(number if held else last, _find_strictest(tests, levels) - 1), last)
        alone = Count(whole.ends[at].images, self._seen.ends.laptops)
        return removal, _attempt(tests, whole.ends, at, levels.beta, levels.delta, alone)

    def lowest_levels(self, levels: Levels) -> tuple[float, float]:
        """The lowest alpha that would have been proved, and the lowest beta beside the alpha of ``levels``; 1 where nothing is.

        Levels that are chosen after looking at the images are a description of them and no guarantee.
        """
        if not self._limits:
            return 1.0, 1.0
        whole, parts = self._run_trials(self._find_left_limit(levels))
        groups, ends = self._groups(whole, parts), self._ends(whole, parts, levels)
        alpha = max(one.removals[0].bound(levels.delta) for one in groups)
        number = _held([one.removals for one in groups], levels.alpha, levels.delta) - 1
        tried = slice(min(number, len(ends[0]) - 1), None) if number >= 0 else slice(-1, None)
        return alpha, max(test.bound(levels.delta) for tests in ends for test in tests[tried])

    def _groups(self, whole: Tested, parts: Mapping[str, Tested]) -> list[Tested]:
        return list(parts.values()) or [whole]

    def _ends(self, whole: Tested, parts: Mapping[str, Tested], levels: Levels) -> list[list[Trial]]:
        """The tests of stickers left of all groups, up to the loosest limit that is tested."""
        return [one.ends[: self._loosest(levels) + 1] for one in self._groups(whole, parts)]

    def _loosest(self, levels: Levels) -> int:
        """The number of the limit that stickers left are tested from: the loosest that keeps alpha on the images fitted on.

        At looser limits, which no promise of wrongful removals reaches, more stickers are left, because boxes that miss theirs
        are released too. Of a policy that was fitted elsewhere it is the loosest of all.
        """
        if self._fitted is None:
            return max(len(self._limits) - 1, 0)
        groups = zip(*(one.removals for one in self._on_fitted(1.0)), strict=True)
        kept = [all(one.events <= levels.alpha * one.images for one in group) for group in groups]
        return max(sum(kept) - 1, 0)

    def _on_fitted(self, left: float) -> list[Tested]:
        return [run_trials(one, self._limits, left) for one in self._fitted_parts.values()]

    def _find_left_limit(self, levels: Levels) -> float:
        """The limit on what is left alone: the loosest that does for every part of those fitted on, or the next."""
        if self._fitted is None:
            return self._draft.max_left_probability
        if not levels.beta or not self._limits:
            return 1.0
        held = _held([one.removals for one in self._on_fitted(1.0)], levels.alpha, levels.delta)
        loosest = self._loosest(levels)
        used = {min(max(held - 1, 0), loosest), loosest}
        sizes = [
            (self._parts[name] if name else self._seen).ends.laptops / max(fitted.ends.laptops, 1)
            for name, fitted in self._fitted_parts.items()
        ]
        chances = [
            min(
                _chance_of_proof(one.ends[number], size, levels)
                for one, size in zip(self._on_fitted(left), sizes, strict=True)
                for number in used
            )
            for left in LEFT_LIMITS
        ]
        enough = [left for left, chance in zip(LEFT_LIMITS, chances, strict=True) if chance >= SURE]
        return enough[0] if enough else LEFT_LIMITS[int(np.argmax(chances))]

    def _find_removal_limit(self, whole: Tested, parts: Mapping[str, Tested], levels: Levels) -> int:
        """The number of the loosest limit that is proved."""
        if not self._limits:
            raise InvalidInput(
                f"--alpha {levels.alpha:g} cannot be proved: no sticker could be released on the images to fit limits on; train "
                "the detector on more pictures, and see with `sticker-uq replay` what holds the stickers back"
            )
        named = parts or {"": whole}
        held = _held([one.removals for one in named.values()], levels.alpha, levels.delta)
        if not held:
            name = max(named, key=lambda part: named[part].removals[0].bound(levels.delta))
            first = named[name].removals[0]
            raise InvalidInput(
                _why("alpha", levels.alpha, levels.delta, first, "with a wrongful removal", name)
            )
        return held - 1

    def _why_left(self, tests: Sequence[Sequence[Trial]], reached: int, levels: Levels) -> str:
        """Why stickers left are proved for the limits from ``reached`` on only."""
        name, group = max(
            zip(self._parts or ("",), tests, strict=True),
            key=lambda one: one[1][reached - 1].bound(levels.delta),
        )
        trial = group[reached - 1]
        text = _why("beta", levels.beta, levels.delta, trial, "finished with a sticker on them", name)
        laptops = (self._parts[name] if name else self._seen).ends.laptops
        share = f"; without a person {trial.images} of the {laptops} laptops with a sticker are finished"
        return text + (share if trial.sample else "")

    def _proof(
        self,
        whole: Sequence[Trial],
        parts: Mapping[str, Tested],
        kind: _Kind,
        number: int,
        level: float,
        delta: float,
    ) -> Proof:
        chosen = whole[number]
        own = {
            name: (part.removals if kind == "removals" else part.ends)[number] for name, part in parts.items()
        }
        judged = list(own.values()) or [chosen]
        expected = -1
        if kind == "removals" and chosen.sample and not own:
            expected = control.conformal_risk_control(whole, level)
        return Proof(
            level=level,
            confidence=round(1.0 - delta, 9),
            method=f"Learn-then-Test, {chosen.method}, fixed sequence ({_ORDERS[kind]})",
            images=chosen.images,
            events=chosen.events,
            bound=max(one.bound(delta) for one in judged),
            smallest_level=max(one.smallest_level(delta) for one in judged),
            limit=chosen.limit,
            expected_limit=None if expected < 0 else whole[expected].limit,
            parts={name: (one.events, one.images) for name, one in own.items()} or None,
        )


def _chance_of_proof(fitted: Trial, size: float, levels: Levels) -> float:
    """The chance that ``size`` times as many laptops as those ``fitted`` on prove beta, by how many of these keep a sticker."""
    laptops = round(size * fitted.images)
    enough = int(scipy.stats.binom.ppf(levels.delta, laptops, levels.beta))
    if scipy.stats.binom.cdf(enough, laptops, levels.beta) > levels.delta:
        enough -= 1
    right = fitted.images - fitted.events
    return float(scipy.stats.betabinom.cdf(enough, laptops, fitted.events + 1, right + 1))


def _held(groups: Sequence[Sequence[Trial]], level: float, delta: float) -> int:
    """How many limits from the strictest on are proved in all ``groups``: the largest chance of them counts.

    That all keep the level is refuted where one does not, so that the test of their union is as large as each (Berger 1982).
    """
    return len(control.fixed_sequence(_chances(groups, level, delta), delta))


def _find_strictest(groups: Sequence[Sequence[Trial]], levels: Levels) -> int:
    """The number of the strictest limit down to which, from the loosest on, stickers left are proved in all ``groups``.

    A looser limit finishes more laptops alone and leaves no other sticker on those that are finished, where nothing is released
    that misses its sticker; so this is the order in which the proof gets harder.
    """
    chances = _chances(groups, levels.beta, levels.delta)
    return len(chances) - len(control.fixed_sequence(chances[::-1], levels.delta))


def _chances(groups: Sequence[Sequence[Trial]], level: float, delta: float) -> FloatArray:
    """The largest p-value over ``groups`` of each limit; 0 or 1, as it compares with ``delta``, where only a bound is known."""
    return np.max(
        [
            control.p_values(tests, level)
            if all(one.sample for one in tests)
            else np.array([float(one.bound(delta) > level) for one in tests])
            for tests in groups
        ],
        axis=0,
    )


def _attempt(
    groups: Sequence[Sequence[Trial]],
    whole: Sequence[Trial],
    number: int,
    level: float,
    delta: float,
    done: Count,
) -> Attempt:
    trial = whole[number]
    bound = max(tests[number].bound(delta) for tests in groups)
    return Attempt(level, Count(trial.events, trial.images), bound, done)


def limits_to_try(doubt: FloatArray) -> FloatArray:
    """Every value of ``doubt`` (N,) on the images fitted on, strict to loose, (L,).

    However many are tried, a sequence that stops at the first failure pays nothing for them.
    """
    return np.unique(doubt)


def _all_limits(draft: Policy) -> FloatArray:
    """Limits over the whole range of the risk of ``draft``, strict to loose: they depend on no image."""
    assert draft.risk is not None
    highest = draft.risk.intercept + sum(max(term.log_odds) for term in draft.risk.terms)
    return np.asarray(scipy.special.expit(np.linspace(draft.risk.intercept, highest, FIXED_LIMITS)), float)


def removal_tests(
    objects: outcomes.CalledStickers, doubt: FloatArray, images: int, limits: FloatArray | Sequence[float]
) -> list[Trial]:
    """For each limit on ``doubt`` (N,), how many of ``images`` images would see something but a sticker removed."""
    worst = np.sort(outcomes.worst_risk(objects, doubt, images))
    events = np.searchsorted(worst, limits, side="right")
    return [Trial(float(limit), images, int(count)) for limit, count in zip(limits, events, strict=True)]


def end_tests(ends: outcomes.Ends, limits: Sequence[float], left: float) -> list[Trial]:
    """For each of the ascending ``limits`` on the risk, how many laptops that showed a sticker are finished alone if what is left
    alone is limited to ``left``, and on how many of those one is left.
    """
    alone = ends.left <= left
    images, events = (
        np.searchsorted(np.sort(ends.first[rows]), limits, side="right")
        - np.searchsorted(np.sort(ends.beyond[rows]), limits, side="right")
        for rows in (alone, alone & ends.dirty)
    )
    return [Trial(limit, int(n), int(bad)) for limit, n, bad in zip(limits, images, events, strict=True)]


def run_trials(seen: outcomes.Outcomes, limits: Sequence[float], left: float) -> Tested:
    return Tested(
        removal_tests(*seen.select_removable(), seen.images, limits), end_tests(seen.ends, limits, left)
    )


def _why(name: str, level: float, delta: float, trial: Trial, bad: str, part: str) -> str:
    """``part``: the part of the laptops that ``trial`` is about, "" for all."""
    least = trial.smallest_level(delta)
    text = f"--{name} {level:g} cannot be proved at confidence {1 - delta:g}{f' for the part {part}' if part else ''}: "
    if not trial.sample:
        return text + trial.explain_shortfall(level, delta, bad)
    if least <= level:
        return text + f"{trial.events} of {trial.images} laptops are {bad} at a limit that has to be proved"
    kind = "laptops" if name == "alpha" else "laptops finished alone that had a sticker"
    return text + (
        f"{trial.images} {kind} prove {least:.3g} at best, expected {control.images_needed(level, delta)} or more without a bad "
        f"one; label more laptops, or choose a larger --{name} before you look at a result (one chosen by it proves nothing)"
    )

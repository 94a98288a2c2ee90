# SPDX-License-Identifier: Apache-2.0
"""A policy from labelled images: fitted on some of them, proved on the others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from sticker_uq.calibration import control, outcomes
from sticker_uq.calibration.choosing import choose_risk
from sticker_uq.calibration.control import Trial
from sticker_uq.calibration.probability import Kind, fit_calibration
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.gate import Policy
from sticker_uq.gate.assumptions.drift import Reference
from sticker_uq.gate.assumptions.familiarity import Familiarity
from sticker_uq.gate.policy.policy_schema import Guarantee, Proof, SaliencyLimit
from sticker_uq.gate.policy.signals import SIGNALS, SaliencyName, SignalName
from sticker_uq.scene import FloatArray, InvalidInput
from sticker_uq.uncertainty import iou_matrix

LEFT_LIMITS = (1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)
"""Limits tried for the probability of sticker of what is left alone on a clean laptop."""
LEFT_STICKERS = 0.02
"""Share of the stickers that the detector saw which may lie below `notable_probability`: nobody is asked about these."""
_LEAST_STICKERS = 100  # below which that share is no stickers at all
NOTABLE_RANGE = (0.02, 0.5)
FIXED_LIMITS = 1000
"""Limits tried on a risk score that was fitted elsewhere."""
FAMILIAR = 99.9
"""Percentile of the scenes that are judged by themselves; a person is asked about the others, which are the most novel."""
_OPEN: dict[str, Any] = {
    "min_probability": 0.34,
    "min_detection_rate": 0.0,
    "max_variation_ratio": 1.0,
    "max_shannon_entropy": 1.6,
    "max_mutual_information": 1.6,
    "max_relative_total_variance": 100.0,
    "max_relative_predictive_surface": 100.0,
    "max_logo_overlap": 1.0,
    "ask_duplicated": False,
    "max_background_saliency": 0.0,
    "max_unexplained_objectness": 1.0,
    "max_dil": 1.0,
    "max_dil_clean": 1.0,
}
"""Limits that the risk score and the section ``saliency`` stand in for."""


@dataclass(frozen=True)
class Levels:
    """The guarantee asked of a policy: rates of wrongful removals ``alpha`` and missed stickers ``beta``, each with confidence
    1 - ``delta``. A ``beta`` of 0 promises nothing about stickers: then nothing is called clean without a person.
    """

    alpha: float = 0.01
    beta: float = 0.05
    delta: float = 0.1

    def __post_init__(self) -> None:
        control.check_levels(self.alpha, self.beta, self.delta)


def fit_policy(
    records: Sequence[Record],
    base: Policy,
    kind: Kind = "isotonic",
    saliency: SaliencyName = "background_saliency",
    percentile: float = 95.0,
    match_iou: float = outcomes.MATCH_IOU,
    familiar: float = FAMILIAR,
    signals: Sequence[SignalName] | None = None,
    level: float = 0.01,
    clean: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Policy:
    """A policy without guarantee: calibrated, with a risk score and a cut-off of ``saliency`` at ``percentile`` of clean images.

    Limits that neither stands in for are those of ``base``. ``familiar``: percentile of the scenes that are judged without a
    person; 100 sets no such limit. ``signals``: what the risk score is made of, by default all, the scores of a panel only where
    ``base`` combines them so; one that was not measured on every object is left out. ``level``: rate of wrongful removals at
    which ways to combine them are compared. ``clean``: whether laptops are to be called clean without a person; ``say`` is told
    of what few labels make simpler. Raises :class:`InvalidInput` when the images do not suffice.
    """
    localized = [r.assessment.localization for r in records if r.assessment.localization is not None]
    if base.unmeasured_novelty == "ask" and all(math.isnan(one.scene_distance) for one in localized):
        raise InvalidInput(
            f"novelty was measured on none of the {len(records)} images to fit limits on, and the base policy releases nothing "
            "without: make a novelty network beside the weights with `sticker-uq dil learn`, or give --base a policy "
            "with unmeasured_novelty: release"
        )
    amounts = outcomes.clean_saliency(records, saliency)
    if clean and not len(amounts):
        raise InvalidInput(
            f"none of the {len(records)} images to fit on shows a laptop without stickers and has its {saliency}: "
            "the cut-off for clean laptops needs some"
        )
    cut_off = round(float(np.percentile(amounts, percentile)), 9) if clean else None
    draft = base.model_copy(
        update=_OPEN
        | {
            "calibration": fit_calibration(records, kind, match_iou),
            "saliency": SaliencyLimit(
                signal=saliency, max_clean=cut_off, percentile=percentile if clean else None
            ),
            "familiarity": (
                Familiarity.of([r.assessment for r in _first_of_each(records)], familiar)
                if familiar < 100
                else None
            ),
            "clean_without_operator": clean,
            "close_up_weight": 0.5,  # the passes and the close-up count the same
            "max_left_probability": 1.0,
            "risk": None,
            "guarantee": None,
            "validity": None,
            "provenance": None,
            "reference": None,
        }
    )
    draft = draft.model_copy(update={"notable_probability": _notable(records, draft, match_iou)})
    objects = outcomes.outcomes_of(records, draft, match_iou).detected
    combined = base.panel is not None and base.panel.combination == "risk"
    chosen = signals if signals is not None else [n for n in objects.signals if combined or n in SIGNALS]
    measured = [n for n in chosen if np.isfinite(objects.signals[n]).all()]
    if signals and (lacking := [n for n in signals if n not in measured]):
        raise InvalidInput(f"signals {', '.join(lacking)}: not measured on every object, expected others")
    return draft.model_copy(update={"risk": choose_risk(objects, measured, level, say)})


def taken_over(fitted: Policy, clean: bool = True) -> Policy:
    """The policy ``fitted`` on other laptops as a draft without guarantee, of which a proof gives the limits anew.

    InvalidInput where it has nothing to be limited: no risk score, or with ``clean`` no cut-off for clean laptops.
    """
    if fitted.risk is None:
        raise InvalidInput(
            "the base policy has no risk score, and --fit-share 0 fits none: expected one that `sticker-uq calibrate` made on "
            "other laptops with the same weights, or config/policy.yaml"
        )
    if clean and (fitted.saliency is None or fitted.saliency.max_clean is None):
        raise InvalidInput(
            "the base policy has no cut-off for clean laptops, and --fit-share 0 fits none: give --beta 0, or one that has it"
        )
    unproved = dict.fromkeys(("guarantee", "validity", "provenance", "reference"))
    risk = fitted.risk.model_copy(update={"max_removal": 1.0})
    return fitted.model_copy(update=unproved | {"risk": risk, "clean_without_operator": clean})


def _notable(records: Sequence[Record], draft: Policy, match_iou: float) -> float:
    """The probability that all but `LEFT_STICKERS` of the stickers which the detector saw reach; that of ``draft`` with few."""
    reached = []
    for record in records:
        seen = (*record.assessment.objects, *record.assessment.unstable)
        if not seen or not len(record.stickers):
            continue
        sticker = np.array([draft.sticker_probability(one) for one in seen])
        same = iou_matrix(np.array([one.box for one in seen]), record.stickers) >= match_iou
        reached += np.where(same, sticker[:, None], -1.0).max(axis=0).tolist()
    met = [value for value in reached if value >= 0.0]
    if len(met) < _LEAST_STICKERS:
        return draft.notable_probability
    low, high = NOTABLE_RANGE
    return round(min(max(float(np.quantile(met, LEFT_STICKERS, method="lower")), low), high), 6)


@dataclass(frozen=True)
class Attempt:
    """How far images bear out one promise: its limit on them, proved or the first that was tried, and what that limit does.

    ``bad`` of the images it decides about; ``bound``: the rate that this excludes; ``done``: stickers released of all, or
    laptops without a sticker that are called clean, of all such laptops.
    """

    level: float
    bad: Count
    bound: float
    done: Count


class Trials:
    """What labelled ``records`` prove about the policy ``draft``, which has no guarantee yet.

    ``fit``: the images that it was fitted on, which give the limits to try and their order. Without any, limits on the whole
    range of its risk are tried, and its own limit on what is left alone.
    """

    def __init__(
        self,
        draft: Policy,
        fit: Sequence[Record],
        records: Sequence[Record],
        match_iou: float = outcomes.MATCH_IOU,
    ) -> None:
        self._draft, self._records, self._match_iou = draft, records, match_iou
        self._seen = outcomes.outcomes_of(records, draft, match_iou)
        self._objects, self._risk = self._seen.removed()
        if fit:
            tried = outcomes.outcomes_of(fit, draft, match_iou)
            limits = limits_to_try(tried.removed()[1])
            left: tuple[float, ...] = LEFT_LIMITS
            self._fitted = clean_tests(tried.cleans, left)
        else:
            limits, left = _all_limits(draft), (draft.max_left_probability,)
            self._fitted = clean_tests(self._seen.cleans, left)  # one limit needs no order
        self._cleans = clean_tests(self._seen.cleans, left)
        self._removals = removal_tests(self._objects, self._risk, self._seen.images, limits)

    def policy(self, levels: Levels) -> Policy:
        """The policy with the loosest limits that are proved, the proofs and the reference for run time.

        Raises :class:`InvalidInput` when a promise cannot be proved, saying how many images it takes.
        """
        assert self._draft.risk is not None
        removal = _prove_removal(self._removals, levels)
        missed = None
        if levels.beta:
            missed = _prove_clean(self._ordered(levels.beta), levels, clean_units(self._records))
        guarantee = Guarantee(match_iou=self._match_iou, wrongful_removal=removal, missed_sticker=missed)
        return outcomes.with_limits(self._draft, removal.limit, missed.limit if missed else 1.0).model_copy(
            update={
                "guarantee": guarantee,
                "reference": Reference.of(r.assessment for r in _first_of_each(self._records)),
            }
        )

    def attempts(self, levels: Levels) -> tuple[Attempt, Attempt | None]:
        """What is known of each promise, wrongful removals and missed stickers, also where :meth:`policy` refuses.

        None of missed stickers without that promise.
        """
        removal = Trial(-math.inf, 0, 0)  # nothing could be released, which proves nothing
        if self._removals:
            held = control.learn_then_test(self._removals, levels.alpha, levels.delta)
            removal = self._removals[held[-1] if len(held) else 0]
        stickers = np.unique(self._objects.truth[self._objects.right & (self._risk <= removal.limit)])
        removals = _attempt(levels.alpha, removal, levels.delta, Count(len(stickers), self._seen.stickers))
        if not levels.beta:
            return removals, None
        order, cleans = self._ordered(levels.beta), self._seen.cleans
        proved = control.learn_then_test(order, levels.beta, levels.delta)
        clean = max((order[n] for n in proved), key=lambda test: test.limit, default=order[0])
        rightly = cleans.image[~cleans.missed & (cleans.left <= clean.limit)]
        called = Count(len(np.unique(rightly)), clean_units(self._records))
        return removals, _attempt(levels.beta, clean, levels.delta, called)

    def lowest_levels(self, delta: float) -> tuple[float, float]:
        """The lowest alpha and beta that would have been proved, 1 where nothing is.

        Levels that are chosen after looking at the images are a description of them and no guarantee.
        """
        strictest = self._removals[:1]
        alpha = strictest[0].bound(delta) if strictest else 1.0
        bounds = {one.bound(delta) for one in self._cleans if one.images}
        for beta in sorted(bounds):
            level = min(beta * (1 + 1e-9), 1.0)  # the bound itself, whatever its last digit
            if control.p_values(self._ordered(level)[:1], level)[0] <= delta:
                return alpha, beta
        return alpha, 1.0

    def _ordered(self, beta: float) -> list[Trial]:
        """The trials of limits on what is left alone in the order in which they are tested, from the images fitted on.

        Images called clean get fewer with a stricter limit, so no order is best beforehand.
        """
        order = np.argsort(control.p_values(self._fitted, beta), kind="stable")
        return [self._cleans[number] for number in order]


def clean_units(records: Sequence[Record]) -> int:
    """How many laptops of ``records`` could rightly be called clean: an image of them shows no sticker."""
    clean = [not len(record.stickers) for record in records]
    return len(np.unique(units_of(records)[clean]))


def _attempt(level: float, trial: Trial, delta: float, done: Count) -> Attempt:
    return Attempt(level, Count(trial.events, trial.images), trial.bound(delta), done)


def _first_of_each(records: Sequence[Record]) -> list[Record]:
    """The first image of every laptop: what the watch compares with."""
    numbers = np.unique(units_of(records), return_index=True)[1]
    return [records[number] for number in sorted(numbers.tolist())]


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
    wrong = ~objects.right
    worst = np.full(images, np.inf)  # the doubt from which an image is bad
    np.minimum.at(worst, objects.image[wrong], doubt[wrong])
    worst.sort()
    events = np.searchsorted(worst, limits, side="right")
    return [Trial(float(limit), images, int(count)) for limit, count in zip(limits, events, strict=True)]


def clean_tests(cleans: outcomes.Cleans, limits: Sequence[float]) -> list[Trial]:
    """For each limit on what is left alone, how many images are called clean, and how many of those show a sticker.

    Images of one laptop count once, and as missed when one of those called clean shows a sticker.
    """
    trials = []
    for limit in limits:
        called = cleans.left <= limit
        missed = np.unique(cleans.image[called & cleans.missed])
        trials.append(Trial(limit, len(np.unique(cleans.image[called])), len(missed)))
    return trials


def _prove_removal(tests: Sequence[Trial], levels: Levels) -> Proof:
    if not tests:
        raise InvalidInput(
            f"--alpha {levels.alpha:g} cannot be proved: no sticker could be released on the images to fit limits on; train the "
            "detector on more pictures, and see with `sticker-uq replay` what holds the stickers back"
        )
    held = control.learn_then_test(tests, levels.alpha, levels.delta)
    if not len(held):
        raise InvalidInput(_why("alpha", levels.alpha, levels.delta, tests, "with a wrongful removal"))
    chosen = tests[held[-1]]
    expected = control.conformal_risk_control(tests, levels.alpha) if chosen.sample else -1
    return _proof(
        chosen, levels.alpha, levels.delta, None if expected < 0 else tests[expected].limit, "by risk"
    )


def _prove_clean(tests: Sequence[Trial], levels: Levels, without: int) -> Proof:
    """``tests`` in their order; ``without``: laptops without a sticker among those that prove."""
    held = control.learn_then_test(tests, levels.beta, levels.delta)
    if not len(held):
        raise InvalidInput(
            _why("beta", levels.beta, levels.delta, tests, "called clean with a sticker", without)
        )
    chosen = max((tests[number] for number in held), key=lambda test: test.limit)
    return _proof(chosen, levels.beta, levels.delta, None, "learned")


def _proof(chosen: Trial, level: float, delta: float, expected: float | None, order: str) -> Proof:
    return Proof(
        level=level,
        confidence=round(1.0 - delta, 9),
        method=f"Learn-then-Test, {chosen.method}, fixed sequence ({order})",
        images=chosen.images,
        events=chosen.events,
        bound=chosen.bound(delta),
        smallest_level=chosen.smallest_level(delta),
        limit=chosen.limit,
        expected_limit=expected,
    )


def _why(name: str, level: float, delta: float, tests: Sequence[Trial], bad: str, without: int = 0) -> str:
    """``without``: for beta, how many laptops show no sticker."""
    images = max((test.images for test in tests), default=0)
    least = control.smallest_level(images, delta)
    text = f"--{name} {level:g} cannot be proved at confidence {1 - delta:g}: "
    if tests and not tests[0].sample:
        return text + tests[0].lacking(level, delta, bad)
    if least <= level:
        first = tests[0]
        return (
            text + f"{first.events} of {first.images} images are {bad} even at the first limit that is tried"
        )
    needed = control.images_needed(level, delta)
    kind, more = "laptops", "label more laptops"
    if name == "beta":
        called = max(test.images - test.events for test in tests)
        kind = f"laptops called clean ({called} of the {without} without a sticker in the proof)"
        more = "label more laptops without a sticker"
        if without >= needed:  # they are there, but a person is asked about them
            more = f"more pictures to learn from make the detector call more of them clean; or {more}"
    return text + (
        f"{images} {kind} prove {least:.3g} at best, expected {needed} or more without a bad one; {more}, or choose a larger "
        f"--{name} before you look at a result (one chosen by it proves nothing)"
    )

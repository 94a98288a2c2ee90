# SPDX-License-Identifier: Apache-2.0
"""A policy from labelled images, without a guarantee: `proving` gives it one on other images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sticker_uq.calibration import control, outcomes
from sticker_uq.calibration.choosing import choose_risk, fit_left
from sticker_uq.calibration.probability import Kind, fit_calibration
from sticker_uq.calibration.records import Record, first_of_each
from sticker_uq.gate import Policy
from sticker_uq.gate.policy.familiarity import Familiarity
from sticker_uq.gate.policy.policy import LIMITS, highest
from sticker_uq.gate.policy.policy_schema import SaliencyLimit
from sticker_uq.gate.policy.signals import SIGNALS, SaliencyName, SignalName
from sticker_uq.scene import InvalidInput
from sticker_uq.uncertainty import iou_matrix

LEFT_STICKERS = 0.02
"""Share of the stickers that the detector saw which may lie below `notable_probability`: nobody is asked about these."""
_LEAST_STICKERS = 100  # below which that share is no stickers at all
NOTABLE_RANGE = (0.02, 0.5)
LEAST_DIRTY = 20
"""Laptops finished with a sticker on them, below which signals of that are not combined."""
FAMILIAR = 99.9
"""Percentile of the scenes that are judged by themselves; a person is asked about the others, which are the most novel."""
_OPEN: dict[str, Any] = {
    "min_probability": 0.34,
    "min_detection_rate": 0.0,
    "max_logo_overlap": 1.0,
    "ask_duplicated": False,
    "max_background_saliency": 0.0,
    **{name: highest(name) for name, limit in LIMITS.items() if limit.stood_in_for},
}
"""Limits that the risk score and the section ``saliency`` stand in for."""


@dataclass(frozen=True)
class Levels:
    """The guarantee asked of a policy: rates of laptops with a wrongful removal, ``alpha``, and of laptops finished alone with a
    sticker left, of those that had one, ``beta``, each with confidence 1 - ``delta``. A ``beta`` of 0 promises nothing about
    stickers: then nothing is called clean without a person.
    """

    alpha: float = 0.01
    beta: float = 0.05
    delta: float = 0.1

    def __post_init__(self) -> None:
        control.check_levels(self.alpha, self.beta, self.delta)


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How a policy is fitted.

    ``percentile``: of clean images, at which ``saliency`` is cut off; ``familiar``: percentile of the scenes that are judged
    without a person, 100 sets no such limit; ``signals``: what the risk score is made of, by default all, the scores of a panel
    only where the base policy combines them so; one that was not measured on every object is left out; ``level``: rate of
    wrongful removals at which ways to combine them are compared; ``clean``: whether laptops are to be called clean without a
    person.
    """

    kind: Kind = "isotonic"
    saliency: SaliencyName = "background_saliency"
    percentile: float = 95.0
    match_iou: float = outcomes.MATCH_IOU
    familiar: float = FAMILIAR
    signals: Sequence[SignalName] | None = None
    level: float = 0.01
    clean: bool = True


def fit_policy(
    records: Sequence[Record],
    base: Policy,
    how: FitSettings = FitSettings(),
    say: Callable[[str], None] = lambda _: None,
) -> Policy:
    """A policy without guarantee: calibrated, with a risk score and a cut-off of the saliency of clean images.

    Limits that neither stands in for are those of ``base``; ``say`` is told of what few labels make simpler. Raises
    :class:`InvalidInput` when the images do not suffice.
    """
    if base.unmeasured_novelty == "ask" and all(math.isnan(r.assessment.scene_distance) for r in records):
        raise InvalidInput(
            f"novelty was measured on none of the {len(records)} images to fit limits on, and the base policy releases nothing "
            "without: make a novelty network beside the weights with `sticker-uq dil learn`, or give --base a policy "
            "with unmeasured_novelty: release"
        )
    amounts = outcomes.clean_saliency(records, how.saliency)
    if how.clean and not len(amounts):
        raise InvalidInput(
            f"none of the {len(records)} images to fit on shows a laptop without stickers and has its {how.saliency}: "
            "the cut-off for clean laptops needs some"
        )
    cut_off = round(float(np.percentile(amounts, how.percentile)), 9) if how.clean else None
    draft = base.model_copy(
        update=_OPEN
        | {
            "calibration": fit_calibration(records, how.kind, how.match_iou),
            "saliency": SaliencyLimit(
                signal=how.saliency, max_clean=cut_off, percentile=how.percentile if how.clean else None
            ),
            "familiarity": (
                Familiarity.of([r.assessment for r in first_of_each(records)], how.familiar)
                if how.familiar < 100
                else None
            ),
            "clean_without_operator": how.clean,
            "close_up_weight": 0.5,  # the passes and the close-up count the same
            "max_left_probability": 1.0,
            "risk": None,
            "left": None,
            "guarantee": None,
            "validity": None,
            "provenance": None,
            "reference": None,
        }
    )
    draft = draft.model_copy(update={"notable_probability": _notable(records, draft, how.match_iou)})
    objects = outcomes.outcomes_of(records, draft, how.match_iou).detected
    combined = base.panel is not None and base.panel.combination == "risk"
    chosen = (
        how.signals if how.signals is not None else [n for n in objects.signals if combined or n in SIGNALS]
    )
    measured = [n for n in chosen if np.isfinite(objects.signals[n]).all()]
    if how.signals and (lacking := [n for n in how.signals if n not in measured]):
        raise InvalidInput(f"signals {', '.join(lacking)}: not measured on every object, expected others")
    draft = draft.model_copy(update={"risk": choose_risk(objects, measured, how.level, say)})
    return _with_left_score(records, draft, how, say) if how.clean else draft


def _with_left_score(
    records: Sequence[Record], draft: Policy, how: FitSettings, say: Callable[[str], None]
) -> Policy:
    """``draft`` with a score of whether a sticker is left, of the laptops that it finishes alone where at most ``how.level`` of
    all see a wrongful removal; with few dirty ones among them as it is.
    """
    seen = outcomes.outcomes_of(records, draft, how.match_iou)
    objects, risk = seen.select_removable()
    worst = np.sort(outcomes.worst_risk(objects, risk, seen.images))
    ends = seen.ends
    rows = ends.at(float(np.nextafter(worst[min(int(how.level * seen.images), seen.images - 1)], -np.inf)))
    if ends.dirty[rows].sum() < LEAST_DIRTY:
        say(
            f"how probably a sticker is left is that of the likeliest object that stays: {int(ends.dirty[rows].sum())} laptops "
            f"to fit on are finished with one, expected {LEAST_DIRTY} or more to combine signals"
        )
        return draft
    signals = {name: values[rows] for name, values in ends.signals.items()}
    measured = {name: values for name, values in signals.items() if np.isfinite(values).all()}
    return draft.model_copy(update={"left": fit_left(measured, ends.dirty[rows])})


def take_over(fitted: Policy, clean: bool = True) -> Policy:
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

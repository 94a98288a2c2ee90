# SPDX-License-Identifier: Apache-2.0
"""What a policy would do with labelled images, as numbers that limits can be chosen on.

A removal is right unless it does harm, see :func:`sticker_uq.evaluation.metrics.decisions.harmful`. The decisions are those of
:func:`sticker_uq.gate.judge`; only the two limits that a certificate chooses are left open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.decisions import BLADE_IOU, released_regions
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.gate.policy.signals import (
    SIGNALS,
    LeftSignal,
    SaliencyName,
    SignalName,
    object_signals,
    scene_saliency,
)
from sticker_uq.scene import (
    FloatArray,
    IntArray,
    ObjectClass,
    ObservedObject,
    Outcome,
    SceneDecision,
    Verdict,
    inner_regions,
)

MATCH_IOU = BLADE_IOU
"""IoU from which calibration counts a labelled object as met by the blade."""
_WELL_MET = 0.2
"""So much more overlap, and nothing about a removal is doubtful."""


@dataclass(frozen=True)
class CalledStickers:
    """Objects on several images that a policy calls stickers: one row each, N in all.

    ``image`` (N,) number of its image, or of its laptop where several images show the same one; ``right`` (N,) bool whether it
    takes a labelled sticker and does no harm; ``badness`` (N,) how wrong its removal would be, 0..1: 1 where it is not right,
    falling to 0 where it fits its sticker well; ``truth`` (N,) number of that sticker over all images, -1 where it is not right;
    ``signals`` by name, (N,) each.
    """

    image: IntArray
    right: NDArray[np.bool_]
    badness: FloatArray
    truth: IntArray
    signals: dict[SignalName, FloatArray]

    def __len__(self) -> int:
        return len(self.image)

    def chosen(self, rows: NDArray[np.bool_]) -> CalledStickers:
        signals = {name: values[rows] for name, values in self.signals.items()}
        return CalledStickers(
            self.image[rows], self.right[rows], self.badness[rows], self.truth[rows], signals
        )


@dataclass(frozen=True)
class Ends:
    """How laptops end that showed a sticker, over the limits on the risk: a row for each stretch of limits on which one of them
    is finished alone if it is not too likely that a sticker is left, E in all.

    ``first`` (E,): the lowest limit of the stretch; ``beyond`` (E,): the lowest one above it; ``left`` (E,): how probably one is
    left, as the policy sees it, NaN where that was not measured; ``signals`` of that by name, (E,) each; ``dirty`` (E,) bool: a
    sticker is still there. ``laptops``: all that showed one.
    """

    first: FloatArray
    beyond: FloatArray
    left: FloatArray
    signals: dict[LeftSignal, FloatArray]
    dirty: NDArray[np.bool_]
    laptops: int

    def at(self, limit: float) -> NDArray[np.bool_]:
        """Which of the rows hold at ``limit`` on the risk, (E,)."""
        return (self.first <= limit) & (limit < self.beyond)


@dataclass(frozen=True)
class Outcomes:
    """What a policy with open limits would do with ``images`` images that show ``stickers`` stickers.

    Images of the same laptop count as one: a removal on it is wrong when one on any of them is, and the last one is its end.

    ``detected``: every clustered object called sticker, of pictures with answers those that could be released; ``removable``
    (N,) bool: which of them the policy would remove if their risk allowed it; ``risk`` (N,) of each, NaN without a risk score;
    ``verdicts`` counts the objects by verdict.
    """

    images: int
    stickers: int
    detected: CalledStickers
    removable: NDArray[np.bool_]
    risk: FloatArray
    ends: Ends
    verdicts: dict[Verdict, int]

    def select_removable(self) -> tuple[CalledStickers, FloatArray]:
        return self.detected.chosen(self.removable), self.risk[self.removable]


def with_open_limits(policy: Policy) -> Policy:
    risk = None if policy.risk is None else policy.risk.model_copy(update={"max_removal": 1.0})
    return policy.model_copy(update={"risk": risk, "max_left_probability": 1.0})


@dataclass(frozen=True)
class _Called:
    """A row of :class:`CalledStickers`, and what the policy would do: remove it, if its ``risk`` allowed that."""

    image: int
    badness: float
    truth: int
    removable: bool
    risk: float
    signals: dict[SignalName, float]


@dataclass(frozen=True)
class _Stretch:
    """A row of :class:`Ends`."""

    first: float
    beyond: float
    left: float
    signals: dict[LeftSignal, float]
    dirty: bool


def outcomes_of(records: Sequence[Record], policy: Policy, match_iou: float = MATCH_IOU) -> Outcomes:
    """What ``policy`` with open limits would do with labelled ``records``; its validity is not asked."""
    judging = with_open_limits(policy).model_copy(update={"validity": None})
    rows: list[_Called] = []
    stickers, with_sticker = 0, set()
    stretches: dict[int, list[_Stretch]] = {}
    verdicts = dict.fromkeys(Verdict, 0)
    units = units_of(records)
    for index, record in zip(units.tolist(), records, strict=True):
        decision = judge(record.assessment, judging)
        for verdict in decision.verdicts:
            verdicts[verdict.verdict] += 1
        rows += _list_called(index, record, decision, judging, match_iou, stickers)
        if record.sticker_count:
            with_sticker.add(index)
        stretches[index] = _stretches(decision, record, judging, match_iou)  # of the last image
        stickers += record.sticker_count
    return Outcomes(
        images=len(np.unique(units)),
        stickers=stickers,
        detected=_as_table(rows),
        removable=np.array([row.removable for row in rows], bool),
        risk=np.array([row.risk for row in rows], float),
        ends=_ends([stretches[unit] for unit in sorted(with_sticker)]),
        verdicts=verdicts,
    )


def _list_called(
    image: int, record: Record, decision: SceneDecision, policy: Policy, match_iou: float, before: int
) -> list[_Called]:
    """What of ``record`` is called sticker; ``before``: labelled stickers of the images before it."""
    work = decision.outcome is Outcome.WORK
    removable = {id(one.object) for one in decision.removable()} if work else set()
    called = [
        one
        for one in record.assessment.objects
        if one.label is ObjectClass.STICKER and (record.said is None or id(one) in removable)
    ]
    regions = inner_regions(np.array([one.box for one in called], float).reshape(-1, 4), policy.blade_margin)
    met = record.met(regions, match_iou)
    rows = []
    for observed, truth, overlap in zip(
        called, np.where(met.harm, -1, met.sticker).tolist(), met.overlap.tolist(), strict=True
    ):
        signals = object_signals(observed, record.assessment)
        rows.append(
            _Called(
                image=image,
                badness=1.0 if truth < 0 else max(0.0, 1.0 - (overlap - match_iou) / _WELL_MET),
                truth=before + truth if truth >= 0 else -1,
                removable=id(observed) in removable,
                risk=math.nan if policy.risk is None else policy.risk(signals),
                signals=signals,
            )
        )
    return rows


def _as_table(rows: Sequence[_Called]) -> CalledStickers:
    # scores of a panel come after what every scene has, in the order in which they were first met
    names = dict.fromkeys((*SIGNALS, *(name for row in rows for name in row.signals)))
    truth = np.array([row.truth for row in rows], np.int64)
    return CalledStickers(
        image=np.array([row.image for row in rows], np.int64),
        right=truth >= 0,
        badness=np.array([row.badness for row in rows], float),
        truth=truth,
        signals={name: np.array([row.signals.get(name, np.nan) for row in rows], float) for name in names},
    )


def _ends(laptops: Sequence[Sequence[_Stretch]]) -> Ends:
    rows = [row for laptop in laptops for row in laptop]
    return Ends(
        first=np.array([row.first for row in rows], float),
        beyond=np.array([row.beyond for row in rows], float),
        left=np.array([row.left for row in rows], float),
        signals={name: np.array([row.signals[name] for row in rows], float) for name in get_args(LeftSignal)},
        dirty=np.array([row.dirty for row in rows], bool),
        laptops=len(laptops),
    )


def _stretches(decision: SceneDecision, record: Record, policy: Policy, match_iou: float) -> list[_Stretch]:
    """The rows of :class:`Ends` for an image about which ``policy`` with open limits makes ``decision``."""
    ends = [(-math.inf, decision)] if decision.outcome is Outcome.CLEAN else []
    if decision.outcome is Outcome.WORK:
        released = {id(one): _risk(one.object, record, policy) for one in decision.removable()}
        for limit in sorted(set(released.values())):
            held = tuple(
                replace(one, verdict=Verdict.ASK) if released.get(id(one), limit) > limit else one
                for one in decision.verdicts
            )
            ends.append((limit, replace(decision, verdicts=held)))
    rows = []
    for number, (first, then) in enumerate(ends):
        beyond = ends[number + 1][0] if number + 1 < len(ends) else math.inf
        end = once_peeled(then, record.assessment, policy)
        if end.outcome is not Outcome.CLEAN:
            continue
        peeled = record.met(released_regions(then), match_iou).peeled_stickers
        stay = [one.object for one in end.verdicts]
        signals = policy.left_signals(stay, record.assessment)
        left = policy.left_probability(stay, record.assessment)
        rows.append(_Stretch(first, beyond, left, signals, len(peeled) < record.sticker_count))
    return rows


def _risk(observed: ObservedObject, record: Record, policy: Policy) -> float:
    """The risk of removing it; without a risk score no limit holds it back."""
    return -math.inf if policy.risk is None else policy.risk(object_signals(observed, record.assessment))


def match_sticker(observed: ObservedObject, record: Record, match_iou: float = MATCH_IOU) -> int:
    """The labelled sticker of ``record`` that a removal of ``observed`` would take, -1 if none."""
    return int(record.met(observed.box[None], match_iou).sticker[0])


def clean_saliency(records: Sequence[Record], signal: SaliencyName) -> FloatArray:
    """The saliency of every image without a sticker on which it was measured, (C,)."""
    values = [scene_saliency(r.assessment, signal) for r in records if not len(r.stickers)]
    return np.array([value for value in values if np.isfinite(value)], float)


def worst_risk(objects: CalledStickers, risk: FloatArray, images: int) -> FloatArray:
    """The risk (N,) from which each of ``images`` images sees a wrongful removal, infinite where none does, (images,)."""
    wrong = ~objects.right
    worst = np.full(images, np.inf)
    np.minimum.at(worst, objects.image[wrong], risk[wrong])
    return worst


def with_limits(policy: Policy, max_removal: float, max_left_probability: float) -> Policy:
    """``policy`` with these limits in place of its own; raises ``ValueError`` without a risk score."""
    if policy.risk is None:
        raise ValueError("the policy has no risk score to limit")
    risk = policy.risk.model_copy(update={"max_removal": max_removal})
    return policy.model_copy(update={"risk": risk, "max_left_probability": max_left_probability})

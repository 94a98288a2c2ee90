"""What a policy would do with labelled images, as numbers that limits can be chosen on.

A removal is right when the labelled object that it would touch is a sticker, wrong when that is a logo or there is none. The
decisions are those of :func:`sticker_uq.supervision.judge`; only the two limits that a certificate chooses are left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.records import Record
from sticker_uq.scene import FloatArray, IntArray, ObjectClass, ObservedObject, Outcome, Verdict
from sticker_uq.supervision import Policy, judge
from sticker_uq.supervision.signals import SIGNALS, SaliencyName, SignalName, object_signals, scene_saliency
from sticker_uq.uncertainty import iou_matrix

MATCH_IOU = 0.3
"""IoU from which the blade meets a labelled object; partly covered stickers are labelled by what is seen of them."""


@dataclass(frozen=True)
class Objects:
    """Objects called stickers on several images: one row each, N in all.

    ``image`` (N,) index of its image; ``right`` (N,) bool whether it matches a labelled sticker; ``truth`` (N,) number of that
    sticker over all images, -1 for none; ``signals`` by name, (N,) each.
    """

    image: IntArray
    right: NDArray[np.bool_]
    truth: IntArray
    signals: dict[SignalName, FloatArray]

    def __len__(self) -> int:
        return len(self.image)

    def chosen(self, rows: NDArray[np.bool_]) -> Objects:
        """The objects of ``rows``, a mask (N,)."""
        return Objects(
            self.image[rows],
            self.right[rows],
            self.truth[rows],
            {name: values[rows] for name, values in self.signals.items()},
        )


@dataclass(frozen=True)
class Cleans:
    """Images that a policy calls clean if nothing that is left alone is a sticker too probably.

    ``left`` (C,): the highest probability of sticker of what is left alone; ``missed`` (C,) bool: a sticker is there.
    """

    left: FloatArray
    missed: NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """What a policy with open limits would do with ``images`` images that show ``stickers`` stickers.

    ``detected``: every clustered object called sticker; ``removable`` (N,) bool: which of them the policy would remove if
    their risk allowed it; ``risk`` (N,) of each, NaN without a risk score; ``verdicts`` counts the objects by verdict.
    """

    images: int
    stickers: int
    detected: Objects
    removable: NDArray[np.bool_]
    risk: FloatArray
    cleans: Cleans
    verdicts: dict[Verdict, int]

    def removed(self) -> tuple[Objects, FloatArray]:
        """The removable objects and the risk of each."""
        return self.detected.chosen(self.removable), self.risk[self.removable]


def opened(policy: Policy) -> Policy:
    """``policy`` with the two limits that a certificate chooses out of the way."""
    risk = None if policy.risk is None else policy.risk.model_copy(update={"max_removal": 1.0})
    return policy.model_copy(update={"risk": risk, "max_left_probability": 1.0})


def outcomes_of(records: Sequence[Record], policy: Policy, match_iou: float = MATCH_IOU) -> Outcomes:
    """What ``policy`` with open limits would do with ``records``; its validity is not asked."""
    judging = opened(policy).model_copy(update={"validity": None})
    rows: list[tuple[int, bool, int, bool, float, dict[SignalName, float]]] = []
    left, missed, stickers = [], [], 0
    verdicts = dict.fromkeys(Verdict, 0)
    for index, record in enumerate(records):
        decision = judge(record.assessment, judging)
        removable = (
            {id(v.object) for v in decision.removable()} if decision.outcome is Outcome.WORK else set()
        )
        for verdict in decision.verdicts:
            verdicts[verdict.verdict] += 1
        for observed in record.assessment.objects:
            if observed.label is not ObjectClass.STICKER:
                continue
            truth = matching(observed, record, match_iou)
            signals = object_signals(observed, record.assessment)
            risk = float("nan") if judging.risk is None else judging.risk(signals)
            number = stickers + truth if truth >= 0 else -1
            rows.append((index, truth >= 0, number, id(observed) in removable, risk, signals))
        if decision.outcome is Outcome.CLEAN:
            probabilities = [policy.probabilities(v.object)[ObjectClass.STICKER] for v in decision.verdicts]
            left.append(float(max(probabilities, default=0.0)))
            missed.append(len(record.stickers) > 0)
        stickers += len(record.stickers)
    detected = Objects(
        image=np.array([row[0] for row in rows], np.int64),
        right=np.array([row[1] for row in rows], bool),
        truth=np.array([row[2] for row in rows], np.int64),
        signals={name: np.array([row[5][name] for row in rows], float) for name in SIGNALS},
    )
    return Outcomes(
        images=len(records),
        stickers=stickers,
        detected=detected,
        removable=np.array([row[3] for row in rows], bool),
        risk=np.array([row[4] for row in rows], float),
        cleans=Cleans(np.array(left, float), np.array(missed, bool)),
        verdicts=verdicts,
    )


def matching(observed: ObservedObject, record: Record, match_iou: float = MATCH_IOU) -> int:
    """Which of the stickers of ``record`` a removal of ``observed`` would take, -1 if none.

    What the blade meets is the labelled object that the box overlaps most, if by at least ``match_iou``.
    """
    if not len(record.boxes):
        return -1
    overlaps = iou_matrix(observed.box[None], record.boxes)[0]
    best = int(overlaps.argmax())
    if overlaps[best] < match_iou or record.labels[best] != ObjectClass.STICKER:
        return -1
    return int((record.labels[:best] == ObjectClass.STICKER).sum())


def clean_saliency(records: Sequence[Record], signal: SaliencyName) -> FloatArray:
    """The saliency of every image without a sticker, (C,), without those where it was not measured."""
    values = [scene_saliency(r.assessment, signal) for r in records if not len(r.stickers)]
    return np.array([value for value in values if np.isfinite(value)], float)


def with_limits(policy: Policy, max_removal: float, max_left_probability: float) -> Policy:
    """``policy`` with these limits in place of its own; raises ``ValueError`` without a risk score."""
    if policy.risk is None:
        raise ValueError("the policy has no risk score to limit")
    risk = policy.risk.model_copy(update={"max_removal": max_removal})
    return policy.model_copy(update={"risk": risk, "max_left_probability": max_left_probability})

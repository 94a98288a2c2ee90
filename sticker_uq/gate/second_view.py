# SPDX-License-Identifier: Apache-2.0
"""A second view of the same laptop: which one may answer a question, and what the gate makes of the two views together.

A second chance to release is a second chance to be wrong. :func:`join` therefore takes the verdicts of the second view and lets
the first one only forbid: it releases nothing that the second view does not release, and calls nothing clean that either view
doubts. What this means for a guarantee is in docs/gate.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sticker_uq.gate.box_overlap import Box, as_box, cover, iou, is_proper, same_place
from sticker_uq.gate.judge import NOTHING_SAID, judge
from sticker_uq.gate.operator.answers import Answer, OperatorAnswer, OperatorAnswers
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.rules import is_possible_logo, within
from sticker_uq.messages import VIEWS, missing_of
from sticker_uq.scene import (
    FloatArray,
    InvalidInput,
    ObjectClass,
    ObjectVerdict,
    ObservedObject,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Verdict,
)

Answering = Callable[[str, Reason], bool]
"""Whether a view may answer what a reason holds back."""


def open_questions(decision: SceneDecision) -> tuple[Reason, ...]:
    """Gate: every reason for which ``decision`` asks a person, about the scene and about its objects."""
    asked = [v for v in decision.verdicts if v.verdict is Verdict.ASK]
    scene = decision.reasons if decision.outcome is Outcome.ASK else ()
    return (*scene, *(reason for verdict in asked for reason in verdict.reasons if not _only_says(reason)))


def what_is_missing(decision: SceneDecision) -> tuple[Reason, ...]:
    """Gate: what the picture of ``decision`` does not show, and which views may answer everything it asks, each once."""
    reasons = open_questions(decision)
    lacks = dict.fromkeys(lack for lack, _ in map(missing_of, reasons) if lack)
    views = [view for view in VIEWS if reasons and all(may_answer(view, reason) for reason in reasons)]
    return (
        *(Reason("picture_lacks", lack) for lack in lacks),
        *(Reason("view_may_help", view) for view in views),
    )


def may_answer(view: str, reason: Reason) -> bool:
    """Gate: whether a second view of the kind ``view`` may answer what ``reason`` holds back."""
    return view in missing_of(reason)[1]


def view_for(decision: SceneDecision, offered: Iterable[str], answers: Answering = may_answer) -> str | None:
    """Gate: the first of the views ``offered`` that may answer everything that ``decision`` asks; None where none may.

    A person who is asked anyway is asked about everything at once.
    """
    reasons = open_questions(decision)
    if not reasons:
        return None
    return next((view for view in offered if all(answers(view, reason) for reason in reasons)), None)


def _only_says(reason: Reason) -> bool:
    """Whether it is said beside what holds an object back, as that its probability reaches a limit."""
    return reason.code in ("within_limit", "reaches_limit", "monitor_agrees")


@dataclass(frozen=True)
class Places:
    """Where the places of a second view lie in the first one: the map ``matrix`` (3, 3) of px to px, as nine numbers by row.

    A box keeps its size, which a small turn hardly changes. Raises :class:`InvalidInput` for a map that cannot be inverted.
    """

    matrix: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    def __post_init__(self) -> None:
        values = np.asarray(self.matrix, float)
        with np.errstate(all="ignore"):
            size = abs(np.linalg.det(values.reshape(3, 3))) if values.shape == (9,) else 0.0
        if not (np.isfinite(values).all() and 1e-12 <= size < math.inf):
            raise InvalidInput(
                f"map of places {self.matrix!r}: expected nine finite numbers of an invertible map"
            )

    @classmethod
    def of(cls, matrix: FloatArray) -> Places:
        """The gate's places by a map (3, 3)."""
        return cls(tuple(float(value) for value in np.asarray(matrix, float).ravel()))

    @property
    def _array(self) -> FloatArray:
        return np.asarray(self.matrix, float).reshape(3, 3)

    def is_turn(self, image_size: tuple[int, int]) -> bool:
        """Whether the gate may believe that a turned laptop looks so in pictures of ``image_size`` (width, height).

        Nothing is mirrored, no length changes by more than a factor of two, and the middle stays in the picture.
        """
        width, height = image_size
        middle, *corners = (
            self._place_and_stretch(x * width, y * height)
            for x, y in ((0.5, 0.5), (0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
        )
        (x, y), _, depth = middle
        inside = 0.0 <= x <= width and 0.0 <= y <= height
        return inside and all(
            other * depth > 0.0
            and bool(np.isfinite(stretch).all())
            and np.linalg.det(stretch) > 0.0
            and bool(np.all(np.abs(np.log2(np.linalg.svd(stretch, compute_uv=False))) <= 1.0))
            for _, stretch, other in (middle, *corners)
        )

    def _place_and_stretch(self, x: float, y: float) -> tuple[FloatArray, FloatArray, float]:
        """Where a place of the second view lies in the first, the derivative (2, 2) of the map there, and the depth."""
        matrix = self._array
        with np.errstate(all="ignore"):
            *there, depth = matrix @ [x, y, 1.0]
            place = np.asarray(there) / depth
            stretch = (matrix[:2, :2] - np.outer(place, matrix[2, :2])) / depth
        return place, stretch, float(depth)

    def in_first(self, box: Box) -> Box:
        """The gate's ``box`` of the second view as a box of the first one."""
        return self._moved(box, self._array)

    def in_second(self, box: Box) -> Box:
        """The gate's ``box`` of the first view as a box of the second one."""
        return self._moved(box, np.linalg.inv(self._array))

    def memory_in_second(self, memory: OperatorAnswers) -> OperatorAnswers:
        """The operator's answers about places of the first view, about the gate's places of the second one."""
        answers = tuple(replace(answer, box=self.in_second(answer.box)) for answer in memory.answers)
        return replace(memory, answers=answers)

    def memory_in_first(self, memory: OperatorAnswers) -> OperatorAnswers:
        """The operator's answers about places of the second view, about the gate's places of the first one."""
        answers = tuple(replace(answer, box=self.in_first(answer.box)) for answer in memory.answers)
        return replace(memory, answers=answers)

    def _moved(self, box: Box, matrix: FloatArray) -> Box:
        if self == SAME_PLACES or not is_proper(box):
            return box
        x, y, depth = (matrix @ [(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, 1.0]).tolist()
        if not depth:
            return (math.nan,) * 4  # infinitely far away: the same place as nothing
        x, y = x / depth, y / depth
        width, height = (box[2] - box[0]) / 2, (box[3] - box[1]) / 2
        return x - width, y - height, x + width, y + height


SAME_PLACES = Places()
"""Laptop and camera have not moved between the views."""


def join(
    first: SceneAssessment,
    second: SceneAssessment,
    policy: Policy,
    view: str,
    memory: OperatorAnswers = NOTHING_SAID,
    workpiece_id: str = "",
    places: Places = SAME_PLACES,
    answers: Answering = may_answer,
) -> SceneDecision:
    """What the gate decides after the views ``first`` and ``second`` of one laptop.

    ``view``: what was changed for the second one, one of :data:`sticker_uq.messages.VIEWS`.

    The decision is about the second picture. An object is released only if the second view releases it, and the first one shows
    exactly one object at that place, also a sticker, which it would release or holds back only for reasons that this view may
    answer, and no possible logo near it. Whatever the first view releases or asks about and the second does not show, or shows
    differently, is asked about. CLEAN needs that neither view misses or doubts anything. ``memory``: answers about places of the
    first picture; ``places``: where places of the second picture lie in the first one.

    Where there is nothing to join, the decision about the first view stands: it asks nothing, or the second one cannot be used,
    shows the very same pixels, or is from another camera, model, panel or other settings.
    """
    before = judge(first, policy, memory, workpiece_id)
    after = judge(second, policy, places.memory_in_second(memory), workpiece_id)
    if (
        before.outcome is not Outcome.ASK
        or after.outcome is Outcome.BLOCKED
        or not _comparable(first, second)
    ):
        return before
    return _joined(first, before, after, policy, view, memory, places, answers)


def guarded(
    first: SceneAssessment | None,
    later: SceneAssessment,
    policy: Policy,
    view: str,
    places: Places | None,
    memory: OperatorAnswers = NOTHING_SAID,
    workpiece_id: str = "",
    at_work: Sequence[Box] = (),
) -> SceneDecision:
    """What the gate decides about a picture ``later`` of a laptop whose ``first`` view led to a question.

    As :func:`join`, for every picture from the second view until the laptop leaves: the decision is always about ``later``, and
    ``memory`` has answers about places of ``later``. ``first`` is without what has been removed since (:func:`without_object`).
    ``at_work``: places of ``later`` where the arm works or has worked: that nothing is seen there is no doubt.
    ``places``: where places of ``later`` lie in ``first``. Where one of the two is not known, or the pictures cannot be compared,
    a person decides about every object that none has decided about.
    """
    after = judge(later, policy, memory, workpiece_id)
    if after.outcome is Outcome.BLOCKED:
        return after
    if first is None or places is None or not _comparable(first, later):
        return _nothing_released(after, memory)
    memory = places.memory_in_first(memory)
    before = judge(first, policy, memory, workpiece_id)
    if before.outcome is Outcome.BLOCKED:
        return _nothing_released(after, memory)
    return _joined(first, before, after, policy, view, memory, places, may_answer, at_work)


def without_object(scene: SceneAssessment, box: Box, label: ObjectClass) -> SceneAssessment:
    """The gate's first view ``scene`` after the object at ``box`` of it, a ``label``, was removed.

    Of several the one that fits best; one of another class only where there is none of this one, else it goes on forbidding.
    """
    here = [o for o in (*scene.objects, *scene.unstable) if same_place(as_box(o.box), box)]
    gone = max(here, key=lambda o: (o.label is label, iou(as_box(o.box), box)), default=None)
    return replace(
        scene,
        objects=tuple(o for o in scene.objects if o is not gone),
        unstable=tuple(o for o in scene.unstable if o is not gone),
    )


def _nothing_released(after: SceneDecision, memory: OperatorAnswers) -> SceneDecision:
    """``after`` as far as it rests on a person's word: everything else is asked about."""
    apart = Reason("views_not_comparable")
    verdicts = tuple(
        replace(v, verdict=Verdict.ASK, reasons=(apart,))
        if v.verdict is Verdict.REMOVE and not v.by_operator
        else v
        for v in after.verdicts
    )
    if not memory.scene_checked:
        reasons = tuple(dict.fromkeys((*after.reasons, apart)))
        return replace(after, outcome=Outcome.ASK, verdicts=verdicts, reasons=reasons)
    outcome = after.outcome
    if outcome is Outcome.WORK and not any(v.verdict is Verdict.REMOVE for v in verdicts):
        outcome = Outcome.ASK
    return replace(after, outcome=outcome, verdicts=verdicts)


def _joined(
    first: SceneAssessment,
    before: SceneDecision,
    after: SceneDecision,
    policy: Policy,
    view: str,
    memory: OperatorAnswers,
    places: Places,
    answers: Answering,
    at_work: Sequence[Box] = (),
) -> SceneDecision:
    """``after`` as far as ``before``, the decision about ``first``, allows it; ``memory``: about places of the first picture."""
    verdicts = _Joint(first, before, policy, view, places, answers, tuple(at_work)).verdicts(after)
    doubts = (*(r for r in before.reasons if not answers(view, r)), *after.reasons)
    outcome = Outcome.CLEAN
    if doubts:
        outcome = Outcome.ASK
    elif any(v.verdict is Verdict.REMOVE for v in verdicts):
        outcome = Outcome.WORK
    elif any(v.verdict is Verdict.ASK for v in verdicts):
        outcome = Outcome.ASK
    else:
        doubts = _clean_doubts(first, before, policy, memory)
        outcome = Outcome.ASK if doubts or after.outcome is not Outcome.CLEAN else Outcome.CLEAN
    return replace(
        after,
        decision_id=_identity(before, after, view, places),
        outcome=outcome,
        verdicts=verdicts,
        reasons=doubts,
    )


def _comparable(first: SceneAssessment, second: SceneAssessment) -> bool:
    """Whether both were seen by the same camera and judged alike, and show different pixels."""
    names = ("frame_id", "image_size", "model_hash", "settings_hash", "panel_hash")
    alike = all(getattr(first, name) == getattr(second, name) for name in names)
    return alike and first.image_digest != second.image_digest


def _clean_doubts(
    first: SceneAssessment, before: SceneDecision, policy: Policy, memory: OperatorAnswers
) -> tuple[Reason, ...]:
    """Why the first view is not clean even if everything that it asks about is to be kept."""
    kept = [
        OperatorAnswer(Answer.KEEP, as_box(v.object.box))
        for v in before.verdicts
        if v.verdict is Verdict.ASK and is_proper(as_box(v.object.box))
    ]
    decision = judge(first, policy, memory.remember(kept))
    if decision.outcome is Outcome.CLEAN:
        return ()
    return decision.reasons or (Reason("scene_doubtful"),)


def _identity(before: SceneDecision, after: SceneDecision, view: str, places: Places) -> str:
    basis = [before.decision_id, after.decision_id, view, places.matrix]
    return hashlib.blake2b(json.dumps(basis).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Joint:
    """What the first view forbids."""

    first: SceneAssessment
    before: SceneDecision
    policy: Policy
    view: str
    places: Places
    answers: Answering
    at_work: tuple[Box, ...] = ()

    def verdicts(self, after: SceneDecision) -> tuple[ObjectVerdict, ...]:
        """The verdicts of the second view as far as the first one allows them, then what it does not show any more."""
        # an answer that fits a place now says nothing about what the first view asked about beside it
        shown = [self.places.in_first(as_box(v.object.box)) for v in after.verdicts if not v.by_operator]
        joined = [v if v.by_operator else self._verdict(v, shown) for v in after.verdicts]
        return (*joined, *self._not_seen_again(shown, joined))

    def _verdict(self, verdict: ObjectVerdict, shown: Sequence[Box]) -> ObjectVerdict:
        if verdict.verdict is Verdict.ASK:
            return verdict
        box = self.places.in_first(as_box(verdict.object.box))
        twins = [v for v in self.before.verdicts if same_place(as_box(v.object.box), box)]
        if verdict.verdict is Verdict.REMOVE:
            against = self._against_removal(verdict, box, twins, shown)
        else:
            against = self._against_keeping(verdict, twins)
        return replace(verdict, verdict=Verdict.ASK, reasons=against) if against else verdict

    def _against_removal(
        self, verdict: ObjectVerdict, box: Box, twins: Sequence[ObjectVerdict], shown: Sequence[Box]
    ) -> tuple[Reason, ...]:
        if not twins:
            return (Reason("not_seen_before"),)
        # one object of the first view stands for one of the second
        there = max(len(twins), sum(same_place(as_box(twins[0].object.box), other) for other in shown))
        if there > 1:
            return (Reason.of("several_there", count=there),)
        logos = [
            cover(box, as_box(o.box))
            for o, unstable in self._seen()
            if o is not twins[0].object and is_possible_logo(o, unstable, self.policy)
        ]
        clear, near = within("logo_overlap", max(logos, default=0.0), self.policy.max_logo_overlap)
        return (*self._unlike(verdict, twins[0]), *(() if clear else (near,)))

    def _against_keeping(self, verdict: ObjectVerdict, twins: Sequence[ObjectVerdict]) -> tuple[Reason, ...]:
        found = [self._unlike(verdict, twin) for twin in twins if twin.verdict is not Verdict.KEEP]
        return tuple(dict.fromkeys(reason for reasons in found for reason in reasons))

    def _unlike(self, verdict: ObjectVerdict, twin: ObjectVerdict) -> tuple[Reason, ...]:
        """What the first view says against ``verdict`` about the same object; empty if it lets it stand."""
        disagree = Reason.of(
            "views_disagree", first=twin.object.label.name.lower(), second=verdict.object.label.name.lower()
        )
        same_kind = twin.object.label is verdict.object.label
        if not same_kind or twin.verdict not in (verdict.verdict, Verdict.ASK):
            return (disagree,)
        if twin.verdict is not Verdict.ASK:
            return ()
        # what may be a sticker is not left alone because it looks less like one now: that takes a sure logo
        kind = ObjectClass.STICKER if verdict.verdict is Verdict.REMOVE else ObjectClass.LOGO
        if twin.object.label is not kind:
            return (disagree,)
        return tuple(r for r in twin.reasons if not _only_says(r) and not self.answers(self.view, r))

    def _seen(self) -> list[tuple[ObservedObject, bool]]:
        clustered = [(o, o.unstable) for o in self.first.objects]
        return clustered + [(o, True) for o in self.first.unstable]

    def _not_seen_again(
        self, shown: Sequence[Box], joined: Sequence[ObjectVerdict]
    ) -> tuple[ObjectVerdict, ...]:
        free = max((v.object.id for v in joined), default=-1) + 1
        lost = [
            v.object
            for v in self.before.verdicts
            if v.verdict is not Verdict.KEEP
            and not v.by_operator
            and not any(same_place(as_box(v.object.box), box) for box in shown)
            and not any(same_place(self.places.in_second(as_box(v.object.box)), box) for box in self.at_work)
        ]
        return tuple(
            ObjectVerdict(
                replace(
                    one,
                    id=free + number,
                    box=np.asarray(self.places.in_second(as_box(one.box)), np.float32),
                ),
                Verdict.ASK,
                (Reason("not_seen_again"),),
            )
            for number, one in enumerate(lost)
        )

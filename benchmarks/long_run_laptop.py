# SPDX-License-Identifier: Apache-2.0
"""One rendered laptop in front of the gate, from its first scene until it is done, with a person who knows the truth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sticker_uq.calibration.outcomes import MATCH_IOU, matching, met
from sticker_uq.calibration.records import Record
from sticker_uq.gate import AssumptionSettings, GateController, GateSettings, Policy, judge
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.events import (
    Activated,
    AnswerGiven,
    ArmReady,
    DeclareDone,
    Effect,
    GoalAccepted,
    OpenIntervention,
    PublishDecision,
    RemovalCode,
    RemovalFinished,
    Reply,
    SendGoal,
    WorkpieceChanged,
)
from sticker_uq.gate.operator.answers import Answer, OperatorAnswer, SceneAnswer
from sticker_uq.scene import ObjectClass, ObjectVerdict, Outcome, SceneAssessment, SceneDecision

_MS = 1_000_000
_START, _PERIOD, _AGE = 10_000 * _MS, 100 * _MS, 20 * _MS
_MOST_SCENES = 80
_SETTINGS = GateSettings(consecutive_scenes=1, frozen_images=0)
"""Every scene of a laptop is the same assessment, so that more of them in a row would agree anyway."""
_MEANS = {ObjectClass.STICKER: Answer.REMOVE, ObjectClass.LOGO: Answer.KEEP}


@dataclass(frozen=True)
class Question:
    """A question that was answered: what the policy alone had decided about the scene, and the answer."""

    decision: SceneDecision
    answer: AnswerGiven


@dataclass(frozen=True)
class Played:
    """What became of one laptop.

    ``decision``: the policy's own about the first scene; ``wrongful``: something but a sticker was removed that no person had
    approved; ``would_be_wrongful``: the first scene releases such a thing, whether or not a spot check stopped it; ``removed``:
    stickers removed without a person; ``questions``: all that were asked; ``risks``: the course is the same at every limit of the
    risk from the first of these values to below the second.
    """

    decision: SceneDecision
    wrongful: bool
    would_be_wrongful: bool
    removed: int
    questions: tuple[Question, ...]
    risks: tuple[float, float]


def play(record: Record, policy: Policy, spot_check: bool) -> Played:
    """What the gate does with the laptop of ``record`` under ``policy``; ``spot_check``: the laptop is drawn for one.

    A removed object is taken out of the assessment, and nothing else of it changes.
    """
    watch = AssumptionSettings(watch_assumption=spot_check, spot_check_rate=float(spot_check))
    # one laptop is no evidence of drift; the streams have a monitor of their own
    gate = GateController(policy.model_copy(update={"reference": None}), _SETTINGS, watch)
    return LaptopInCell(record, gate).play()


class LaptopInCell:
    """The laptop of ``record`` in the cell of ``gate``, which may have seen others before.

    ``now_ns``: when it comes; ``digest``: image digest of its first scene, by default one of the time.
    """

    def __init__(self, record: Record, gate: GateController, now_ns: int = _START, digest: str = "") -> None:
        self._record, self._gate = record, gate
        self._now, self._digest = now_ns, digest
        self._name = f"laptop {now_ns}"
        self._gone: set[int] = set()
        self._stickers_gone: set[int] = set()
        self._wrongful, self._removed, self._done = False, 0, False
        self._questions: list[Question] = []
        self._low, self._high = 0.0, math.inf

    @property
    def now_ns(self) -> int:
        """The time of its last scene."""
        return self._now

    def play(self) -> Played:
        """What becomes of it until it is done, or the gate is closed because an assumption does not hold."""
        for event in (Activated(), ArmReady(True), WorkpieceChanged(self._name, self._now)):
            self._gate.handle(event, self._now)
        first = self._own(self._record.assessment)
        for _ in range(_MOST_SCENES):
            if self._done or self._gate.state.assumption:
                break
            self._see()
        else:
            raise RuntimeError(f"laptop {self._record.name}: not done after {_MOST_SCENES} scenes")
        released = first.removable() if first.outcome is Outcome.WORK else ()
        return Played(
            first,
            self._wrongful,
            any(matching(v.object, self._record) < 0 for v in released),
            self._removed,
            tuple(self._questions),
            (self._low, self._high),
        )

    def _scene(self) -> SceneAssessment:
        seen = self._record.assessment
        digest, self._digest = self._digest or f"{self._now:032x}", ""
        return replace(
            seen,
            stamp_ns=self._now - _AGE,
            image_digest=digest,
            frame_id="camera",
            objects=tuple(o for o in seen.objects if o.id not in self._gone),
            unstable=tuple(o for o in seen.unstable if o.id not in self._gone),
        )

    def _own(self, scene: SceneAssessment) -> SceneDecision:
        """What the policy alone decides about ``scene``."""
        return judge(scene, self._gate.policy, self._gate.state.memory, self._name)

    def _see(self) -> None:
        self._now += _PERIOD
        scene = self._scene()
        effects = self._gate.on_scene(scene, self._now)
        if self._gate.state.assumption:
            return
        for effect in effects:
            if isinstance(effect, PublishDecision):
                self._compare_risks(effect.decision)
            elif isinstance(effect, SendGoal):
                self._remove(effect)
            elif isinstance(effect, OpenIntervention):
                self._answer(effect, self._own(scene))
            elif isinstance(effect, DeclareDone):
                self._done = True
        if self._gate.state.problems:  # too dark or too bright to see anything: a person takes the laptop
            skipped = AnswerGiven("", "person", SceneAnswer.SKIP_LAPTOP)
            self._questions.append(Question(self._own(scene), skipped))
            self._done = True

    def _compare_risks(self, decision: SceneDecision) -> None:
        """Narrow the limits at which the course is this one: an object whose risk is compared must end on the same side."""
        for reason in (reason for verdict in decision.verdicts for reason in verdict.reasons):
            if reason.subject == "risk" and reason.code == "within_limit":
                self._low = max(self._low, reason.value)
            elif reason.subject == "risk" and reason.code == "above_limit":
                self._high = min(self._high, reason.value)

    def _remove(self, goal: SendGoal) -> None:
        verdict = goal.target.verdict
        sticker = matching(verdict.object, self._record)
        if not verdict.by_operator:
            self._wrongful |= sticker < 0
            self._removed += sticker >= 0
        if sticker >= 0:
            self._stickers_gone.add(sticker)
        self._gone.add(verdict.object.id)
        self._gate.handle(GoalAccepted(goal.goal_id), self._now)
        self._gate.handle(RemovalFinished(goal.goal_id, RemovalCode.NONE), self._now)

    def _answer(self, question: OpenIntervention, own: SceneDecision) -> None:
        answers = [*map(self._about, question.objects), *self._missed(own, question.objects)]
        # where nothing needs an answer the person says that nothing is left
        said = SceneAnswer.NONE if answers else SceneAnswer.CLEAN
        event = AnswerGiven(question.request_id, "person", said, tuple(answers))
        effects = self._gate.handle(event, self._now)
        if not _accepted(
            effects
        ):  # two boxes at one place that mean different things: a person takes the laptop
            event = AnswerGiven(question.request_id, "person", SceneAnswer.SKIP_LAPTOP)
            effects = self._gate.handle(event, self._now)
        self._done |= any(isinstance(effect, DeclareDone) for effect in effects)
        self._questions.append(Question(own, event))

    def _about(self, verdict: ObjectVerdict) -> OperatorAnswer:
        place, _ = met(verdict.object, self._record, MATCH_IOU)
        label = ObjectClass(int(self._record.labels[place])) if place >= 0 else ObjectClass.BACKGROUND
        return OperatorAnswer(_MEANS.get(label, Answer.NOT_THERE), as_box(verdict.object.box))

    def _missed(self, own: SceneDecision, asked: Iterable[ObjectVerdict]) -> list[OperatorAnswer]:
        """The stickers that lie there and that nothing asked about or released shows."""
        shown = {matching(v.object, self._record) for v in (*asked, *own.removable())}
        left = set(range(len(self._record.stickers))) - shown - self._stickers_gone
        return [OperatorAnswer(Answer.MISSED, as_box(self._record.stickers[n])) for n in sorted(left)]


def _accepted(effects: Iterable[Effect]) -> bool:
    return any(isinstance(effect, Reply) and effect.accepted for effect in effects)

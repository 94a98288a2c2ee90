# SPDX-License-Identifier: Apache-2.0
"""Monitors, while the cell works, the assumptions that the policy's guarantee rests on.

Two things, each on one scene per workpiece, because the frames of one laptop repeat each other: that the first scene of each
workpiece looks like those the policy was made from (see ``drift``), and, on workpieces drawn at random for a spot check,
that what people answer agrees with the risks the policy promises. Answers to the policy's own questions
are no test of it: it asks about the doubtful ones only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import Field

from sticker_uq.gate.answers import OperatorAnswers, SceneAnswer
from sticker_uq.gate.assumptions.drift import DriftTest, uniform
from sticker_uq.gate.assumptions.martingale import RiskTest
from sticker_uq.gate.box_overlap import as_box, same_place
from sticker_uq.gate.events import AnswerGiven
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.reference import Reference
from sticker_uq.io.setting_fields import Finite, Share
from sticker_uq.scene import Outcome, Reason, SceneAssessment, SceneDecision

WRONG_REMOVAL = "wrong_removal"
MISSED_STICKER = "missed_sticker"


class AssumptionSettings(Finite):
    """Settings of :class:`AssumptionMonitor`."""

    watch_assumption: bool = True
    """Whether the scenes are compared with the policy's reference; nothing happens without one"""
    false_alarm: float = Field(0.01, ge=1e-6, le=0.5)
    """Highest probability that the watch ever raises an alarm while nothing has changed"""
    spot_check_rate: Share = 0.0
    """Share of the workpieces, drawn at random, that a person checks before the first removal and before CLEAN"""
    spot_check_factor: float = Field(3.0, ge=1.0, le=1000.0)
    """So many times more are checked after a start and while signals have drifted half the way to an alarm"""
    spot_check_start: int = Field(50, ge=0, le=1_000_000)
    """Workpieces after a start, as with another bundle, of which more are checked"""


@dataclass(frozen=True)
class Alarm:
    """The policy's assumption does not hold, and why; ``value`` is the strongest evidence against it, 1 or more."""

    reason: Reason
    value: float


class AssumptionMonitor:
    """Tests of one policy's assumptions, and how far the present workpiece has come."""

    def __init__(
        self,
        reference: Reference | None,
        risks: Mapping[str, float],
        settings: AssumptionSettings,
        bare: bool = False,
    ) -> None:
        """``risks``: the promised highest risk by WRONG_REMOVAL and MISSED_STICKER; those left out are not watched.

        ``bare``: laptops that never had a sticker count for MISSED_STICKER too, as in a promise about first sight.
        """
        self.settings, self._bare = settings, bare
        self._reference = reference if settings.watch_assumption else None
        self._limits = dict(risks) if settings.watch_assumption and settings.spot_check_rate > 0 else {}
        self._seen = 0
        self.spot_checks = 0
        """Answers to spot checks of the policy's assumption."""
        self.restart()

    def restart(self) -> None:
        self._drift = DriftTest(self._reference) if self._reference is not None else None
        self._risks = {name: RiskTest(limit) for name, limit in self._limits.items()}
        tests = (len(self._drift) if self._drift is not None else 0) + len(self._risks)
        self._alarm_at = math.log(max(tests, 1) / self.settings.false_alarm)
        self.next_workpiece()

    def next_workpiece(self) -> None:
        self._unseen = True
        self._to_check: frozenset[str] = frozenset()
        self._own: SceneDecision | None = None
        self._asked: SceneDecision | None = None
        self._had_sticker = False

    @property
    def active(self) -> bool:
        return self._drift is not None or bool(self._risks)

    @property
    def workpieces(self) -> int:
        """Workpieces whose first scene was compared with the reference."""
        return self._drift.observed if self._drift is not None else 0

    @property
    def spot_check_rate(self) -> float:
        """The share of workpieces that is checked at present. It must not follow from answers, which calibration counts on."""
        log = self._drift.strongest[1] if self._drift is not None else 0.0
        raised = 0 < self.settings.spot_check_start >= self._seen or log >= self._alarm_at / 2
        return min(self.settings.spot_check_rate * (self.settings.spot_check_factor if raised else 1.0), 1.0)

    @property
    def evidence(self) -> float:
        """The strongest evidence against the assumption, logarithmic: 0 none, 1 raises the alarm; NaN: not watched."""
        logs = [test.log_evidence for test in self._risks.values()]
        if self._drift is not None:
            logs.append(self._drift.strongest[1])
        return max(0.0, max(logs)) / self._alarm_at if logs else math.nan

    def see(self, scene: SceneAssessment, decision: SceneDecision) -> Alarm | None:
        """Test a scene of the present workpiece, of which the first usable one counts; the alarm it raises, if any."""
        if decision.outcome is Outcome.BLOCKED:
            return None
        self._own = decision
        if not self._unseen:
            return None
        self._unseen = False
        self._seen += 1
        # without a promise too: the answers are the labels that prove one
        if uniform(scene.image_digest, "spot check") < self.spot_check_rate:
            self._to_check = frozenset((WRONG_REMOVAL, MISSED_STICKER))
        if self._drift is None:
            return None
        self._drift.observe(scene)
        name, log = self._drift.strongest
        reason = Reason.of("drift", name, count=self.workpieces, rate=self.settings.false_alarm)
        return self._alarm(reason, log)

    def spot_checked(self, decision: SceneDecision, memory: OperatorAnswers) -> SceneDecision:
        """``decision``, turned into a question where the workpiece was drawn for a spot check and would go by unasked.

        It is checked before the first removal and again before it is called clean.
        """
        risk = {Outcome.WORK: WRONG_REMOVAL, Outcome.CLEAN: MISSED_STICKER}.get(decision.outcome)
        if risk not in self._to_check or memory.scene_clean:
            self._had_sticker |= decision.outcome is Outcome.WORK
            return decision
        reason = Reason("spot_check")
        return replace(decision, outcome=Outcome.ASK, reasons=(*decision.reasons, reason))

    def observe_question(self) -> None:
        self._asked = self._own

    def observe_answer(self, event: AnswerGiven) -> Alarm | None:
        """Test an accepted answer, if it is one to a spot check; the alarm it raises, if any."""
        own = self._asked
        if own is None or event.scene_answer not in (SceneAnswer.NONE, SceneAnswer.CLEAN):
            return None  # nothing was said about the stickers
        checked = self._to_check & {WRONG_REMOVAL}
        losses = {WRONG_REMOVAL: _wrong_removal(own, event)}
        self._had_sticker |= any(answer.removes for answer in event.answers)
        if own.outcome is Outcome.CLEAN:
            checked = self._to_check
            if self._had_sticker or self._bare:
                losses[MISSED_STICKER] = any(answer.removes for answer in event.answers)
        self._to_check -= checked
        self.spot_checks += bool(checked)
        tested = sorted(checked & losses.keys())
        return next(filter(None, [self._learn(risk, losses[risk]) for risk in tested]), None)

    def _learn(self, risk: str, loss: bool) -> Alarm | None:
        test = self._risks.get(risk)
        if test is None:
            return None
        test.observe(float(loss))
        reason = Reason.of(risk, count=test.total, checks=test.observed, rate=self.settings.false_alarm)
        reason = replace(reason, value=test.total / test.observed, limit=test.limit)
        return self._alarm(reason, test.log_evidence)

    def _alarm(self, reason: Reason, log: float) -> Alarm | None:
        return Alarm(reason, log / self._alarm_at) if log >= self._alarm_at else None


def _wrong_removal(own: SceneDecision, event: AnswerGiven) -> bool:
    """Whether the policy alone would have removed what a person leaves. A scene that it asks about goes to a person."""
    if own.outcome is not Outcome.WORK:
        return False
    left = [a.box for a in event.answers if not a.removes]
    removed = [as_box(v.object.box) for v in own.removable() if not v.by_operator]
    if event.scene_answer is SceneAnswer.CLEAN:
        return bool(removed)
    return any(same_place(box, other) for box in removed for other in left)


def assumption_monitor_of(policy: Policy, settings: AssumptionSettings) -> AssumptionMonitor:
    given = policy.guarantee
    proofs = (given.wrongful_removal, given.sticker_left or given.missed_sticker) if given else (None, None)
    promised = zip((WRONG_REMOVAL, MISSED_STICKER), proofs, strict=True)
    levels = {risk: proof.level for risk, proof in promised if proof is not None}
    first_sight = given is not None and given.sticker_left is None
    return AssumptionMonitor(policy.reference, levels, settings, bare=first_sight)

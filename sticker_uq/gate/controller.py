# SPDX-License-Identifier: Apache-2.0
"""The gate controller, the supervisor without ROS: assessments in, effects out. The node and the offline replay share it."""

import math
from dataclasses import replace

from sticker_uq.gate import events as ev
from sticker_uq.gate.assumptions.assumption_monitor import Alarm, AssumptionSettings, assumption_monitor_of
from sticker_uq.gate.judge import judge
from sticker_uq.gate.plausibility import range_problem
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.rules import is_sound
from sticker_uq.gate.settings import GateSettings, nanoseconds
from sticker_uq.gate.state import NO_STREAK, NOT_CALIBRATED, GateState, SceneFacts
from sticker_uq.gate.state_machine import jump_since_tick, step
from sticker_uq.geometry import CellGeometry, locate_all
from sticker_uq.scene import METRICS, InvalidInput, Reason, SceneAssessment, SceneDecision, Status


class GateController:
    """Judges every assessment under ``policy`` and drives the gate with it; holds the state, reads no clock.

    It also monitors what the policy rests on, and closes the gate when that does not hold any more.
    """

    def __init__(
        self, policy: Policy, settings: GateSettings | None = None, watch: AssumptionSettings | None = None
    ) -> None:
        self.policy = policy
        self.settings = settings or GateSettings()
        self.state = GateState()
        self.watch = assumption_monitor_of(policy, watch or AssumptionSettings())

    def configure(
        self, policy: Policy, settings: GateSettings, watch: AssumptionSettings | None = None
    ) -> None:
        """Replace policy and settings; scenes are counted anew. Without ``watch`` its settings stay.

        Another policy ends an alarm about what the one before rested on; evidence is kept while both stay the same.

        Raises :class:`InvalidInput` while a permit stands or the arm has not reported its end, and changes nothing then.
        """
        if self.state.permit is not None:
            raise InvalidInput(
                f"policy and settings cannot change while permit {self.state.permit.goal_id} is out; hold the gate first"
            )
        watch = watch or self.watch.settings
        if (policy, watch) != (self.policy, self.watch.settings):
            self.watch = assumption_monitor_of(policy, watch)
        if policy != self.policy:
            self.state = replace(self.state, assumption=None, assumption_request="")
        self.policy, self.settings = policy, settings
        self.state = replace(self.state, streak=NO_STREAK, undecided_ns=0)

    def on_scene(
        self, assessment: SceneAssessment, now_ns: int, geometry: CellGeometry | Reason = NOT_CALIBRATED
    ) -> ev.Effects:
        """Judge one assessment and step the gate; the decision is the first effect.

        Numbers that nothing can be computed of make the scene unreadable; any other error while judging latches a fault.

        ``geometry``: the calibration of the cell at the time of the image, or the reason why there is none.
        """
        try:
            decision, alarm = self._judge(assessment)
            poses = locate_all(decision, assessment.image_size, geometry)
            facts = facts_of(assessment, decision, poses.fingerprint, self.policy)
            event = ev.SceneReceived(decision, facts, poses)
        except Exception as error:  # noqa: BLE001 - whatever it is, the gate must close
            reason = Reason.of("scene_not_judged", detail=f"{type(error).__name__}: {error}")
            odd = isinstance(error, ArithmeticError | ValueError)
            return self.handle(ev.SceneUnreadable(reason) if odd else ev.Fault((reason,)), now_ns)
        alarmed = self._raise_alarm(alarm, now_ns)
        effects = self.handle(event, now_ns)
        return (ev.PublishDecision(decision, poses), *alarmed, *effects)

    def clock_has_jumped(self, now_ns: int, steady_ns: int) -> bool:
        """Whether the clock has jumped since the last tick, so that another must come before anything else."""
        most_ns = nanoseconds(self.settings.max_clock_jump_s)
        return abs(jump_since_tick(self.state, now_ns, steady_ns)) >= most_ns

    def handle(self, event: ev.Event, now_ns: int) -> ev.Effects:
        """Step the gate by any event but a scene; the effects are to be carried out in their order."""
        before = self.state
        self.state, effects = step(before, event, now_ns, self.settings)
        alarm = self._let_watch_know(event, before, effects)
        return (*effects, *self._raise_alarm(alarm, now_ns))

    def _judge(self, assessment: SceneAssessment) -> tuple[SceneDecision, Alarm | None]:
        state = self.state
        # an image from before the change shows another workpiece, of unknown name
        present = assessment.stamp_ns > state.workpiece_ns
        workpiece = state.workpiece_id if present else ""
        decision = judge(assessment, self.policy, state.memory, workpiece)
        if not present or assessment.stamp_ns <= state.counts_after_ns or state.done:
            return decision, None
        alarm = self.watch.see(assessment, decision)
        return self.watch.spot_checked(decision, state.memory), alarm

    def _let_watch_know(self, event: ev.Event, before: GateState, effects: ev.Effects) -> Alarm | None:
        after = self.state
        if before.assumption and not after.assumption:
            self.watch.restart()
        if before.workpieces != after.workpieces:
            self.watch.next_workpiece()
        if before.request is None and after.request is not None:
            self.watch.observe_question()
        accepted = any(isinstance(effect, ev.Reply) and effect.accepted for effect in effects)
        return self.watch.observe_answer(event) if isinstance(event, ev.AnswerGiven) and accepted else None

    def _raise_alarm(self, alarm: Alarm | None, now_ns: int) -> ev.Effects:
        return self.handle(ev.AssumptionBroken(alarm.reason), now_ns) if alarm is not None else ()


def facts_of(
    assessment: SceneAssessment, decision: SceneDecision, calibration: str = "", policy: Policy | None = None
) -> SceneFacts:
    """What the plausibility checks need of ``assessment``; ``calibration`` tells one camera calibration from another.

    Signals of the scene that ``policy`` limits must have been measured.
    """
    measured = [
        getattr(o, n) for o in assessment.objects if not o.unstable for n in ("detection_rate", *METRICS)
    ]
    sound = all(map(is_sound, (*assessment.objects, *assessment.unstable)))
    return SceneFacts(
        stamp_ns=assessment.stamp_ns,
        frame_id=assessment.frame_id,
        image_size=assessment.image_size,
        model_hash=assessment.model_hash,
        settings_hash=assessment.settings_hash,
        policy_hash=decision.policy_hash,
        usable=assessment.status in (Status.OK, Status.DEGRADED),
        finite=sound and all(map(math.isfinite, measured)),
        image_digest=assessment.image_digest,
        exposure=assessment.exposure,
        calibration=calibration,
        panel_hash=assessment.panel_hash,
        invalid=range_problem(assessment, policy),
        image_publishers=assessment.image_publishers,
    )

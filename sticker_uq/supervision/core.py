"""The supervisor without ROS: assessments in, effects out. The node and the offline replay share it."""

from __future__ import annotations

import math
from dataclasses import replace

from sticker_uq.scene import METRICS, InvalidInput, ObservedObject, SceneAssessment, SceneDecision, Status
from sticker_uq.supervision.events import Effect, Event, Fault, PublishDecision, SceneReceived, Tick
from sticker_uq.supervision.gate import step
from sticker_uq.supervision.judge import judge
from sticker_uq.supervision.policy import Policy
from sticker_uq.supervision.rules import is_sound
from sticker_uq.supervision.settings import GateSettings
from sticker_uq.supervision.state import NO_STREAK, GateState, SceneFacts


class Supervisor:
    """Judges every assessment under ``policy`` and drives the gate with it; holds the state, reads no clock."""

    def __init__(self, policy: Policy, settings: GateSettings | None = None) -> None:
        self._policy = policy
        self._settings = settings or GateSettings()
        self._state = GateState()

    @property
    def state(self) -> GateState:
        """The state of the gate."""
        return self._state

    @property
    def policy(self) -> Policy:
        """The limits in force."""
        return self._policy

    @property
    def settings(self) -> GateSettings:
        """The settings of the gate in force."""
        return self._settings

    def configure(self, policy: Policy, settings: GateSettings) -> None:
        """Replace policy and settings; all counting begins anew.

        Raises :class:`InvalidInput` while a permit stands or the arm has not reported its end, and changes nothing then.
        """
        if self._state.permit is not None:
            raise InvalidInput(
                f"policy and settings cannot change while permit {self._state.permit.goal_id} is out; hold the gate first"
            )
        self._policy, self._settings = policy, settings
        self._state = replace(self._state, streak=NO_STREAK, undecided_ns=0)

    def on_scene(self, assessment: SceneAssessment, now_ns: int) -> tuple[Effect, ...]:
        """Judge one assessment; the decision is the first effect. An error while judging latches a fault."""
        try:
            decision = self._judge(assessment)
            event = SceneReceived(decision, facts_of(assessment, decision))
        except Exception as error:  # noqa: BLE001 - whatever it is, the gate must close
            return self.handle(Fault(f"a scene could not be judged: {type(error).__name__}: {error}"), now_ns)
        return (PublishDecision(decision), *self.handle(event, now_ns))

    def on_tick(self, now_ns: int) -> tuple[Effect, ...]:
        """Time has passed; the gate is published."""
        return self.handle(Tick(), now_ns)

    def handle(self, event: Event, now_ns: int) -> tuple[Effect, ...]:
        """Let anything else happen to the gate."""
        self._state, effects = step(self._state, event, now_ns, self._settings)
        return effects

    def _judge(self, assessment: SceneAssessment) -> SceneDecision:
        state = self._state
        # an image from before the change shows another workpiece, of which nobody said which one it is
        workpiece_id = state.workpiece_id if assessment.stamp_ns > state.workpiece_ns else ""
        return judge(assessment, self._policy, state.memory, workpiece_id)


def facts_of(assessment: SceneAssessment, decision: SceneDecision) -> SceneFacts:
    """What the gate checks of ``assessment`` itself."""
    clustered = [o for o in assessment.objects if not o.unstable]
    sound = all(map(is_sound, (*assessment.objects, *assessment.unstable)))
    return SceneFacts(
        stamp_ns=assessment.stamp_ns,
        frame_id=assessment.frame_id,
        image_size=assessment.image_size,
        model_hash=assessment.model_hash,
        settings_hash=assessment.settings_hash,
        policy_hash=decision.policy_hash,
        usable=assessment.status in (Status.OK, Status.DEGRADED),
        finite=sound and all(map(_is_measured, clustered)),
        text=assessment.status_text,
    )


def _is_measured(observed: ObservedObject) -> bool:
    return all(math.isfinite(getattr(observed, name)) for name in ("detection_rate", *METRICS))

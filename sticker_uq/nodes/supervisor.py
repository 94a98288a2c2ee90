"""Node ``supervisor``: scenes in, a permit that expires out; people are asked where the policy is not sure.

It turns messages into events of :class:`sticker_uq.supervision.Supervisor` and effects into messages, on one thread that never
waits. It never loads torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from rclpy.clock import Clock, ClockType
from std_srvs.srv import SetBool, Trigger

from sticker_uq.nodes.conversions import box_from_msg, scene_from_msg, stamp_to_ns
from sticker_uq.nodes.diagnostics import Level, Report
from sticker_uq.nodes.lifecycle import ManagedNode, exit_process, run_node
from sticker_uq.nodes.processes import share_folder
from sticker_uq.nodes.qos import LATCHED, NEWEST_SCENE
from sticker_uq.nodes.removal_client import RemovalClient
from sticker_uq.nodes.supervisor_outputs import SupervisorOutputs
from sticker_uq.scene import InvalidInput
from sticker_uq.supervision import Answer, GateSettings, PersonAnswer, Phase, Policy, SceneAnswer, Supervisor
from sticker_uq.supervision import events as ev
from sticker_uq.supervision.boxes import as_box
from sticker_uq_msgs.msg import SceneAssessment, Workpiece
from sticker_uq_msgs.srv import ResolveIntervention

_COUNTS = ("scenes", "unreadable_scenes", "permits", "removals", "requests")
_KEYS = ("phase", "reasons", "image_age_ms", "workpiece", "arm_ready", "policy_hash", *_COUNTS)
_LEVELS = {Phase.FAULT: Level.ERROR, Phase.BLOCKED: Level.WARN, Phase.INTERVENTION: Level.WARN}


class SupervisorNodeSettings(GateSettings):
    """Parameters of ``supervisor``: those of the gate, and where the policy is."""

    policy: str = Field("", description="Policy file (YAML); empty: config/policy.yaml of this package")

    def gate(self) -> GateSettings:
        """The part that is the gate's."""
        return GateSettings(**{name: getattr(self, name) for name in GateSettings.model_fields})

    def load_policy(self) -> Policy:
        """The policy in the file; raises :class:`InvalidInput` when it cannot be used."""
        return Policy.load(Path(self.policy) if self.policy else share_folder() / "config" / "policy.yaml")


class SupervisorNode(ManagedNode[SupervisorNodeSettings]):
    """The node; see the module's docstring."""

    def __init__(self, **arguments: Any) -> None:
        locked = frozenset({"policy", "tick_period"})
        super().__init__("supervisor", SupervisorNodeSettings, locked_while_active=locked, **arguments)
        self._core: Supervisor | None = None
        self.diagnostics.add("gate", self._report)

    def configure(self) -> None:
        """Read the policy; open what is heard and said in every state."""
        settings = self.settings
        self._core = core = Supervisor(settings.load_policy(), settings.gate())
        self.while_configured.callback(setattr, self, "_core", None)
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._out = SupervisorOutputs(self)
        self.while_configured.callback(self._out.destroy)
        self._arm = RemovalClient(self, self._happen)
        self.while_configured.callback(self._arm.destroy)
        self._listen()
        self._out.no_request(self._now())
        self._happen(ev.Tick())
        self.get_logger().info(f"policy {core.policy.hash[:12]}, K={settings.consecutive_scenes}")

    def _listen(self) -> None:
        services = (
            self.create_service(ResolveIntervention, "intervention/resolve", self._on_answer),
            self.create_service(SetBool, "hold", self._on_hold),
            self.create_service(Trigger, "reset", self._on_reset),
        )
        for service in services:
            self.while_configured.callback(self.destroy_service, service)
        workpiece = self.create_subscription(Workpiece, "workpiece", self._on_workpiece, LATCHED)
        self.while_configured.callback(self.destroy_subscription, workpiece)

    def activate(self) -> None:
        """Let scenes in and the gate live."""
        assert self._core is not None
        self._apply(self.settings)
        self._out.restart_sequence()
        self._happen(ev.Activated())
        self.while_active.callback(self._happen, ev.Deactivated())
        # wall time: a simulated clock that stands still must not keep a permit alive
        timer = self.create_timer(
            self.settings.tick_period, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self.while_active.callback(self.destroy_timer, timer)
        scenes = self.create_subscription(SceneAssessment, "scene", self._on_scene, NEWEST_SCENE)
        self.while_active.callback(self.destroy_subscription, scenes)

    def reason_for_lock(self, name: str) -> str | None:
        """No threshold changes while the arm has a permit or owes the end of its goal."""
        if self._core is not None and self._core.state.permit is not None:
            return f"{name} cannot be changed while a permit is out: hold the gate first"
        return super().reason_for_lock(name)

    def settings_changed(self, old: SupervisorNodeSettings, new: SupervisorNodeSettings) -> None:
        """The gate goes on under the new settings and counts anew; another policy is read on the next activation."""
        if self._core is not None:
            self._core.configure(self._core.policy, new.gate())

    def _apply(self, settings: SupervisorNodeSettings) -> None:
        assert self._core is not None
        policy = settings.load_policy()
        if (policy, settings.gate()) != (self._core.policy, self._core.settings):
            self._core.configure(policy, settings.gate())

    # what is heard

    def _tick(self) -> None:
        assert self._core is not None
        ready = self._arm.ready
        if ready != self._core.state.arm_ready:
            self._happen(ev.ArmReady(ready))
        self._happen(ev.Tick())

    def _on_scene(self, message: SceneAssessment) -> None:
        assert self._core is not None
        self._counts["scenes"] += 1
        try:
            scene = scene_from_msg(message)
        except InvalidInput as error:
            self._counts["unreadable_scenes"] += 1
            self._happen(ev.SceneUnreadable(str(error)))
            return
        self._out.numbers(scene)
        self._perform(self._core.on_scene(scene, self._now()))

    def _on_workpiece(self, message: Workpiece) -> None:
        if not message.id:
            self.get_logger().warning("a workpiece without an id was announced; it is ignored")
            return
        self._happen(ev.WorkpieceChanged(message.id, stamp_to_ns(message.header.stamp)))

    def _on_answer(
        self, request: ResolveIntervention.Request, response: ResolveIntervention.Response
    ) -> ResolveIntervention.Response:
        assert self._core is not None
        if request.scene_answer not in set(SceneAnswer):
            response.message = f"scene_answer {request.scene_answer} is unknown"
            return response
        answers = tuple(
            PersonAnswer(
                Answer(a.answer) if a.answer in set(Answer) else Answer.UNKNOWN, as_box(box_from_msg(a.box))
            )
            for a in request.answers
        )
        workpiece_id = self._core.state.workpiece_id
        event = ev.AnswerGiven(request.request_id, request.person, SceneAnswer(request.scene_answer), answers)
        reply = self._happen(event)
        response.accepted, response.message = reply.accepted, reply.message
        if reply.accepted:
            reference = self._core.state.reference
            self._out.answer(request, workpiece_id, reference.frame_id if reference else "", self._now())
        return response

    def _on_hold(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        assert self._core is not None
        self._happen(ev.Hold() if request.data else ev.Release())
        response.success = self._core.state.held == request.data
        response.message = f"{self._core.state.phase.name}: {self._core.state.text or 'open'}"
        return response

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        reply = self._happen(ev.Reset())
        response.success, response.message = reply.accepted, reply.message
        return response

    # what follows from it

    def _happen(self, event: ev.Event) -> ev.Reply:
        """Let ``event`` happen now; the reply to a person's call, a refusal when there is none."""
        if self._core is None:
            return ev.Reply(False, f"{self.get_name()} is not configured")
        return self._perform(self._core.handle(event, self._now()))

    def _perform(self, effects: Sequence[ev.Effect]) -> ev.Reply:
        try:
            return self._do(effects)
        except Exception as error:  # noqa: BLE001 - whatever cannot be said or done, the gate must close
            assert self._core is not None
            self.get_logger().error(f"an effect failed: {type(error).__name__}: {error}")
            fault = ev.Fault(f"an effect failed: {type(error).__name__}: {error}")
            return self._do(self._core.handle(fault, self._now()))

    def _do(self, effects: Sequence[ev.Effect]) -> ev.Reply:
        reply = ev.Reply(False, "")
        for effect in effects:
            match effect:
                case ev.PublishGate():
                    self._out.gate(effect, self._now())
                case ev.PublishDecision():
                    self._out.decision(effect.decision)
                case ev.SendGoal():
                    self._counts["permits"] += 1
                    self._arm.send(effect.goal_id, effect.target)
                case ev.CancelGoal():
                    self._arm.cancel(effect.goal_id)
                case ev.OpenIntervention():
                    self._counts["requests"] += 1
                    self._out.request(effect)
                case ev.CloseIntervention():
                    self._out.no_request(self._now())
                case ev.DeclareDone():
                    self._out.done(effect)
                case ev.RemovalVerified():
                    self._counts["removals"] += 1
                case ev.Escalate():
                    self.get_logger().fatal(f"STOP THE ARM: {effect.text}")
                case ev.Reply():
                    reply = effect
                case ev.Log():
                    self._log(effect)
        return reply

    def _log(self, line: ev.Log) -> None:
        # rclpy ties a place in the source to one severity
        if line.severity is ev.Severity.ERROR:
            self.get_logger().error(line.text)
        elif line.severity is ev.Severity.WARNING:
            self.get_logger().warning(line.text)
        else:
            self.get_logger().info(line.text)

    def _now(self) -> int:
        return int(self.get_clock().now().nanoseconds)

    def _report(self) -> Report:
        if self._core is None:
            return Report(Level.WARN, "not configured", dict.fromkeys(_KEYS))
        state, policy = self._core.state, self._core.policy
        age_ms = (state.now_ns - state.scene.stamp_ns) / 1e6 if state.scene is not None else None
        values = {
            "phase": state.phase.name,
            "reasons": int(state.reasons),
            "image_age_ms": age_ms,
            "workpiece": state.workpiece_id or None,
            "arm_ready": state.arm_ready,
            "policy_hash": policy.hash[:12],
            **self._counts,
        }
        return Report(_LEVELS.get(state.phase, Level.OK), state.text or state.phase.name, values)


def main() -> None:
    """Entry point of the executable ``supervisor``."""
    exit_process(run_node(SupervisorNode))


if __name__ == "__main__":
    main()

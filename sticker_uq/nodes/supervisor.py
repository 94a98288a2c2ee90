"""Node ``supervisor``: scenes in, a permit that expires out; people are asked where the policy is not sure.

It turns messages into events of :class:`sticker_uq.supervision.Supervisor` and effects into messages, on one thread that never
waits. It never loads torch.
"""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from rclpy.clock import Clock, ClockType
from std_srvs.srv import SetBool, Trigger

from sticker_uq.nodes.audit_trail import AuditTrail, whereabouts
from sticker_uq.nodes.cell_stop import CellStop, StopSettings
from sticker_uq.nodes.conversions import box_from_msg, scene_from_msg, stamp_to_ns
from sticker_uq.nodes.diagnostics import Level, Report
from sticker_uq.nodes.lifecycle import ManagedNode, exit_process, run_node
from sticker_uq.nodes.poses import PoseSettings, PoseSource
from sticker_uq.nodes.processes import share_folder
from sticker_uq.nodes.qos import GATE_WATCH, LATCHED, NEWEST_SCENE
from sticker_uq.nodes.removal_client import RemovalClient
from sticker_uq.nodes.rivals import Speakers
from sticker_uq.nodes.supervisor_outputs import SupervisorOutputs
from sticker_uq.scene import InvalidInput
from sticker_uq.supervision import (
    Answer,
    GateSettings,
    PersonAnswer,
    Phase,
    Policy,
    SceneAnswer,
    Supervisor,
    WatchSettings,
)
from sticker_uq.supervision import events as ev
from sticker_uq.supervision.boxes import as_box
from sticker_uq.supervision.settings import nanoseconds
from sticker_uq.supervision.state import Closed
from sticker_uq.supervision.state import GateState as State
from sticker_uq_msgs.msg import GateState, SceneAssessment, Workpiece
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention

_COUNTS = ("scenes", "unreadable_scenes", "permits", "removals", "requests")
_POLICY_KEYS = ("policy_hash", "policy_model_hash", "policy_valid_until", "policy_guarantee")
_WATCH_KEYS = ("assumption", "drift", "watched_workpieces", "spot_checks")
_KEYS = (
    *("phase", "reasons", "image_age_ms", "workpiece", "arm_ready", "stop"),
    *_POLICY_KEYS,
    *_WATCH_KEYS,
    *_COUNTS,
)
_LEVELS = {Phase.FAULT: Level.ERROR, Phase.BLOCKED: Level.WARN, Phase.INTERVENTION: Level.WARN}


class SupervisorNodeSettings(GateSettings, WatchSettings, StopSettings, PoseSettings):
    """Parameters of ``supervisor``: those of the gate and of the watch over the policy, and where the policy is."""

    policy: str = Field("", description="Policy file (YAML); empty: config/policy.yaml of this package")
    audit_folder: str = Field(
        "", description="Folder of the audit log; empty: audit/ in ROS's folder of logs, one per supervisor"
    )
    audit_file_mb: float = Field(
        16.0, ge=0.001, le=1000.0, description="Size from which the audit log begins a new file, MB"
    )
    arm_silence: float = Field(
        0.25,
        ge=0.1,
        le=5.0,
        description="An arm that has not said for this time that it is there (arm/status, 20 Hz) closes the gate, s",
    )
    listen_time: float = Field(
        1.0,
        ge=0.1,
        le=60.0,
        description="Time for which it is listened whether another supervisor speaks before anything is permitted, s",
    )

    def gate(self) -> GateSettings:
        """The part that is the gate's."""
        return GateSettings(**{name: getattr(self, name) for name in GateSettings.model_fields})

    def watch(self) -> WatchSettings:
        """The part that is the watch's over the policy."""
        return WatchSettings(**{name: getattr(self, name) for name in WatchSettings.model_fields})

    def poses(self) -> PoseSettings:
        """The part that turns pixels into metres."""
        return PoseSettings(**{name: getattr(self, name) for name in PoseSettings.model_fields})

    def stop(self) -> StopSettings:
        """The part that stops an arm that does not stop by itself."""
        return StopSettings(**{name: getattr(self, name) for name in StopSettings.model_fields})

    def load_policy(self) -> Policy:
        """The policy in the file; raises :class:`InvalidInput` when it cannot be used or its time is over."""
        path = Path(self.policy) if self.policy else share_folder() / "config" / "policy.yaml"
        policy = Policy.load(path)
        if policy.validity is not None and (expired := policy.validity.expired(time.time_ns())):
            raise InvalidInput(f"policy {path}: {expired}; expected one that is still valid")
        return policy


class SupervisorNode(ManagedNode[SupervisorNodeSettings]):
    """The node; see the module's docstring."""

    def __init__(self, **arguments: Any) -> None:
        locked = frozenset(
            {
                *("policy", "tick_period", "audit_folder", "audit_file_mb", "arm_silence", "listen_time"),
                *StopSettings.model_fields,
                *PoseSettings.model_fields,
            }
        )
        super().__init__("supervisor", SupervisorNodeSettings, locked_while_active=locked, **arguments)
        self._core: Supervisor | None = None
        self._identity = uuid.uuid4().hex
        self.diagnostics.add("gate", self._report)

    def configure(self) -> None:
        """Read the policy; open what is heard and said in every state."""
        settings = self.settings
        self._core = core = Supervisor(settings.load_policy(), settings.gate(), settings.watch())
        self.while_configured.callback(setattr, self, "_core", None)
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._audit = AuditTrail(self, settings.audit_folder, settings.audit_file_mb)
        self.while_configured.callback(self._audit.close)
        self.diagnostics.add("audit", self._audit.report)
        self.while_configured.callback(self.diagnostics.remove, "audit")
        self._speakers = Speakers()
        self._listened_s = time.monotonic() + settings.listen_time
        self._out = SupervisorOutputs(self, self._identity, lambda: self._audit.head)
        self.while_configured.callback(self._out.destroy)
        self._arm = RemovalClient(self, self._happen, settings.arm_silence)
        self.while_configured.callback(self._arm.destroy)
        self._poses = PoseSource(self, settings.poses())
        self.while_configured.callback(self._poses.destroy)
        self._stop = CellStop(self, settings.stop())
        self.while_configured.callback(self._stop.destroy)
        self._listen()
        self._out.no_request(self._now())
        # wall time: a simulated clock that stands still must not keep a permit alive; inactive too, because an arm that does
        # not stop when the node is deactivated must be stopped by other means
        self._timer = self.create_timer(
            settings.tick_period, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )
        self.while_configured.callback(self.destroy_timer, self._timer)
        self._happen(ev.Tick())
        self._stop.tick(demanded=False)
        if self._audit.unfinished:  # a fault or a question outlives the process that had it
            self._happen(ev.Fault(self._audit.unfinished))
        self.get_logger().info(f"policy {_policy_line(core.policy)}, K={settings.consecutive_scenes}")
        self.get_logger().info(f"audit log in {self._audit.folder}")

    def _listen(self) -> None:
        services = (
            self.create_service(ResolveIntervention, "intervention/resolve", self._on_answer),
            self.create_service(SetBool, "hold", self._on_hold),
            self.create_service(Trigger, "reset", self._on_reset),
            self.create_service(OperateGate, "operate", self._on_operate),
        )
        for service in services:
            self.while_configured.callback(self.destroy_service, service)
        workpiece = self.create_subscription(Workpiece, "workpiece", self._on_workpiece, LATCHED)
        self.while_configured.callback(self.destroy_subscription, workpiece)
        gates = self.create_subscription(GateState, "gate", self._on_gate, GATE_WATCH)
        self.while_configured.callback(self.destroy_subscription, gates)
        self._gate_topic = gates.topic_name

    def activate(self) -> None:
        """Let scenes in and the gate live."""
        assert self._core is not None
        self._apply(self.settings)
        self._out.restart_sequence()
        self._audit.note("start", self._about() | {"settings": self.settings.model_dump()})
        self.while_active.callback(lambda: self._audit.note("stop", self._about()))
        self._happen(ev.Activated())
        self.while_active.callback(self._happen, ev.Deactivated())
        self._timer.timer_period_ns = nanoseconds(self.settings.tick_period)
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
            self._core.configure(self._core.policy, new.gate(), new.watch())
            self._audit.note("settings", new.model_dump())

    def _apply(self, settings: SupervisorNodeSettings) -> None:
        assert self._core is not None
        policy = settings.load_policy()
        wanted = policy, settings.gate(), settings.watch()
        if wanted != (self._core.policy, self._core.settings, self._core.watch.settings):
            self._core.configure(*wanted)
            self.get_logger().info(f"policy {_policy_line(policy)}")

    def _about(self) -> dict[str, Any]:
        """Who supervises, with which model and policy; no model before the first scene."""
        assert self._core is not None
        scene = self._core.state.scene
        return {
            "node": self.get_fully_qualified_name(),
            "supervisor": self._identity,
            "policy_hash": self._core.policy.hash,
            "model_hash": scene.model_hash if scene is not None else "",
            **whereabouts(),
        }

    # what is heard

    def _on_gate(self, message: GateState) -> None:
        """What this node says comes back too; anybody else who says something is one too many."""
        self._speakers.heard(message.supervisor, not message.reasons & GateState.REASON_NOT_ACTIVE)
        self._look_for_rivals()

    def _look_for_rivals(self) -> None:
        rivals = self._speakers.besides(self._identity)
        names = ", ".join(name[:8] or "(nameless)" for name in rivals)
        self._impede(Closed.SECOND_SUPERVISOR, f"supervisor {names} speaks here, too" if rivals else "")
        self._impede(Closed.UNHEARD_SUPERVISOR, self._unheard())

    def _unheard(self) -> str:
        """Why it is not certain that nobody else permits anything; empty when it is.

        What others say may not arrive, or not yet: that they are there is known from the discovery of publishers.
        """
        unheard = self._speakers.unheard(self._identity, self.count_publishers(self._gate_topic) - 1)
        if unheard > 0:
            return (
                f"{unheard} publisher{'s' * (unheard > 1)} of {self._gate_topic} besides this one not heard"
            )
        if time.monotonic() < self._listened_s:
            return f"it is listened for {self.settings.listen_time:g} s first"
        return ""

    def _impede(self, reason: Closed, text: str) -> None:
        """Close the gate for ``reason``; an empty text ends that."""
        assert self._core is not None
        if text != dict(self._core.state.impediments).get(reason, ""):
            self._happen(ev.Impediment(reason, text))

    def _tick(self) -> None:
        assert self._core is not None
        if not self.is_active and self._core.state.permit is None:
            return
        self._look_for_rivals()
        self._impede(Closed.AUDIT, self._audit.problem)
        self._arm.discover()
        self._happen(ev.Tick(time.monotonic_ns()))
        self._stop.tick(self._core.state.stop_demanded)

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
        self._notice_a_jump()
        before = self._core.state
        geometry = self._poses.geometry(scene.frame_id, scene.stamp_ns)
        self._perform(None, before, self._core.on_scene(scene, self._now(), geometry))
        self._out.drift(self._core.watch.evidence)

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
        reply = self._hold(request.data, "")
        response.success, response.message = reply.accepted, reply.message
        return response

    def _hold(self, held: bool, person: str) -> ev.Reply:
        assert self._core is not None
        self._happen(ev.Hold(person) if held else ev.Release(person))
        state = self._core.state
        return ev.Reply(state.held == held, f"{state.phase.name}: {state.text or 'open'}")

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        reply = self._happen(ev.Reset())
        response.success, response.message = reply.accepted, reply.message
        return response

    def _on_operate(
        self, request: OperateGate.Request, response: OperateGate.Response
    ) -> OperateGate.Response:
        reply = self._operate(request.command, request.person.strip())
        response.accepted, response.message = reply.accepted, reply.message
        return response

    def _operate(self, command: int, person: str) -> ev.Reply:
        if not person:
            return ev.Reply(False, "person is empty: say who it is")
        match command:
            case OperateGate.Request.COMMAND_HOLD | OperateGate.Request.COMMAND_RELEASE:
                return self._hold(command == OperateGate.Request.COMMAND_HOLD, person)
            case OperateGate.Request.COMMAND_RESET:
                return self._happen(ev.Reset(person))
        return ev.Reply(False, f"command {command} is unknown: expected hold (1), release (2) or reset (3)")

    # what follows from it

    def _happen(self, event: ev.Event) -> ev.Reply:
        """Let ``event`` happen now; the reply to a person's call, a refusal when there is none."""
        if self._core is None:
            return ev.Reply(False, f"{self.get_name()} is not configured")
        if not isinstance(event, ev.Tick):
            self._notice_a_jump()
        before = self._core.state
        return self._perform(event, before, self._core.handle(event, self._now()))

    def _notice_a_jump(self) -> None:
        """Let a jump of the clock be known before anything that is timed by it; else all waiting would seem to be over."""
        assert self._core is not None
        steady_ns = time.monotonic_ns()
        if self._core.clock_has_jumped(self._now(), steady_ns):
            self._happen(ev.Tick(steady_ns))

    def _perform(self, event: ev.Event | None, before: State, effects: Sequence[ev.Effect]) -> ev.Reply:
        """Do what a step wants done and record it; ``event`` is None for a scene."""
        assert self._core is not None
        try:
            self._audit.step(event, before, self._core.state, effects)
            return self._do(effects)
        except Exception as error:  # noqa: BLE001 - whatever cannot be said or done, the gate must close
            self.get_logger().error(f"an effect failed: {type(error).__name__}: {error}")
            fault = ev.Fault(f"an effect failed: {type(error).__name__}: {error}")
            before = self._core.state
            effects = self._core.handle(fault, self._now())
            with contextlib.suppress(Exception):  # if telling is what fails, closing is all the more urgent
                self._audit.step(fault, before, self._core.state, effects)
            return self._do(effects)

    def _do(self, effects: Sequence[ev.Effect]) -> ev.Reply:
        reply = ev.Reply(False, "")
        for effect in effects:
            match effect:
                case ev.PublishGate():
                    assert self._core is not None
                    self._out.gate(effect, self._core.policy.hash, self._now())
                case ev.PublishDecision():
                    self._out.decision(effect.decision, effect.poses.poses)
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
                    self._stop.tick(demanded=True)
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
        state, policy, watch = self._core.state, self._core.policy, self._core.watch
        age_ms = (state.now_ns - state.scene.stamp_ns) / 1e6 if state.scene is not None else None
        values = {
            "phase": state.phase.name,
            "reasons": int(state.reasons),
            "image_age_ms": age_ms,
            "workpiece": state.workpiece_id or None,
            "arm_ready": state.arm_ready,
            "stop": self._stop.state.value,
            "policy_hash": policy.hash[:12],
            "policy_model_hash": policy.validity.model_hash[:12] or None if policy.validity else None,
            "policy_valid_until": policy.validity.until if policy.validity else None,
            "policy_guarantee": str(policy.guarantee or "") or None,
            "assumption": _assumption(self._core),
            "drift": None if math.isnan(watch.evidence) else watch.evidence,
            "watched_workpieces": watch.workpieces,
            "spot_checks": watch.spot_checks,
            **self._counts,
        }
        return Report(_LEVELS.get(state.phase, Level.OK), state.text or state.phase.name, values)


def _policy_line(policy: Policy) -> str:
    """Hash, guarantee and validity of a policy for the log."""
    parts = [policy.hash[:12], str(policy.guarantee or "no guarantee")]
    if policy.validity is not None:
        parts.append(f"for weights {policy.validity.model_hash[:12] or 'of any kind'}")
        parts += [f"valid until {policy.validity.until}"] if policy.validity.until else []
    return ", ".join(parts)


def _assumption(core: Supervisor) -> str:
    """How what the policy rests on stands."""
    return core.state.assumption or ("holds so far" if core.watch.active else "not watched")


def main() -> None:
    """Entry point of the executable ``supervisor``."""
    exit_process(run_node(SupervisorNode))


if __name__ == "__main__":
    main()

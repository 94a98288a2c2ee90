# SPDX-License-Identifier: Apache-2.0
"""Node ``supervisor``: scenes in, a permit that expires out; the operator is asked where the policy is not sure.

It turns messages into events of :class:`sticker_uq.gate.GateController` and effects into messages, on one thread that never
waits. It never loads torch.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image

from sticker_uq.cell.supervisor_settings import (
    LOCKED_WHILE_ACTIVE,
    PoseSettings,
    StopSettings,
    SupervisorNodeSettings,
    why_unproved,
)
from sticker_uq.gate import AssumptionSettings, BlockReason, GateController, GateSettings
from sticker_uq.gate import events as ev
from sticker_uq.gate.audit import FORMAT
from sticker_uq.gate.durable import DurableState
from sticker_uq.gate.settings import nanoseconds
from sticker_uq.gate.state import GateState as State
from sticker_uq.io.files import whereabouts
from sticker_uq.io.messages import image_check_from_msg, scene_from_msg, stamp_to_ns
from sticker_uq.messages import log_line, text_of
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.diagnostics import PartReport, steady_timer
from sticker_uq.nodes.common.geometry_source import GeometrySource
from sticker_uq.nodes.common.images import relief_from_msg
from sticker_uq.nodes.common.lifecycle import ManagedNode, run_process
from sticker_uq.nodes.common.one_publisher import OnePublisher
from sticker_uq.nodes.supervisor import reports
from sticker_uq.nodes.supervisor.audit_trail import AuditTrail
from sticker_uq.nodes.supervisor.cell_stop import CellStop
from sticker_uq.nodes.supervisor.consoles import ConsoleWatch
from sticker_uq.nodes.supervisor.gate_watch import MOST_BYTES, GateWatch
from sticker_uq.nodes.supervisor.operator_services import OperatorServices
from sticker_uq.nodes.supervisor.outputs import SupervisorOutputs
from sticker_uq.nodes.supervisor.removal_client import RemovalClient
from sticker_uq.scene import InvalidInput, Reason
from sticker_uq_msgs.msg import ImageCheck, SceneAssessment, Workpiece
from sticker_uq_msgs.srv import ResolveIntervention

MOST_RELIEF_BYTES = 1 << 28


class SupervisorNode(ManagedNode[SupervisorNodeSettings]):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            "supervisor", SupervisorNodeSettings, locked_while_active=LOCKED_WHILE_ACTIVE, **arguments
        )
        self._core: GateController | None = None
        self._identity = uuid.uuid4().hex
        self._unwritten: DurableState | None = None
        self._left: tuple[Path, DurableState] | None = None
        self.diagnostics.add("gate", self._report_gate)

    @property
    def core(self) -> GateController:
        assert self._core is not None, "the node is configured"
        return self._core

    def configure(self) -> None:
        settings = self.settings
        self._core = core = GateController(
            settings.load_policy(), settings.part(GateSettings), settings.part(AssumptionSettings)
        )
        self.while_configured.callback(setattr, self, "_core", None)
        self._counts = dict.fromkeys(reports.COUNTS, 0)
        self._inputs: list[OnePublisher] = []
        self.while_configured.callback(self._inputs.clear)
        log = settings.audit_folder, settings.audit_file_mb, settings.hold_unknown_start
        self._audit = self.keep(AuditTrail(self, *log))
        self.report_while_configured("audit", self._audit.report)
        self.report_while_configured("policy", lambda: reports.policy_report(core.policy))
        self._out = self.keep(SupervisorOutputs(self, self._identity, lambda: self._audit.head))
        self._arm = self.keep(RemovalClient(self, self._happen, settings.arm_heartbeat_timeout_s))
        self._poses = self.keep(GeometrySource(self, settings.part(PoseSettings), self._check_inputs))
        self._inputs += self._poses.inputs
        self._stop = self.keep(CellStop(self, settings.part(StopSettings)))
        self._gate_watch = self.keep(GateWatch(self, self._identity, settings.discovery_time_s, self._impede))
        self.keep(OperatorServices(self, self._happen, lambda: core.state, self._publish_answer))
        self._watch_input(self.while_configured, Workpiece, "workpiece", self._on_workpiece, qos.LATCHED)
        self._out.no_request(self._now())
        # wall time: a simulated clock that stands still must not keep a permit alive; inactive too, because an arm that does
        # not stop when the node is deactivated must be stopped by other means
        self._timer = steady_timer(self, settings.tick_period_s, self._tick)
        self.while_configured.callback(self.destroy_timer, self._timer)
        last_run = self._unwritten or self._audit.last_run
        if self._left is not None and (last_run is None or self._left[0] != self._audit.folder):
            last_run = self._left[1]  # this process goes on with another log, which knows nothing of it
        if last_run is None and settings.hold_unknown_start:
            last_run = DurableState.first()
        pages = last_run.consoles if last_run is not None and settings.hold_unknown_start else ()
        self._consoles = self.keep(ConsoleWatch(self, pages, self._check_consoles))
        if last_run is not None:
            self._happen(ev.Restarted(last_run, core.policy.hash))
        self._check_consoles()
        self._happen(ev.Tick())
        self._stop.tick(core.state.stop_demanded)
        self.while_configured.callback(self._leave)
        self.get_logger().info(f"policy {reports.policy_line(core.policy)}, K={settings.consecutive_scenes}")
        self.get_logger().info(f"audit log in {self._audit.folder}")

    def _leave(self) -> None:
        self._left = self._audit.folder, self._durable()

    def _durable(self) -> DurableState:
        return DurableState.of(self.core.state, self.core.policy.hash, self._consoles.names)

    def activate(self) -> None:
        self._apply(self.settings)
        self._out.sequence = 0
        settings = {"settings": self.settings.model_dump()}
        self._audit.note("start", {"format": FORMAT} | self._about() | settings)
        self.while_active.callback(lambda: self._audit.note("stop", self._about()))
        self._happen(ev.Activated())
        self.while_active.callback(self._happen, ev.Deactivated())
        self._timer.timer_period_ns = nanoseconds(self.settings.tick_period_s)
        lost = partial(self._happen, ev.SceneUnreadable(Reason("detector_lost")))
        listen = partial(self._watch_input, self.while_active)
        scene = self._on_scene, qos.NEWEST_SCENE
        listen(
            SceneAssessment,
            "scene",
            *scene,
            refused=self._on_scene_refused,
            uncounted=self._on_uncounted_scene,
        )
        heard = self._on_image, qos.IMAGE_CHECKS_WATCH
        listen(ImageCheck, "image_check", *heard, refused=self._on_scene_refused, gone=lost)
        if self.settings.min_relief_mm > 0.0:
            measured = self._on_relief, qos.NEWEST_IMAGE_BEST_EFFORT
            without: dict[str, Any] = {
                "changed": self._no_relief,
                "refused": self._no_relief,
                "most_bytes": MOST_RELIEF_BYTES,
            }
            relief = OnePublisher(self, Image, "relief", *measured, **without)
            self.while_active.callback(relief.destroy)

    def _watch_input(
        self,
        stack: ExitStack,
        kind: Any,
        topic: str,
        deliver: Callable[[Any], None],
        profile: QoSProfile,
        refused: Callable[[InvalidInput], object] | None = None,
        **more: Any,
    ) -> None:
        """Let messages on ``topic`` count until ``stack`` is unwound, and close the gate while they come from two publishers."""
        refused = refused or self._on_refused
        more |= {"changed": self._check_inputs, "refused": refused, "most_bytes": MOST_BYTES}
        one = OnePublisher(self, kind, topic, deliver, profile, **more)
        self._inputs.append(one)
        stack.callback(self._check_inputs)
        stack.callback(self._inputs.remove, one)
        stack.callback(one.destroy)

    def reason_for_lock(self, name: str) -> str | None:
        """No parameter changes while the arm has a permit or owes the end of its goal."""
        if self._core is not None and self._core.state.permit is not None:
            return f"{name} cannot be changed while a permit is out: hold the gate first"
        return super().reason_for_lock(name)

    def settings_changed(self, old: SupervisorNodeSettings, new: SupervisorNodeSettings) -> None:
        """The gate goes on under new settings and counts anew; another policy is read on the next activation."""
        if self._core is not None:
            self._core.configure(self._core.policy, new.part(GateSettings), new.part(AssumptionSettings))
            self._audit.note("settings", new.model_dump())

    def _apply(self, settings: SupervisorNodeSettings) -> None:
        policy = settings.load_policy()
        wanted = policy, settings.part(GateSettings), settings.part(AssumptionSettings)
        if wanted != (self.core.policy, self.core.settings, self.core.watch.settings):
            self.core.configure(*wanted)
            self.get_logger().info(f"policy {reports.policy_line(policy)}")
        self._impede(BlockReason.UNCALIBRATED, settings.why_uncalibrated(policy))
        if settings.allow_uncalibrated and why_unproved(policy) is not None:
            proved = policy.guarantee is not None
            lack = "that releases in unfamiliar scenes, too" if proved else "without a guarantee"
            self.get_logger().warning(f"allow_uncalibrated: the gate may open on a policy {lack}")

    def _about(self) -> dict[str, Any]:
        scene = self.core.state.scene
        return {
            "node": self.get_fully_qualified_name(),
            "supervisor": self._identity,
            "bundle_hash": self.settings.bundle_hash,
            "policy_hash": self.core.policy.hash,
            "model_hash": scene.model_hash if scene is not None else "",
            **whereabouts(),
        }

    # subscriptions

    def _impede(self, reason: BlockReason, detail: Reason | None) -> None:
        if detail != dict(self.core.state.impediments).get(reason):
            self._happen(ev.Impediment(reason, detail))

    def _tick(self) -> None:
        state = self.core.state
        if not (self.is_active or state.permit is not None or state.stop_demanded):
            return
        self._gate_watch.report_others()
        self._check_consoles()
        self._check_inputs()
        self._impede(BlockReason.AUDIT, self._audit.problem)
        self._arm.discover()
        self._happen(ev.Tick(time.monotonic_ns()))
        self._stop.tick(self.core.state.stop_demanded)

    def _check_consoles(self) -> None:
        self._impede(BlockReason.HELD, self._consoles.problem(self.core.state.permit is None))

    def _check_inputs(self) -> None:
        """Called before each of their messages: a publisher is matched before its first one arrives."""
        problems = (one.problem() for one in self._inputs)
        self._impede(BlockReason.SECOND_SCENE_PUBLISHER, next(filter(None, problems), None))

    def _on_refused(self, error: InvalidInput) -> None:
        self.get_logger().warning(str(error), throttle_duration_sec=10.0)

    def _on_scene_refused(self, error: InvalidInput) -> None:
        self._counts["unreadable_scenes"] += 1
        self._happen(ev.SceneUnreadable(Reason.of("scene_unreadable", detail=str(error))))

    def _on_scene(self, message: SceneAssessment) -> None:
        self._counts["scenes"] += 1
        try:
            scene = scene_from_msg(message)
        except InvalidInput as error:
            self._on_scene_refused(error)
            return
        self._out.numbers(scene)
        self._notice_a_jump()
        before = self.core.state
        geometry = self._poses.geometry(scene.frame_id, scene.stamp_ns)
        self._perform(None, before, self.core.on_scene(scene, self._now(), geometry))
        self._out.drift(self.core.watch.evidence)

    def _on_uncounted_scene(self, message: SceneAssessment) -> None:
        """A detector that dies says why in its last scene, which may come when its successor is known."""
        if message.status in (SceneAssessment.STATUS_OK, SceneAssessment.STATUS_DEGRADED):
            return
        said = Reason.of("perception_failed", detail=message.status_text)
        if self.core.state.problems != ((BlockReason.FAILED_SCENE, said),):
            self._happen(ev.SceneUnreadable(said))

    def _on_image(self, message: ImageCheck) -> None:
        self._happen(ev.ImageArrived(image_check_from_msg(message)))

    def _on_relief(self, message: Image) -> None:
        try:
            self._happen(ev.ReliefReceived(relief_from_msg(message)))
        except InvalidInput as error:
            self._no_relief(error)

    def _no_relief(self, why: InvalidInput | str = "another publisher of relief: expected one") -> None:
        """Two sensors may be of two places, so that neither counts."""
        self.get_logger().warning(str(why), throttle_duration_sec=10.0)
        self._happen(ev.ReliefReceived(None))

    def _on_workpiece(self, message: Workpiece) -> None:
        self._happen(ev.WorkpieceChanged(message.id, stamp_to_ns(message.header.stamp)))

    def _publish_answer(self, request: ResolveIntervention.Request, workpiece_id: str, frame_id: str) -> None:
        self._out.answer(request, workpiece_id, frame_id, self._now())

    # what follows from it

    def _happen(self, event: ev.Event) -> ev.Reply:
        """Let ``event`` happen now; the reply to the operator's call, a refusal when there is none."""
        if self._core is None:
            return ev.Reply(False, (Reason.of("not_configured", node=self.get_name()),))
        if not isinstance(event, ev.Tick):
            self._notice_a_jump()
        if isinstance(event, ev.RemovalFinished) and event.code is not ev.RemovalCode.NONE:
            self._counts["removals_failed"] += 1
        if isinstance(event, ev.Release):
            self._consoles.give_up()
        before = self._core.state
        return self._perform(event, before, self._core.handle(event, self._now()))

    def _notice_a_jump(self) -> None:
        """Tell of a jump of the clock before anything that is timed by it; else all waiting would seem to be over."""
        steady_ns = time.monotonic_ns()
        if self.core.clock_has_jumped(self._now(), steady_ns):
            self._happen(ev.Tick(steady_ns))

    def _perform(self, event: ev.Event | None, before: State, effects: Sequence[ev.Effect]) -> ev.Reply:
        """Do what a step wants done and record it; ``event`` is None for a scene."""
        try:
            self._audit.step(event, before, self.core.state, effects)
            return self._do_and_keep(effects)
        except Exception as error:  # noqa: BLE001 - whatever cannot be said or done, the gate must close
            reason = Reason.of("internal_error", detail=f"{type(error).__name__}: {error}")
            self.get_logger().error(text_of(reason))
            fault = ev.Fault((reason,))
            before = self.core.state
            effects = self.core.handle(fault, self._now())
            with contextlib.suppress(Exception):  # if telling is what fails, closing is all the more urgent
                self._audit.step(fault, before, self.core.state, effects)
            return self._do_and_keep(effects)

    def _do_and_keep(self, effects: Sequence[ev.Effect]) -> ev.Reply:
        """What closes and stops comes first; the arm is sent, and people are answered, once the disk has what they rely on."""
        self._do([effect for effect in effects if isinstance(effect, _AT_ONCE)])
        state = self._durable()
        problem = self._audit.keep(state)
        self._unwritten = state if problem else None
        later = [effect for effect in effects if not isinstance(effect, _AT_ONCE)]
        if problem is None:
            return self._do(later)
        self._impede(BlockReason.AUDIT, problem)
        for effect in later:
            if isinstance(effect, ev.SendGoal):
                self._happen(ev.GoalRejected(effect.goal_id, text_of(problem)))
        self._do([effect for effect in later if not isinstance(effect, ev.SendGoal)])
        return ev.Reply(False, (problem,))

    def _do(self, effects: Sequence[ev.Effect]) -> ev.Reply:
        reply = ev.Reply(False, ())
        for effect in effects:
            match effect:
                case ev.PublishGate():
                    self._out.gate(effect.state, self.core.policy.hash, self._now())
                case ev.PublishDecision():
                    self._out.decision(effect.decision, effect.poses.poses)
                case ev.SendGoal():
                    self._counts["permits"] += 1
                    self._arm.send(effect.goal_id, effect.target)
                case ev.RecoverGoal():
                    self._arm.recover(effect.goal_id, effect.decision_id)
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
                    self.get_logger().fatal(f"STOP THE ARM: {text_of(effect.reason)}")
                    self._stop.tick(demanded=True)
                case ev.Reply():
                    reply = effect
                case ev.Log():
                    self._log(effect)
        return reply

    def _log(self, line: ev.Log) -> None:
        text = log_line(line.reasons)
        # rclpy ties a place in the source to one severity
        if line.severity is ev.Severity.ERROR:
            self.get_logger().error(text)
        elif line.severity is ev.Severity.WARNING:
            self.get_logger().warning(text)
        else:
            self.get_logger().info(text)

    def _now(self) -> int:
        return int(self.get_clock().now().nanoseconds)

    def _report_gate(self) -> PartReport:
        if self._core is None:
            return reports.unconfigured_report()
        return reports.gate_report(self._core, self._stop.state, self._counts)


_AT_ONCE = (ev.PublishDecision, ev.PublishGate, ev.CancelGoal, ev.RecoverGoal, ev.Escalate, ev.DeclareDone)
"""What the disk may not delay: it closes or stops, or is done again after a restart that it was not written before."""

main = partial(run_process, SupervisorNode)

# SPDX-License-Identifier: Apache-2.0
"""What leaves the supervisor: the gate, decisions, questions to the operator, plain mirrors of them for monitors, markers for
RViz and Foxglove (off where visualization_msgs is not installed), its status in the words of /diagnostics and the log, and its
audit log.
"""

import hashlib
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from rclpy.logging import get_logging_directory
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_msgs.msg import Bool, Float64, String

from sticker_uq.gate import GateController, Policy
from sticker_uq.gate.audit import AuditLog, Narrator
from sticker_uq.gate.audit.state_store import StateStore
from sticker_uq.gate.durable import DurableState
from sticker_uq.gate.events import DeclareDone, Effect, Event, OpenIntervention
from sticker_uq.gate.state import GateState, Phase
from sticker_uq.geometry import ObjectPose
from sticker_uq.geometry.transforms import quaternion
from sticker_uq.messages import gate_text, text_of, texts_of
from sticker_uq.nodes.common.conversions import (
    box_to_msg,
    decision_to_msg,
    fill_message,
    header_of,
    ns_to_stamp,
    pose_to_msg,
    reason_to_msg,
    verdict_to_msg,
)
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.nodes.common.qos import GATE, LATCHED, RELIABLE
from sticker_uq.nodes.supervisor.cell_stop import StopState
from sticker_uq.scene import InvalidInput, Reason, SceneAssessment, SceneDecision, Verdict
from sticker_uq_msgs import msg as m
from sticker_uq_msgs.srv import ResolveIntervention

try:
    from visualization_msgs import msg as _visualization
except ImportError:
    _visualization = None

#: ``visualization_msgs.msg``, or None where it is not installed.
VISUALIZATION_MSGS: ModuleType | None = _visualization
Effects = Sequence[Effect]
DEVIATIONS = 2.0
"""Half axes of the ellipsoid about a centre, in standard deviations."""
_THICKNESS_M = 0.001
# green, sky, orange of Okabe and Ito's palette, as on the annotated picture
_COLOURS = {Verdict.REMOVE: (0.0, 0.62, 0.45), Verdict.KEEP: (0.34, 0.71, 0.91)}
_OTHERWISE = (0.90, 0.62, 0.0)


def markers_to_msg(
    decision: SceneDecision, poses: Mapping[int, ObjectPose], visualization: ModuleType
) -> object:
    """A ``MarkerArray`` that replaces the one before it: for each object with a pose its area on the lid, coloured by verdict,
    and where its centre may be, an ellipsoid of :data:`DEVIATIONS` standard deviations.
    """
    found = [visualization.Marker(action=visualization.Marker.DELETEALL)]
    for verdict in decision.verdicts:
        pose = poses.get(verdict.object.id)
        if pose is None:
            continue
        area = visualization.Marker(ns="object", id=verdict.object.id, type=visualization.Marker.CUBE)
        area.header = header_of(decision.stamp_ns, pose.frame_id)
        area.pose = pose_to_msg(pose).pose
        area.scale.x, area.scale.y, area.scale.z = (*pose.size, _THICKNESS_M)
        area.color.r, area.color.g, area.color.b = _COLOURS.get(verdict.verdict, _OTHERWISE)
        area.color.a = 0.5
        found.append(area)
        covariance = np.reshape(pose.covariance, (6, 6))[:3, :3]
        if not np.isfinite(covariance).all():
            continue
        variances, axes = np.linalg.eigh(covariance)
        axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])  # a rotation, no reflection
        centre = visualization.Marker(ns="centre", id=verdict.object.id, type=visualization.Marker.SPHERE)
        centre.header = area.header
        centre.pose.position = area.pose.position
        orientation = centre.pose.orientation
        orientation.x, orientation.y, orientation.z, orientation.w = quaternion(axes)
        half = DEVIATIONS * np.sqrt(np.maximum(variances, 0.0))
        centre.scale.x, centre.scale.y, centre.scale.z = np.maximum(2 * half, _THICKNESS_M).tolist()
        centre.color.r, centre.color.g, centre.color.b, centre.color.a = 1.0, 1.0, 1.0, 0.8
        found.append(centre)
    return visualization.MarkerArray(markers=found)


class SupervisorOutputs:
    """Publishes in every state of ``node``: a closed gate is news too.

    ``identity`` names this process to everybody, ``audit_head`` tells the newest entry of its audit log.
    """

    def __init__(self, node: Node, identity: str, audit_head: Callable[[], str]) -> None:
        self._node = node
        self._identity = identity
        self._audit_head = audit_head
        self.sequence = 0
        """Number of the newest state of the gate."""
        self._all: list[Publisher] = []
        self._gate = self._publisher(m.GateState, "gate", GATE)
        self._decision = self._publisher(m.SceneDecision, "decision")
        self._request = self._publisher(m.InterventionRequest, "intervention/request", LATCHED)
        self._answer = self._publisher(m.InterventionAnswer, "intervention/answer")
        self._done = self._publisher(m.WorkpieceDone, "workpiece/done", LATCHED)
        self._monitor_open = self._publisher(Bool, "monitor/gate_open")
        self._monitor_state = self._publisher(String, "monitor/state")
        self._monitor_uncertainty = self._publisher(Float64, "monitor/uncertainty")
        self._monitor_dil = self._publisher(Float64, "monitor/dil")
        self._monitor_drift = self._publisher(Float64, "monitor/drift")
        self._markers = None
        if VISUALIZATION_MSGS is None:
            node.get_logger().info("visualization_msgs is not installed: markers is off")
        else:
            self._markers = self._publisher(VISUALIZATION_MSGS.MarkerArray, "markers")

    def _publisher(self, kind: Any, topic: str, profile: QoSProfile = RELIABLE) -> Publisher:
        self._all.append(self._node.create_publisher(kind, topic, profile))
        return self._all[-1]

    def destroy(self) -> None:
        for publisher in self._all:
            self._node.destroy_publisher(publisher)

    def gate(self, gate: GateState, policy_hash: str, now_ns: int) -> None:
        self.sequence += 1
        permit = gate.permit if gate.open else None
        message = fill_message(
            m.GateState,
            gate,
            open=permit is not None,
            header=header_of(now_ns, gate.scene.frame_id if gate.scene is not None else ""),
            state=int(gate.phase),
            details=[reason_to_msg(reason) for reason in gate.details],
            text=gate_text(gate.reasons.codes, gate.details),
            sequence=self.sequence,
            policy_hash=policy_hash,
            supervisor=self._identity,
            audit_head=self._audit_head(),
        )
        if permit is not None:
            target = permit.target
            message.valid_until = ns_to_stamp(permit.valid_until_ns)
            message.decision_id = target.decision_id
            message.object_id = target.object_id
            message.box = box_to_msg(np.asarray(target.box))
            message.image_stamp = ns_to_stamp(target.image_stamp_ns)
            message.model_hash = target.model_hash
            message.policy_hash = target.policy_hash
        self._gate.publish(message)
        self._monitor_open.publish(Bool(data=permit is not None))
        self._monitor_state.publish(String(data=gate.phase.name))

    def decision(self, decision: SceneDecision, poses: Mapping[int, ObjectPose]) -> None:
        self._decision.publish(decision_to_msg(decision, poses))
        if self._markers is not None and VISUALIZATION_MSGS and self._markers.get_subscription_count():
            self._markers.publish(markers_to_msg(decision, poses, VISUALIZATION_MSGS))

    def numbers(self, scene: SceneAssessment) -> None:
        """Publish the mean Shannon entropy of the objects, bits, and DiL; NaN where there is none."""
        dil = scene.localization.dil if scene.localization is not None else float("nan")
        self._monitor_uncertainty.publish(Float64(data=float(scene.uncertainty.shannon_entropy)))
        self._monitor_dil.publish(Float64(data=float(dil)))

    def drift(self, evidence: float) -> None:
        self._monitor_drift.publish(Float64(data=evidence))

    def request(self, request: OpenIntervention) -> None:
        message = fill_message(
            m.InterventionRequest,
            request,
            header=header_of(request.stamp_ns, request.frame_id),
            objects=[verdict_to_msg(verdict) for verdict in request.objects],
            reasons=[reason_to_msg(reason) for reason in request.reasons],
            text=texts_of(request.reasons),
        )
        self._request.publish(message)

    def no_request(self, now_ns: int) -> None:
        self._request.publish(m.InterventionRequest(header=header_of(now_ns, "")))

    def answer(self, given: ResolveIntervention.Request, workpiece: str, frame_id: str, now_ns: int) -> None:
        about = {"header": header_of(now_ns, frame_id), "workpiece_id": workpiece}
        places = {"answers": given.answers, "not_stickers": given.not_stickers}
        self._answer.publish(fill_message(m.InterventionAnswer, given, **about, **places))

    def done(self, done: DeclareDone) -> None:
        result = m.WorkpieceDone.RESULT_CLEAN if done.clean else m.WorkpieceDone.RESULT_LEFT_TO_OPERATOR
        header, reason = header_of(done.stamp_ns, done.frame_id), reason_to_msg(done.reason)
        self._done.publish(fill_message(m.WorkpieceDone, done, header=header, result=result, reason=reason))


COUNTS = ("scenes", "unreadable_scenes", "permits", "removals", "removals_failed", "requests")
"""What is counted from configuration on."""
_LEVELS = {Phase.FAULT: Level.ERROR, Phase.BLOCKED: Level.WARN, Phase.INTERVENTION: Level.WARN}


def gate_report(core: GateController, stop: StopState, counts: Mapping[str, int]) -> PartReport:
    """Phase, policy, its monitoring and ``counts``, once configured."""
    state, policy, watch = core.state, core.policy, core.watch
    age_ms = (state.now_ns - state.scene.stamp_ns) / 1e6 if state.scene is not None else None
    holds = "holds so far" if watch.active else "not watched"
    values = {
        "phase": state.phase.name,
        "reasons": int(state.reasons),
        "image_age_ms": age_ms,
        "workpiece": state.workpiece_id or None,
        "arm_ready": state.arm_ready,
        "stop": stop.value,
        "stop_demanded": int(stop is not StopState.NOT_DEMANDED),
        "policy_hash": policy.hash[:12],
        "assumption": text_of(state.assumption) if state.assumption else holds,
        "drift": None if math.isnan(watch.evidence) else watch.evidence,
        "watched_workpieces": watch.workpieces,
        "spot_checks": watch.spot_checks,
        **counts,
    }
    text = gate_text(state.reasons.codes, state.details)
    return PartReport(_LEVELS.get(state.phase, Level.OK), text or state.phase.name, values)


def policy_report(policy: Policy) -> PartReport:
    """What the policy promises, and what it was made for; a warning where it promises nothing, or releases without novelty."""
    made_for = policy.validity
    values = {
        "hash": policy.hash[:12],
        "guarantee": str(policy.guarantee or "") or None,
        "model_hash": made_for.model_hash[:12] or None if made_for else None,
        "valid_until": made_for.until if made_for else None,
    }
    if policy.guarantee is None:
        return PartReport(Level.WARN, "the policy has no guarantee: `sticker-uq calibrate` makes one", values)
    if policy.unmeasured_novelty == "release":
        unmeasured = f"{policy.guarantee}; also releases in unfamiliar scenes: novelty is not measured"
        return PartReport(Level.WARN, unmeasured, values)
    return PartReport(Level.OK, str(policy.guarantee), values)


def unconfigured_report() -> PartReport:
    configured = gate_report(GateController(Policy()), StopState.NOT_DEMANDED, dict.fromkeys(COUNTS, 0))
    return PartReport(Level.WARN, "not configured", dict.fromkeys(configured.values))


def policy_line(policy: Policy) -> str:
    parts = [policy.hash[:12], str(policy.guarantee or "no guarantee")]
    if policy.validity is not None:
        parts.append(f"for weights {policy.validity.model_hash[:12] or 'of any kind'}")
        parts += [f"valid until {policy.validity.until}"] if policy.validity.until else []
    return ", ".join(parts)


def default_folder(node: Node, kind: str) -> Path:
    """The folder for ``kind`` (audit) inside ROS's folder of logs; each node of this machine and person has its own."""
    domain = os.environ.get("ROS_DOMAIN_ID") or "0"
    name = node.get_fully_qualified_name().strip("/").replace("/", ".")
    return Path(str(get_logging_directory())) / kind / f"domain_{domain}.{name}"


def _second_name(node: Node, folder: Path) -> Path | None:
    """Where the newest state of the log in ``folder`` is named a second time; None where that cannot be."""
    try:
        home = Path(os.environ.get("ROS_HOME") or "~/.ros").expanduser() / "sticker_uq" / "newest_state"
        home.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        node.get_logger().warning(f"{error}: an audit log that is put back as it was earlier is not noticed")
        return None
    named = f"{socket.gethostname()}:{folder.resolve()}"  # a home may be shared by machines
    return home / hashlib.sha256(os.fsencode(named)).hexdigest()[:32]


MEGABYTE = 1_000_000
FLUSH_S = 5.0
"""The end of the node waits so long at most for its last entries to reach the disk."""


class AuditTrail:
    """The audit log in ``folder`` (empty: the default one of ``node``). ``named_twice``: whether its newest state is named in
    ROS's home, too.

    Raises :class:`InvalidInput` when it cannot be opened or is being written by another supervisor.
    """

    def __init__(self, node: Node, folder: str, file_mb: float, named_twice: bool = True) -> None:
        path = Path(folder).expanduser() if folder else default_folder(node, "audit")
        try:
            self._log = AuditLog(path, round(file_mb * MEGABYTE))
        except OSError as error:
            raise InvalidInput(f"audit log {path} cannot be opened: {error.strerror or error}") from None
        self._narrator = Narrator()
        self.folder = path
        self._states = StateStore(self._log, path, _second_name(node, path) if named_twice else None)
        self.last_run = self._states.read()
        """What outlived the last run; None when this is the first."""

    def step(self, event: Event | None, before: GateState, after: GateState, effects: Effects) -> None:
        for kind, data in self._narrator.entries_of_step(event, before, after, effects):
            self._log.add(kind, data)

    def keep(self, state: DurableState) -> Reason | None:
        """Write what must outlive this process, where it has changed; why it is not on the disk yet, None when it is."""
        return self._states.keep(state)

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        self._log.add(kind, data)

    @property
    def head(self) -> str:
        """The hash of the newest entry on the disk."""
        return self._log.status.head

    @property
    def problem(self) -> Reason | None:
        return self._log.status.problem or self._states.problem

    def close(self) -> None:
        self._log.flush(FLUSH_S)
        self._log.close(FLUSH_S)

    def report(self) -> PartReport:
        status = self._log.status
        values = {
            "head": status.head,
            "entries": status.number + 1,
            "waiting": status.waiting,
            "lost": status.lost,
            "slowest_ms": status.slowest_s * 1e3,
            "file": str(self.folder / status.file),
        }
        if problem := self.problem:
            return PartReport(Level.ERROR, text_of(problem), values)
        return PartReport(Level.OK, "every entry reaches the disk", values)

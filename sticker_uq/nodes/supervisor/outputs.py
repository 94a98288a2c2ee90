# SPDX-License-Identifier: Apache-2.0
"""What the supervisor publishes: the gate, decisions, questions to the operator, plain mirrors of them for monitors, markers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from std_msgs.msg import Bool, Float64, String

from sticker_uq.gate.events import DeclareDone, OpenIntervention
from sticker_uq.gate.state import GateState
from sticker_uq.geometry import ObjectPose
from sticker_uq.messages import gate_text, texts_of
from sticker_uq.nodes.common.conversions import (
    box_to_msg,
    decision_to_msg,
    fill_message,
    header_of,
    ns_to_stamp,
    reason_to_msg,
    verdict_to_msg,
)
from sticker_uq.nodes.common.qos import GATE, LATCHED, RELIABLE
from sticker_uq.nodes.supervisor.markers import VISUALIZATION_MSGS, markers_to_msg
from sticker_uq.scene import SceneAssessment, SceneDecision
from sticker_uq_msgs import msg as m
from sticker_uq_msgs.srv import ResolveIntervention


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

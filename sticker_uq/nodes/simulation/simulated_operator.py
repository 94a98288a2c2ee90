# SPDX-License-Identifier: Apache-2.0
"""The simulated operator of the simulated cell, who answers interventions from ground truth.

For unattended demos and tests only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.task import Future
from rclpy.timer import Timer

from sticker_uq.io.messages import box_from_msg
from sticker_uq.nodes.common.conversions import box_to_msg
from sticker_uq.nodes.common.qos import LATCHED, RELIABLE
from sticker_uq.scene import FloatArray
from sticker_uq.simulation.simulated_cell import SimulatedCell, Touch
from sticker_uq_msgs.msg import InterventionRequest, ObjectAnswer, SceneDecision
from sticker_uq_msgs.srv import ResolveIntervention

REMEMBERED_DECISIONS = 200
NAME = "simulated person (ground truth)"
_ANSWERS = {Touch.STICKER: ObjectAnswer.ANSWER_REMOVE, Touch.LID: ObjectAnswer.ANSWER_NOT_THERE}
"""Anything else is there, and to be kept."""


class SimulatedOperator:
    """A simulated operator: gets ``intervention/request`` and ``decision`` on ``node``, answers with ``intervention/resolve``."""

    def __init__(self, node: Node, cell: SimulatedCell, lock: threading.Lock) -> None:
        self._node = node
        self._cell = cell
        self._lock = lock
        self._group = group = MutuallyExclusiveCallbackGroup()
        self._detected: OrderedDict[str, list[FloatArray]] = OrderedDict()
        self._request_id = ""
        self._thinking: Timer | None = None
        node.create_subscription(SceneDecision, "decision", self._on_decision, RELIABLE, callback_group=group)
        node.create_subscription(
            InterventionRequest, "intervention/request", self._on_request, LATCHED, callback_group=group
        )
        self._client = node.create_client(ResolveIntervention, "intervention/resolve", callback_group=group)

    def _on_decision(self, message: SceneDecision) -> None:
        self._detected[message.decision_id] = [box_from_msg(verdict.box) for verdict in message.verdicts]
        while len(self._detected) > REMEMBERED_DECISIONS:
            self._detected.popitem(last=False)

    def _on_request(self, message: InterventionRequest) -> None:
        self._stop_thinking()
        self._request_id = message.request_id
        if message.request_id:
            delay = max(self._cell.settings.person_delay_s, 1e-3)
            self._thinking = self._node.create_timer(
                delay, lambda: self._answer(message), callback_group=self._group
            )

    def _stop_thinking(self) -> None:
        if self._thinking is not None:
            self._node.destroy_timer(self._thinking)
            self._thinking = None

    def _answer(self, message: InterventionRequest) -> None:
        self._stop_thinking()
        if not self._client.service_is_ready():
            self._node.get_logger().warning("intervention/resolve is not available: the request stays open")
            return
        asked = [box_from_msg(verdict.box) for verdict in message.objects]
        known = asked + self._detected.get(message.decision_id, [])
        newest = next(reversed(self._detected.values()), [])
        with self._lock:
            if message.workpiece_id not in ("", self._cell.record.workpiece_id):
                return
            answers = [self._cell.touched_by(box)[0] for box in asked]
            missed = self._cell.missed(known)
            left = self._cell.record.left
            self._cell.record.answers += 1
        request = ResolveIntervention.Request(request_id=message.request_id, person=NAME)
        for box, kind in zip(asked, answers, strict=True):
            answer = _ANSWERS.get(kind, ObjectAnswer.ANSWER_KEEP)
            request.answers.append(ObjectAnswer(answer=answer, box=box_to_msg(box)))
        for box in missed:
            request.answers.append(
                ObjectAnswer(answer=ObjectAnswer.ANSWER_MISSED, box=box_to_msg(np.asarray(box)))
            )
        if left == 0:
            request.scene_answer = ResolveIntervention.Request.SCENE_CLEAN
            request.not_stickers = [box_to_msg(box) for box in known + newest]
        elif not request.answers:
            request.scene_answer = ResolveIntervention.Request.SCENE_RESCAN
        said = ", ".join(kind.value for kind in answers) or "nothing was asked about an object"
        self._node.get_logger().info(
            f"answering {message.request_id} from the simulation's ground truth: {said}; {len(missed)} missed, {left} left"
        )
        self._client.call_async(request).add_done_callback(lambda future: self._on_answered(future, message))

    def _on_answered(self, future: Future, message: InterventionRequest) -> None:
        response = future.result()
        if response is None or response.accepted:
            return
        self._node.get_logger().warning(f"the answer was not accepted: {response.message}")
        if self._request_id == message.request_id:
            self._on_request(message)  # the scene has changed meanwhile

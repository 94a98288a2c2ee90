# SPDX-License-Identifier: Apache-2.0
"""The supervisor's action client of the arm: goals go out; what becomes of them, and of the arm itself, comes back as events."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.node import Node
from rclpy.task import Future

from sticker_uq.gate import events as ev
from sticker_uq.gate.presence import Heartbeat
from sticker_uq.gate.state import Target
from sticker_uq.nodes.common.conversions import box_to_msg, ns_to_stamp, pose_to_msg
from sticker_uq.nodes.common.diagnostics import steady_timer
from sticker_uq.nodes.common.liveliness import subscribe_with_liveliness
from sticker_uq.nodes.common.one_publisher import make_decoder
from sticker_uq.nodes.common.qos import ARM_STATUS_WATCH
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import ArmStatus, ObservedObject

LOOK_PERIOD_S = 0.05
"""Period at which the arm's heartbeat is checked, s."""
MOST_STATUS_BYTES = 1 << 12
LONGEST_TEXT = 500
"""Characters of what the arm says about a goal, which stand in every message of the gate."""


class RemovalClient:
    """Sends goals to the arm, reports their ends and the arm's presence to ``happened``; never waits.

    An arm is there while exactly one action server is, and exactly one arm sends its heartbeat on ``arm/status`` at least
    every ``silence_s`` seconds, from a process that lives. A restarted server knows nothing of its goal; of two it is not known
    which one moves.
    """

    def __init__(self, node: Node, happened: Callable[[ev.Event], object], silence_s: float) -> None:
        self._client = ActionClient(node, RemoveSticker, "remove_sticker")
        self._happened = happened
        self._handles: dict[int, ClientGoalHandle] = {}
        self._recovered: dict[int, ClientGoalHandle] = {}
        self._node = node
        self._status_topic = node.resolve_topic_name("remove_sticker") + "/_action/status"
        self._servers: frozenset[bytes] = frozenset()
        self._served = False
        self._told = False
        self._heartbeat = Heartbeat(math.ceil(silence_s / LOOK_PERIOD_S))
        receive = make_decoder(ArmStatus, MOST_STATUS_BYTES, self._on_status, lambda _: self._lose())
        heard = receive, ARM_STATUS_WATCH, self._on_death
        self._subscription = subscribe_with_liveliness(node, ArmStatus, "arm/status", *heard, raw=True)
        self._timer = steady_timer(node, LOOK_PERIOD_S, self._look)

    def destroy(self) -> None:
        self._happened = lambda event: None
        self._node.destroy_timer(self._timer)
        self._node.destroy_subscription(self._subscription)
        self._client.destroy()

    def discover(self) -> None:
        found = self._node.get_publishers_info_by_topic(self._status_topic)
        before, self._servers = self._servers, frozenset(bytes(info.endpoint_gid) for info in found)
        self._served = len(self._servers) == 1 and bool(self._client.server_is_ready())
        if before and before != self._servers:
            self._lose()
        if self._served:
            self._ask_about_recovered()
        self._tell()

    def _on_status(self, message: ArmStatus) -> None:
        if self._heartbeat.beat(message.arm):
            self._lose()
        self._tell()

    def _on_death(self) -> None:
        self._heartbeat.lost()
        self._tell()

    def _look(self) -> None:
        self._heartbeat.tick()
        self._tell()

    def _tell(self) -> None:
        ready = self._served and self._heartbeat.alone
        if ready != self._told:
            self._told = ready
            self._happened(ev.ArmReady(ready))

    def _lose(self) -> None:
        self._told = False
        self._happened(ev.ArmLost())

    def send(self, goal_id: int, target: Target) -> None:
        """Ask the arm to remove ``target``. Whatever its label: it is a sticker, by the policy or a person's word."""
        goal = RemoveSticker.Goal(
            decision_id=target.decision_id,
            object_id=target.object_id,
            label=ObservedObject.LABEL_STICKER,
            box=box_to_msg(np.asarray(target.box)),
            region=box_to_msg(target.verdict.region),
            image_stamp=ns_to_stamp(target.image_stamp_ns),
            pose_valid=target.pose is not None,
            pose=pose_to_msg(target.pose),
            frame_id=target.pose.frame_id if target.pose is not None else "",
        )
        sent = self._client.send_goal_async(goal, goal_uuid=goal_uuid(goal_id, target.decision_id))
        sent.add_done_callback(lambda future: self._on_response(goal_id, future))

    def recover(self, goal_id: int, decision_id: str) -> None:
        """Have the arm stop a goal of an earlier run, and tell its end, once the arm is there."""
        accepted = RemoveSticker.Impl.SendGoalService.Response(accepted=True)
        self._recovered[goal_id] = ClientGoalHandle(self._client, goal_uuid(goal_id, decision_id), accepted)

    def _ask_about_recovered(self) -> None:
        recovered, self._recovered = self._recovered, {}
        for goal_id, handle in recovered.items():
            self._follow(goal_id, handle)
            handle.cancel_goal_async()

    def cancel(self, goal_id: int) -> None:
        """Ask the arm to stop. A goal that it has not accepted yet goes on: the gate cancels that once it is accepted."""
        handle = self._handles.get(goal_id)
        if handle is not None:
            handle.cancel_goal_async()

    def _on_response(self, goal_id: int, future: Future) -> None:
        handle = future.result()
        if not handle.accepted:
            self._happened(ev.GoalRejected(goal_id))
            return
        self._follow(goal_id, handle)
        self._happened(ev.GoalAccepted(goal_id))

    def _follow(self, goal_id: int, handle: ClientGoalHandle) -> None:
        self._handles[goal_id] = handle
        handle.get_result_async().add_done_callback(lambda result: self._on_result(goal_id, result))

    def _on_result(self, goal_id: int, future: Future) -> None:
        self._handles.pop(goal_id, None)
        response = future.result()
        if (
            response.status == GoalStatus.STATUS_UNKNOWN
        ):  # another server than the one that took it: nobody will tell its end
            self._lose()
            return
        code = removal_code(response.status, response.result.error_code)
        text = response.result.error_text
        said = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ..."
        self._happened(ev.RemovalFinished(goal_id, code, said))


def goal_uuid(goal_id: int, decision_id: str) -> Any:
    """The UUID of a goal for the arm, by which the next run finds it again."""
    named = RemoveSticker.Impl.SendGoalService.Request().goal_id
    named.uuid = list(hashlib.sha256(f"{goal_id} {decision_id}".encode()).digest()[:16])
    return named


def removal_code(status: int, error_code: int) -> ev.RemovalCode:
    """A result that nobody filled has code 0: only with the status it means success."""
    code = ev.RemovalCode(error_code) if error_code in set(ev.RemovalCode) else ev.RemovalCode.UNKNOWN
    if status == GoalStatus.STATUS_SUCCEEDED or code is not ev.RemovalCode.NONE:
        return code
    return ev.RemovalCode.OPERATOR_ABORT if status == GoalStatus.STATUS_CANCELED else ev.RemovalCode.UNKNOWN

# SPDX-License-Identifier: Apache-2.0
"""The driver that docs/arm.md shows, against a move_group and a controller manager that are real action and service servers.

They need moveit_msgs and controller_manager_msgs, which PyPI does not have; the path of the arm is the only thing made up.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rclpy
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient, ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.duration import Duration
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node

from sticker_uq.nodes.arm.client import ArmClient
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import PATIENCE_S, Bench
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import GateState, ObservedObject

why = "no MoveIt messages: apt install ros-jazzy-moveit-msgs ros-jazzy-controller-manager-msgs"
moveit = pytest.importorskip("moveit_msgs.action", reason=why)
controllers = pytest.importorskip("controller_manager_msgs.srv", reason=why)
MoveItErrorCodes = pytest.importorskip("moveit_msgs.msg", reason=why).MoveItErrorCodes

DOCUMENT = Path(__file__).parents[3] / "docs" / "arm.md"
Result = RemoveSticker.Result
DECISION, OBJECT = "decision", 3
PLANNING_FAILED = -1


class MoveGroupAndControllers:
    """Takes every pose; each motion lasts until it is let go, cancelled, or at once when ``quick``."""

    def __init__(self) -> None:
        self.node = Node("move_group")
        self.heights: list[float] = []
        self.frames: set[str] = set()
        self.switched: list[Any] = []
        self.cancelled = 0
        self.quick = True
        self.code = MoveItErrorCodes.SUCCESS
        self._go = threading.Event()
        group = ReentrantCallbackGroup()
        self._server = ActionServer(
            self.node,
            moveit.MoveGroup,
            "move_action",
            execute_callback=self._execute,
            cancel_callback=self._on_cancel,
            callback_group=group,
        )
        switch = controllers.SwitchController
        name = "controller_manager/switch_controller"
        self.node.create_service(switch, name, self._on_switch, callback_group=group)

    def _execute(self, handle: Any) -> Any:
        (constraints,) = handle.request.request.goal_constraints
        (place,) = constraints.position_constraints
        self.heights.append(place.constraint_region.primitive_poses[0].position.z)
        self.frames.add(place.header.frame_id)
        if not self.quick:
            assert self._go.wait(PATIENCE_S)
        result = moveit.MoveGroup.Result()
        if handle.is_cancel_requested:
            result.error_code.val = MoveItErrorCodes.PREEMPTED
            handle.canceled()
            return result
        result.error_code.val = self.code
        handle.succeed() if self.code == MoveItErrorCodes.SUCCESS else handle.abort()
        return result

    def _on_cancel(self, _: Any) -> CancelResponse:
        self.cancelled += 1
        threading.Timer(0.05, self._go.set).start()  # once the cancellation was accepted
        return CancelResponse.ACCEPT

    def _on_switch(self, request: Any, response: Any) -> Any:
        self.switched.append(request)
        response.ok = True
        return response


class MoveItRig:
    """The example's driver behind ArmClient, spun as the example spins it; the bench is supervisor and gate."""

    def __init__(self, bench: Bench) -> None:
        (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
        names: dict[str, Any] = {"__name__": "moveit_arm"}
        exec(compile(source, str(DOCUMENT), "exec"), names)
        self.bench = bench
        self.cell = MoveGroupAndControllers()
        self.node = rclpy.create_node("moveit_arm")
        self.motion = names["MoveItMotion"](self.node)
        self.arm = ArmClient(self.node, self.motion, permit_wait_s=PATIENCE_S, timeout_s=PATIENCE_S)
        self._executors = [ArmExecutor(), MultiThreadedExecutor(num_threads=3)]
        self._closing = threading.Event()
        self._threads = []
        for executor, node in zip(self._executors, (self.node, self.cell.node), strict=True):
            executor.add_node(node)
            self._threads.append(threading.Thread(target=self._spin, args=(executor,)))
            self._threads[-1].start()
        self._client = ActionClient(bench.probe, RemoveSticker, "remove_sticker")
        self.gate = bench.publisher_matched(GateState, "gate", qos.GATE)
        bench.until(self._client.server_is_ready, "the arm's action server")
        bench.until(self.motion._move.server_is_ready, "move_group")
        bench.until(self.motion._switch.service_is_ready, "the controller manager")

    def _spin(self, executor: Any) -> None:
        while not self._closing.is_set():
            executor.spin_once(timeout_sec=0.1)

    def close(self) -> None:
        self.arm._watch.update(None)
        self.cell._go.set()
        self._client.destroy()
        self._closing.set()
        for thread, executor in zip(self._threads, self._executors, strict=True):
            thread.join()
            executor.shutdown()
        self.arm.destroy()
        self.node.destroy_node()
        self.cell.node.destroy_node()

    def permit(self) -> None:
        message = GateState(state=GateState.STATE_REMOVING, open=True, decision_id=DECISION, object_id=OBJECT)
        message.valid_until = (self.node.get_clock().now() + Duration(seconds=600)).to_msg()
        self.gate.publish(message)

    def send(self, pose_valid: bool = True) -> Any:
        """The handle of a goal for a sticker 0.2 m above the arm's base."""
        goal = RemoveSticker.Goal(
            decision_id=DECISION,
            object_id=OBJECT,
            label=ObservedObject.LABEL_STICKER,
            pose_valid=pose_valid,
            frame_id="base_link",
        )
        goal.pose.pose.position.z, goal.pose.pose.orientation.w = 0.2, 1.0
        future = self._client.send_goal_async(goal)
        self.bench.until(future.done, "an answer to the goal")
        return future.result()

    def result(self, handle: Any) -> tuple[int, int, str]:
        future = handle.get_result_async()
        self.bench.until(future.done, "the result")
        answer = future.result()
        return answer.status, answer.result.error_code, answer.result.error_text

    def moving(self) -> Any:
        """The handle of a goal whose first motion goes on until it is stopped."""
        self.cell.quick = False
        self.permit()
        handle = self.send()
        self.bench.until(lambda: self.cell.heights and self.motion._handle is not None, "the arm moves")
        return handle

    def assert_stopped(self) -> None:
        self.bench.until(lambda: self.cell.cancelled == 1, "move_group is told to stop")
        self.bench.until(lambda: self.cell.switched, "the controller is deactivated")
        (request,) = self.cell.switched
        assert list(request.deactivate_controllers) == ["scaled_joint_trajectory_controller"]
        assert len(self.cell.heights) == 1


@pytest.fixture
def rig(bench: Bench) -> Iterator[MoveItRig]:
    made = MoveItRig(bench)
    yield made
    made.close()


def test_a_sticker_is_peeled_in_four_motions_above_on_and_off_the_lid(rig: MoveItRig) -> None:
    rig.permit()
    status, code, _ = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
    assert rig.cell.heights == pytest.approx([0.28, 0.2, 0.22, 0.28])
    assert rig.cell.frames == {"base_link"}
    assert (rig.cell.cancelled, rig.cell.switched) == (0, [])


def test_a_gate_that_closes_stops_move_group_and_the_controller(rig: MoveItRig) -> None:
    handle = rig.moving()
    rig.gate.publish(GateState(state=GateState.STATE_BLOCKED))
    assert rig.result(handle)[:2] == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    rig.assert_stopped()


def test_a_cancelled_goal_stops_move_group_and_the_controller(rig: MoveItRig) -> None:
    handle = rig.moving()
    handle.cancel_goal_async()
    assert rig.result(handle)[:2] == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    rig.assert_stopped()


def test_a_supervisor_that_dies_stops_them_too(rig: MoveItRig) -> None:
    handle = rig.moving()
    rig.bench.probe.destroy_publisher(rig.gate)
    assert rig.result(handle)[:2] == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    rig.assert_stopped()


def test_what_moveit_cannot_do_is_the_result_of_the_goal(rig: MoveItRig) -> None:
    rig.cell.code = PLANNING_FAILED
    rig.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_MOTION_FAILED)
    assert text == "MoveIt reports -1"
    status, code, text = rig.result(rig.send(pose_valid=False))
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_MOTION_FAILED)
    assert "no pose" in text

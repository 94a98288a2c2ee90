# SPDX-License-Identifier: Apache-2.0
"""The driver against a move_group, a controller manager and tools that are real action and service servers.

They need messages that PyPI does not have; the path of the arm is the only thing made up. Like move_group of Jazzy, this one
accepts the cancellation of execute_trajectory and goes on until the stop event comes.
"""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

from sticker_uq.scene import InvalidInput
from sticker_uq.testing.arm import ArmBench
from sticker_uq.testing.bench import PATIENCE_S, Bench, overrides
from sticker_uq_moveit_driver.errors import NAMES, PREEMPTED, SUCCESS
from sticker_uq_moveit_driver.motion import PeelMotion
from sticker_uq_moveit_driver.plan import Action, pieces_of
from sticker_uq_moveit_driver.settings import DriverSettings, pose_of
from sticker_uq_msgs.action import RemoveSticker

why = "no MoveIt messages: apt install ros-jazzy-moveit-msgs ros-jazzy-control-msgs ros-jazzy-controller-manager-msgs"
moveit = pytest.importorskip("moveit_msgs.action", reason=why)
moveit_srv = pytest.importorskip("moveit_msgs.srv", reason=why)
moveit_msg = pytest.importorskip("moveit_msgs.msg", reason=why)
control = pytest.importorskip("control_msgs.action", reason=why)
controllers = pytest.importorskip("controller_manager_msgs.srv", reason=why)
robots = pytest.importorskip("sticker_uq_moveit_driver.moveit", reason=why)
stopping = pytest.importorskip("sticker_uq_moveit_driver.stop_arm", reason=why)

Result = RemoveSticker.Result
Codes = moveit_msg.MoveItErrorCodes
CONTROLLER = "joint_trajectory_controller"
FEW = {"step_m": 0.1, "controller": CONTROLLER}


class MoveGroupAndControllers:
    """Takes every pose and path; a motion is done at once when ``quick``, else it lasts until it is stopped or let go."""

    def __init__(self) -> None:
        self.node = Node("move_group")
        self.done: list[tuple[str, Any]] = []  # what moved the arm or the tool, in order
        self.requests: list[Any] = []
        self.switched: list[Any] = []
        self.valve: list[bool] = []
        self.events: list[str] = []
        self.moving = threading.Event()
        self.quick: Callable[[str], bool] = lambda name: True
        self.code = SUCCESS
        self.fraction = 1.0
        self.switches = True
        self.hangs = False
        self.switch_s = 0.0
        self.grip = {"stalled": True}
        self._stop = threading.Event()
        self._target: Any = None
        group = ReentrantCallbackGroup()
        for action, name in (
            (moveit.MoveGroup, "move_action"),
            (moveit.ExecuteTrajectory, "execute_trajectory"),
        ):
            ActionServer(
                self.node,
                action,
                name,
                execute_callback=partial(self._move, action, name),
                cancel_callback=partial(self._on_cancel, name),
                callback_group=group,
            )
        ActionServer(
            self.node,
            control.GripperCommand,
            "gripper",
            execute_callback=self._on_gripper,
            callback_group=group,
        )
        for service, name, callback in (
            (moveit_srv.GetCartesianPath, "compute_cartesian_path", self._on_path),
            (controllers.SwitchController, "controller_manager/switch_controller", self._on_switch),
            (SetBool, "valve", self._on_valve),
        ):
            self.node.create_service(service, name, callback, callback_group=group)
        self.node.create_subscription(
            String, "trajectory_execution_event", self._on_event, 10, callback_group=group
        )

    def let_go(self) -> None:
        """End every motion that is under way."""
        self._stop.set()

    def _move(self, action: Any, name: str, handle: Any) -> Any:
        goal = handle.request
        if name == "move_action":
            self.requests.append(goal)
            (constraints,) = goal.request.goal_constraints
            target = constraints.position_constraints[0].constraint_region.primitive_poses[0]
        else:
            assert list(goal.trajectory.joint_trajectory.joint_names) == ["found by the path"]
            target = self._target
        self.done.append((name, target))
        result = action.Result()
        if not self.quick(name):
            self._stop.clear()
            self.moving.set()
            assert self._stop.wait(PATIENCE_S)
            result.error_code.val = PREEMPTED
        else:
            result.error_code.val = self.code
        handle.succeed() if result.error_code.val == SUCCESS else handle.abort()
        return result

    def _on_cancel(self, name: str, _: Any) -> CancelResponse:
        if name == "move_action" and not self.hangs:
            self._stop.set()
        return CancelResponse.ACCEPT

    def _on_event(self, message: String) -> None:
        self.events.append(message.data)
        if message.data == "stop" and not self.hangs:
            self._stop.set()

    def _on_path(self, request: Any, response: Any) -> Any:
        self.requests.append(request)
        (self._target,) = request.waypoints
        response.fraction = self.fraction
        response.solution.joint_trajectory.joint_names = ["found by the path"]
        response.error_code.val = SUCCESS
        return response

    def _on_switch(self, request: Any, response: Any) -> Any:
        time.sleep(self.switch_s)
        self.switched.append((list(request.activate_controllers), list(request.deactivate_controllers)))
        response.ok = self.switches
        return response

    def _on_valve(self, request: Any, response: Any) -> Any:
        self.valve.append(request.data)
        self.done.append(("valve", request.data))
        response.success = True
        return response

    def _on_gripper(self, handle: Any) -> Any:
        self.done.append(("gripper", handle.request.command))
        handle.abort()  # as a controller that may not stall
        return control.GripperCommand.Result(**self.grip)


@pytest.fixture
def robot(bench: Bench) -> Iterator[MoveGroupAndControllers]:
    made = MoveGroupAndControllers()
    executor = MultiThreadedExecutor(num_threads=4)
    executor.add_node(made.node)
    closing = threading.Event()

    def spin() -> None:
        while not closing.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin)
    thread.start()
    yield made
    made.quick = lambda name: True
    made.let_go()
    closing.set()
    thread.join()
    executor.shutdown()
    made.node.destroy_node()


def arm_of(bench: Bench, **settings: Any) -> ArmBench:
    """The driver's motion in the product's ArmClient, once all servers are there."""
    given = DriverSettings(**{**FEW, **settings})

    def motion(node: Node) -> PeelMotion:
        made = robots.MoveItRobot(node, given)
        bench.until(lambda: not made.missing(), lambda: f"not there: {made.missing()}")
        return PeelMotion(made, given, node.get_logger().error)

    return ArmBench(bench, motion)


def send(cell: ArmBench) -> Any:
    goal = RemoveSticker.Goal()
    goal.pose.pose.position.x, goal.pose.pose.position.z, goal.pose.pose.orientation.w = 0.4, 0.2, 1.0
    return cell.send(pose=goal.pose, pose_valid=True, frame_id="base_link")


def test_a_sticker_is_removed_by_one_planned_and_then_straight_motions(bench, robot):
    with arm_of(bench, tool="set_bool", tool_name="valve") as cell:
        cell.gate.permit()
        status, code, text = cell.result(send(cell))
    assert (status, code) == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE), text
    names = {Action.FREE: "move_action", Action.STRAIGHT: "execute_trajectory"}
    settings = DriverSettings(**FEW, tool="set_bool")
    pieces = pieces_of(pose_of("0.4 0 0.2 0 0 0 1", "pose"), settings)
    assert [name for name, _ in robot.done] == [names.get(piece.action, "valve") for piece in pieces]
    for (name, given), piece in zip(robot.done, pieces, strict=True):
        if name == "valve":
            assert given is (piece.action is Action.TOOL_ON)
            continue
        place, turn = given.position, given.orientation
        assert [place.x, place.y, place.z] == pytest.approx(piece.target.translation)
        sent = pose_of(f"0 0 0 {turn.x} {turn.y} {turn.z} {turn.w}", "sent")
        assert np.allclose(sent.rotation, piece.target.rotation)
    assert (robot.switched, robot.events) == ([], [])


def test_requests_name_group_link_frame_and_speed_and_start_where_the_arm_is(bench, robot):
    with arm_of(
        bench, group="ur", tool_link="blade", speed=0.3, contact_speed=0.07, acceleration=0.2
    ) as cell:
        cell.gate.permit()
        assert cell.result(send(cell))[1] == Result.ERROR_NONE
    free, straight = robot.requests[0], robot.requests[1]
    assert (free.request.group_name, straight.group_name) == ("ur", "ur")
    (constraints,) = free.request.goal_constraints
    (place,), (turn,) = constraints.position_constraints, constraints.orientation_constraints
    assert {place.link_name, turn.link_name, straight.link_name} == {"blade"}
    assert {place.header.frame_id, turn.header.frame_id, straight.header.frame_id} == {"base_link"}
    assert free.request.max_velocity_scaling_factor == pytest.approx(0.3)
    assert straight.max_velocity_scaling_factor == pytest.approx(0.07)
    assert free.request.start_state.is_diff
    assert straight.start_state.is_diff
    assert straight.max_step > 0
    assert straight.avoid_collisions
    assert not free.planning_options.plan_only


@pytest.mark.parametrize(
    ("lasting", "cause"),
    [
        ("move_action", "gate"),
        ("move_action", "cancel"),
        ("move_action", "supervisor"),
        ("execute_trajectory", "gate"),
        ("execute_trajectory", "cancel"),
    ],
)
def test_the_arm_is_stopped_in_every_motion(bench, robot, lasting, cause):
    robot.quick = lambda name: name != lasting
    with arm_of(bench) as cell:
        cell.gate.permit()
        handle = send(cell)
        bench.until(robot.moving.is_set, "the arm moves")
        moved = len(robot.done)
        if cause == "gate":
            cell.gate.close()
        elif cause == "cancel":
            handle.cancel_goal_async()
        else:
            cell.gate.disappear()
        _, code, text = cell.result(handle)
    expected = Result.ERROR_OPERATOR_ABORT if cause == "cancel" else Result.ERROR_PERMIT_REVOKED
    assert code == expected, text
    bench.until(lambda: robot.switched and robot.events, "the stop event and the controller's deactivation")
    assert robot.events[0] == "stop"
    assert robot.switched[0] == ([], [CONTROLLER])
    assert len(robot.done) == moved


def test_a_slow_controller_manager_confirms_a_stop_although_move_group_hangs(bench, robot):
    robot.quick = lambda name: False
    robot.hangs, robot.switch_s = True, 0.8  # longer than the driver waits before it demands the stop again
    with arm_of(bench) as cell:
        cell.gate.permit()
        handle = send(cell)
        bench.until(robot.moving.is_set, "the arm moves")
        cell.gate.close()
        _, code, text = cell.result(handle)
        assert code == Result.ERROR_PERMIT_REVOKED, text
        cell.gate.permit()
        _, code, text = cell.result(send(cell))
    assert (code, text) == (Result.ERROR_MOTION_FAILED, "the last motion has not ended")


def test_after_a_stop_the_next_goal_activates_the_controller_first(bench, robot):
    robot.quick = lambda name: False
    with arm_of(bench) as cell:
        cell.gate.permit()
        handle = send(cell)
        bench.until(robot.moving.is_set, "the arm moves")
        cell.gate.close()
        assert cell.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
        bench.until(lambda: robot.switched, "the controller's deactivation")
        bench.until(cell.motion._job.ended, "the end of the motion")
        robot.quick = lambda name: True
        robot.switched.clear()
        cell.gate.permit()
        _, code, text = cell.result(send(cell))
    assert code == Result.ERROR_NONE, text
    assert robot.switched == [([CONTROLLER], [])]


def test_a_valve_is_closed_by_a_stop(bench, robot):
    robot.quick = lambda name: True not in robot.valve
    with arm_of(bench, tool="set_bool", tool_name="valve") as cell:
        cell.gate.permit()
        handle = send(cell)
        bench.until(robot.moving.is_set, "the arm peels")
        cell.gate.close()
        assert cell.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
        bench.until(lambda: robot.valve == [True, False], "the valve is closed")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ("PLANNING_FAILED", Result.ERROR_MOTION_FAILED, "PLANNING_FAILED (-1)"),
        ("PREEMPTED", Result.ERROR_OPERATOR_ABORT, "PREEMPTED (-7)"),
        ("TIMED_OUT", Result.ERROR_TIMEOUT, "TIMED_OUT (-6)"),
        ("CRASH", Result.ERROR_UNKNOWN, "CRASH (-29)"),
    ],
)
def test_what_moveit_cannot_do_is_the_result_of_the_goal(bench, robot, error, code, text):
    robot.code = getattr(Codes, error)
    with arm_of(bench) as cell:
        cell.gate.permit()
        status, given, said = cell.result(send(cell))
    assert (status, given) == (GoalStatus.STATUS_ABORTED, code)
    assert text in said


def test_a_straight_path_that_is_cut_short_is_not_followed(bench, robot):
    robot.fraction = 0.43
    with arm_of(bench) as cell:
        cell.gate.permit()
        _, code, text = cell.result(send(cell))
    assert code == Result.ERROR_MOTION_FAILED
    assert "43 %" in text
    assert [name for name, _ in robot.done] == ["move_action"]


@pytest.mark.parametrize(
    ("grip", "code"), [("stalled", Result.ERROR_NONE), (None, Result.ERROR_MOTION_FAILED)]
)
def test_a_gripper_that_holds_something_has_gripped(bench, robot, grip, code):
    robot.grip = {grip: True} if grip else {}
    with arm_of(bench, tool="gripper", tool_name="gripper", gripper_effort_n=7.0) as cell:
        cell.gate.permit()
        assert cell.result(send(cell))[1] == code
    used = [command for name, command in robot.done if name == "gripper"]
    assert (used[0].position, used[0].max_effort) == (0.0, 7.0)
    assert (len(used) == 2) == (code == Result.ERROR_NONE)


def test_the_stop_service_stops_the_arm_without_the_driver(bench, robot):
    robot.quick = lambda name: False
    bench.add(stopping.StopArm(parameter_overrides=overrides(controller=CONTROLLER)))
    with arm_of(bench) as cell:
        cell.gate.permit()
        handle = send(cell)
        bench.until(robot.moving.is_set, "the arm moves")
        bench.until(lambda: bench.probe.count_subscribers("trajectory_execution_event"), "move_group hears")
        assert bench.call(Trigger, "stop_arm", Trigger.Request()).success
        assert robot.switched == [([], [CONTROLLER])]
        assert (
            cell.result(handle)[1] == Result.ERROR_OPERATOR_ABORT
        )  # to the driver someone else stopped the arm
        robot.switches = False
        assert not bench.call(Trigger, "stop_arm", Trigger.Request()).success


def test_the_stop_service_confirms_nothing_without_a_controller_manager(bench):
    bench.add(stopping.StopArm(parameter_overrides=overrides(controller=CONTROLLER)))
    answer = bench.call(Trigger, "stop_arm", Trigger.Request())
    assert not answer.success
    assert "switch_controller is not there" in answer.message
    with pytest.raises(InvalidInput, match="controller is empty"):
        stopping.StopArm()


def test_every_error_of_moveit_has_its_name():
    constants = vars(type(Codes))["_Metaclass_MoveItErrorCodes__constants"]
    assert {value: name for name, value in constants.items()} == NAMES


def test_the_driver_is_a_node_that_serves_the_cell(bench, robot):
    drivers = pytest.importorskip("sticker_uq_moveit_driver.driver")
    node = drivers.MoveItDriver(parameter_overrides=overrides(**FEW, group="ur"))
    bench.add(node)
    bench.until(lambda: bench.probe.count_publishers("arm/status"), "the heartbeat")
    assert node.motion._settings.group == "ur"
    with pytest.raises(InvalidInput, match="step_m"):
        drivers.MoveItDriver(parameter_overrides=overrides(step_m=5.0))

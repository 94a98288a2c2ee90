# SPDX-License-Identifier: Apache-2.0
"""The arm behind move_group, and its tool: the requests to them and what their answers mean.

The function to change for another tool: :meth:`MoveItRobot._use_tool`.
"""

from functools import partial
from typing import Any

from control_msgs.action import GripperCommand
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from moveit_msgs.action import ExecuteTrajectory, MoveGroup
from moveit_msgs.msg import Constraints, MoveItErrorCodes, OrientationConstraint, PositionConstraint
from moveit_msgs.srv import GetCartesianPath
from rclpy.action import ActionClient
from rclpy.node import Node
from shape_msgs.msg import SolidPrimitive
from std_srvs.srv import SetBool

from sticker_uq.geometry import Transform
from sticker_uq.geometry.transforms import quaternion
from sticker_uq.nodes.arm.client import MotionFailed
from sticker_uq_moveit_driver.errors import removal_code_of, text_of
from sticker_uq_moveit_driver.halt import Halt, in_namespace
from sticker_uq_moveit_driver.jobs import CallJob, GoalJob, Job, Sequence
from sticker_uq_moveit_driver.plan import Action, Piece
from sticker_uq_moveit_driver.settings import DriverSettings

WHOLE = 0.999
"""Least share of a straight path that must be possible, as a share of its length."""
TOLERANCE_M, TOLERANCE_RAD = 0.001, 0.017


class MoveItRobot:
    """Moves the arm through move_group for ``node``; implements ``motion.Robot``."""

    def __init__(self, node: Node, settings: DriverSettings) -> None:
        self._settings = settings
        self._halt = Halt(node, settings)
        self._move = ActionClient(node, MoveGroup, in_namespace(settings, "move_action"))
        self._execute = ActionClient(node, ExecuteTrajectory, in_namespace(settings, "execute_trajectory"))
        self._path = node.create_client(GetCartesianPath, in_namespace(settings, "compute_cartesian_path"))
        self._tool: Any = None
        if settings.tool == "set_bool":
            self._tool = node.create_client(SetBool, settings.tool_name)
        elif settings.tool == "gripper":
            self._tool = ActionClient(node, GripperCommand, settings.tool_name)

    def missing(self) -> list[str]:
        there = {
            in_namespace(self._settings, "move_action"): self._move.server_is_ready(),
            in_namespace(self._settings, "execute_trajectory"): self._execute.server_is_ready(),
            in_namespace(self._settings, "compute_cartesian_path"): self._path.service_is_ready(),
        }
        if self._settings.tool == "set_bool":
            there[self._settings.tool_name] = self._tool.service_is_ready()
        elif self._settings.tool == "gripper":
            there[self._settings.tool_name] = self._tool.server_is_ready()
        return [name for name, ready in there.items() if not ready] + self._halt.missing()

    def prepare(self) -> Job:
        return self._halt.undo()

    def start(self, piece: Piece, frame_id: str) -> Job:
        if piece.target is None:
            return self._use_tool(piece.action is Action.TOOL_ON)
        target = PoseStamped(pose=pose_msg(piece.target))
        target.header.frame_id = frame_id
        return self._plan_to(target) if piece.action is Action.FREE else self._straight_to(target)

    def halt(self) -> None:
        """Stop the arm without waiting. A valve is closed; a gripper stays as it is, for opening would be a motion."""
        self._halt.demand()
        if self._settings.tool == "set_bool":
            self._tool.call_async(SetBool.Request(data=False))

    def halted(self) -> bool:
        return self._halt.confirmed()

    def _plan_to(self, target: PoseStamped) -> Job:
        settings = self._settings
        goal = MoveGroup.Goal()
        goal.request.group_name = settings.group
        goal.request.num_planning_attempts = 1
        goal.request.allowed_planning_time = settings.planning_time_s
        goal.request.max_velocity_scaling_factor = settings.speed
        goal.request.max_acceleration_scaling_factor = settings.acceleration
        goal.request.start_state.is_diff = True  # from where the arm is
        goal.request.goal_constraints = [constraints_at(target, settings.tool_link)]
        goal.planning_options.planning_scene_diff.is_diff = True
        goal.planning_options.planning_scene_diff.robot_state.is_diff = True
        return GoalJob(self._move, goal, "move_action", partial(_read_motion, "the motion to the sticker"))

    def _straight_to(self, target: PoseStamped) -> Job:
        settings = self._settings
        request = GetCartesianPath.Request(
            header=target.header,
            group_name=settings.group,
            link_name=settings.tool_link,
            waypoints=[target.pose],
            max_step=settings.path_resolution_m,
            avoid_collisions=settings.avoid_collisions,
            max_velocity_scaling_factor=settings.contact_speed,
            max_acceleration_scaling_factor=settings.acceleration,
        )
        request.start_state.is_diff = True
        goal = ExecuteTrajectory.Goal()

        def keep(response: GetCartesianPath.Response) -> None:
            _check_code("the straight path", response.error_code)
            if response.fraction < WHOLE:
                share = f"{100 * max(response.fraction, 0.0):.0f} %"
                raise MotionFailed(
                    f"the straight path: MoveIt can follow {share} of it (reach, joint limits or a collision)"
                )
            goal.trajectory = response.solution

        return Sequence(
            CallJob(self._path, request, keep),
            lambda: GoalJob(
                self._execute, goal, "execute_trajectory", partial(_read_motion, "the straight motion")
            ),
        )

    def _use_tool(self, on: bool) -> Job:
        """Grip or let go, by the parameter ``tool``."""
        settings = self._settings
        if settings.tool == "set_bool":
            return CallJob(self._tool, SetBool.Request(data=on), _read_tool)
        goal = GripperCommand.Goal()
        goal.command.position = settings.gripper_closed_m if on else settings.gripper_open_m
        goal.command.max_effort = settings.gripper_effort_n
        return GoalJob(self._tool, goal, settings.tool_name, _read_gripper)


def pose_msg(pose: Transform) -> Pose:
    x, y, z = (float(value) for value in pose.translation)
    qx, qy, qz, qw = quaternion(pose.rotation)
    return Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))


def constraints_at(target: PoseStamped, link: str) -> Constraints:
    """``link`` within 1 mm and 1 degree of ``target``."""
    place = PositionConstraint(header=target.header, link_name=link, weight=1.0)
    place.constraint_region.primitives = [
        SolidPrimitive(type=SolidPrimitive.SPHERE, dimensions=[TOLERANCE_M])
    ]
    place.constraint_region.primitive_poses = [target.pose]
    turn = OrientationConstraint(header=target.header, link_name=link, weight=1.0)
    turn.orientation = target.pose.orientation
    turn.absolute_x_axis_tolerance = TOLERANCE_RAD
    turn.absolute_y_axis_tolerance = TOLERANCE_RAD
    turn.absolute_z_axis_tolerance = TOLERANCE_RAD
    return Constraints(position_constraints=[place], orientation_constraints=[turn])


def _check_code(what: str, error: MoveItErrorCodes) -> None:
    if error.val != MoveItErrorCodes.SUCCESS:
        raise MotionFailed(text_of(error.val, what, error.message), removal_code_of(error.val))


def _read_motion(what: str, _: int, result: Any) -> None:
    _check_code(what, result.error_code)


def _read_tool(response: SetBool.Response) -> None:
    if not response.success:
        raise MotionFailed(f"the tool refused: {response.message}")


def _read_gripper(status: int, result: GripperCommand.Result) -> None:
    # a gripper that holds something stalls before it is closed; some controllers then abort the goal
    if not (result.reached_goal or result.stalled):
        raise MotionFailed(f"the gripper stopped at {result.position:.4f} m (status {status} of its goal)")

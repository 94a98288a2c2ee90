# SPDX-License-Identifier: Apache-2.0
"""The parameters of the driver."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sticker_uq.geometry import Transform

Tool = Literal["none", "set_bool", "gripper"]


class HaltSettings(BaseModel):
    """How the arm is stopped, by the driver and by the node ``stop_arm``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    moveit_namespace: str = Field("", description="Namespace of move_group; empty: that of this node")
    controller: str = Field(
        "",
        description="Trajectory controller of ros2_control that is deactivated to stop the arm; empty: move_group alone stops it",
    )
    controller_manager: str = Field(
        "controller_manager", min_length=1, description="Name of its controller manager"
    )


class PeelSettings(BaseModel):
    """Where the tool goes, seen from the sticker: x along the image's rows, z out of the lid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool_pose: str = Field(
        "0 0 0 1 0 0 0",
        description="Pose of tool_link in the frame of the sticker at contact: x y z (m), qx qy qz qw; as given, z points "
        "into the lid",
    )
    approach_m: float = Field(0.08, gt=0.0, le=0.5, description="Height above the lid before and after, m")
    contact_at_m: float = Field(
        0.0, ge=-0.2, le=0.2, description="Where the tool touches, along x from the sticker's centre, m"
    )
    peel_m: float = Field(0.06, ge=0.0, le=0.5, description="Length of the peeling motion along x, m")
    peel_lift_m: float = Field(0.02, ge=0.0, le=0.5, description="Height gained while peeling, m")
    peel_angle_deg: float = Field(
        0.0, ge=-180.0, le=180.0, description="Direction of the peeling motion about z, degrees"
    )
    step_m: float = Field(
        0.02,
        gt=0.0,
        le=0.1,
        description="Longest straight motion without a new permit; longer ones are divided, m",
    )
    drop_pose: str = Field(
        "",
        description="Pose of tool_link in the arm's frame where the sticker is dropped: x y z (m), qx qy qz qw; empty: "
        "above the lid",
    )

    @field_validator("tool_pose", "drop_pose")
    @classmethod
    def _is_pose(cls, text: str, info: object) -> str:
        if text:
            pose_of(text, str(getattr(info, "field_name", "pose")))
        return text


class DriverSettings(HaltSettings, PeelSettings):
    """All parameters of the node ``moveit_driver``."""

    group: str = Field("manipulator", min_length=1, description="Planning group of the arm (SRDF)")
    tool_link: str = Field("tool0", min_length=1, description="Link that is moved to the poses")
    speed: float = Field(0.2, gt=0.0, le=1.0, description="Share of the joints' top speeds in free space")
    contact_speed: float = Field(
        0.05, gt=0.0, le=1.0, description="The same for the straight motions at the lid"
    )
    acceleration: float = Field(0.2, gt=0.0, le=1.0, description="Share of the joints' top accelerations")
    planning_time_s: float = Field(
        2.0, gt=0.0, le=30.0, description="Longest time of planning a free motion, s"
    )
    path_resolution_m: float = Field(
        0.002, gt=0.0, le=0.02, description="Longest distance between two points of a straight path, m"
    )
    avoid_collisions: bool = Field(True, description="Whether straight paths are checked for collisions")
    tool: Tool = Field(
        "none",
        description="none, set_bool (std_srvs/SetBool, such as a valve) or gripper (control_msgs/GripperCommand)",
    )
    tool_name: str = Field("tool", min_length=1, description="Service or action of the tool")
    gripper_closed_m: float = Field(0.0, ge=0.0, le=0.5, description="Position of the closed gripper, m")
    gripper_open_m: float = Field(0.04, ge=0.0, le=0.5, description="Position of the open gripper, m")
    gripper_effort_n: float = Field(10.0, ge=0.0, le=500.0, description="Largest effort of the gripper, N")
    step_timeout_s: float = Field(
        15.0, gt=0.0, le=60.0, description="Longest duration of one step, planning included, s"
    )
    stop_timeout_s: float = Field(
        5.0,
        gt=0.0,
        le=60.0,
        description="How long a stop is demanded before the goal ends without it, s; longer than the supervisor's "
        "cancel_timeout_s, which then calls its stop_service",
    )
    permit_wait_s: float = Field(1.0, ge=0.0, le=10.0, description="How long a goal waits for its permit, s")
    removal_timeout_s: float = Field(
        50.0, ge=1.0, le=600.0, description="Longest duration of one removal, s; less than the supervisor's"
    )


def pose_of(text: str, name: str) -> Transform:
    """The pose in ``text``, x y z (m) and qx qy qz qw; raises :class:`sticker_uq.scene.InvalidInput` naming ``name``."""
    return Transform.of([float(word) for word in text.replace(",", " ").split()], name)

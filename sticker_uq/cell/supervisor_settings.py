"""The parameters of the node ``supervisor``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sticker_uq.gate import AssumptionSettings, GateSettings, Policy
from sticker_uq.geometry import Plane, Transform
from sticker_uq.io.share import share_folder
from sticker_uq.messages import text_of
from sticker_uq.scene import InvalidInput

StopServiceType = Literal["trigger", "set_bool"]


class StopSettings(BaseModel):
    """How the cell stops an arm that does not stop by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stop_service: str = Field(
        "",
        description="Service that stops the arm when it does not end a cancelled goal in time; empty: none",
    )
    stop_service_type: StopServiceType = Field(
        "trigger", description="Type of stop_service: std_srvs/Trigger, or std_srvs/SetBool called with true"
    )
    stop_topic: str = Field(
        "",
        description="Topic (std_msgs/Bool, latched, sent with every tick) that is true while the arm must be stopped; "
        "empty: none",
    )


class PoseSettings(BaseModel):
    """How pixels become metres. Empty texts: the transform comes from tf2, the lid from the topic ``lid_pose``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm_frame: str = Field("base_link", min_length=1, description="Frame in which the arm wants its poses")
    camera_pose: str = Field(
        "",
        description="Pose of the camera's optical frame in arm_frame: x y z (m), qx qy qz qw; empty: from tf2",
    )
    lid_plane: str = Field(
        "",
        description="The lid in arm_frame: a b c d with a x + b y + c z + d = 0 (m); empty: z axis and origin of the "
        "topic lid_pose",
    )
    image_rectified: bool = Field(
        False, description="Whether the pictures are rectified: then P counts, not K and D"
    )
    max_calibration_age: float = Field(
        5.0,
        ge=0.05,
        le=3600.0,
        allow_inf_nan=False,
        description="How far the stamps of CameraInfo and picture may lie apart, s",
    )

    @field_validator("camera_pose")
    @classmethod
    def _is_pose(cls, text: str) -> str:
        if text:
            Transform.of(numbers_of(text), "camera_pose")
        return text

    @field_validator("lid_plane")
    @classmethod
    def _is_plane(cls, text: str) -> str:
        if text:
            Plane.of(numbers_of(text), "lid_plane")
        return text


def numbers_of(text: str) -> list[float]:
    """The numbers in ``text``, which blanks or commas separate; raises ``ValueError`` for anything else."""
    return [float(word) for word in text.replace(",", " ").split()]


class SupervisorNodeSettings(GateSettings, AssumptionSettings, StopSettings, PoseSettings):
    """Parameters of ``supervisor``: those of the gate and of the watch over the policy, and where the policy is."""

    policy: str = Field("", description="Policy file (YAML); empty: config/policy.yaml of this package")
    audit_folder: str = Field(
        "", description="Folder of the audit log; empty: audit/ in ROS's folder of logs, one per supervisor"
    )
    audit_file_mb: float = Field(
        16.0, ge=0.001, le=1000.0, description="Size from which the audit log begins a new file, MB"
    )
    arm_silence: float = Field(
        0.5,
        ge=0.1,
        le=5.0,
        description="An arm that has not said for this time that it is there (arm/status, 20 Hz) closes the gate, s; one whose "
        "process has died closes it sooner",
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

    def watch(self) -> AssumptionSettings:
        """The part that is the watch's over the policy."""
        return AssumptionSettings(**{name: getattr(self, name) for name in AssumptionSettings.model_fields})

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
            raise InvalidInput(f"policy {path}: {text_of(expired)}; expected one that is still valid")
        return policy


LOCKED_WHILE_ACTIVE = frozenset(
    {
        *("policy", "tick_period", "audit_folder", "audit_file_mb", "arm_silence", "listen_time"),
        *StopSettings.model_fields,
        *PoseSettings.model_fields,
    }
)
"""What cannot be changed while the supervisor is active."""

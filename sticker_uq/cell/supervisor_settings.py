# SPDX-License-Identifier: Apache-2.0
"""The parameters of the node ``supervisor``."""

import time
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from sticker_uq.gate import AssumptionSettings, GateSettings, Policy
from sticker_uq.geometry import Plane, Transform
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.io.share import share_folder
from sticker_uq.messages import text_of
from sticker_uq.scene import InvalidInput, Reason

StopServiceType = Literal["trigger", "set_bool"]


class StopSettings(Frozen):
    """How to stop an arm that does not end a cancelled goal."""

    stop_service: str = ""
    """Service that stops the arm when it does not end a cancelled goal in time; empty: none"""
    stop_service_type: StopServiceType = "trigger"
    """Type of stop_service: std_srvs/Trigger, or std_srvs/SetBool called with true"""
    stop_topic: str = ""
    """Topic (std_msgs/Bool, latched, sent every tick_period_s) that is true while the arm must be stopped; empty: none"""


class PoseSettings(Frozen):
    arm_frame: str = Field("base_link", min_length=1)
    """Frame of the poses that are sent to the arm"""
    camera_pose: str = ""
    """Pose of the camera's optical frame in arm_frame: x y z (m), qx qy qz qw; empty: from tf2"""
    lid_plane: str = ""
    """The lid in arm_frame: a b c d with a x + b y + c z + d = 0 (m); empty: z axis and origin of the topic lid_pose"""
    image_rectified: bool = False
    """Whether the images are rectified; then P of CameraInfo is used instead of K and D"""
    max_calibration_age_s: float = Field(5.0, ge=0.05, le=3600.0, allow_inf_nan=False)
    """Highest difference between the stamps of CameraInfo and image, s"""

    @field_validator("camera_pose", "lid_plane")
    @classmethod
    def _is_pose_or_plane(cls, text: str, info: ValidationInfo) -> str:
        if text:
            kind = Plane if info.field_name == "lid_plane" else Transform
            kind.of(numbers_of(text), str(info.field_name))
        return text


def numbers_of(text: str) -> list[float]:
    return [float(word) for word in text.replace(",", " ").split()]


class SupervisorNodeSettings(GateSettings, AssumptionSettings, StopSettings, PoseSettings):
    policy: str = Field("", description="Policy file (YAML); empty: config/limits.yaml of this package")
    policy_hash: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    """Hash that the policy must have, as a bundle sets it; empty: any"""
    allow_uncalibrated: bool = False
    """Whether the gate may open on a policy without a guarantee, as the default one is"""
    bundle_hash: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    """SHA-256 of the manifest of the bundle that the cell was started from, for the audit log; launch sets it"""
    audit_folder: str = ""
    """Folder of the audit log; empty: audit/ in the ROS log directory, one per supervisor"""
    audit_file_mb: float = Field(16.0, ge=0.001, le=1000.0)
    """Size at which the audit log starts a new file, MB"""
    hold_unknown_start: bool = True
    """Whether a start is held where nothing says what was decided before, as the first one or one whose audit log is gone; the
    simulated cell sets false"""
    arm_heartbeat_timeout_s: float = Field(0.5, ge=0.1, le=5.0)
    """Time without a heartbeat of the arm (arm/status, 20 Hz) after which the gate closes, s; it closes sooner when the arm's
    process dies"""
    discovery_time_s: float = Field(1.0, ge=0.1, le=60.0)
    """Time after activation in which other gate publishers are discovered before anything is permitted, s"""

    def load_policy(self) -> Policy:
        """The policy that the parameters name; raises :class:`InvalidInput` when invalid, expired or not of ``policy_hash``."""
        path = Path(self.policy) if self.policy else share_folder() / "config" / "limits.yaml"
        policy = Policy.load(path)
        if self.policy_hash not in ("", policy.hash):
            raise InvalidInput(
                f"policy {path}: its hash is {policy.hash[:12]}, expected {self.policy_hash[:12]}: exchanged since the cell "
                "started; start the cell again with a whole bundle"
            )
        if policy.validity is not None and (expired := policy.validity.expiry_reason(time.time_ns())):
            raise InvalidInput(f"policy {path}: {text_of(expired)}; expected one that is still valid")
        return policy

    def why_uncalibrated(self, policy: Policy) -> Reason | None:
        """Why nothing is permitted under ``policy``, which proves too little; None with ``allow_uncalibrated``."""
        return None if self.allow_uncalibrated else why_unproved(policy)


def why_unproved(policy: Policy) -> Reason | None:
    """What ``policy`` does not prove, so that a cell moves an arm on it only with ``allow_uncalibrated``; None: nothing.

    A guarantee holds for laptops like those it was proved on; a policy that releases without novelty cannot tell others.
    """
    if policy.guarantee is None:
        return Reason.of("policy_uncalibrated", policy=policy.hash[:12])
    if policy.unmeasured_novelty == "release":
        return Reason.of("policy_releases_unfamiliar", policy=policy.hash[:12])
    return None


_AT_ANY_TIME = {*GateSettings.model_fields, *AssumptionSettings.model_fields} - {
    "tick_period_s",
    "min_relief_mm",
}
LOCKED_WHILE_ACTIVE = frozenset(SupervisorNodeSettings.model_fields) - _AT_ANY_TIME
"""Parameters that cannot be changed while the supervisor is active."""

"""The parameters of the node ``supervisor``."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import Field

from sticker_uq.nodes.cell_stop import StopSettings
from sticker_uq.nodes.poses import PoseSettings
from sticker_uq.nodes.processes import share_folder
from sticker_uq.scene import InvalidInput
from sticker_uq.supervision import GateSettings, Policy, WatchSettings


class SupervisorNodeSettings(GateSettings, WatchSettings, StopSettings, PoseSettings):
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

    def watch(self) -> WatchSettings:
        """The part that is the watch's over the policy."""
        return WatchSettings(**{name: getattr(self, name) for name in WatchSettings.model_fields})

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
            raise InvalidInput(f"policy {path}: {expired}; expected one that is still valid")
        return policy


LOCKED_WHILE_ACTIVE = frozenset(
    {
        *("policy", "tick_period", "audit_folder", "audit_file_mb", "arm_silence", "listen_time"),
        *StopSettings.model_fields,
        *PoseSettings.model_fields,
    }
)
"""What cannot be changed while the supervisor is active."""

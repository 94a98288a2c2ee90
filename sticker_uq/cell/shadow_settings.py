# SPDX-License-Identifier: Apache-2.0
"""The parameters of the node ``shadow``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ShadowSettings(BaseModel):
    """Parameters of the shadow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bundle: str = Field(
        "", description="Folder of the candidate's bundle, whose detector publishes shadow/scene"
    )
    folder: str = Field(
        "",
        description="Folder of the counted differences (shadow.jsonl), which are continued; empty: shadow/ in the ROS log "
        "directory, one per node",
    )
    max_waiting: int = Field(
        200,
        ge=1,
        le=10_000,
        description="Images that wait for the scene of the other side; beyond that the oldest is counted as unpaired",
    )
    silent_after_s: float = Field(
        10.0,
        ge=0.1,
        le=3600.0,
        allow_inf_nan=False,
        description="Time without a scene of the candidate after which /diagnostics warns, s",
    )

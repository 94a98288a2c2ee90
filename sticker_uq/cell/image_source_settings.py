# SPDX-License-Identifier: Apache-2.0
"""The parameters of the node ``image_source``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ImageSourceSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(
        "", description="Recording, folder, picture, video, or camera device (/dev/video0 or 0)"
    )
    topic: str = Field("", description="Image topic of a recording; empty: the only one")
    rate: float = Field(
        5.0, gt=0.0, le=240.0, description="Rate of the images, Hz; of a camera device the highest rate"
    )
    loop: bool = Field(False, description="Restart from the beginning at the end")
    exit_at_end: bool = Field(False, description="End the process at the end")
    frame_id: str = Field("", description="frame_id of the images; empty: that of the source")
    transport: Literal["raw", "compressed", "both"] = Field(
        "raw", description="Image topics to publish: image, image/compressed or both"
    )
    jpeg_quality: int = Field(90, ge=1, le=100, description="JPEG quality of compressed images")

# SPDX-License-Identifier: Apache-2.0
"""The parameters of the node ``detector``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from sticker_uq.io.topics import more_topics
from sticker_uq.perception import PerceptionSettings


class DetectorNodeSettings(PerceptionSettings):
    image_transport: Literal["raw", "compressed"] = Field(
        "raw", description="Subscribe to image or to image/compressed"
    )
    image_reliability: Literal["auto", "reliable", "best_effort"] = Field(
        "auto",
        description="Requested reliability of the image subscription; auto: reliable if every publisher offers it",
    )
    more_image_topics: str = Field(
        "",
        description="Image topics of further cameras, comma-separated; the results for left/image are published on "
        "left/scene, left/detections, ...; the detector serves the cameras round-robin",
    )
    max_image_age_s: float = Field(
        0.0,
        ge=0.0,
        le=3600.0,
        description="Highest age of an image, s; an older one is reported as failed, not assessed; 0: no limit",
    )
    annotated_rate: float = Field(5.0, gt=0.0, le=60.0, description="Highest rate of annotated pictures, Hz")

    @field_validator("more_image_topics")
    @classmethod
    def _topics(cls, value: str) -> str:
        more_topics(value)
        return value

    def perception(self) -> PerceptionSettings:
        return PerceptionSettings(**{name: getattr(self, name) for name in PerceptionSettings.model_fields})


#: Parameters that cannot be changed while the node is active.
LOCKED = frozenset({"model", "weights", "device", "threads", "image_transport", "image_reliability"})
#: Parameters that cannot be changed while the node is configured.
LOCKED_SINCE_CONFIGURE = frozenset({"more_image_topics"})
#: Parameters of the node that are not perception's: they do not apply to images from files.
NODE_ONLY = tuple(sorted(set(DetectorNodeSettings.model_fields) - set(PerceptionSettings.model_fields)))

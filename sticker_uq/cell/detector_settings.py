"""The parameters of the node ``detector``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from sticker_uq.io.topics import more_topics
from sticker_uq.perception import PerceptionSettings


class DetectorNodeSettings(PerceptionSettings):
    """Parameters of ``detector``: those of perception, and how images come and results go."""

    image_transport: Literal["raw", "compressed"] = Field(
        "raw", description="Subscribe to image or to image/compressed"
    )
    image_reliability: Literal["auto", "reliable", "best_effort"] = Field(
        "auto", description="Reliability asked of the camera; auto: reliable if every publisher offers it"
    )
    more_image_topics: str = Field(
        "",
        description="Images of further cameras, commas between the topics; what is seen in left/image is published on "
        "left/scene, left/detections, ...; the cameras take turns",
    )
    max_image_age_s: float = Field(
        0.0,
        ge=0.0,
        le=3600.0,
        description="Older images are not assessed but reported as failed, s; 0: no limit",
    )
    annotated_rate: float = Field(5.0, gt=0.0, le=60.0, description="Annotated pictures per second at most")

    @field_validator("more_image_topics")
    @classmethod
    def _topics(cls, value: str) -> str:
        more_topics(value)
        return value

    def perception(self) -> PerceptionSettings:
        """The part that is perception's."""
        return PerceptionSettings(**{name: getattr(self, name) for name in PerceptionSettings.model_fields})


#: What the active node cannot change.
LOCKED = frozenset({"model", "weights", "device", "threads", "image_transport", "image_reliability"})
#: What the configured node cannot change.
LOCKED_SINCE_CONFIGURE = frozenset({"more_image_topics"})

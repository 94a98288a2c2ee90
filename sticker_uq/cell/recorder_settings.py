# SPDX-License-Identifier: Apache-2.0
"""The parameters of the node ``recorder``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sticker_uq.io.images import Transport
from sticker_uq.io.topics import more_topics


class RecorderSettings(BaseModel):
    """Parameters of the recorder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bag: str = Field("", description="Folder of the new recording; it must not exist yet")
    number_if_exists: bool = Field(
        False,
        description="If the folder exists, record into <bag>_2, <bag>_3, ... instead of failing: for a recorder that is "
        "restarted",
    )
    image_transport: Transport = Field(
        "raw", description="Transport of the images to record, raw or compressed; use the detector's"
    )
    more_image_topics: str = Field(
        "",
        description="Image topics of further cameras to record with their scenes, comma-separated; use the detector's",
    )

    @field_validator("more_image_topics")
    @classmethod
    def _topics(cls, value: str) -> str:
        more_topics(value)
        return value

# SPDX-License-Identifier: Apache-2.0
"""The parameters of the node ``recorder``."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sticker_uq.io.images import Transport
from sticker_uq.io.topics import more_topics


class RecorderSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    bag: str = Field("", description="Folder of the new recording; it must not exist yet")
    number_if_exists: bool = Field(
        False,
        description="If the folder exists, record into <bag>_2, <bag>_3, ... instead of failing: for a recorder that is "
        "restarted",
    )
    split_mb: float = Field(
        0.0,
        ge=0.0,
        le=1e6,
        description="Size of a folder, MB, after which the recording goes on in <bag>_2, <bag>_3, ...; 0: one folder",
    )
    keep: int = Field(
        0,
        ge=0,
        le=100_000,
        description="With split_mb: so many of the newest folders stay, older recordings of this name are removed; 0: all stay",
    )
    image_transport: Transport = Field(
        "raw", description="Transport of the images to record, raw or compressed; use the detector's"
    )
    more_image_topics: str = Field(
        "",
        description="Image topics of further cameras to record with their scenes, comma-separated; use the detector's",
    )

    @model_validator(mode="after")
    def _what_is_removed_is_split(self) -> Self:
        if self.keep and not self.split_mb:
            raise ValueError(
                f"keep = {self.keep} with split_mb = 0: expected a size at which a new folder begins, e.g. split_mb = 2000"
            )
        return self

    @field_validator("more_image_topics")
    @classmethod
    def _topics(cls, value: str) -> str:
        more_topics(value)
        return value

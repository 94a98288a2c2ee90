# SPDX-License-Identifier: Apache-2.0
"""The parameters of the nodes ``detector``, ``image_source`` and ``recorder``."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sticker_uq.io.images import Transport
from sticker_uq.io.setting_fields import Frozen
from sticker_uq.io.topics import more_topics
from sticker_uq.perception import PerceptionSettings


def _check_topics(topics: str) -> str:
    more_topics(topics)
    return topics


_ImageTopics = Annotated[str, AfterValidator(_check_topics)]


class DetectorNodeSettings(PerceptionSettings):
    image_transport: Transport = "raw"
    """Subscribe to image or to image/compressed"""
    image_reliability: Literal["auto", "reliable", "best_effort"] = "auto"
    """Requested reliability of the image subscription; auto: reliable if every publisher offers it"""
    more_image_topics: _ImageTopics = ""
    """Image topics of further cameras, comma-separated; the results for left/image are published on left/scene, left/detections,
    ...; the detector serves the cameras round-robin"""
    annotated_rate: float = Field(5.0, gt=0.0, le=60.0, description="Highest rate of annotated pictures, Hz")


#: Parameters that cannot be changed while the node is active.
LOCKED = frozenset({"image_transport", "image_reliability"})
#: Parameters that cannot be changed while the node is configured.
LOCKED_SINCE_CONFIGURE = frozenset({"more_image_topics", *PerceptionSettings.model_fields})
#: Parameters of the node that are not perception's: they do not apply to images from files.
NODE_ONLY = tuple(sorted(set(DetectorNodeSettings.model_fields) - set(PerceptionSettings.model_fields)))


class ImageSourceSettings(Frozen):
    source: str = ""
    """Recording, folder, picture, video, or camera device (/dev/video0 or 0)"""
    topic: str = Field("", description="Image topic of a recording; empty: the only one")
    rate: float = Field(5.0, gt=0.0, le=240.0)
    """Rate of the images, Hz; of a camera device the highest rate"""
    loop: bool = Field(False, description="Restart from the beginning at the end")
    frame_id: str = Field("", description="frame_id of the images; empty: that of the source")
    transport: Literal["raw", "compressed", "both"] = "raw"
    """Image topics to publish: image, image/compressed or both"""
    jpeg_quality: int = Field(90, ge=1, le=100, description="JPEG quality of compressed images")


class RecorderSettings(Frozen):
    bag: str = Field("", description="Folder of the new recording; it must not exist yet")
    number_if_exists: bool = False
    """If the folder exists, record into <bag>_2, <bag>_3, ... instead of failing: for a recorder that is restarted"""
    split_mb: float = Field(0.0, ge=0.0, le=1e6)
    """Size of a folder, MB, after which the recording goes on in <bag>_2, <bag>_3, ...; 0: one folder"""
    keep: int = Field(0, ge=0, le=100_000)
    """With split_mb: so many of the newest folders stay, older recordings of this name are removed; 0: all stay"""
    image_transport: Transport = "raw"
    """Transport of the images to record, raw or compressed; use the detector's"""
    more_image_topics: _ImageTopics = ""
    """Image topics of further cameras to record with their scenes, comma-separated; use the detector's"""

    @model_validator(mode="after")
    def _what_is_removed_is_split(self) -> Self:
        if self.keep and not self.split_mb:
            raise ValueError(
                f"keep = {self.keep} with split_mb = 0: expected a size at which a new folder begins, e.g. split_mb = 2000"
            )
        return self

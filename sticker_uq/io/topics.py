# SPDX-License-Identifier: Apache-2.0
"""Topic names of several cameras: results are published in the namespace of the image topic.

The images of `left/image` (or `left/image/compressed`) are assessed on `left/scene`.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping

from sticker_uq.scene import InvalidInput

COMPRESSED = "/compressed"
"""Suffix that image_transport appends to an image topic for compressed images."""

IMAGE_TYPES = {"raw": "sensor_msgs/msg/Image", "compressed": "sensor_msgs/msg/CompressedImage"}
"""Type name of the images of each transport."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_WITH_FOLDER = re.compile(rf"/?{_NAME}(/{_NAME})+")


def folder_of(image_topic: str) -> str:
    folder, slash, _ = image_topic.removesuffix(COMPRESSED).rpartition("/")
    return folder + slash


def more_topics(text: str) -> tuple[str, ...]:
    """The image topics in a comma-separated string, e.g. ``left/image, right/image``; () for an empty one.

    Raises InvalidInput unless each is a topic in a namespace of its own.
    """
    topics = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    for name in topics:
        if not _WITH_FOLDER.fullmatch(name):
            raise InvalidInput(f"{name!r}: expected an image topic in a namespace, such as left/image")
        if name.endswith(COMPRESSED):
            raise InvalidInput(f"{name!r}: expected the topic without {COMPRESSED}, which the transport adds")
    folders = Counter(map(folder_of, topics))
    shared = [folder for folder, count in folders.items() if count > 1]
    if shared:
        raise InvalidInput(
            f"several image topics in {', '.join(shared)}: expected each in a namespace of its own"
        )
    return topics


def images_elsewhere(wanted: str, published: Mapping[str, Collection[str]]) -> str:
    """Where images are ``published`` (topic to type names) while nobody publishes ``wanted``, and what to set; "" if nowhere."""
    transports = {
        topic: transport
        for topic, types in published.items()
        for transport, type_name in IMAGE_TYPES.items()
        if type_name in types and topic != wanted
    }
    base = wanted.removesuffix(COMPRESSED)
    other, transport = (base, "raw") if wanted.endswith(COMPRESSED) else (base + COMPRESSED, "compressed")
    if transports.get(other) == transport:
        return f"but {other} is published: set image_transport to {transport}"
    # a topic and its compressed one are one camera; that with the same last name is the likeliest
    cameras = {topic.removesuffix(COMPRESSED) for topic in transports}
    name = base.rpartition("/")[2]
    likeliest = sorted(cameras, key=lambda topic: (topic.rpartition("/")[2] != name, topic))[:3]
    if not likeliest:
        return ""
    return f"but images are published on {', '.join(likeliest)}: set camera_topic, or remap image"


def scene_topic_of(image_topic: str, scenes: Collection[str], images: Collection[str]) -> list[str]:
    """The topics among ``scenes`` of a recording that may belong to ``image_topic``; one if that is unambiguous.

    ``images``: all recorded image topics. The scene topic in the same namespace, else those in no other camera's namespace.
    """
    beside = f"{folder_of(image_topic)}scene"
    if beside in scenes:
        return [beside]
    others = {f"{folder_of(topic)}scene" for topic in images}
    return [topic for topic in scenes if topic not in others]

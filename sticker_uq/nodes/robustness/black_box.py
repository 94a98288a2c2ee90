# SPDX-License-Identifier: Apache-2.0
"""A ROS node under assessment as a black box: images are published on one topic, its detections are received on another.

Not a node of a cell: it is used by ``sticker-uq robustness run --topic``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy
from pydantic import BaseModel, ConfigDict, Field
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Image

from sticker_uq.io.images import Picture
from sticker_uq.io.messages import box_from_msg, stamp_to_ns
from sticker_uq.lab.robustness.systems_interface import Answer, no_detections
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import ns_to_stamp
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.nodes.common.lifecycle import init_ros
from sticker_uq.nodes.detector.vision_mirror import VISION_MSGS
from sticker_uq.scene import CLASS_COUNT, Detections, InvalidInput, ObjectClass
from sticker_uq_msgs.msg import StickerDetectionArray

_OURS = "sticker_uq_msgs/msg/StickerDetectionArray"
_THEIRS = "vision_msgs/msg/Detection2DArray"
_STEP_NS = 1_000_000
_NAMES = {label.name.lower(): label for label in ObjectClass}


class BlackBoxSettings(BaseModel):
    """Topics and timeouts of a ROS node under robustness assessment. An invalid value raises pydantic's ``ValidationError``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image_topic: str = Field("image", min_length=1, description="image topic that the node subscribes to")
    detections_topic: str = Field("detections", min_length=1, description="detection topic that it publishes")
    timeout_s: float = Field(
        5.0, gt=0, le=600, description="timeout of an answer, s; then the image counts as failed"
    )
    start_timeout_s: float = Field(
        60.0, gt=0, le=3600, description="timeout for the node to appear before the first image, s"
    )


class BlackBox:
    """A ROS node under robustness assessment, behind two topics. An answer belongs to the image whose stamp it carries.

    Understands ``StickerDetectionArray`` and, where it is installed, ``vision_msgs/Detection2DArray`` (class ids 1 and 2 or the
    names logo and sticker; boxes in px of the image). No answer in time counts as a failed assessment.
    Has a context, a node and an executor of its own; not thread-safe.
    """

    def __init__(self, settings: BlackBoxSettings) -> None:
        """Wait until the image topic has a subscription and the detection topic a publisher.

        Raises InvalidInput when that takes longer than ``start_timeout_s``, or for messages of another type.
        """
        self.settings = settings
        self.name = f"node behind {settings.image_topic} and {settings.detections_topic}"
        self.identity = f"topics {settings.model_dump_json()}"
        self._context = Context()
        init_ros([], context=self._context)
        try:
            self._node = Node("robustness_assessment", context=self._context, enable_rosout=False)
            self._executor = SingleThreadedExecutor(context=self._context)
            self._executor.add_node(self._node)
            self._images = self._node.create_publisher(Image, settings.image_topic, qos.IMAGES)
            self._answers: dict[int, Detections] = {}
            self._last_ns = 0
            self._subscribe()
        except BaseException:
            self.close()
            raise

    def answer(self, image: Picture, key: str) -> Answer:
        """Publish ``image`` to the assessed ROS node under a new stamp and wait for the detections with that stamp."""
        del key
        # a unique stamp for every image, even with a coarse clock
        stamp = max(self._node.get_clock().now().nanoseconds, self._last_ns + _STEP_NS)
        self._last_ns = stamp
        self._answers.clear()  # late answers to earlier images
        self._images.publish(bgr_to_image(image, ns_to_stamp(stamp), "robustness_assessment"))
        if not self._spin_until(lambda: stamp in self._answers, self.settings.timeout_s):
            return Answer.failed(f"no answer within {self.settings.timeout_s:g} s")
        return Answer(self._answers.pop(stamp))

    def close(self) -> None:
        """Destroy the node and context that talk to the assessed ROS node."""
        if hasattr(self, "_node"):
            self._executor.remove_node(self._node)
            self._node.destroy_node()
            self._executor.shutdown()
        rclpy.try_shutdown(context=self._context)

    def _subscribe(self) -> None:
        """Subscribe to the answers with the type that is offered, once the node under assessment is there."""
        topic, patience = self._node.resolve_topic_name(self.settings.detections_topic), self.settings
        types: list[str] = []

        def there() -> bool:
            offered = self._node.get_publishers_info_by_topic(topic)
            types[:] = sorted({info.topic_type for info in offered})
            return bool(types) and self._images.get_subscription_count() > 0

        found = self._spin_until(there, patience.start_timeout_s)
        if types and not {_OURS, _THEIRS} & set(types):
            raise InvalidInput(f"{topic} carries {', '.join(types)}, expected {_OURS} or {_THEIRS}")
        if not found:
            missing = (
                f"{topic} has no publisher" if not types else f"{self._images.topic_name} has no subscription"
            )
            raise InvalidInput(f"{missing} (waited {patience.start_timeout_s:g} s)")
        if _OURS in types:
            self._listen(StickerDetectionArray, topic, detections_from_ours)
        elif VISION_MSGS is None:
            raise InvalidInput(f"{topic} carries {_THEIRS}, and vision_msgs is not installed here")
        else:
            self._listen(VISION_MSGS.Detection2DArray, topic, detections_from_vision)
        matched = self._spin_until(
            lambda: self._subscription.get_publisher_count() > 0, patience.start_timeout_s
        )
        if not matched:
            raise InvalidInput(f"{topic}: the publisher offers best effort, expected reliable")

    def _listen(self, message_type: type, topic: str, convert: Callable[[Any], Detections]) -> None:
        def take(message: Any) -> None:
            self._answers[stamp_to_ns(message.header.stamp)] = convert(message)

        self._subscription = self._node.create_subscription(message_type, topic, take, qos.RELIABLE)

    def _spin_until(self, condition: Callable[[], bool], patience_s: float) -> bool:
        end = time.monotonic() + patience_s
        while not condition():
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._executor.spin_once(timeout_sec=min(left, 0.1))
        return True


def detections_from_ours(message: StickerDetectionArray) -> Detections:
    """The boxes that an assessed ROS node sent as ``StickerDetectionArray``; the rest of a score counts as background."""
    rows = [(box_from_msg(d.box), {int(d.label): float(d.score)}) for d in message.detections]
    return _detections(rows)


def detections_from_vision(message: Any) -> Detections:
    """The boxes that an assessed ROS node sent as ``Detection2DArray`` (upright ones: an angle is ignored).

    Other classes count as background.
    """
    rows = []
    for detection in message.detections:
        centre, width, height = detection.bbox.center.position, detection.bbox.size_x, detection.bbox.size_y
        box = np.array(
            [centre.x - width / 2, centre.y - height / 2, centre.x + width / 2, centre.y + height / 2],
            np.float32,
        )
        hypotheses = [h.hypothesis for h in detection.results]
        rows.append((box, {_class_of(h.class_id): float(h.score) for h in hypotheses}))
    return _detections(rows)


def _class_of(class_id: str) -> int:
    name = class_id.strip().lower()
    number = int(name) if name.isdigit() else int(_NAMES.get(name, ObjectClass.BACKGROUND))
    return number if number < CLASS_COUNT else int(ObjectClass.BACKGROUND)


def _detections(rows: list[tuple[Any, dict[int, float]]]) -> Detections:
    if not rows:
        return no_detections()
    probabilities = np.zeros((len(rows), CLASS_COUNT), np.float32)
    for row, (_, scores) in zip(probabilities, rows, strict=True):
        for label, score in scores.items():
            row[label] = max(score, 0.0) if label != ObjectClass.BACKGROUND else 0.0
        row /= max(float(row.sum()), 1.0)
        row[ObjectClass.BACKGROUND] = 1 - row.sum()
    return Detections(np.array([box for box, _ in rows], np.float32).reshape(-1, 4), probabilities)

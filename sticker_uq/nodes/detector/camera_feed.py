# SPDX-License-Identifier: Apache-2.0
"""One camera of the detector node: its subscription, a thread that decodes and checks images, its publishers, its counters."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.cell.node_settings import DetectorNodeSettings
from sticker_uq.io.images import Picture, colour_remark
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.io.topics import folder_of
from sticker_uq.nodes.common import conversions, qos
from sticker_uq.nodes.common.diagnostics import Level, PartReport, steady_timer
from sticker_uq.nodes.common.image_input import ImageInput
from sticker_uq.nodes.common.images import bgr_from_msg, bgr_to_compressed, bgr_to_image, map_to_image
from sticker_uq.nodes.detector import vision_mirror as vision
from sticker_uq.nodes.detector.mailbox import Mailbox
from sticker_uq.perception.image_facts import ImageInspector
from sticker_uq.perception.settings import MODEL_STAGES
from sticker_uq.scene import ImageCheck, SceneAssessment
from sticker_uq_msgs import msg as m


class SceneOutputs:
    """The publishers for one camera; ``create`` makes one from type, topic and QoS.

    ``folder``: the namespace of the topics with a trailing slash, or "". Images are drawn only while they have subscribers.
    """

    def __init__(self, node: Node, create: Callable[[type, str, QoSProfile], Any], folder: str = "") -> None:
        self._scene = create(m.SceneAssessment, f"{folder}scene", qos.RELIABLE)
        self._check = create(m.ImageCheck, f"{folder}image_check", qos.IMAGE_CHECKS)
        parts: list[tuple[type, str, Callable[[SceneAssessment], Any]]] = [
            (m.StickerDetectionArray, "detections", conversions.detections_to_msg),
            (m.ImageUncertainty, "uncertainty", conversions.uncertainty_to_msg),
            (m.DistinctiveLocalization, "dil", conversions.localization_to_msg),
        ]
        self._annotated = create(Image, f"{folder}annotated", qos.RELIABLE)
        self._compressed = create(CompressedImage, f"{folder}annotated/compressed", qos.RELIABLE)
        self._saliency = create(Image, f"{folder}saliency", qos.RELIABLE)
        self._drawn_at = -float("inf")
        self._label_info = None
        if vision.VISION_MSGS is None:
            node.get_logger().info("vision_msgs is not installed: detections_2d and label_info are off")
        else:
            array = vision.VISION_MSGS.Detection2DArray
            to_msg = partial(vision.detections_2d_to_msg, vision=vision.VISION_MSGS)
            parts.append((array, "detections_2d", to_msg))
            self._label_info = create(vision.VISION_MSGS.LabelInfo, f"{folder}label_info", qos.LATCHED)
        self._parts = [(create(kind, folder + name, qos.RELIABLE), made_of) for kind, name, made_of in parts]

    def publish_labels(self, score_floor: float) -> None:
        if self._label_info is not None and vision.VISION_MSGS is not None:
            self._label_info.publish(vision.label_info_msg(score_floor, vision.VISION_MSGS))

    def saliency_wanted(self) -> bool:
        return bool(self._saliency.get_subscription_count())

    def publish_check(self, check: ImageCheck) -> None:
        self._check.publish(conversions.image_check_to_msg(check))

    def publish(self, scene: SceneAssessment, sequence: int) -> None:
        self._scene.publish(conversions.scene_to_msg(scene, sequence))
        for publisher, made_of in self._parts:
            if publisher.get_subscription_count():
                publisher.publish(made_of(scene))

    def settle(self) -> None:
        """Wait until whoever listens has the last scene, which nobody can send again when this process has ended."""
        self._scene.wait_for_all_acked(Duration(seconds=ACKNOWLEDGED_S))

    def publish_pictures(self, scene: SceneAssessment, image: Picture, rate: float) -> None:
        """Publish the annotated image, at most at ``rate`` Hz, and saliency map, if they have subscribers."""
        stamp = conversions.ns_to_stamp(scene.stamp_ns)
        localization = scene.localization
        if localization is not None and localization.saliency is not None and self.saliency_wanted():
            self._saliency.publish(map_to_image(localization.saliency, stamp, scene.frame_id))
        now = time.monotonic()
        raw, compressed = self._annotated.get_subscription_count(), self._compressed.get_subscription_count()
        if (raw or compressed) and now - self._drawn_at >= 1.0 / rate:
            # imported on first use: drawing needs fonts and more libraries
            from sticker_uq.evaluation.annotated_images import annotate

            self._drawn_at = now
            drawn = annotate(image, scene)
            if raw:
                self._annotated.publish(bgr_to_image(drawn, stamp, scene.frame_id))
            if compressed:
                self._compressed.publish(bgr_to_compressed(drawn, stamp, scene.frame_id))


#: Longest wait for the acknowledgement of the last scene, s.
ACKNOWLEDGED_S = 2.0
#: Longest wait of :meth:`Receiver.close` for the current image, s. The result of a very large one is dropped.
STOP_TIMEOUT_S = 1.0
_LOG_PERIOD_S = 5.0
_MOST_FORMATS = 16


class Receiver(threading.Thread):
    """Takes the newest message of one camera out of ``inbox``; calls ``publish_check`` with its check as soon as that is
    known, and ``deliver`` with the check and the pixels, if any. A message comes with the names of those who published images
    when it arrived.
    """

    def __init__(
        self,
        node: Node,
        publish_check: Callable[[ImageCheck], None],
        deliver: Callable[[ImageCheck, Picture | None], None],
    ) -> None:
        super().__init__(name="receiver", daemon=True)
        self.inbox: Mailbox[tuple[Image | CompressedImage, tuple[str, ...]]] = Mailbox()
        self._node = node
        self._publish_check = publish_check
        self._deliver = deliver
        self._inspector = ImageInspector()
        self._newest: ImageCheck | None = None
        self._formats: set[str] = set()

    def run(self) -> None:
        while (arrived := self.inbox.take()) is not None:
            try:
                self._receive(*arrived)
            except Exception as error:  # noqa: BLE001 - one image must not end the receiver
                self._node.get_logger().debug(traceback.format_exc())
                self._node.get_logger().error(
                    f"an image could not be received: {type(error).__name__}: {error}",
                    throttle_duration_sec=_LOG_PERIOD_S,
                )

    def repeat_check(self, publishers: tuple[str, ...]) -> None:
        """Publish the newest image check once more, because ``publishers`` offer images now."""
        if self._newest is not None:
            self._publish_check(replace(self._newest, image_publishers=publishers))

    def close(self) -> None:
        self.inbox.close()
        self.join(STOP_TIMEOUT_S)

    def _receive(self, message: Image | CompressedImage, publishers: tuple[str, ...]) -> None:
        stamp_ns, frame_id = stamp_to_ns(message.header.stamp), message.header.frame_id
        # before decoding, which may take long while the worker is busy with an earlier image
        size = None if isinstance(message, CompressedImage) else (message.width, message.height)
        early = self._inspector.glance(stamp_ns, frame_id, size) if size is not None else None
        if early is not None:
            self._publish_check(replace(early, image_publishers=publishers))
        check, picture = self._inspector.inspect(stamp_ns, frame_id, lambda: bgr_from_msg(message))
        self._newest = check = replace(check, image_publishers=publishers)
        if isinstance(message, CompressedImage) and picture is not None:
            self._look_at_format(message)
        if not self.inbox.closed:
            self._publish_check(check)
            self._deliver(check, picture)

    def _look_at_format(self, message: CompressedImage) -> None:
        """Say once what is odd about the colours of a format."""
        if message.format in self._formats or len(self._formats) == _MOST_FORMATS:
            return
        self._formats.add(message.format)
        if text := colour_remark(message.data, message.format):
            self._node.get_logger().warning(text)


CHECK_PERIOD_S = 1.0
_OF_INPUT: dict[str, Callable[[ImageInput], object]] = {
    "topic": lambda source: source.topic,
    "publishers": ImageInput.publisher_count,
    "reliability": lambda source: source.profile.reliability.name.lower(),
    "rate_hz": ImageInput.rate,
    "received": lambda source: source.received,
    "lost": lambda source: source.lost,
    "skipped": lambda source: source.skipped_count,
}
_KEYS = (*_OF_INPUT, "dropped", "unusable", "last_image_age_s")
#: The report of a camera before activation.
NOT_CONFIGURED = PartReport(Level.WARN, "not active", dict.fromkeys(_KEYS))


class Arrival(NamedTuple):
    """An image in the queue: its camera, its check, and its pixels if it could be decoded."""

    feed: CameraFeed
    check: ImageCheck
    picture: Picture | None


@dataclass
class Counters:
    """Counters of a camera's images since activation, and the newest result."""

    assessed: int = 0
    unusable: int = 0
    failed: int = 0
    last_scene: SceneAssessment | None = None
    last_error: str = ""
    finished_at: list[float] = field(default_factory=list)
    overheads_ms: list[float] = field(default_factory=list)

    def count_scene(self, scene: SceneAssessment, busy_ms: float) -> None:
        self.last_scene = scene
        self.finished_at = [*self.finished_at[-19:], time.monotonic()]
        model_ms = sum(scene.timings.get(stage, 0.0) for stage in MODEL_STAGES)
        self.overheads_ms = [*self.overheads_ms[-19:], busy_ms - model_ms]

    def overhead_ms(self) -> float | None:
        """Median time per image without the networks' own time, until its scene was published, ms."""
        return median(self.overheads_ms) if self.overheads_ms else None

    def rate(self) -> float:
        times = self.finished_at
        return (len(times) - 1) / max(times[-1] - times[0], 1e-9) if len(times) > 1 else 0.0


class CameraFeed:
    """Receives the images of ``topic`` and publishes their scenes in its namespace.

    ``create`` makes a publisher from type, topic and QoS. Call all methods but :meth:`publish` from the executor's thread.
    """

    def __init__(self, node: Node, topic: str, create: Callable[[type, str, QoSProfile], Any]) -> None:
        self._node = node
        self.topic = topic
        self.outputs = SceneOutputs(node, create, folder_of(topic))
        self.counters = Counters()
        self.input: ImageInput | None = None
        self._dropped: Callable[[], int] = lambda: 0
        self._publishing = threading.Lock()
        self._sequence = 0

    def open(self, mailbox: Mailbox[Arrival], settings: DetectorNodeSettings) -> Callable[[], None]:
        """Start delivering images to ``mailbox``; returns the function that stops it."""
        self.counters = Counters()
        self._sequence = 0
        receiver = Receiver(
            self._node,
            self.outputs.publish_check,
            lambda check, picture: mailbox.put(Arrival(self, check, picture), self.topic),
        )
        self._dropped = lambda: receiver.inbox.dropped_count + mailbox.dropped_count_of(self.topic)
        transport, reliability = settings.image_transport, settings.image_reliability
        source = self.input = ImageInput(
            self._node,
            transport,
            reliability,
            lambda message: receiver.inbox.put((message, source.publishers)),
            self.topic,
            lambda: receiver.repeat_check(source.publishers),
        )
        timer = steady_timer(self._node, CHECK_PERIOD_S, source.check)
        self.outputs.publish_labels(settings.score_floor)
        receiver.start()

        def close() -> None:
            self._node.destroy_timer(timer)
            self.input = None
            source.close()
            receiver.close()

        return close

    def publish(self, scene: SceneAssessment, publishers: tuple[str, ...] | None) -> None:
        """Publish ``scene`` with the next number of this camera; from any thread.

        ``publishers``: of the images, when the scene's image arrived; those of now count where they are more.
        """
        source = self.input
        now = source.publishers if source else ()
        with self._publishing:
            self._sequence += 1
            scene = replace(scene, image_publishers=max(publishers or (), now, key=len))
            self.outputs.publish(scene, self._sequence)
            self.counters.last_scene = scene

    def report(self) -> PartReport:
        source = self.input
        level, message = source.state() if source else (Level.WARN, "not active")
        scene = self.counters.last_scene
        stamp_ns = scene.stamp_ns if scene else 0
        now_ns = self._node.get_clock().now().nanoseconds
        values = {name: value(source) if source else None for name, value in _OF_INPUT.items()}
        values |= {
            "dropped": self._dropped(),
            "unusable": self.counters.unusable,
            "last_image_age_s": (now_ns - stamp_ns) * 1e-9 if now_ns and stamp_ns else None,
        }
        return PartReport(level, message, values)

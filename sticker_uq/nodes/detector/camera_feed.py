# SPDX-License-Identifier: Apache-2.0
"""One camera of the detector node: its image subscription, its scene publishers and its counters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile

from sticker_uq.cell.detector_settings import DetectorNodeSettings
from sticker_uq.cell.mailbox import Mailbox
from sticker_uq.io.images import Picture
from sticker_uq.io.topics import folder_of
from sticker_uq.nodes.common.diagnostics import Level, PartReport
from sticker_uq.nodes.common.image_input import ImageInput
from sticker_uq.nodes.detector.receiver import Receiver
from sticker_uq.nodes.detector.scene_outputs import SceneOutputs
from sticker_uq.perception.stages import MODEL_STAGES
from sticker_uq.scene import ImageCheck, SceneAssessment

CHECK_PERIOD_S = 1.0
_KEYS = (
    "topic",
    "publishers",
    "reliability",
    "rate_hz",
    "received",
    "lost",
    "skipped",
    "dropped",
    "unusable",
    "last_image_age_s",
)
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

    def finished(self, scene: SceneAssessment, busy_ms: float) -> None:
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
    """A camera of the detector node: receives the images of ``topic`` and publishes their scenes in its namespace.

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
        """Start delivering the camera's images to the detector's ``mailbox``; returns the function that stops it."""
        self.counters = Counters()
        self._sequence = 0
        receiver = Receiver(
            self._node,
            self.outputs.publish_check,
            lambda check, picture: mailbox.put(Arrival(self, check, picture), self.topic),
        )
        self._dropped = lambda: receiver.inbox.dropped + mailbox.dropped_of(self.topic)
        transport, reliability = settings.image_transport, settings.image_reliability
        source = self.input = ImageInput(
            self._node,
            transport,
            reliability,
            lambda message: receiver.inbox.put((message, source.publishers)),
            self.topic,
            lambda: receiver.repeat_check(source.publishers),
        )
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        timer = self._node.create_timer(CHECK_PERIOD_S, source.check, clock=steady)
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
        values = {
            "topic": source.topic if source else None,
            "publishers": source.publisher_count() if source else None,
            "reliability": source.profile.reliability.name.lower() if source else None,
            "rate_hz": source.rate() if source else None,
            "received": source.received if source else None,
            "lost": source.lost if source else None,
            "skipped": source.skipped if source else None,
            "dropped": self._dropped(),
            "unusable": self.counters.unusable,
            "last_image_age_s": (now_ns - stamp_ns) * 1e-9 if now_ns and stamp_ns else None,
        }
        return PartReport(level, message, values)

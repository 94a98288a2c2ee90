# SPDX-License-Identifier: Apache-2.0
"""A camera whose images say what a scripted detector sees on them."""

import array
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Image

from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import Bench
from sticker_uq.testing.scripted_detector import Seen

RATE_HZ = 20.0


class ScriptedCamera:
    """Publishes images on ``topic``, each with pixels of its own; it begins when told to (:meth:`shows`).

    ``name``: that of a node of its own; without one the bench's probe publishes.
    """

    def __init__(
        self, bench: Bench, topic: str = "image", now_ns: Callable[[], int] | None = None, name: str = ""
    ) -> None:
        self._bench = bench
        self._node = Node(name, enable_rosout=False) if name else bench.probe
        self._own = bool(name)
        self._now_ns = now_ns or (lambda: int(bench.probe.get_clock().now().nanoseconds))
        self._numbers = itertools.count(1)
        self._publisher = self._node.create_publisher(Image, topic, qos.IMAGES)
        self._shown: Iterator[Seen] | None = None
        self._timer: Any = None
        self.rate(RATE_HZ)

    def rate(self, rate_hz: float) -> None:
        if self._timer is not None:
            self._bench.probe.destroy_timer(self._timer)
        self._timer = self._bench.probe.create_timer(1.0 / rate_hz, self._take)

    def close(self) -> None:
        self._bench.probe.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)
        if self._own:
            self._node.destroy_node()

    def restart(self) -> None:
        topic = self._publisher.topic_name
        self._node.destroy_publisher(self._publisher)
        self._publisher = self._node.create_publisher(Image, topic, qos.IMAGES)

    def shows(self, *seen: Seen) -> None:
        self._shown = itertools.cycle(seen) if seen else None

    def picture(
        self, seen: Seen, width: int = 640, height: int = 480, stamp_ns: int | None = None, level: int = 120
    ) -> Image:
        pixels = np.full((height, width), level, np.uint8)
        pixels[0, 0] = seen
        pixels[1, :8] = np.frombuffer(next(self._numbers).to_bytes(8, "big"), np.uint8)
        image = Image(width=width, height=height, encoding="mono8", step=width)
        image.data = array.array("B", pixels.tobytes())
        image.header.frame_id = "camera"
        stamp = self._now_ns() if stamp_ns is None else stamp_ns
        image.header.stamp.sec, image.header.stamp.nanosec = divmod(stamp, 10**9)
        return image

    def until_heard(self) -> None:
        """Wait until every subscription is a reliable one; a detector begins with another."""
        self._bench.until_heard(self._publisher)

    def publish(self, image: Image) -> None:
        self._publisher.publish(image)

    def _take(self) -> None:
        if self._shown is not None:
            self.publish(self.picture(next(self._shown)))

"""The camera of a cell in which faults happen: it shows what the test wants."""

from __future__ import annotations

import array
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sensor_msgs.msg import Image

from test.faults.scripted_detector import Seen
from test.helpers.ros import Bench

RATE_HZ = 20.0


class Camera:
    """Publishes pictures that show what the test wants, each with pixels of its own."""

    def __init__(self, bench: Bench, now_ns: Callable[[], int], topic: str) -> None:
        self._bench = bench
        self._now_ns = now_ns
        self._numbers = itertools.count(1)
        self._publisher = bench.publisher(Image, topic)
        self._shown: Iterator[Seen] | None = None
        self._timer: Any = None
        self.rate(RATE_HZ)

    def rate(self, rate_hz: float) -> None:
        """Take so many pictures per second from now on."""
        if self._timer is not None:
            self._bench.probe.destroy_timer(self._timer)
        self._timer = self._bench.probe.create_timer(1.0 / rate_hz, self._take)

    def shows(self, *seen: Seen) -> None:
        """Show these one after the other, again and again; nothing: the camera stands still."""
        self._shown = itertools.cycle(seen) if seen else None

    def picture(
        self,
        seen: Seen,
        width: int = 640,
        height: int = 480,
        stamp_ns: int | None = None,
        level: int = 120,
    ) -> Image:
        """A picture taken now; ``level``: its grey."""
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
        """Publish this one picture."""
        self._publisher.publish(image)

    def _take(self) -> None:
        if self._shown is not None:
            self.publish(self.picture(next(self._shown)))

# SPDX-License-Identifier: Apache-2.0
"""The processes of :mod:`benchmarks.kills`, each of which prints what happens to its images:

    python -m benchmarks.kills_process camera SIZE RATE              publishes images, reliably
    python -m benchmarks.kills_process subscriber RELIABILITY        a plain subscription
    python -m benchmarks.kills_process NODE --ros-args ...           a node of the cell: detector, console, recorder

One line per event, ``EVENT SECONDS [MILLISECONDS]`` on the monotonic clock: ``published`` with the duration of the call,
``listening`` when the node spins for the first time after it subscribed to images, and ``image`` with the age where the message
was decoded.
"""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image

from sticker_uq.nodes import __main__ as executables
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.lifecycle import init_ros

QUALITY = {"reliable": qos.NEWEST_IMAGE_RELIABLE, "best_effort": qos.NEWEST_IMAGE_BEST_EFFORT}


def _tell(event: str, at: float, milliseconds: float | None = None) -> None:
    print(event, f"{at:.4f}", "" if milliseconds is None else f"{milliseconds:.1f}", flush=True)


def camera(size: str, rate: str) -> None:
    """Publish grey images at ``rate`` per second until the process is killed."""
    width, height = map(int, size.split("x"))
    init_ros([])
    node = rclpy.create_node("camera", enable_rosout=False)
    publisher = node.create_publisher(Image, "image", qos.IMAGES)
    image = Image(width=width, height=height, encoding="bgr8", step=3 * width)
    image.header.frame_id = "camera"
    image.data.frombytes(bytes([128]) * (3 * width * height))
    due = time.monotonic()
    while True:
        image.data[0] = (image.data[0] + 1) % 256  # no two images are alike
        image.header.stamp = node.get_clock().now().to_msg()
        started = time.monotonic()
        publisher.publish(image)
        _tell("published", started, (time.monotonic() - started) * 1e3)
        due = max(due + 1.0 / float(rate), started)
        time.sleep(max(0.0, due - time.monotonic()))


def instrument() -> None:
    """Let every subscription to images in this process tell what it receives."""
    create, spin = Node.create_subscription, SingleThreadedExecutor.spin_once
    subscribed: list[str] = []

    def create_subscription(
        self: Node, message_type: type, topic: str, callback: Any, profile: QoSProfile | int, **arguments: Any
    ) -> Any:
        if message_type is not Image or self.resolve_topic_name(topic) != "/image":
            return create(self, message_type, topic, callback, profile, **arguments)

        @functools.wraps(callback)
        def noted(message: Any, *more: Any) -> None:
            age = None
            if message_type is Image:
                stamp = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
                age = (self.get_clock().now().nanoseconds - stamp) / 1e6
            _tell("image", time.monotonic(), age)
            callback(message, *more)

        subscribed.append(topic)
        return create(self, message_type, topic, noted, profile, **arguments)

    def spin_once(self: SingleThreadedExecutor, *arguments: Any, **named: Any) -> None:
        if subscribed:
            _tell("listening", time.monotonic())
            subscribed.clear()
        spin(self, *arguments, **named)

    patched: Any = Node
    patched.create_subscription = create_subscription
    patched = SingleThreadedExecutor
    patched.spin_once = spin_once


def subscriber(reliability: str) -> None:
    """Receive images until the process is killed."""
    init_ros([])
    node = rclpy.create_node("subscriber", enable_rosout=False)
    node.create_subscription(Image, "image", lambda message: None, QUALITY[reliability])
    rclpy.spin(node)


def main() -> None:
    """Run what the arguments name."""
    name, *arguments = sys.argv[1:]
    if name == "camera":
        camera(*arguments)
    instrument()
    if name == "subscriber":
        subscriber(*arguments)
    sys.argv[1:] = arguments
    getattr(executables, name)()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The camera of :mod:`benchmarks.latency`: per line of JSON on standard input it sends rendered laptops as that says until the
next line comes, then prints the stamps of what it sent.
"""

from __future__ import annotations

import json
import select
import signal
import sys
import time
from array import array
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.nodes.common.images import bgr_to_compressed, bgr_to_image
from sticker_uq_lab.rendering import render, sample_scene

PICTURES = 4


def main() -> None:
    """Send until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is that of standard input
    pictures = {
        size: [render(sample_scene(seed), _pixels(size)).image for seed in range(PICTURES)]
        for size in sys.argv[1:]
    }
    rclpy.init()
    node = rclpy.create_node("camera", enable_rosout=False)
    print("ready", flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(list(_send(node, case, pictures[f"{case['width']}x{case['height']}"]))), flush=True)
    rclpy.try_shutdown()


def _pixels(size: str) -> tuple[int, int]:
    width, height = map(int, size.split("x"))
    return width, height


def _send(node: Node, case: dict[str, Any], pictures: list[Any]) -> array[int]:
    """The stamps, ns, of what was sent until a line waits on standard input, which is taken away."""
    reliability = (
        ReliabilityPolicy.RELIABLE if case["reliability"] == "reliable" else ReliabilityPolicy.BEST_EFFORT
    )
    profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=2, reliability=reliability)
    compressed = case["images"] == "compressed"
    kind, topic = (CompressedImage, "image/compressed") if compressed else (Image, "image")
    stamp = node.get_clock().now().to_msg()
    make = bgr_to_compressed if compressed else bgr_to_image
    messages = [make(picture, stamp, "camera") for picture in pictures]
    publisher = node.create_publisher(kind, topic, profile)
    stamps, period, due = array("q"), 1.0 / case["rate"], time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        message = messages[len(stamps) % PICTURES]
        if not compressed:
            message.data[len(stamps) % 1000] ^= 1  # no picture is sent twice
        now = node.get_clock().now()
        message.header.stamp = now.to_msg()
        publisher.publish(message)
        if not stamps:
            print("sending", flush=True)
        stamps.append(now.nanoseconds)
        due += period
    sys.stdin.readline()
    node.destroy_publisher(publisher)
    return stamps


if __name__ == "__main__":
    main()

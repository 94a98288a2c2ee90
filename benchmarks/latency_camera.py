"""The camera of :mod:`benchmarks.latency`: sends rendered laptops at a rate until it is told to end, then prints the stamps."""

from __future__ import annotations

import json
import signal
import sys
import time
from array import array

import rclpy
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.datasets import render, sample_scene
from sticker_uq.nodes.images import bgr_to_compressed, bgr_to_image

PICTURES = 4


def main() -> None:
    """Send until SIGTERM."""
    case = json.loads(sys.argv[1])
    rclpy.init()
    node = rclpy.create_node("camera", enable_rosout=False)
    reliability = (
        ReliabilityPolicy.RELIABLE if case["reliability"] == "reliable" else ReliabilityPolicy.BEST_EFFORT
    )
    profile = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=2, reliability=reliability)
    compressed = case["images"] == "compressed"
    kind, topic = (CompressedImage, "image/compressed") if compressed else (Image, "image")
    publisher = node.create_publisher(kind, topic, profile)
    size = (case["width"], case["height"])
    stamp = node.get_clock().now().to_msg()
    messages = []
    for seed in range(PICTURES):
        picture = render(sample_scene(seed), size).image
        make = bgr_to_compressed if compressed else bgr_to_image
        messages.append(make(picture, stamp, "camera"))
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end comes as SIGTERM
    stamps, period, due = array("q"), 1.0 / case["rate"], time.monotonic()
    for number in range(sys.maxsize):
        if stop:
            break
        message = messages[number % PICTURES]
        if not compressed:
            message.data[number % 1000] ^= 1  # no picture is sent twice
        now = node.get_clock().now()
        message.header.stamp = now.to_msg()
        publisher.publish(message)
        stamps.append(now.nanoseconds)
        due += period
        time.sleep(max(0.0, due - time.monotonic()))
    print(json.dumps(list(stamps)), flush=True)
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()

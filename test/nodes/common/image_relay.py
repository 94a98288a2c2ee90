# SPDX-License-Identifier: Apache-2.0
"""Processes for test_transport: `receive RELIABILITY` answers every image it gets, `send SIZE COUNT RELIABILITY` counts the
answers.

The next image of `send` is sent when the last one was answered or after 10 s, so that the count does not depend on
how busy the machine is.
"""

import array
import sys

import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.task import Future
from sensor_msgs.msg import Image
from std_msgs.msg import UInt32

RELIABILITY = {
    "best_effort": QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT),
    "reliable": QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE),
}


def receive(node: Node, reliability: str) -> None:
    """Answers the number of every complete image until the process is ended."""
    answers = node.create_publisher(UInt32, "seen", 10)

    def answer(image: Image) -> None:
        if len(image.data) == image.step * image.height:
            answers.publish(UInt32(data=int(image.header.frame_id)))

    node.create_subscription(Image, "image", answer, RELIABILITY[reliability])
    rclpy.spin(node)


def send(node: Node, size: str, count: int, reliability: str) -> int:
    """Returns how many of `count` images were answered."""
    images = node.create_publisher(Image, "image", RELIABILITY[reliability])
    width, height = map(int, size.split("x"))
    image = Image(height=height, width=width, encoding="bgr8", step=3 * width)
    image.data = array.array("B", bytes(image.step * image.height))
    seen: set[int] = set()
    waiting: list[Future] = []

    def note(answer: UInt32) -> None:
        seen.add(answer.data)
        if answer.data == len(waiting) - 1:
            waiting[-1].set_result(None)

    node.create_subscription(UInt32, "seen", note, 10)
    while not images.get_subscription_count() or not node.count_publishers("seen"):
        rclpy.spin_once(node, timeout_sec=0.05)
    for number in range(count):
        waiting.append(Future())
        image.header.frame_id = str(number)
        images.publish(image)
        rclpy.spin_until_future_complete(node, waiting[-1], timeout_sec=10.0)
    return len(seen)


if __name__ == "__main__":
    rclpy.init()
    relay = rclpy.create_node(f"image_relay_{sys.argv[1]}")
    if sys.argv[1] == "receive":
        receive(relay, sys.argv[2])
    else:
        print(send(relay, sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    rclpy.shutdown()

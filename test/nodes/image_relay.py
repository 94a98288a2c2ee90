"""Two processes for test_transport: `receive` answers every image it gets, `send COUNT` counts the answers.

The next image is sent when the last one was answered or after a second, so that the count does not depend on
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

CAMERA = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)


def receive(node: Node) -> None:
    """Answers the number of every complete image until the process is ended."""
    answers = node.create_publisher(UInt32, "seen", 10)

    def answer(image: Image) -> None:
        if len(image.data) == image.step * image.height:
            answers.publish(UInt32(data=int(image.header.frame_id)))

    node.create_subscription(Image, "image", answer, CAMERA)
    rclpy.spin(node)


def send(node: Node, count: int) -> int:
    """Returns how many of `count` images of 1280 x 960 pixels were answered."""
    images = node.create_publisher(Image, "image", CAMERA)
    image = Image(height=960, width=1280, encoding="bgr8", step=3840)
    image.data = array.array("B", bytes(image.step * image.height))
    seen: set[int] = set()
    waiting: list[Future] = []

    def note(answer: UInt32) -> None:
        seen.add(answer.data)
        waiting[-1].set_result(None)

    node.create_subscription(UInt32, "seen", note, 10)
    while not images.get_subscription_count() or not node.count_publishers("seen"):
        rclpy.spin_once(node, timeout_sec=0.05)
    for number in range(count):
        waiting.append(Future())
        image.header.frame_id = str(number)
        images.publish(image)
        rclpy.spin_until_future_complete(node, waiting[-1], timeout_sec=1.0)
    return len(seen)


if __name__ == "__main__":
    rclpy.init()
    relay = rclpy.create_node(f"image_relay_{sys.argv[1]}")
    if sys.argv[1] == "receive":
        receive(relay)
    else:
        print(send(relay, int(sys.argv[2])))
    rclpy.shutdown()

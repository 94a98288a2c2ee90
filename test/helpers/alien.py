# SPDX-License-Identifier: Apache-2.0
"""Node ``alien``: publishes text on the topic that it is given, whatever others publish there; one process cannot do both."""

import contextlib
import sys

import rclpy
from rclpy.executors import ExternalShutdownException
from std_msgs.msg import String


def main() -> None:
    rclpy.init()
    node = rclpy.create_node("alien")
    publisher = node.create_publisher(String, sys.argv[1], 10)
    node.create_timer(0.01, lambda: publisher.publish(String(data="hello")))
    with contextlib.suppress(ExternalShutdownException):
        rclpy.spin(node)
    node.destroy_node()


if __name__ == "__main__":
    main()

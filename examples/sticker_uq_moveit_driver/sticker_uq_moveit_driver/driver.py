# SPDX-License-Identifier: Apache-2.0
"""Node ``moveit_driver``: serves the cell's action ``remove_sticker`` with a MoveIt 2 arm."""

from typing import Any

from rclpy.node import Node

from sticker_uq.nodes.arm.client import ArmClient
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq.nodes.common.parameters import declare_settings
from sticker_uq_moveit_driver.motion import PeelMotion
from sticker_uq_moveit_driver.moveit import MoveItRobot
from sticker_uq_moveit_driver.settings import DriverSettings


class MoveItDriver(Node):
    """The ROS node ``moveit_driver``; raises :class:`sticker_uq.scene.InvalidInput` for an invalid parameter."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("moveit_driver", **arguments)
        settings = declare_settings(
            self, DriverSettings, locked=lambda name: "parameters are read at start only"
        ).read()
        self.motion = PeelMotion(MoveItRobot(self, settings), settings, self.get_logger().error)
        self.arm = ArmClient(
            self, self.motion, permit_wait_s=settings.permit_wait_s, timeout_s=settings.removal_timeout_s
        )

    def destroy_node(self) -> None:
        """Destroy the arm's action server, then the node."""
        self.arm.destroy()
        super().destroy_node()


def main() -> None:
    """Entry point of the executable ``driver``."""
    exit_process(run_node(MoveItDriver, executor=ArmExecutor))

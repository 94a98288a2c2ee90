# SPDX-License-Identifier: Apache-2.0
"""An arm that accepts a goal while it is being shut down; a process for test_arm_executor.py."""

import threading

from rclpy.action import ActionClient, GoalResponse
from rclpy.node import Node

from sticker_uq.nodes.arm.client import ArmClient
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common.lifecycle import request_exit, run_node
from sticker_uq.testing.arm import ScriptedMotion
from sticker_uq_msgs.action import RemoveSticker

closing = threading.Event()


class ClosingExecutor(ArmExecutor):
    """Tells when its shutdown begins."""

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        closing.set()
        return super().shutdown(timeout_sec)


class ClosingArm(Node):
    """Sends itself a goal, and accepts it when the executor hands out nothing any more."""

    def __init__(self) -> None:
        super().__init__("arm")
        self._arm = ArmClient(self, ScriptedMotion())
        self._arm._server.register_goal_callback(self._accept_late)
        self._client = ActionClient(self, RemoveSticker, "remove_sticker")
        self._timer = self.create_timer(0.01, self._ask)

    def _ask(self) -> None:
        if self._client.server_is_ready():
            self._timer.cancel()
            self._client.send_goal_async(RemoveSticker.Goal())

    def _accept_late(self, _: RemoveSticker.Goal) -> GoalResponse:
        request_exit(self)
        assert closing.wait(60)
        self.get_logger().info("accepted")
        return GoalResponse.ACCEPT


if __name__ == "__main__":
    raise SystemExit(run_node(ClosingArm, executor=ClosingExecutor))

# SPDX-License-Identifier: Apache-2.0
"""Node ``stop_arm``: the service ``stop_arm`` (std_srvs/Trigger), for the supervisor's parameter ``stop_service``.

A process of its own, so that it serves when the driver hangs or is dead. Where the robot's own driver has a stop
service, use that instead.
"""

from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from std_srvs.srv import Trigger

from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq.nodes.common.parameters import declare_settings
from sticker_uq.scene import InvalidInput
from sticker_uq_moveit_driver.halt import Halt
from sticker_uq_moveit_driver.settings import HaltSettings


class StopArm(Node):
    """The ROS node ``stop_arm``; raises :class:`InvalidInput` when no controller is named, for nothing else confirms a stop."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("stop_arm", **arguments)
        settings = declare_settings(
            self, HaltSettings, locked=lambda name: "parameters are read at start only"
        ).read()
        if not settings.controller:
            raise InvalidInput(
                "controller is empty: name the trajectory controller that stop_arm deactivates"
            )
        self._halt = Halt(self, settings)
        # reentrant: the supervisor asks again when a call gets no answer
        self.create_service(Trigger, "stop_arm", self._stop, callback_group=ReentrantCallbackGroup())

    async def _stop(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        answer = self._halt.demand()
        if answer is None:
            response.message = f"{', '.join(self._halt.missing())} is not there: nothing confirms the stop"
            return response
        switched = await answer
        response.success, response.message = switched.ok, switched.message
        return response


def main() -> None:
    """Entry point of the executable ``stop_arm``."""
    exit_process(run_node(StopArm))

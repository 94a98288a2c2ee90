# SPDX-License-Identifier: Apache-2.0
"""Stops everything that move_group executes, and the controller under it; used by the driver and by the node ``stop_arm``.

move_group of Jazzy accepts the cancellation of ``execute_trajectory`` without stopping the arm
(https://github.com/moveit/moveit2/issues/2808). What stops it is the text "stop" on ``trajectory_execution_event``, as
``MoveGroupInterface::stop`` sends it; the actions are cancelled too, for a motion that is still being planned.
"""

from action_msgs.srv import CancelGoal
from controller_manager_msgs.srv import SwitchController
from rclpy.node import Node
from rclpy.task import Future
from std_msgs.msg import String

from sticker_uq.nodes.arm.client import MotionFailed
from sticker_uq_moveit_driver.jobs import CallJob, Done, Job
from sticker_uq_moveit_driver.settings import HaltSettings


class Halt:
    """Stops the arm for ``node``; nothing here waits."""

    def __init__(self, node: Node, settings: HaltSettings) -> None:
        self._settings = settings
        self._event = node.create_publisher(String, in_namespace(settings, "trajectory_execution_event"), 10)
        self._cancels = [
            node.create_client(CancelGoal, in_namespace(settings, f"{action}/_action/cancel_goal"))
            for action in ("move_action", "execute_trajectory")
        ]
        self._switch = node.create_client(
            SwitchController, f"{settings.controller_manager}/switch_controller"
        )
        self._demands: list[
            Future
        ] = []  # a slow controller manager may answer the first after the second was sent
        self._deactivated = False

    def demand(self) -> Future | None:
        """Cancel every goal of move_group, send it the stop event and deactivate the controller.

        Returns the future answer of the controller manager; None without one.
        """
        self._event.publish(String(data="stop"))
        for client in self._cancels:
            if client.service_is_ready():
                client.call_async(CancelGoal.Request())  # no goal and no time: all
        if not self._settings.controller or not self._switch.service_is_ready():
            return None
        answer = self._switch.call_async(self._request(deactivate=True))
        self._demands.append(answer)
        self._deactivated = True
        return answer

    def confirmed(self) -> bool:
        """Whether the controller is off by a :meth:`demand` since the last :meth:`undo`."""
        return any(answer.done() and answer.result().ok for answer in self._demands)

    def undo(self) -> Job:
        """Activate the controller again if :meth:`demand` has deactivated it; the job raises :class:`MotionFailed`."""
        self._demands.clear()
        if not self._deactivated:
            return Done()
        return CallJob(self._switch, self._request(deactivate=False), self._activated)

    def _activated(self, response: SwitchController.Response) -> None:
        if not response.ok:
            raise MotionFailed(f"{self._settings.controller} was not activated again: {response.message}")
        self._deactivated = False

    def missing(self) -> list[str]:
        """The controller manager, if a controller is to be deactivated and it is not there."""
        needed = self._settings.controller and not self._switch.service_is_ready()
        return [self._switch.srv_name] if needed else []

    def _request(self, deactivate: bool) -> SwitchController.Request:
        names = [self._settings.controller]
        request = SwitchController.Request(strictness=SwitchController.Request.BEST_EFFORT)
        if deactivate:
            request.deactivate_controllers = names
        else:
            request.activate_controllers = names
        return request


def in_namespace(settings: HaltSettings, name: str) -> str:
    """``name`` in the namespace of move_group."""
    return f"{settings.moveit_namespace.rstrip('/')}/{name}" if settings.moveit_namespace else name

# SPDX-License-Identifier: Apache-2.0
"""Stops the arm by the cell's ROS service or topic when the arm does not end a cancelled goal; used by the supervisor node.

A service is called until it confirms the stop; a topic is true as long as the stop is demanded. Not a safety
function in the sense of ISO 10218 / ISO 13849.
"""

import time
from enum import Enum
from typing import Any

from rclpy.client import Client
from rclpy.exceptions import InvalidServiceNameException, InvalidTopicNameException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.task import Future
from std_msgs.msg import Bool
from std_srvs.srv import SetBool, Trigger

from sticker_uq.cell.supervisor_settings import StopSettings
from sticker_uq.nodes.common.qos import LATCHED
from sticker_uq.scene import InvalidInput

RETRY_S = 1.0
"""Time after which an unconfirmed stop is demanded again."""


class StopState(Enum):
    NOT_DEMANDED = "not demanded"
    DEMANDED = "demanded"
    CONFIRMED = "confirmed"
    NO_MEANS = "demanded, but no stop service or topic is set"


class CellStop:
    """Demands the stop of the arm; never waits. Raises :class:`InvalidInput` for an invalid name."""

    def __init__(self, node: Node, settings: StopSettings) -> None:
        self._node = node
        self._type: Any = Trigger if settings.stop_service_type == "trigger" else SetBool
        self.state = StopState.NOT_DEMANDED
        self._answer: Future | None = None
        self._asked = 0.0
        self._client: Client | None = None
        self._publisher: Publisher | None = None
        try:
            if settings.stop_service:
                self._client = node.create_client(self._type, settings.stop_service)
            if settings.stop_topic:
                self._publisher = node.create_publisher(Bool, settings.stop_topic, LATCHED)
        except (InvalidServiceNameException, InvalidTopicNameException) as error:
            self.destroy()
            raise InvalidInput(f"stop_service or stop_topic is not a valid ROS name: {error}") from None

    def destroy(self) -> None:
        if self._client is not None:
            self._node.destroy_client(self._client)
        if self._publisher is not None:
            self._node.destroy_publisher(self._publisher)

    def tick(self, demanded: bool) -> None:
        if not demanded:
            self.state = StopState.NOT_DEMANDED
            self._drop_call()
        elif self.state is StopState.NOT_DEMANDED:
            nothing = self._client is None and self._publisher is None
            self.state = StopState.NO_MEANS if nothing else StopState.DEMANDED
            self._asked = float("-inf")
        if self._publisher is not None:
            self._publisher.publish(Bool(data=demanded))
        if self._client is not None and self.state is StopState.DEMANDED:
            self._call(self._client)

    def _call(self, client: Client) -> None:
        if time.monotonic() - self._asked < RETRY_S:
            return
        if self._answer is not None:
            self._node.get_logger().error(f"{client.srv_name} did not answer within {RETRY_S:g} s")
            self._drop_call()
        self._asked = time.monotonic()
        if not client.service_is_ready():
            self._node.get_logger().error(f"{client.srv_name} is not available: the arm cannot be stopped")
            return
        request = Trigger.Request() if self._type is Trigger else SetBool.Request(data=True)
        self._answer = client.call_async(request)
        self._answer.add_done_callback(self._on_answer)

    def _on_answer(self, answer: Future) -> None:
        if answer is not self._answer:
            return
        self._answer = None
        assert self._client is not None
        response = answer.result()
        if response.success:
            self.state = StopState.CONFIRMED
            self._node.get_logger().warning(f"{self._client.srv_name} stopped the arm: {response.message}")
        else:
            self._node.get_logger().error(f"{self._client.srv_name} did not stop the arm: {response.message}")

    def _drop_call(self) -> None:
        if self._answer is not None and self._client is not None:
            self._client.remove_pending_request(self._answer)
        self._answer = None

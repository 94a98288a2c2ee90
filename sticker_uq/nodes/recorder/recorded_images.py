# SPDX-License-Identifier: Apache-2.0
"""The recorder node's subscription to the images of one camera."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription

from sticker_uq.io.images import Transport
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.image_input import TRANSPORTS


class RecordedImages:
    """The recorder passes every serialised image of ``topic`` to the callback that ``writing(topic, type)`` returns.

    Requests reliable delivery, or best effort once a publisher does not offer it. ``name``: the resolved topic.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        transport: Transport,
        writing: Callable[[str, str], Callable[[bytes], None]],
    ) -> None:
        self._node = node
        self._class, suffix, type_name = TRANSPORTS[transport]
        self._topic = topic + suffix
        self.name = node.resolve_topic_name(self._topic)
        self._write = writing(self._topic, type_name)
        # a subscription must not be replaced in its own event callback
        self._refused = node.create_guard_condition(self._take_best_effort)
        self._best_effort = False
        self._subscription = self._subscribe(qos.RECORDED_IMAGE_RELIABLE)

    def _subscribe(self, profile: QoSProfile) -> Subscription:
        events = SubscriptionEventCallbacks(incompatible_qos=self._on_incompatible)
        return self._node.create_subscription(
            self._class, self._topic, self._write, profile, event_callbacks=events, raw=True
        )

    def _on_incompatible(self, _: Any) -> None:
        self._refused.trigger()

    def _take_best_effort(self) -> None:
        """Switch to best effort, because a publisher does not offer reliable delivery."""
        if self._best_effort:
            return
        self._best_effort = True
        self._node.get_logger().info(f"{self.name}: requesting best effort, as offered by the publishers")
        self._node.destroy_subscription(self._subscription)
        self._subscription = self._subscribe(qos.RECORDED_IMAGE_BEST_EFFORT)

# SPDX-License-Identifier: Apache-2.0
"""Test double of the gate: a gate without a supervisor."""

from __future__ import annotations

from typing import Any

from rclpy.duration import Duration

from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import Bench
from sticker_uq_msgs.msg import GateState

DECISION, OBJECT = "decision-1", 3
"""What permits are given for unless the test says otherwise."""


class GatePublisher:
    """Publishes on ``gate`` what a supervisor would; its messages are not repeated, a permit lasts as long as its lease."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.appear()

    def appear(self) -> None:
        """Create the publisher and wait until an arm is subscribed."""
        self._publisher = self._bench.publisher_matched(GateState, "gate", qos.GATE)

    def disappear(self) -> None:
        """Destroy the publisher: to the arm the supervisor has died."""
        self._bench.probe.destroy_publisher(self._publisher)

    def permit(
        self, lease_s: float = 600.0, object_id: int = OBJECT, state: int = GateState.STATE_REMOVING
    ) -> None:
        """Open the gate for one object of :data:`DECISION`, for ``lease_s`` seconds from now."""
        message = GateState(state=state, open=True, decision_id=DECISION, object_id=object_id)
        message.valid_until = (self._bench.probe.get_clock().now() + Duration(seconds=lease_s)).to_msg()
        self._publisher.publish(message)

    def close(self, **fields: Any) -> None:
        """Close the gate; ``fields`` replace those of the message."""
        self._publisher.publish(GateState(**{"state": GateState.STATE_BLOCKED, "open": False, **fields}))

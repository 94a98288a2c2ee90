"""The supervisor's ears for its rivals: whoever else publishes the gate, heard or only known to be there."""

from __future__ import annotations

import time
from collections.abc import Callable

from rclpy.node import Node

from sticker_uq.gate import BlockReason
from sticker_uq.gate.gate_publishers import GatePublishers
from sticker_uq.nodes.common.qos import GATE_WATCH
from sticker_uq_msgs.msg import GateState


class GateWatch:
    """Listens to the topic ``gate`` on ``node`` for publishers besides ``identity``.

    ``impede`` is told each reason why the gate must stay closed because of them, with an empty text when it has ended.
    ``listen_s``: so long it is listened before it is certain that nobody else permits anything.
    """

    def __init__(
        self, node: Node, identity: str, listen_s: float, impede: Callable[[BlockReason, str], None]
    ) -> None:
        self._node = node
        self._identity = identity
        self._listen_s = listen_s
        self._impede = impede
        self._speakers = GatePublishers()
        self._listened_s = time.monotonic() + listen_s
        self._subscription = node.create_subscription(GateState, "gate", self._on_gate, GATE_WATCH)

    def destroy(self) -> None:
        """Listen no longer."""
        self._node.destroy_subscription(self._subscription)

    def _on_gate(self, message: GateState) -> None:
        """What this node says comes back too; anybody else who says something is one too many."""
        self._speakers.heard(message.supervisor, not message.reasons & GateState.REASON_NOT_ACTIVE)
        self.look()

    def look(self) -> None:
        """Tell who else is there now; called with every tick."""
        rivals = self._speakers.besides(self._identity)
        names = ", ".join(name[:8] or "(nameless)" for name in rivals)
        self._impede(
            BlockReason.SECOND_GATE_PUBLISHER, f"supervisor {names} speaks here, too" if rivals else ""
        )
        self._impede(BlockReason.UNKNOWN_GATE_PUBLISHER, self._unheard())

    def _unheard(self) -> str:
        """Why it is not certain that nobody else permits anything; empty when it is.

        What others say may not arrive, or not yet: that they are there is known from the discovery of publishers.
        """
        topic = self._subscription.topic_name
        unheard = self._speakers.unheard(self._identity, self._node.count_publishers(topic) - 1)
        if unheard > 0:
            return f"{unheard} publisher{'s' * (unheard > 1)} of {topic} besides this one not heard"
        if time.monotonic() < self._listened_s:
            return f"it is listened for {self._listen_s:g} s first"
        return ""

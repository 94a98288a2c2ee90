# SPDX-License-Identifier: Apache-2.0
"""Whether another supervisor publishes the gate."""

import time
from collections.abc import Callable
from typing import cast

from rclpy.node import Node
from rclpy.subscription import Subscription

from sticker_uq.gate import BlockReason
from sticker_uq.gate.presence import GatePublishers
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.liveliness import UNNAMED, publisher_name, type_of
from sticker_uq.nodes.common.one_publisher import make_decoder
from sticker_uq.scene import Reason
from sticker_uq_msgs.msg import GateState

MOST_BYTES = 1 << 18
"""Bytes of a message that is decoded, a scene of 250 objects: decoding and judging longer ones would delay a hold."""


class GateWatch:
    """Watches the topic ``gate`` for publishers besides ``identity``.

    ``impede`` gets each reason why the gate must stay closed because of them, with None when it has ended. ``listen_s``: time
    after the start, s, before the absence of others counts.
    """

    def __init__(
        self, node: Node, identity: str, listen_s: float, impede: Callable[[BlockReason, Reason | None], None]
    ) -> None:
        self._node = node
        self._identity = identity
        self._listen_s = listen_s
        self._impede = impede
        self._publishers = GatePublishers()
        self._listened_s = time.monotonic() + listen_s
        # a publisher whose messages are refused is one that is not received
        receive = make_decoder(GateState, MOST_BYTES, self._on_gate, lambda _: self.report_others())
        self._subscription = node.create_subscription(GateState, "gate", receive, qos.GATE_WATCH, raw=True)

    def destroy(self) -> None:
        self._node.destroy_subscription(self._subscription)

    def _on_gate(self, message: GateState) -> None:
        """Note who publishes; this node's own messages come back too."""
        self._publishers.note_message(message.supervisor, not message.reasons & GateState.REASON_NOT_ACTIVE)
        self.report_others()

    def report_others(self) -> None:
        active = self._publishers.besides(self._identity)
        others = None
        if active:  # by their nodes; before discovery knows them, by what they call themselves
            names = self._other_nodes() or [name[:8] or "(nameless)" for name in active]
            others = Reason.of("other_gate_publishers", names=", ".join(names))
        self._impede(BlockReason.SECOND_GATE_PUBLISHER, others)
        self._impede(BlockReason.UNKNOWN_GATE_PUBLISHER, self._not_received())

    def _not_received(self) -> Reason | None:
        """Why another publisher cannot be ruled out; None when it can.

        Messages of others may not arrive, or not yet: discovery knows that the publishers exist.
        """
        topic = self._subscription.topic_name
        count = self._publishers.never_received(self._identity, self._node.count_publishers(topic) - 1)
        if count > 0:
            names = ", ".join(self._other_nodes())
            return Reason.of("gate_publishers_not_received", count=count, topic=topic, names=names)
        if time.monotonic() < self._listened_s:
            return Reason.of("listening_first", seconds=self._listen_s)
        return None

    def _other_nodes(self) -> list[str]:
        found = publishers_of(self._node, self._subscription)
        if (own := self._node.get_fully_qualified_name()) in found:
            found.remove(own)
        return found


def publishers_of(node: Node, subscription: Subscription) -> list[str]:
    """Nodes that publish the topic of ``subscription``, sorted, one per publisher, with the type where it differs."""
    expected = type_of(cast(type, subscription.msg_type))
    found = node.get_publishers_info_by_topic(subscription.topic_name)
    names = [publisher_name(one, expected) for one in found]
    return sorted(names + [UNNAMED] * (subscription.get_publisher_count() - len(names)))

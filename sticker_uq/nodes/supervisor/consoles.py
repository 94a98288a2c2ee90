# SPDX-License-Identifier: Apache-2.0
"""The operator's pages: a hold that one of them could not hand over, as no supervisor was there, keeps the next one closed."""

from collections.abc import Callable, Iterable

from diagnostic_msgs.msg import KeyValue
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node

from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.liveliness import publisher_name, type_of
from sticker_uq.nodes.common.one_publisher import make_decoder
from sticker_uq.scene import Reason

TOPIC = "console/hold"
"""Latched: ``key`` is the page's node; ``value`` is empty unless a person wants the gate held, which no supervisor took."""
MOST_BYTES = 1 << 10
MOST = 20
"""Pages that are listened to."""


class ConsoleWatch:
    """Listens to the pages. ``known``: those that were there when the last run ended, each of which must be heard again, or given
    up by a person. ``changed`` is called when one has come or said something.
    """

    def __init__(self, node: Node, known: Iterable[str], changed: Callable[[], None]) -> None:
        self._node = node
        self._changed = changed
        self._awaited = set(known)
        self._said: dict[str, str] = {}
        self._found: set[str] = set()
        receive = make_decoder(KeyValue, MOST_BYTES, self._on_said, lambda _: None)
        events = SubscriptionEventCallbacks(matched=lambda _: self._changed())
        self._subscription = node.create_subscription(
            KeyValue, TOPIC, receive, qos.CONSOLES, event_callbacks=events, raw=True
        )

    def destroy(self) -> None:
        self._node.destroy_subscription(self._subscription)

    @property
    def names(self) -> tuple[str, ...]:
        """The pages that are there, and those that are still awaited."""
        return tuple(sorted(self._awaited | self._said.keys()))

    def give_up(self) -> None:
        """A person releases the gate: pages that were there before are not awaited any more."""
        self._awaited.clear()

    def problem(self, closed: bool) -> Reason | None:
        """Why the gate is held for a page; None when it is not. One that has just come matters only to a ``closed`` gate."""
        topic, expected = self._subscription.topic_name, type_of(KeyValue)
        here = {publisher_name(p, expected) for p in self._node.get_publishers_info_by_topic(topic)}
        for name in self._found - here:
            self._said.pop(name, None)
        self._found = self._said.keys() & here
        if self._awaited:
            return Reason.of("console_awaited", names=", ".join(sorted(self._awaited)))
        if wanting := sorted(name for name, value in self._said.items() if value):
            return Reason.of("console_holds", names=", ".join(wanting))
        if closed and self._subscription.get_publisher_count() > len(self._said):
            silent = sorted(here - self._said.keys()) or ["(unnamed)"]
            return Reason.of("console_awaited", names=", ".join(silent))
        return None

    def _on_said(self, message: KeyValue) -> None:
        if message.key in self._said or len(self._said) < MOST:
            self._said[message.key] = message.value
            self._awaited.discard(message.key)
        self._changed()

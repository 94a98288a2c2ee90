# SPDX-License-Identifier: Apache-2.0
"""Inputs that count only while they come from one publisher, and are refused before decoding when they are too large."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rclpy.event_handler import (
    QoSSubscriptionEventType,
    SubscriptionEventCallbacks,
    UnsupportedEventTypeError,
)
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription

from sticker_uq.gate.presence import Ghosts, Succession
from sticker_uq.nodes.common.lifecycle import request_exit
from sticker_uq.nodes.common.liveliness import UNNAMED, publisher_name, type_of, with_liveliness
from sticker_uq.scene import InvalidInput, Reason

MOST_UNCOUNTED = 1 << 13
"""Bytes; whoever floods the topic must not keep the node from everything else."""
GONE = "(gone)"
"""Stands behind the name of a publisher that was there lately."""


class Matches:
    """How many publishers have ever matched ``subscription``, and how many do now, up to this very moment.

    rclpy tells it in a callback, which comes after a message that was received meanwhile.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._ghosts = Ghosts()
        kind = QoSSubscriptionEventType.RCL_SUBSCRIPTION_MATCHED
        try:
            with subscription.handle:
                self._event: Any = rclpy_implementation.EventHandle(subscription.handle, kind)
        except UnsupportedEventTypeError:
            self._event = None

    def destroy(self) -> None:
        if self._event is not None:
            self._event.destroy_when_not_in_use()

    def counts(self) -> tuple[int, int]:
        present = self._subscription.get_publisher_count()
        if self._event is None:
            return present, present
        with self._event:
            status = self._event.take_event()
        return (status.total_count, max(present, status.current_count)) if status else (present, present)

    def names(self, node: Node, known: list[str]) -> list[str]:
        """The ``known`` names with one for each publisher that discovery does not know, or not yet. Ends the process of ``node``
        where these stay: nothing but a new process gets rid of them.
        """
        matched = self._subscription.get_publisher_count()
        if self._ghosts.has_lasted(matched, len(known)):
            node.get_logger().fatal(
                f"giving up: {self._subscription.topic_name} is matched with {matched - len(known)} publisher(s) that nobody "
                "knows any more; a new process hears those that exist (respawn)"
            )
            request_exit(node, 1)
        return sorted(known + [UNNAMED] * (matched - len(known)))


def names_with_gone(present: Sequence[str], before: Sequence[str], settled: bool) -> tuple[str, ...]:
    """Names of the publishers ``present``; until they are ``settled`` also of the one that has gone, known ``before`` or not."""
    if settled or len(present) > 1:
        return tuple(sorted(present))
    gone = list(before)
    for name in present:
        if name in gone:
            gone.remove(name)
    gone = [name.removesuffix(f" {GONE}") for name in gone] or [UNNAMED]
    return tuple(sorted((*(present or [UNNAMED]), f"{gone[0]} {GONE}")))


def make_decoder(
    kind: Any, most_bytes: int, deliver: Callable[[Any], object], refused: Callable[[InvalidInput], object]
) -> Callable[[bytes], None]:
    """A callback for serialised messages that hands them decoded to ``deliver``, unless they have more than ``most_bytes``: to
    decode those would keep the node from everything else.
    """

    def receive(data: bytes) -> None:
        if len(data) > most_bytes:
            refused(InvalidInput(f"{kind.__name__} of {len(data)} bytes: expected at most {most_bytes}"))
        else:
            deliver(deserialize_message(data, kind))

    return receive


class OnePublisher:
    """A subscription of ``node`` that hands a message to ``deliver`` only while it comes from one publisher, always the same.

    Of one with more than ``most_bytes`` only the error goes to ``refused``. ``changed`` is called when another publisher has
    come. ``gone``: as in :func:`~sticker_uq.nodes.common.liveliness.with_liveliness`. ``uncounted`` gets the other messages, for
    bad news counts whoever brings it, unless they have more than :data:`MOST_UNCOUNTED` bytes. A latched input is asked for anew
    when one publisher is left, as it may send nothing more.
    """

    def __init__(
        self,
        node: Node,
        kind: Any,
        topic: str,
        deliver: Callable[[Any], None],
        profile: QoSProfile,
        *,
        changed: Callable[[], object],
        most_bytes: int,
        refused: Callable[[InvalidInput], object],
        gone: Callable[[], object] | None = None,
        uncounted: Callable[[Any], object] | None = None,
    ) -> None:
        self._node, self._kind, self._profile = node, kind, profile
        self._changed, self._gone = changed, gone
        self._receive = make_decoder(kind, most_bytes, deliver, refused)
        self._uncounted = uncounted
        self.topic = node.resolve_topic_name(topic)
        self._succession = Succession()
        self._names: tuple[str, ...] = ()
        self._ask_anew = False
        self._subscribe()

    def _subscribe(self) -> None:
        def make(**events: Any) -> Subscription:
            callbacks = SubscriptionEventCallbacks(matched=lambda _: self._look(), **events)
            receive: Any = self._on_message  # rclpy passes MessageInfo to a callback with two arguments
            return self._node.create_subscription(
                self._kind, self.topic, receive, self._profile, event_callbacks=callbacks, raw=True
            )

        self.subscription = (
            make() if self._gone is None else with_liveliness(self._node, self.topic, make, self._gone)
        )
        self._matches = Matches(self.subscription)

    def destroy(self) -> None:
        self._changed = self._do_nothing
        self._matches.destroy()
        self._node.destroy_subscription(self.subscription)

    @staticmethod
    def _do_nothing() -> None:
        """Nobody is told any more."""

    @property
    def is_settled(self) -> bool:
        return self._succession.is_settled

    def problem(self) -> Reason | None:
        """Why messages do not count now, with the names of the publishers; None when they do. Call it from time to time."""
        self._succession.note_matched(*self._matches.counts())
        present = self._present()
        if self.is_settled and len(present) < 2:
            self._names = tuple(present) or self._names
            if self._ask_anew:
                self._renew()
            return None
        self._ask_anew = self._profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
        self._names = names = names_with_gone(present, self._names, self.is_settled)
        return Reason.of("scene_publishers", topic=self.topic, count=len(names), names=", ".join(names))

    def _renew(self) -> None:
        """What is latched may be of the publisher that has gone: receive that of the one that is left."""
        self._ask_anew = False
        self._matches.destroy()
        self._node.destroy_subscription(self.subscription)
        self._subscribe()
        self._succession = Succession()

    def _present(self) -> list[str]:
        """One name per publisher, matched or not: matching may know one before discovery does, or after it."""
        expected = type_of(self._kind)
        found = self._node.get_publishers_info_by_topic(self.topic)
        return self._matches.names(self._node, [publisher_name(one, expected) for one in found])

    def _look(self) -> None:
        self._succession.note_matched(*self._matches.counts())
        if not self.is_settled:
            self._changed()

    def _on_message(self, data: bytes, info: Mapping[str, Any]) -> None:
        self._succession.note_message(info.get("publication_sequence_number"))
        self._look()  # up to this message
        if self.is_settled:
            self._receive(data)
        elif self._uncounted is not None and len(data) <= MOST_UNCOUNTED:
            self._uncounted(deserialize_message(data, self._kind))

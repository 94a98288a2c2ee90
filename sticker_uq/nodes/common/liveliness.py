"""Subscriptions that notice the death of a publisher's process within a fifth of a second.

The middleware of both sides sees to it, in threads of its own (DDS: LIVELINESS, kind AUTOMATIC): unlike a message that is missed,
it does not mistake an interpreter that is busy for one that is dead. It does not notice one that hangs while its process lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

_PREFIX = 12
"""Bytes of an endpoint's GUID that name its participant (RTPS 2.5, 8.2.4.1): the same for all endpoints of one process."""


def subscribe_with_liveliness(
    node: Node,
    message_type: type,
    topic: str,
    callback: Callable[[Any], None],
    profile: QoSProfile,
    gone: Callable[[], None],
    **arguments: Any,
) -> Subscription:
    """A subscription of ``node`` that calls ``gone`` when one of its publishers has died or was withdrawn.

    It does not while a publisher of the topic lives in the node's own process: Fast DDS counts that one as dead whenever it
    does not write, and nobody would be left to hear of its death. With a middleware that has no such events nobody is told,
    and the log says so.
    """
    name = node.resolve_topic_name(topic)

    def changed(event: Any) -> None:
        if event.alive_count_change < 0 and not _published_here(node, name):
            gone()

    def make(events: SubscriptionEventCallbacks | None) -> Subscription:
        return node.create_subscription(
            message_type, topic, callback, profile, event_callbacks=events, **arguments
        )

    try:
        return make(SubscriptionEventCallbacks(liveliness=changed))
    except UnsupportedEventTypeError:
        node.get_logger().warning(
            f"this middleware does not tell when a publisher of {name} dies: it is noticed by its silence only"
        )
        return make(None)


def _published_here(node: Node, topic: str) -> bool:
    """Whether a publisher of ``topic`` belongs to the process of ``node``, which subscribes to it."""
    own = (node.get_name(), node.get_namespace())
    subscriptions = node.get_subscriptions_info_by_topic(topic)
    here = _participants(info for info in subscriptions if (info.node_name, info.node_namespace) == own)
    return bool(here & _participants(node.get_publishers_info_by_topic(topic)))


def _participants(endpoints: Iterable[TopicEndpointInfo]) -> set[bytes]:
    return {bytes(endpoint.endpoint_gid)[:_PREFIX] for endpoint in endpoints}

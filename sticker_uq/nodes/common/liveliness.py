# SPDX-License-Identifier: Apache-2.0
"""Who publishes a topic, and subscriptions that detect the death of a publisher's process within 0.2 s.

The middleware does so in its own threads (DDS LIVELINESS, kind AUTOMATIC): unlike a missing message, it does not mistake a busy
interpreter for a dead one. It does not detect a process that hangs.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rclpy.event_handler import SubscriptionEventCallbacks, UnsupportedEventTypeError
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

UNNAMED = "(unnamed)"
"""Name of a publisher whose node discovery does not know, or not yet."""
_PREFIX = 12
"""Bytes of an endpoint's GUID that identify its participant (RTPS 2.5, 8.2.4.1), common to all endpoints of one process."""


def type_of(message_class: type) -> str:
    """The name of a message's type, e.g. ``sensor_msgs/msg/Image``."""
    return f"{message_class.__module__.split('.')[0]}/msg/{message_class.__name__}"


def publisher_name(endpoint: TopicEndpointInfo, expected_type: str = "") -> str:
    """The full name of the node of ``endpoint``, with its type where that is not ``expected_type``."""
    if endpoint.node_name.startswith("_NODE_NAME_UNKNOWN"):
        name = UNNAMED
    else:
        name = f"{endpoint.node_namespace.rstrip('/')}/{endpoint.node_name}"
    expected = endpoint.topic_type == expected_type or not expected_type
    return name if expected else f"{name} ({endpoint.topic_type})"


def subscribe_with_liveliness(
    node: Node,
    message_type: type,
    topic: str,
    callback: Callable[[Any], None],
    profile: QoSProfile,
    gone: Callable[[], object],
    **arguments: Any,
) -> Subscription:
    """A subscription of ``node`` that calls ``gone`` as :func:`with_liveliness` says."""
    subscribe = partial(node.create_subscription, message_type, topic, callback, profile, **arguments)

    def make(**events: Any) -> Subscription:
        return subscribe(event_callbacks=SubscriptionEventCallbacks(**events))

    return with_liveliness(node, node.resolve_topic_name(topic), make, gone)


def with_liveliness(
    node: Node, topic: str, make: Callable[..., Subscription], gone: Callable[[], object]
) -> Subscription:
    """The subscription to ``topic`` that ``make`` makes with the event callbacks that it is given; it calls ``gone`` when one of
    its publishers has died or was destroyed.

    ``gone`` is not called for one that fell silent while a publisher of the topic is in the node's own process, which Fast DDS
    reports as not alive whenever it does not write. Without liveliness events in the middleware a warning is logged.
    """

    def on_change(event: Any) -> None:
        # An event holds all that happened since the last: of one that appeared and died, or of one that took the place of
        # another, no change is left. The removal of one that has long been dead is told by a smaller count of dead ones.
        alive, dead = event.alive_count_change, event.not_alive_count_change
        destroyed = alive < 0 and dead <= 0
        fell_silent = alive < 0 or (alive == 0 and dead >= 0)
        if destroyed or (fell_silent and not _is_published_here(node, topic)):
            gone()

    try:
        return make(liveliness=on_change)
    except UnsupportedEventTypeError:
        node.get_logger().warning(
            f"this middleware has no liveliness events: the death of a publisher of {topic} is detected by a timeout only"
        )
        return make()


def _is_published_here(node: Node, topic: str) -> bool:
    """Whether a publisher of ``topic`` belongs to the process of ``node``, which subscribes to it."""
    own = (node.get_name(), node.get_namespace())
    subscriptions = node.get_subscriptions_info_by_topic(topic)
    here = _participants(info for info in subscriptions if (info.node_name, info.node_namespace) == own)
    return bool(here & _participants(node.get_publishers_info_by_topic(topic)))


def _participants(endpoints: Iterable[TopicEndpointInfo]) -> set[bytes]:
    return {bytes(endpoint.endpoint_gid)[:_PREFIX] for endpoint in endpoints}

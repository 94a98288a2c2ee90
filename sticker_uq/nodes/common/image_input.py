# SPDX-License-Identifier: Apache-2.0
"""A node's subscription to camera images: matches the publishers' reliability and diagnoses missing images."""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, ReliabilityPolicy, qos_check_compatible
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.gate.presence import Succession
from sticker_uq.io.images import Transport
from sticker_uq.io.topics import COMPRESSED, IMAGE_TYPES, images_elsewhere
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.diagnostics import Level
from sticker_uq.nodes.common.liveliness import publisher_name
from sticker_uq.nodes.common.one_publisher import Matches, names_with_gone


class MessageLossCounter:
    """Counts lost messages: gaps in the sequence numbers of received messages.

    Sequence numbers are per publisher, and a message does not identify its publisher. With several publishers gaps cannot be
    counted, and the gap after a publisher was replaced or restarted is not a loss: call :meth:`publishers_changed` for every
    change. A gap counts only when the next message arrives without such a change, because the event may come after the first
    message of the new publisher.
    """

    def __init__(self) -> None:
        self._missing = 0
        self._jump = 0
        self._last: int | None = None
        self._alone = True
        self._numbered = True

    @property
    def missing_count(self) -> int | None:
        return self._missing if self._alone and self._numbered else None

    def publishers_changed(self, count: int) -> None:
        self._alone = count <= 1
        self._last, self._jump = None, 0

    def note_message(self, number: int | None) -> None:
        """Count messages lost up to the one with this sequence number; None where the middleware has none."""
        self._numbered = number is not None
        self._missing += self._jump
        self._jump = 0
        # a smaller number: the publisher restarted
        if number is not None and self._last is not None and number > self._last:
            self._jump = number - self._last - 1
        self._last = number


Reliability = Literal["auto", "reliable", "best_effort"]

#: Time without an image from a matched publisher that counts as a fault, s.
QUIET_S = 3.0
#: Advice for lost images.
BUFFERS = "large images need large socket buffers (sysctl net.core.rmem_max, see `sticker-uq doctor`)"
#: Message class, topic suffix and type name of each transport.
TRANSPORTS: dict[str, tuple[type, str, str]] = {
    "raw": (Image, "", IMAGE_TYPES["raw"]),
    "compressed": (CompressedImage, COMPRESSED, IMAGE_TYPES["compressed"]),
}


class ImageInput:
    """A subscription to ``topic`` or ``<topic>/compressed`` with queue depth 1; every message goes to ``deliver``.

    With reliability ``auto`` it asks for reliable delivery if every publisher offers it (best effort loses large images easily)
    and for best effort otherwise (a reliable subscription would receive nothing); it checks again whenever a publisher appears or
    disappears. ``publishers`` names the nodes whose images can arrive, one name for each publisher, those of the last images
    while there is none; one that has gone is named for a while, as what is under way may be its. ``joined`` is called when
    another one is found beside them or in their place. Call all methods from the executor's thread.
    """

    def __init__(
        self,
        node: Node,
        transport: Transport,
        reliability: Reliability,
        deliver: Callable[[Any], None],
        topic: str = "image",
        joined: Callable[[], None] = lambda: None,
    ) -> None:
        self._node = node
        self._type, suffix, self._type_name = TRANSPORTS[transport]
        self._name = topic + suffix
        self._reliability = reliability
        self._deliver = deliver
        self._joined = joined
        self.publishers: tuple[str, ...] = ()
        self.topic = node.resolve_topic_name(self._name)
        self.received = 0
        self.lost = 0
        self._sequence = MessageLossCounter()
        self._succession = Succession()
        self._matched = 0
        self._losses: deque[float] = deque(maxlen=30)
        self._arrivals: deque[float] = deque(maxlen=30)
        self._since = time.monotonic()  # that somebody publishes, or is matched anew
        self._published = False
        self._told = ""
        self._missed = False
        self._recheck = node.create_guard_condition(self.check)
        self.profile = qos.NEWEST_IMAGE_BEST_EFFORT
        self.profile = self._choose_profile(self._publishers())
        self._subscription, self._matches = self._subscribe()
        node.get_logger().info(f"waiting for first image on {self.topic} ({transport}, {reliability})")

    def close(self) -> None:
        self._unsubscribe()
        self._node.destroy_guard_condition(self._recheck)

    def check(self) -> None:
        """Ask for the QoS that publishers offer; log a fault once, and once that images arrive again. For a slow timer."""
        wanted = self._choose_profile(self._publishers())
        if wanted != self.profile:
            self._node.get_logger().info(
                f"{self.topic}: asking for {qos.describe(wanted)} now, as the publishers offer"
            )
            self.profile = wanted
            self._unsubscribe()
            self._subscription, self._matches = self._subscribe()
            self._succession.note_renewal()
        self._count()
        level, message = self.state()
        fault = message if level == Level.ERROR else ""
        if fault and not self._told:
            self._node.get_logger().error(fault)
            self._missed = True
        self._told = fault
        if self._missed and level == Level.OK:
            self._node.get_logger().info(f"{self.topic}: images arrive now")
            self._missed = False

    def state(self) -> tuple[Level, str]:
        """Level and description for diagnostics, naming topic and QoS policies."""
        publishers = self._publishers()
        now = time.monotonic()
        last = self._arrivals[-1] if self._arrivals else -math.inf
        if publishers and len(self.publishers) > 1:
            names = ", ".join(self.publishers)
            return Level.ERROR, (
                f"{self.topic}: {len(self.publishers)} publishers ({names}); the gate opens with exactly one: stop the others"
            )
        if now - last < QUIET_S:
            if self._losses and now - self._losses[-1] < QUIET_S:
                return Level.WARN, f"{self.topic}: images are lost on the way, {self.lost} so far; {BUFFERS}"
            return Level.OK, f"receiving {self.topic}"
        if problem := self._mismatch(publishers):
            return Level.ERROR, problem
        if not publishers:
            what = "the publisher is gone" if self.received else "nobody publishes it yet"
            level = Level.ERROR if self.received else Level.WARN
            elsewhere = images_elsewhere(self.topic, self._topics_of_others())
            what = f"{what}, {elsewhere}" if elsewhere else what
            return level, f"waiting for {'an' if self.received else 'first'} image on {self.topic}: {what}"
        quiet = now - max(last, self._since)
        usual = median(b - a for a, b in pairwise(self._arrivals)) if len(self._arrivals) > 1 else 0.0
        if QUIET_S <= quiet < 2 * usual:
            return Level.WARN, (
                f"{self.topic}: images come {usual:.1f} s apart; the gate needs a newer one within max_scene_age_s"
            )
        if quiet < QUIET_S:
            return Level.WARN, f"waiting for {'an' if self.received else 'first'} image on {self.topic}"
        offers = ", ".join(sorted({qos.describe(p.qos_profile) for p in publishers}))
        return Level.ERROR, (
            f"{self.topic}: {len(publishers)} publisher(s) matched but no image for {quiet:.0f} s (offered: {offers}; "
            f"asked: {qos.describe(self.profile)}); {BUFFERS}"
        )

    def rate(self) -> float:
        """Rate of the last images, Hz; 0 after QUIET_S without one."""
        if len(self._arrivals) < 2 or time.monotonic() - self._arrivals[-1] > QUIET_S:
            return 0.0
        return (len(self._arrivals) - 1) / max(self._arrivals[-1] - self._arrivals[0], 1e-9)

    def publisher_count(self) -> int:
        return len(self._publishers())

    @property
    def skipped_count(self) -> int | None:
        """Images neither received nor reported as lost; None when that is unknown.

        They were replaced in the queue of depth 1, or dropped by the publisher. Their number is unknown without sequence
        numbers or with several publishers.
        """
        missing = self._sequence.missing_count
        return None if missing is None else max(0, missing - self.lost)

    def _on_message(self, message: Any, info: Mapping[str, Any]) -> None:
        self.received += 1
        self._sequence.note_message(info.get("publication_sequence_number"))
        self._arrivals.append(time.monotonic())
        self._look()
        self._succession.note_message(info.get("publication_sequence_number"))
        if not self._succession.is_settled or len(self.publishers) != 1:
            self._count()
        self._deliver(message)

    def _on_lost(self, info: Any) -> None:
        self.lost += info.total_count_change
        self._losses.append(time.monotonic())

    def _look(self) -> None:
        """A publisher is matched before its first image arrives; its event comes later."""
        changes = self._succession.changes
        ever, present = self._matches.counts()
        self._succession.note_matched(ever, present)
        if present > self._matched:
            self._since = time.monotonic()
        if present != self._matched or changes != self._succession.changes:
            self._sequence.publishers_changed(present)
            self._recheck.trigger()
        self._matched = present

    def _on_event(self, _: Any) -> None:
        # the subscription must not be replaced in its own event callback
        self._recheck.trigger()

    def _unsubscribe(self) -> None:
        self._matches.destroy()
        self._node.destroy_subscription(self._subscription)

    def _subscribe(self) -> tuple[Subscription, Matches]:
        events = SubscriptionEventCallbacks(
            matched=lambda _: self._look(), incompatible_qos=self._on_event, message_lost=self._on_lost
        )
        # rclpy passes MessageInfo to a callback with two arguments, which its annotations lack
        on_message: Any = self._on_message
        made = self._node.create_subscription(
            self._type, self._name, on_message, self.profile, event_callbacks=events
        )
        return made, Matches(made)

    def _publishers(self) -> Sequence[TopicEndpointInfo]:
        """Who publishes the topic. Discovery may know it before the subscription is matched: time counts from then, too."""
        found = self._node.get_publishers_info_by_topic(self.topic)
        if found and not self._published:
            self._since = time.monotonic()
        self._published = bool(found)
        return found

    def _topics_of_others(self) -> dict[str, list[str]]:
        node, own = self._node, self._node.get_fully_qualified_name()
        return {
            topic: types
            for topic, types in node.get_topic_names_and_types()
            if not {*IMAGE_TYPES.values()}.isdisjoint(types)
            and any(publisher_name(one) != own for one in node.get_publishers_info_by_topic(topic))
        }

    def _count(self) -> None:
        """Find out who publishes images that can arrive. Matching may know a publisher before discovery does, or after it."""
        found = [publisher_name(one) for one in self._publishers() if not self._obstacle(one)]
        found = self._matches.names(self._node, found)
        settled = self._succession.is_settled
        before = self.publishers
        self.publishers = names = names_with_gone(found, before, settled) or before
        if len(names) > max(len(before), 1):
            self._joined()

    def _choose_profile(self, publishers: Sequence[TopicEndpointInfo]) -> QoSProfile:
        if self._reliability != "auto":
            reliable = self._reliability == "reliable"
        elif publishers:
            reliable = all(p.qos_profile.reliability == ReliabilityPolicy.RELIABLE for p in publishers)
        else:
            return self.profile
        return qos.NEWEST_IMAGE_RELIABLE if reliable else qos.NEWEST_IMAGE_BEST_EFFORT

    def _mismatch(self, publishers: Sequence[TopicEndpointInfo]) -> str:
        reasons = [self._obstacle(publisher) for publisher in publishers]
        none_fits = bool(reasons) and all(reasons)
        return f"incompatible publishers of {self.topic}: {'; '.join(reasons)}" if none_fits else ""

    def _obstacle(self, publisher: TopicEndpointInfo) -> str:
        """Why images of ``publisher`` cannot reach this subscription; empty when they can."""
        name = publisher_name(publisher)
        if publisher.topic_type != self._type_name:
            of_images = publisher.topic_type in IMAGE_TYPES.values()
            remedy = "set image_transport" if of_images else "no images, set camera_topic"
            return f"{name} publishes {publisher.topic_type}, expected {self._type_name}: {remedy}"
        compatibility, _ = qos_check_compatible(publisher.qos_profile, self.profile)
        if compatibility == QoSCompatibility.ERROR:
            return (
                f"{name} offers {qos.describe(publisher.qos_profile)} but {qos.describe(self.profile)} is asked for: "
                "set image_reliability"
            )
        return ""

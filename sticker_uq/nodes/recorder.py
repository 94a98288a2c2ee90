"""Node ``recorder``: writes the cell's topics to an mcap bag, where ``ros2 bag record`` does not exist.

Messages are stored as they came over the wire, so that a replay sees the same bytes as the cell did. A full disk ends the
recording, not the node: what was written stays readable, the loss is logged once and counted, and the process ends with
exit status 1 when its time has come.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription

from sticker_uq.datasets.bag_writer import BagWriter
from sticker_uq.nodes import qos
from sticker_uq.nodes.diagnostics import Diagnostics, Level, Report
from sticker_uq.nodes.image_input import TRANSPORTS, Transport
from sticker_uq.nodes.lifecycle import exit_process, run_node
from sticker_uq.nodes.parameters import declare_settings, read_settings
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs.msg import (
    GateState,
    InterventionAnswer,
    InterventionRequest,
    SceneAssessment,
    SceneDecision,
    Workpiece,
    WorkpieceDone,
)

#: So long after the start scenes without a recorded image are called a fault, s.
NO_IMAGE_S = 10.0

TOPICS: dict[str, tuple[Any, str, QoSProfile]] = {
    "scene": (SceneAssessment, "sticker_uq_msgs/msg/SceneAssessment", qos.RELIABLE),
    "decision": (SceneDecision, "sticker_uq_msgs/msg/SceneDecision", qos.RELIABLE),
    "gate": (GateState, "sticker_uq_msgs/msg/GateState", qos.LATCHED),
    "intervention/request": (InterventionRequest, "sticker_uq_msgs/msg/InterventionRequest", qos.LATCHED),
    "intervention/answer": (InterventionAnswer, "sticker_uq_msgs/msg/InterventionAnswer", qos.RELIABLE),
    "workpiece": (Workpiece, "sticker_uq_msgs/msg/Workpiece", qos.LATCHED),
    "workpiece/done": (WorkpieceDone, "sticker_uq_msgs/msg/WorkpieceDone", qos.LATCHED),
}


class RecorderSettings(BaseModel):
    """Parameters of the recorder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bag: str = Field("", description="Folder of the new recording; it must not exist yet")
    number_if_exists: bool = Field(
        False,
        description="Where the folder exists already, record into <bag>_2, <bag>_3, ... instead of refusing: for a recorder "
        "that is started again",
    )
    image_transport: Transport = Field(
        "raw", description="Record image or image/compressed; the same as the detector's"
    )


class Recorder(Node):
    """The node; see the module's docstring.

    ``recorded`` counts the messages written per topic, ``lost`` those from the one on that the disk refused. What still lay in
    the writer's buffer then is lost too.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__("recorder", **arguments)
        declare_settings(self, RecorderSettings)
        settings: RecorderSettings = read_settings(self, RecorderSettings)
        if not settings.bag:
            raise InvalidInput("parameter bag = '': expected the folder of a new recording")
        self.recorded: Counter[str] = Counter()
        self.lost = 0
        self.failed = False
        bag = _free(Path(settings.bag)) if settings.number_if_exists else Path(settings.bag)
        self._writer = BagWriter(bag)
        self._writer.__enter__()
        for topic, (message_class, type_name, profile) in TOPICS.items():
            write = self._writing(topic, type_name)
            self.create_subscription(message_class, topic, write, profile, raw=True)
        self._record_images(settings.image_transport)
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add("recording", self._report)
        topics = len(TOPICS) + 1
        self.get_logger().info(f"recording {topics} topics to {bag}, images from {self._image_topic}")

    def _report(self) -> Report:
        values = {"recorded": sum(self.recorded.values()), "lost": self.lost}
        if self.lost:
            return Report(Level.ERROR, "messages are lost", values)
        return Report(Level.OK, "recording", values)

    def destroy_node(self) -> None:
        """Close the recording."""
        try:
            self._writer.__exit__(None, None, None)
        except OSError as error:
            self.failed = True
            self.get_logger().error(f"the recording could not be closed: {error}")
        if self.lost:
            self.get_logger().error(f"{self.lost} messages were not recorded")
        super().destroy_node()

    def _writing(self, topic: str, type_name: str) -> partial[None]:
        """What records the messages of ``topic``, which it announces to the recording."""
        name = self.resolve_topic_name(topic)
        self._writer.add_topic(name, type_name)
        return partial(self._write, name)

    def _write(self, topic: str, data: bytes) -> None:
        if self.failed:
            self.lost += 1
            return
        try:
            self._writer.write(topic, self.get_clock().now().nanoseconds, data)
        except OSError as error:
            self.failed = True
            self.lost = 1
            self.get_logger().error(f"the recording ends here, nothing more is written: {error}")
        else:
            self.recorded[topic] += 1

    # Images

    def _record_images(self, transport: Transport) -> None:
        self._image_class, suffix, type_name = TRANSPORTS[transport]
        self._image_name = "image" + suffix
        self._transport = transport
        self._image_topic = self.resolve_topic_name(self._image_name)
        self._write_image = self._writing(self._image_name, type_name)
        # a subscription must not be replaced from inside its own event
        self._refused = self.create_guard_condition(self._take_best_effort)
        self._best_effort = False
        self._images = self._subscribe(qos.RECORDED_IMAGE_RELIABLE)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._image_check = self.create_timer(NO_IMAGE_S, self._check_images, clock=steady)

    def _subscribe(self, profile: QoSProfile) -> Subscription:
        events = SubscriptionEventCallbacks(incompatible_qos=self._on_incompatible)
        return self.create_subscription(
            self._image_class,
            self._image_name,
            self._write_image,
            profile,
            event_callbacks=events,
            raw=True,
        )

    def _on_incompatible(self, _: Any) -> None:
        self._refused.trigger()

    def _take_best_effort(self) -> None:
        """Go over to best effort, which every publisher can serve, because one does not offer reliable delivery."""
        if self._best_effort:
            return
        self._best_effort = True
        self.get_logger().info(f"{self._image_topic}: asking for best effort now, as the publishers offer")
        self.destroy_subscription(self._images)
        self._images = self._subscribe(qos.RECORDED_IMAGE_BEST_EFFORT)

    def _check_images(self) -> None:
        if not self.recorded[self._image_topic]:
            if not self.recorded[self.resolve_topic_name("scene")]:
                return
            self.get_logger().warning(
                f"scenes arrive but no image on {self._image_topic}, so the recording has none: "
                f"image_transport ({self._transport}) and the camera's topic must be those of the detector"
            )
        self._image_check.cancel()


def _free(bag: Path) -> Path:
    """``bag``, or the first of ``bag_2``, ``bag_3``, ... that does not exist yet."""
    numbered = (bag.with_name(f"{bag.name}_{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([bag], numbered) if not path.exists())


def main() -> None:
    """Entry point of the executable ``recorder``."""
    nodes: list[Recorder] = []

    def make() -> Recorder:
        nodes.append(Recorder())
        return nodes[0]

    status = run_node(make)
    exit_process(status or int(any(node.failed for node in nodes)))


if __name__ == "__main__":
    main()

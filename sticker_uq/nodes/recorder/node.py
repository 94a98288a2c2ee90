# SPDX-License-Identifier: Apache-2.0
"""Node ``recorder``: writes the cell's topics to an mcap bag, where ``ros2 bag record`` does not exist.

Messages are stored in serialised form, so that a replay reads the same bytes as the cell. A full disk ends neither the node
nor the cell: what was written stays readable, the loss is logged and counted with its cause, the recording goes on in a new
folder when there is space again, and the process exits with status 1 when it is stopped.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Bool, Float64, String

from sticker_uq.cell.node_settings import RecorderSettings
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.images import Transport
from sticker_uq.io.topics import folder_of, more_topics
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.diagnostics import Diagnostics, Level, PartReport, steady_timer
from sticker_uq.nodes.common.image_input import TRANSPORTS
from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq.nodes.common.liveliness import type_of
from sticker_uq.nodes.common.parameters import declare_settings
from sticker_uq.nodes.detector.vision_mirror import VISION_MSGS
from sticker_uq.nodes.recorder import annotations
from sticker_uq.nodes.supervisor.markers import VISUALIZATION_MSGS
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs import msg as m


class RecordedImages:
    """Passes every serialised image of ``topic`` to the callback that ``writing(topic, type)`` returns.

    Requests reliable delivery, or best effort once a publisher does not offer it. ``name``: the resolved topic.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        transport: Transport,
        writing: Callable[[str, type], Callable[[bytes], None]],
    ) -> None:
        self._node = node
        self._class, suffix, _ = TRANSPORTS[transport]
        self._topic = topic + suffix
        self.name = node.resolve_topic_name(self._topic)
        self._write = writing(self._topic, self._class)
        # a subscription must not be replaced in its own event callback
        self._refused = node.create_guard_condition(self._take_best_effort)
        self._best_effort = False
        self._subscription = self._subscribe(qos.RECORDED_IMAGE_RELIABLE)

    def _subscribe(self, profile: QoSProfile) -> Subscription:
        events = SubscriptionEventCallbacks(incompatible_qos=lambda _: self._refused.trigger())
        return self._node.create_subscription(
            self._class, self._topic, self._write, profile, event_callbacks=events, raw=True
        )

    def _take_best_effort(self) -> None:
        """Switch to best effort, because a publisher does not offer reliable delivery."""
        if self._best_effort:
            return
        self._best_effort = True
        self._node.get_logger().info(f"{self.name}: requesting best effort, as offered by the publishers")
        self._node.destroy_subscription(self._subscription)
        self._subscription = self._subscribe(qos.RECORDED_IMAGE_BEST_EFFORT)


#: Time after the start at which scenes without a recorded image are reported, s.
NO_IMAGE_S = 10.0
#: So often it is checked that the recording is still where it is written, s.
LOOK_S = 1.0
#: After so long a disk that refused a message is tried again, s.
RETRY_S = 5.0

REMEDY = "free space on the disk, and the recording goes on in a new folder"

TOPICS: dict[str, tuple[Any, QoSProfile]] = {
    "scene": (m.SceneAssessment, qos.RELIABLE),
    "decision": (m.SceneDecision, qos.RELIABLE),
    "gate": (m.GateState, qos.LATCHED),
    "intervention/request": (m.InterventionRequest, qos.LATCHED),
    "intervention/answer": (m.InterventionAnswer, qos.RELIABLE),
    "workpiece": (m.Workpiece, qos.LATCHED),
    "workpiece/done": (m.WorkpieceDone, qos.LATCHED),
    # for viewers; a best effort subscription hears every camera
    "camera_info": (CameraInfo, qos.NEWEST_IMAGE_BEST_EFFORT),
    "/diagnostics": (DiagnosticArray, qos.DIAGNOSTICS),
    "arm/status": (m.ArmStatus, qos.RELIABLE),
    "monitor/gate_open": (Bool, qos.RELIABLE),
    "monitor/state": (String, qos.RELIABLE),
    **{f"monitor/{name}": (Float64, qos.RELIABLE) for name in ("uncertainty", "dil", "drift")},
}
if VISION_MSGS is not None:
    TOPICS["detections_2d"] = (VISION_MSGS.Detection2DArray, qos.RELIABLE)
if VISUALIZATION_MSGS is not None:
    TOPICS["markers"] = (VISUALIZATION_MSGS.MarkerArray, qos.RELIABLE)


class Recorder(Node):
    """``recorded`` counts the messages written per topic, ``lost`` those that came while the disk refused them. What was in the
    writer's buffer of 1 MB at a disk error is lost too. ``problem``: why nothing is written now, empty when it is.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__("recorder", **arguments)
        settings = declare_settings(self, RecorderSettings).read()
        if not settings.bag:
            raise InvalidInput("parameter bag = '': expected the folder of a new recording")
        self.recorded: Counter[str] = Counter()
        self.lost = 0
        self.problem = ""
        self._retry_at_s = 0.0
        self._bag = BagWriter(
            Path(settings.bag), settings.number_if_exists, int(settings.split_mb * 1e6), settings.keep
        )
        annotations.register(self._bag.types)
        self._annotations = self.resolve_topic_name("annotations")
        self._bag.add_topic(self._annotations, annotations.TYPE)
        for topic, (message_class, profile) in TOPICS.items():
            write = self._register_topic(topic, message_class, latched=profile is qos.LATCHED)
            take = partial(self._write_annotated, write) if topic == "decision" else write
            self.create_subscription(message_class, topic, take, profile, raw=True)
        self._transport = settings.image_transport
        # cameras without an image so far, by their scene topic
        self._unseen: dict[str, RecordedImages] = {}
        for topic in ("image", *more_topics(settings.more_image_topics)):
            scene = f"{folder_of(topic)}scene"
            if scene not in TOPICS:
                message_class, profile = TOPICS["scene"]
                write = self._register_topic(scene, message_class)
                self.create_subscription(message_class, scene, write, profile, raw=True)
            images = RecordedImages(self, topic, settings.image_transport, self._register_topic)
            self._unseen[self.resolve_topic_name(scene)] = images
        listed = ", ".join(images.name for images in self._unseen.values())
        topics = len(TOPICS) + 2 * len(self._unseen)
        steady_timer(self, LOOK_S, self._look)
        self._image_check = steady_timer(self, NO_IMAGE_S, self._check_images)
        self._diagnostics = Diagnostics(self)
        self._diagnostics.add("recording", self._report)
        self.get_logger().info(f"recording {topics} topics to {self._bag.folder}, images from {listed}")

    def _report(self) -> PartReport:
        folder = str(self._bag.folder)
        values = {"recorded": sum(self.recorded.values()), "lost": self.lost, "folder": folder}
        if self.problem:
            return PartReport(Level.ERROR, f"messages are lost: {self.problem}; {REMEDY}", values)
        if self.lost:
            return PartReport(Level.WARN, f"recording into {folder}; a part before it is missing", values)
        return PartReport(Level.OK, "recording", values)

    def destroy_node(self) -> None:
        try:
            self._bag.close()
        except OSError as error:
            self.problem = str(error)
            self.get_logger().error(f"the recording could not be closed: {error}")
        if self.lost:
            self.get_logger().error(f"{self.lost} messages were not recorded")
        super().destroy_node()

    def _register_topic(self, topic: str, message_class: type, latched: bool = False) -> partial[None]:
        """Registers ``topic`` in the recording; returns the callback that writes its messages."""
        name = self.resolve_topic_name(topic)
        self._bag.add_topic(name, type_of(message_class), latched)
        return partial(self._write, name)

    def _write_annotated(self, write: Callable[[bytes], None], data: bytes) -> None:
        write(data)
        drawn = annotations.annotations(deserialize_message(data, m.SceneDecision), self._bag.types)
        self._write(self._annotations, drawn)

    def _write(self, topic: str, data: bytes) -> None:
        now_ns = self.get_clock().now().nanoseconds
        if self.problem and not self._resume(now_ns):
            self.lost += 1
            return
        try:
            if self._bag.write(topic, now_ns, data):
                self.get_logger().info(f"recording goes on in {self._bag.folder}")
        except OSError as error:
            self.lost += 1
            self._on_write_error(error)
        else:
            self.recorded[topic] += 1

    def _on_write_error(self, error: OSError) -> None:
        self.problem = f"{self._bag.folder}: {error.strerror or error}"
        self._retry_at_s = time.monotonic() + RETRY_S
        self.get_logger().error(f"recording stopped, messages are lost: {self.problem}; {REMEDY}")

    def _look(self) -> None:
        try:
            self._bag.check()
        except OSError as error:
            self._on_write_error(error)

    def _resume(self, now_ns: int) -> bool:
        """Try from time to time to go on in a new folder; returns whether that succeeded."""
        if time.monotonic() < self._retry_at_s:
            return False
        try:
            self._bag.resume(now_ns)
        except OSError:
            self._retry_at_s = time.monotonic() + RETRY_S
            return False
        self.problem = ""
        self.get_logger().warning(
            f"recording goes on in {self._bag.folder}; {self.lost} messages before it are lost"
        )
        return True

    def _check_images(self) -> None:
        """Warn once of every camera whose scenes are recorded without its images."""
        for scene, images in list(self._unseen.items()):
            if self.recorded[images.name]:
                del self._unseen[scene]
            elif self.recorded[scene]:
                del self._unseen[scene]
                self.get_logger().warning(
                    f"scenes arrive on {scene} but no image on {images.name}, so the recording has none: "
                    f"set image_transport ({self._transport}) and the cameras' topics as for the detector"
                )
        if not self._unseen:
            self._image_check.cancel()


def main() -> None:
    nodes: list[Recorder] = []

    def make() -> Recorder:
        nodes.append(Recorder())
        return nodes[0]

    status = run_node(make)
    exit_process(status or int(any(node.lost or node.problem for node in nodes)))

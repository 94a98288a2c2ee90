"""Node ``recorder``: writes the cell's topics to an mcap bag, where ``ros2 bag record`` does not exist.

Messages are stored as they came over the wire, so that a replay sees the same bytes as the cell did. A full disk ends the
recording, not the node: what was written stays readable, the loss is logged once and counted.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CompressedImage

from sticker_uq.datasets.bag_writer import BagWriter
from sticker_uq.nodes.lifecycle import exit_process, run_node
from sticker_uq.nodes.parameters import declare_settings, read_settings
from sticker_uq.nodes.qos import LATCHED, RELIABLE
from sticker_uq_msgs.msg import (
    GateState,
    InterventionAnswer,
    InterventionRequest,
    SceneAssessment,
    SceneDecision,
    Workpiece,
    WorkpieceDone,
)

TOPICS: dict[str, tuple[Any, str, QoSProfile]] = {
    "image/compressed": (CompressedImage, "sensor_msgs/msg/CompressedImage", RELIABLE),
    "scene": (SceneAssessment, "sticker_uq_msgs/msg/SceneAssessment", RELIABLE),
    "decision": (SceneDecision, "sticker_uq_msgs/msg/SceneDecision", RELIABLE),
    "gate": (GateState, "sticker_uq_msgs/msg/GateState", LATCHED),
    "intervention/request": (InterventionRequest, "sticker_uq_msgs/msg/InterventionRequest", LATCHED),
    "intervention/answer": (InterventionAnswer, "sticker_uq_msgs/msg/InterventionAnswer", RELIABLE),
    "workpiece": (Workpiece, "sticker_uq_msgs/msg/Workpiece", LATCHED),
    "workpiece/done": (WorkpieceDone, "sticker_uq_msgs/msg/WorkpieceDone", LATCHED),
}


class RecorderSettings(BaseModel):
    """Parameters of the recorder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bag: str = Field("", description="Folder of the new recording; it must not exist yet")


class Recorder(Node):
    """The node; see the module's docstring."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("recorder", **arguments)
        declare_settings(self, RecorderSettings)
        settings: RecorderSettings = read_settings(self, RecorderSettings)
        self._writer = BagWriter(Path(settings.bag))
        self._writer.__enter__()
        self._lost = 0
        for topic, (message_class, type_name, qos) in TOPICS.items():
            self._writer.add_topic(self.resolve_topic_name(topic), type_name)
            write = partial(self._write, self.resolve_topic_name(topic))
            self.create_subscription(message_class, topic, write, qos, raw=True)
        self.get_logger().info(f"recording {len(TOPICS)} topics to {settings.bag}")

    def destroy_node(self) -> None:
        """Close the recording."""
        try:
            self._writer.__exit__(None, None, None)
        except OSError as error:
            self.get_logger().error(f"the recording could not be closed: {error}")
        if self._lost:
            self.get_logger().error(f"{self._lost} messages were not recorded")
        super().destroy_node()

    def _write(self, topic: str, data: bytes) -> None:
        if self._lost:
            self._lost += 1
            return
        try:
            self._writer.write(topic, self.get_clock().now().nanoseconds, data)
        except OSError as error:
            self._lost = 1
            self.get_logger().error(f"the recording ends here, nothing more is written: {error}")


def main() -> None:
    """Entry point of the executable ``recorder``."""
    exit_process(run_node(Recorder))


if __name__ == "__main__":
    main()

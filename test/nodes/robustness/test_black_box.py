# SPDX-License-Identifier: Apache-2.0
"""A node under assessment: the real detector as a process, nodes that are silent, late, or say something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Image
from std_msgs.msg import String

from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.detector.vision_mirror import VISION_MSGS
from sticker_uq.nodes.robustness.black_box import BlackBox, BlackBoxSettings, detections_from_vision
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.bench import PATIENCE_S, NodeProcess
from sticker_uq_msgs.msg import Box, StickerDetection, StickerDetectionArray

PICTURE = render(sample_scene(3), size=(480, 360)).image
SETTINGS = BlackBoxSettings(timeout_s=PATIENCE_S, start_timeout_s=PATIENCE_S)


class ForeignNode:
    """A node in a thread of its own that answers every image as ``reply`` says."""

    def __init__(self, message_type: type, reply: Callable[[Image], list[Any]]) -> None:
        self._context = Context()
        rclpy.init(args=[], context=self._context)
        self._node = Node("foreign", context=self._context, enable_rosout=False)
        self._publisher = self._node.create_publisher(message_type, "detections", qos.RELIABLE)
        self._reply = reply
        self._node.create_subscription(Image, "image", self._take, qos.NEWEST_IMAGE_RELIABLE)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin, daemon=True)
        self._thread.start()

    def _take(self, image: Image) -> None:
        for message in self._reply(image):
            self._publisher.publish(message)

    def close(self) -> None:
        self._executor.shutdown()
        self._thread.join()
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)


@pytest.fixture
def foreign(ros_domain: object) -> Iterator[Callable[..., ForeignNode]]:
    made: list[ForeignNode] = []

    def make(message_type: type, reply: Callable[[Image], list[Any]]) -> ForeignNode:
        made.append(ForeignNode(message_type, reply))
        return made[-1]

    yield make
    for one in made:
        one.close()


def sticker(image: Image, score: float = 0.75) -> StickerDetectionArray:
    found = StickerDetection(id=0, label=2, score=score, box=Box(x1=1.0, y1=2.0, x2=30.0, y2=40.0))
    return StickerDetectionArray(header=image.header, detections=[found])


def test_the_real_detector_node_is_a_black_box(ros_domain: object) -> None:
    parameters = {"autostart": "true", "passes": "5", "device": "cpu"}
    with NodeProcess("sticker_uq.nodes.detector.node", parameters):
        system = BlackBox(SETTINGS)
        try:
            answers = [system.answer(PICTURE, "one"), system.answer(PICTURE[::-1].copy(), "two")]
        finally:
            system.close()
    perception = Perception(PerceptionSettings(passes=5, device="cpu"))
    for answer, picture in zip(answers, (PICTURE, PICTURE[::-1].copy()), strict=True):
        assert not answer.failure
        expected = perception.assess(picture).objects
        assert len(answer.detections) == len(expected)
        assert np.array_equal(answer.detections.boxes, np.array([o.box for o in expected]).reshape(-1, 4))
        assert answer.detections.scores == pytest.approx([o.score for o in expected], abs=1e-6)
    assert len(answers[0].detections) > 0


def test_no_answer_in_time_is_a_failure_and_a_late_one_belongs_to_no_other_image(
    foreign: Callable[..., ForeignNode],
) -> None:
    kept: list[Image] = []

    def late(image: Image) -> list[StickerDetectionArray]:
        """Says nothing to the first image; to the second first what it should have said to the first."""
        kept.append(image)
        return [] if len(kept) == 1 else [sticker(kept[0], 0.1), sticker(image, 0.9)]

    foreign(StickerDetectionArray, late)
    system = BlackBox(SETTINGS.model_copy(update={"timeout_s": 1.0}))
    try:
        silent = system.answer(PICTURE, "one")
        system.settings = SETTINGS
        heard = system.answer(PICTURE, "two")
    finally:
        system.close()
    assert silent.failure == "no answer within 1 s"
    assert silent.action is not None
    assert silent.action.asked
    assert not heard.failure
    assert heard.detections.scores == pytest.approx([0.9])
    assert heard.detections.boxes.tolist() == [[1, 2, 30, 40]]


def test_another_type_of_message_is_named(foreign: Callable[..., ForeignNode]) -> None:
    foreign(String, lambda image: [])
    with pytest.raises(
        InvalidInput, match="/detections carries std_msgs/msg/String, expected sticker_uq_msgs"
    ):
        BlackBox(SETTINGS)


def test_nobody_there_is_told(ros_domain: object) -> None:
    with pytest.raises(InvalidInput, match="/detections has no publisher"):
        BlackBox(SETTINGS.model_copy(update={"start_timeout_s": 0.5}))


@pytest.mark.skipif(VISION_MSGS is None, reason="no vision_msgs: apt install ros-jazzy-vision-msgs")
def test_answers_as_vision_msgs(foreign: Callable[..., ForeignNode]) -> None:
    def reply(image: Image) -> list[Any]:
        detection = VISION_MSGS.Detection2D(header=image.header)  # type: ignore[union-attr]
        detection.bbox.center.position.x, detection.bbox.center.position.y = 20.0, 30.0
        detection.bbox.size_x, detection.bbox.size_y = 10.0, 20.0
        hypothesis = VISION_MSGS.ObjectHypothesisWithPose()  # type: ignore[union-attr]
        hypothesis.hypothesis.class_id, hypothesis.hypothesis.score = "sticker", 0.8
        detection.results.append(hypothesis)
        return [VISION_MSGS.Detection2DArray(header=image.header, detections=[detection])]  # type: ignore[union-attr]

    foreign(VISION_MSGS.Detection2DArray, reply)  # type: ignore[union-attr]
    system = BlackBox(SETTINGS)
    try:
        found = system.answer(PICTURE, "one").detections
    finally:
        system.close()
    assert found.boxes.tolist() == [[15, 20, 25, 40]]
    assert found.probabilities[0] == pytest.approx([0.2, 0, 0.8])


class _Plain:
    """A message of vision_msgs, field by field, for machines that do not have it."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def test_boxes_and_classes_of_vision_msgs() -> None:
    def detection(*hypotheses: tuple[str, float]) -> _Plain:
        results = [_Plain(hypothesis=_Plain(class_id=c, score=s)) for c, s in hypotheses]
        centre = _Plain(position=_Plain(x=20.0, y=30.0))
        return _Plain(bbox=_Plain(center=centre, size_x=10.0, size_y=20.0), results=results)

    message = _Plain(
        detections=[detection(("2", 0.7), ("1", 0.2)), detection(("Logo", 0.6)), detection(("cat", 0.9))]
    )
    found = detections_from_vision(message)
    assert found.boxes.tolist() == [[15, 20, 25, 40]] * 3
    assert found.probabilities == pytest.approx(
        np.array([[0.1, 0.2, 0.7], [0.4, 0.6, 0], [1, 0, 0]]), abs=1e-6
    )
    assert len(detections_from_vision(_Plain(detections=[]))) == 0

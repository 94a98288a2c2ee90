# SPDX-License-Identifier: Apache-2.0
"""vision_msgs, where it is installed: pixels of the original image, both hypotheses, names of the classes."""

from typing import Any

import numpy as np
import pytest

from sticker_uq import scene as sc
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.detector import vision_mirror as vision
from sticker_uq.testing.bench import overrides
from test.nodes.fake_perception import Script, detector_with

if vision.VISION_MSGS is None:
    pytest.skip("no vision_msgs: apt install ros-jazzy-vision-msgs", allow_module_level=True)

VISION: Any = vision.VISION_MSGS


def scene() -> sc.SceneAssessment:
    sticker = sc.ObservedObject.from_operator(3, sc.ObjectClass.STICKER, np.array([10, 20, 40, 80]))
    probabilities = np.array([0.1, 0.25, 0.65], np.float32)
    sticker = sc.ObservedObject(**{**vars(sticker), "probabilities": probabilities})
    return sc.SceneAssessment(
        5_000_000_001, "camera", sc.Status.OK, "", (64, 48), "", "m", "h", "s", 20, 0.2, (sticker,), (),
        sc.ImageUncertainty(1, 0), None,
    )  # fmt: skip


def test_boxes_are_pixels_and_hypotheses_are_sorted():
    message: Any = vision.detections_2d_to_msg(scene(), VISION)
    assert (message.header.stamp.sec, message.header.stamp.nanosec, message.header.frame_id) == (
        5,
        1,
        "camera",
    )
    (detection,) = message.detections
    assert detection.header == message.header
    assert (detection.bbox.center.position.x, detection.bbox.center.position.y) == (25.0, 50.0)
    assert (detection.bbox.size_x, detection.bbox.size_y, detection.bbox.center.theta) == (30.0, 60.0, 0.0)
    assert [h.hypothesis.class_id for h in detection.results] == ["2", "1"]
    assert [h.hypothesis.score for h in detection.results] == pytest.approx([0.65, 0.25])
    assert detection.id == ""


def test_the_detector_publishes_them_and_latches_the_names(bench):
    node = bench.add(detector_with(Script())(parameter_overrides=overrides(score_floor=0.3)))
    assert node.start()
    labels = bench.collect(VISION.LabelInfo, "label_info", qos.LATCHED)
    bench.until(lambda: labels, "the latched names, asked for late")
    assert [(c.class_id, c.class_name) for c in labels[0].class_map] == [
        (0, "background"),
        (1, "logo"),
        (2, "sticker"),
    ]
    assert labels[0].threshold == pytest.approx(0.3)
    detections = bench.collect(VISION.Detection2DArray, "detections_2d")
    publisher = next(p for p in node.publishers if p.topic_name.endswith("/detections_2d"))
    bench.until(publisher.get_subscription_count, "the match")
    node.feeds[0].outputs.publish(scene(), 1)
    bench.until(lambda: detections, "the detections")
    assert len(detections[0].detections) == 1

# SPDX-License-Identifier: Apache-2.0
"""A detector node with a fake perception on a bench, and pictures for it."""

from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import Image

from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.nodes.detector.node import DetectorNode
from sticker_uq.testing.bench import Bench, overrides
from sticker_uq_msgs.msg import ImageCheck, SceneAssessment
from test.nodes.fake_perception import Script, detector_with

OTHER = "ssd300_vgg16"


def image(second: int, grey: int = 100, frame_id: str = "camera") -> Image:
    return bgr_to_image(np.full((48, 64, 3), grey, np.uint8), Time(sec=second, nanosec=7), frame_id)


def detector(bench: Bench, script: Script, **values: object) -> DetectorNode:
    return bench.add(detector_with(script)(parameter_overrides=overrides(**values)))


def active(bench: Bench, script: Script, **values: object) -> DetectorNode:
    node = detector(bench, script, **values)
    assert node.start(), node.last_failure
    return node


class Watched:
    """An active detector with a camera, what it publishes, and its newest diagnostics."""

    def __init__(self, bench: Bench, script: Script, **values: object) -> None:
        self.bench = bench
        self.scenes: list[SceneAssessment] = bench.collect(SceneAssessment, "scene")
        self.checks: list[ImageCheck] = bench.collect(ImageCheck, "image_check")
        self.newest = bench.diagnostics()
        self.node = active(bench, script, **values)
        self.camera = bench.image_publisher()

    def sees(self, message: Image) -> SceneAssessment:
        """The scene of an image that is published now."""
        before = len(self.scenes)
        self.camera.publish(message)
        self.bench.until(lambda: len(self.scenes) > before, "a scene")
        return self.scenes[-1]


def seconds(messages: list[Any]) -> list[int]:
    return [m.header.stamp.sec for m in messages]

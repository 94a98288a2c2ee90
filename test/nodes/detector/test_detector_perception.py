# SPDX-License-Identifier: Apache-2.0
"""The detector node with the real perception and the packaged weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builtin_interfaces.msg import Time

from sticker_uq import detection
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.nodes.common.conversions import scene_from_msg
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.nodes.detector.node import DetectorNode
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import Status
from sticker_uq.testing.bench import Bench, overrides
from sticker_uq_msgs.msg import SceneAssessment

SETTINGS = {"passes": 5, "threads": torch.get_num_threads(), "device": "cpu"}


def test_a_live_scene_equals_the_offline_one_byte_for_byte(bench: Bench) -> None:
    picture = render(sample_scene(3), size=(480, 360)).image
    scenes = bench.collect(SceneAssessment, "scene")
    node = bench.add(DetectorNode(parameter_overrides=overrides(**SETTINGS)))
    assert node.start(), node.last_failure
    bench.image_publisher().publish(bgr_to_image(picture, Time(sec=8, nanosec=9), "lid_camera"))
    bench.until(lambda: scenes, "a scene")
    live = scene_from_msg(scenes[0])
    offline = Perception(PerceptionSettings(**SETTINGS)).assess(picture, 8_000_000_009, "lid_camera")
    assert live.status is Status.OK
    assert live.objects, "a rendered laptop with stickers shows something"
    assert live.to_bytes() == offline.to_bytes()
    assert {"encode", "sample", "detect", "dil", "cluster", "total"} <= live.timings.keys()


@pytest.mark.parametrize("broken", ["missing", "empty", "garbage", "another model"])
def test_weights_that_cannot_be_used_fail_configure_with_the_reason(
    bench: Bench, tmp_path: Path, broken: str
) -> None:
    path = tmp_path / "weights.safetensors"
    values: dict[str, object] = {**SETTINGS, "weights": str(path)}
    if broken == "empty":
        path.write_bytes(b"")
    elif broken == "garbage":
        path.write_bytes(bytes(range(256)) * 8)
    elif broken == "another model":
        packaged = Path(detection.__file__).parent / "weights"
        values["weights"] = str(packaged / "ssdlite320_mobilenet_v3_large.safetensors")
        values["model"] = "ssd300_vgg16"
    node = bench.add(DetectorNode(parameter_overrides=overrides(**values)))
    assert not bench.transition("detector", "configure")
    assert bench.state("detector") == "unconfigured"
    assert str(values["weights"]) in node.last_failure
    assert not node.last_failure.startswith("configure failed: RuntimeError")

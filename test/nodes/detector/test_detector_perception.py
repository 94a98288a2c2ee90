"""The detector node with the real perception and the packaged weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from typer.testing import CliRunner

from sticker_uq import detection
from sticker_uq.cli import app
from sticker_uq.io.bag_writer import BagWriter
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


def test_a_live_recording_with_adaptive_passes_is_repeated_byte_for_byte(
    bench: Bench, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "passes": 20, "adaptive": True}
    scenes = bench.collect(SceneAssessment, "scene")
    node = bench.add(DetectorNode(parameter_overrides=overrides(**settings)))
    assert node.start(), node.last_failure
    camera = bench.image_publisher()
    with BagWriter(tmp_path / "bag") as bag:
        bag.add_topic("/image", "sensor_msgs/msg/Image")
        bag.add_topic("/scene", "sticker_uq_msgs/msg/SceneAssessment")
        for seed in range(3):
            picture = render(sample_scene(50_000_000 + seed), size=(480, 360)).image
            message = bgr_to_image(picture, Time(sec=1 + seed), "lid_camera")
            camera.publish(message)
            bench.until(lambda n=seed: len(scenes) > n, "a scene")
            bag.write("/image", seed, serialize_message(message))
            bag.write("/scene", seed, serialize_message(scenes[-1]))
    assert any(scene.passes < 20 for scene in scenes), "somewhere it stopped early"
    options = ["--adaptive", "--device", "cpu", "--threads", str(SETTINGS["threads"]), "--pictures", "none"]
    command = ["replay", str(tmp_path / "bag"), "--verify", "--out", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "3 of 3 live assessments of /scene repeated byte for byte, 0 differ" in result.output


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

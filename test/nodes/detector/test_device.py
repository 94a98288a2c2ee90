# SPDX-License-Identifier: Apache-2.0
"""What a detector node says about the device that computes, and what it does when that fails."""

from __future__ import annotations

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rcl_interfaces.msg import Log
from rclpy.qos import DurabilityPolicy, QoSProfile

from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.testing.bench import Bench, NodeProcess
from sticker_uq_msgs.msg import SceneAssessment
from test.nodes.detector.broken_gpu import MESSAGE
from test.nodes.detector.detector_bench import active, image
from test.nodes.fake_perception import Script

PART = "detector: perception"


@pytest.mark.parametrize(
    ("asked", "device", "warns"),
    [("auto", "cpu", True), ("cpu", "cpu", False), ("auto", "cuda:0 Scripted", False)],
)
def test_the_device_is_named_and_the_processor_in_place_of_a_gpu_is_a_warning(
    bench: Bench, script: Script, asked: str, device: str, warns: bool
) -> None:
    newest = bench.diagnostics()
    log = bench.collect(Log, "/rosout", QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    scenes = bench.collect(SceneAssessment, "scene")
    script.device = device
    active(bench, script, device=asked)
    bench.until(lambda: newest.value(PART, "device") == device, "the device in the diagnostics")
    assert newest.value(PART, "precision") == "float32"
    assert (newest[PART].level, "no usable GPU" in newest[PART].message) == (
        (b"\x01", True) if warns else (b"\x00", False)
    )
    bench.until(lambda: any(f"ready on {device} in float32" in line.msg for line in log), "the log")
    warnings = [line for line in log if "no usable GPU was found" in line.msg]
    assert [line.level for line in warnings] == ([Log.WARN] if warns else [])
    bench.image_publisher().publish(image(1))
    bench.until(lambda: scenes, "a scene")
    bench.until(lambda: newest.value(PART, "assessed") == "1", "the count")
    assert newest[PART].level == b"\x00", "told once"


def test_a_broken_gpu_ends_the_process_after_a_failed_scene(bench: Bench) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    pixels = np.full((48, 64, 3), 90, np.uint8)
    pixels[0, 0] = 255
    parameters = {"autostart": "true", "passes": "1", "device": "cpu", "novelty": "false"}
    with NodeProcess("test.nodes.detector.broken_gpu", parameters) as process:
        process.wait_for("activate: done")
        bench.until_hears("detector: images")
        bench.image_publisher().publish(bgr_to_image(pixels, Time(sec=1), "camera"))
        bench.until(lambda: scenes, "the failed scene")
        assert process.wait() == 1
    (scene,) = scenes
    reason = f"cpu failed in stage encode: {MESSAGE}"
    assert (scene.status, scene.status_text) == (SceneAssessment.STATUS_FAILED, reason)
    (line,) = (line for line in process.output.splitlines() if "giving up" in line)
    assert "[FATAL]" in line
    assert reason in line
    assert "Traceback" not in process.output

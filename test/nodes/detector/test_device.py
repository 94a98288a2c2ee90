# SPDX-License-Identifier: Apache-2.0
"""What a detector node says about the device that computes, and what it does when that fails."""

import pytest
from rcl_interfaces.msg import Log
from rclpy.qos import DurabilityPolicy, QoSProfile

from sticker_uq_msgs.msg import SceneAssessment
from test.nodes.detector.detector_bench import active, image

PART = "detector: perception"


@pytest.mark.parametrize(
    ("asked", "device", "warns"),
    [("auto", "cpu", True), ("cpu", "cpu", False), ("auto", "cuda:0 Scripted", False)],
)
def test_the_device_is_named_and_the_processor_in_place_of_a_gpu_is_a_warning(
    bench, script, asked, device, warns
):
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

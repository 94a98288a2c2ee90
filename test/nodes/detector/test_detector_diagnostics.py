# SPDX-License-Identifier: Apache-2.0
"""What a detector node says about the images that it waits for and about its work."""

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from rcl_interfaces.msg import Log
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from sticker_uq.nodes.common import image_input
from sticker_uq.nodes.common.diagnostics import Level
from sticker_uq.testing.bench import Bench, values_of
from sticker_uq_msgs.msg import ImageCheck, SceneAssessment
from test.nodes.detector.detector_bench import Watched, active, detector, image, seconds
from test.nodes.fake_perception import detector_with


def best_effort_camera(bench: Bench) -> Any:
    return bench.publisher(Image, "image", QoSProfile(depth=2, reliability=ReliabilityPolicy.BEST_EFFORT))


def test_auto_reliability_follows_the_publishers(bench, script):
    detector = Watched(bench, script)
    scenes, node = detector.scenes, detector.node
    detector.sees(image(1))
    best_effort = best_effort_camera(bench)
    bench.until(best_effort.get_subscription_count, "the best-effort camera is matched too")
    assert node.feeds[0].input.profile.reliability == ReliabilityPolicy.BEST_EFFORT
    best_effort.publish(image(2))
    bench.until(lambda: len(scenes) == 2, "a scene from the best-effort camera")
    bench.probe.destroy_publisher(best_effort)
    bench.until(
        lambda: node.feeds[0].input.profile.reliability == ReliabilityPolicy.RELIABLE, "reliable again"
    )


def image_report(bench: Bench, newest: dict[str, Any], words: str, level: bytes) -> Any:
    def found() -> Any:
        report = newest.get("detector: images")
        return report if report and words in report.message and report.level == level else None

    return bench.until(found, f"{words!r} in /diagnostics, got {newest.get('detector: images')}")


def test_what_is_waited_for_is_told_from_the_first_second(bench, script):
    newest = bench.diagnostics()
    log = bench.collect(Log, "/rosout", QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    node = bench.add(
        detector_with(script)(cli_args=["--ros-args", "-r", "image:=/cell/camera/image", "-r", "__ns:=/cell"])
    )
    assert node.start()
    bench.until(lambda: newest.get("detector: images"), "the first report")
    image_report(
        bench, newest, "waiting for first image on /cell/camera/image: nobody publishes it yet", b"\x01"
    )
    bench.until(lambda: any("waiting for first image on /cell/camera/image" in x.msg for x in log), "the log")


def test_incompatible_publishers_are_named_with_both_policies(bench, script):
    newest = bench.diagnostics()
    active(bench, script, image_reliability="reliable")
    best_effort_camera(bench)
    image_report(
        bench,
        newest,
        "incompatible publishers of /image: /probe offers best effort, volatile but reliable, volatile is asked for",
        b"\x02",
    )


def test_a_topic_that_holds_no_images_is_told_apart_from_another_transport(bench, script):
    newest = bench.diagnostics()
    active(bench, script)
    command = [sys.executable, "-m", "test.helpers.alien", "image"]
    with subprocess.Popen(command) as process:
        try:
            words = "/alien publishes std_msgs/msg/String, expected sensor_msgs/msg/Image: no images, set camera_topic"
            image_report(bench, newest, words, b"\x02")
        finally:
            process.kill()


def test_a_slow_camera_is_not_taken_for_lost_images(bench, script, monkeypatch):
    detector = Watched(bench, script)
    checks, source, camera = detector.checks, detector.node.feeds[0].input, detector.camera
    now = time.monotonic()
    monkeypatch.setattr(image_input, "time", SimpleNamespace(monotonic=lambda: now))
    for second in (1, 2, 3):
        camera.publish(image(second))
        bench.until(lambda second=second: seconds(checks)[-1:] == [second], "an image")
        now += 4.0
    level, message = source.state()
    assert level == Level.WARN
    assert message == "/image: images come 4.0 s apart; the gate needs a newer one within max_scene_age_s"
    now += 6.0
    level, message = source.state()
    assert (level, "matched but no image for" in message) == (Level.ERROR, True), (
        "the slow camera has stopped"
    )


def test_checks_and_scenes_name_who_publishes_the_images(bench, script):
    """A second camera is told with the newest check again, and with the scene that is under way."""
    detector = Watched(bench, script)
    scenes, checks, camera, newest = detector.scenes, detector.checks, detector.camera, detector.newest
    detector.sees(image(1))
    bench.until(lambda: checks, "its check")
    assert scenes[0].image_publishers == checks[-1].image_publishers == ["/probe"]
    script.hold = True
    script.busy.clear()
    camera.publish(image(2))
    bench.until(lambda: script.busy.is_set() and seconds(checks) == [1, 2], "an image under way")
    usb_cam = bench.add(Node("usb_cam"))
    other = usb_cam.create_publisher(Image, "image", QoSProfile(depth=2))
    bench.until(lambda: checks[-1].image_publishers == ["/probe", "/usb_cam"], "both, without another image")
    assert checks[-1].header == checks[1].header
    script.go.set()
    bench.until(lambda: len(scenes) == 2, "the scene of the image that came before the second camera")
    assert scenes[1].image_publishers == ["/probe", "/usb_cam"]
    words = "/image: 2 publishers (/probe, /usb_cam); the gate opens with exactly one"
    image_report(bench, newest, words, b"\x02")
    usb_cam.destroy_publisher(other)
    bench.until(lambda: detector.node.feeds[0].input.publishers == ("/probe",), "one camera")
    camera.publish(image(3))
    bench.until(lambda: len(scenes) == 3 and seconds(checks)[-1] == 3, "its check and its scene")
    assert scenes[2].image_publishers == checks[-1].image_publishers == ["/probe"]


def test_images_of_a_camera_that_has_gone_still_name_it_and_the_next_one_is_another(bench, script):
    checks = bench.collect(ImageCheck, "image_check")
    node = active(bench, script)

    def shown_by_a_camera(second: int) -> None:
        camera = bench.image_publisher()
        camera.publish(image(second))
        bench.until(lambda: seconds(checks)[-1:] == [second], "an image")
        bench.probe.destroy_publisher(camera)
        bench.until(lambda: not node.feeds[0].input.publisher_count(), "no camera")

    shown_by_a_camera(1)
    assert node.feeds[0].input.publishers == ("/probe",)
    assert all(check.image_publishers == ["/probe"] for check in checks)
    shown_by_a_camera(2)
    assert len(checks[-1].image_publishers) == 2


def test_a_matched_but_silent_publisher_is_a_fault(bench, script, monkeypatch):
    monkeypatch.setattr(image_input, "QUIET_S", 0.3)
    newest = bench.diagnostics()
    active(bench, script)
    camera = bench.image_publisher()
    image_report(bench, newest, "/image: 1 publisher(s) matched but no image for", b"\x02")
    camera.publish(image(1))
    bench.probe.destroy_publisher(camera)
    image_report(bench, newest, "waiting for an image on /image: the publisher is gone", b"\x02")


def test_a_camera_that_starts_late_is_silent_only_from_its_start_on(bench, script, monkeypatch):
    log = bench.collect(Log, "/rosout", QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    source = active(bench, script).feeds[0].input
    # long ago in the clock of image_input alone: nobody has published since the node came up
    monkeypatch.setattr(image_input, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 94.0))
    monkeypatch.setattr(image_input, "QUIET_S", 30.0)
    camera = bench.publisher(Image, "image")
    bench.until(lambda: source.publisher_count() and camera.get_subscription_count(), "a match")
    level, message = source.state()
    assert (level, message) == (Level.WARN, "waiting for first image on /image")
    monkeypatch.setattr(image_input, "QUIET_S", 0.3)
    bench.until(lambda: any("matched but no image for" in line.msg for line in log), "the fault, later")
    fault = next(line.msg for line in log if "matched but no image for" in line.msg)
    assert float(fault.split("no image for ")[1].split(" s")[0]) < 60, fault
    monkeypatch.setattr(image_input, "QUIET_S", 30.0)
    bench.until_heard(camera)
    camera.publish(image(1))
    bench.until(lambda: any("/image: images arrive now" in line.msg for line in log), "its end in the log")


def test_diagnostics_keep_their_keys_in_every_state(bench, script):
    newest = bench.diagnostics()
    detector(bench, script)
    parts = ("detector: images", "detector: perception")
    bench.until(lambda: all(part in newest for part in parts), "reports of an unconfigured node")
    before = {part: values_of(newest[part]) for part in parts}
    assert before["detector: perception"]["model"] == "n/a"
    scenes = bench.collect(SceneAssessment, "scene")
    assert bench.transition("detector", "configure")
    assert bench.transition("detector", "activate")
    bench.image_publisher().publish(image(1))
    bench.until(lambda: scenes, "a scene")
    bench.until(lambda: newest.value("detector: perception", "assessed") == "1", "the count")
    after = {part: values_of(newest[part]) for part in parts}
    assert all(after[part].keys() == before[part].keys() for part in parts)
    perception = after["detector: perception"]
    assert (perception["model"], perception["passes"]) == ("ssdlite320_mobilenet_v3_large", "20")
    assert (perception["encode_ms"], perception["total_ms"]) == ("1.5", "2.5")
    assert float(perception["memory_mb"]) > 10
    assert newest["detector: perception"].level == b"\x00"
    assert float(after["detector: images"]["last_image_age_s"]) > 1e6


def test_a_shortage_of_memory_is_told_and_the_node_goes_on(bench, script):
    newest = bench.diagnostics()
    active(bench, script)
    part = "detector: perception"
    bench.until(lambda: newest.value(part, "shortage") == "n/a", "a report without shortage")
    script.shortage = "the memory of cuda:0 suffices for 5 passes at once, not for 20"
    bench.until(lambda: newest.value(part, "shortage") == script.shortage, "the shortage")
    assert (newest[part].message, newest[part].level) == (script.shortage, b"\x01")

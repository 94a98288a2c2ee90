# SPDX-License-Identifier: Apache-2.0
"""The detector node with a fake perception: images in, scenes out, and processes that end."""

import signal
from array import array

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.nodes.common.images import bgr_to_compressed
from sticker_uq.testing.bench import NodeProcess
from sticker_uq_msgs.msg import (
    DistinctiveLocalization,
    ImageUncertainty,
    SceneAssessment,
    StickerDetectionArray,
)
from test.nodes.detector.detector_bench import Watched, active, image, seconds

PROCESS = "test.nodes.fake_perception"


def test_every_output_carries_the_header_of_the_image(bench, script):
    kinds = {
        "detections": StickerDetectionArray,
        "uncertainty": ImageUncertainty,
        "dil": DistinctiveLocalization,
    }
    parts = [bench.collect(kind, topic) for topic, kind in kinds.items()]
    detector = Watched(bench, script)
    scenes = [detector.sees(image(second, grey=10 * second)) for second in (5, 6)]
    assert seconds(scenes) == [5, 6]
    bench.until(lambda: all(seconds(part) == [5, 6] for part in parts), "the parts")
    assert {(m.header.frame_id, m.header.stamp.nanosec) for m in (*scenes, *parts[0], *parts[2])} == {
        ("camera", 7)
    }
    assert [s.sequence for s in scenes] == [1, 2]
    assert [s.status for s in scenes] == [SceneAssessment.STATUS_OK] * 2
    assert [s.objects[0].box.x2 for s in scenes] == [50.0, 60.0]
    assert parts[0][1].detections[0].box.x2 == 60.0
    assert parts[2][0].dil == 0.25
    assert script.warm_ups == 1
    assert script.saliency_asked == [False, False]


def test_compressed_images(bench, script):
    scenes = bench.collect(SceneAssessment, "scene")
    active(bench, script, image_transport="compressed")
    camera = bench.image_publisher(CompressedImage, "image/compressed")
    camera.publish(bgr_to_compressed(np.full((48, 64, 3), 90, np.uint8), Time(sec=3), "camera"))
    bench.until(lambda: scenes, "the scene")
    assert scenes[0].objects[0].box.x2 == pytest.approx(90, abs=1)
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    half = bgr_to_compressed(noise, Time(sec=4), "camera")
    half.data = half.data[: len(half.data) // 2] + array("B", b"\xff\xd9")  # the lower part would be grey
    camera.publish(half)
    bench.until(lambda: len(scenes) == 2, "the scene of the damaged image")
    assert scenes[1].status == SceneAssessment.STATUS_FAILED
    assert "damaged JPEG file: Corrupt JPEG data: premature end of data segment" in scenes[1].status_text


def bad_images() -> dict[str, tuple[Image, str]]:
    empty = image(20)
    empty.data = array("B")
    truncated = image(21)
    truncated.data = truncated.data[:-5]
    unknown = image(22)
    unknown.encoding = "32FC1"
    narrow = image(23)
    narrow.step = 10
    no_stamp = image(0)
    no_stamp.header.stamp = Time()
    no_size = image(24)
    no_size.width = 0
    return {
        "empty": (empty, "image data is empty"),
        "truncated": (truncated, "image data is truncated"),
        "encoding": (unknown, "image encoding '32FC1'"),
        "step": (narrow, "image step 10"),
        "size": (no_size, "image size 0 x 48"),
        "stamp": (no_stamp, "the stamp of the image is zero"),
        "dark": (image(25, grey=0), "RuntimeError: the model is afraid of the dark"),
        "white": (image(26, grey=255), "non-finite output"),
    }


def test_bad_images_become_failed_scenes_and_the_node_goes_on(bench, script):
    detector = Watched(bench, script)
    for name, (message, reason) in bad_images().items():
        scene = detector.sees(message)
        assert scene.status == SceneAssessment.STATUS_FAILED, name
        assert reason in scene.status_text
        assert scene.header == message.header
        assert not scene.objects
    newest, parts = detector.newest, {"images": ("unusable", "6"), "perception": ("failed", "2")}
    for part, (name, count) in parts.items():
        bench.until(lambda p=f"detector: {part}", n=name, c=count: newest.value(p, n) == c, "the counts")
    assert newest["detector: perception"].level == b"\x02"
    assert "non-finite output" in newest["detector: perception"].message
    good = detector.sees(image(30))
    assert (good.status, good.header.stamp.sec) == (SceneAssessment.STATUS_OK, 30)


def test_only_the_newest_waits_and_drops_are_counted(bench, script):
    script.hold = True
    detector = Watched(bench, script)
    scenes, newest = detector.scenes, detector.newest
    detector.camera.publish(image(1))
    bench.until(script.busy.is_set, "the worker at work")
    for second in range(2, 7):
        detector.camera.publish(image(second))
        bench.until(lambda n=second: detector.node.feeds[0].input.received == n, "reception while it is busy")
    bench.until(lambda: newest.value("detector: images", "dropped") == "4", "the count of the replaced ones")
    script.hold = False
    script.go.set()
    bench.until(lambda: len(scenes) == 2, "two scenes")
    assert seconds(scenes) == [1, 6]


def test_what_is_known_about_an_image_does_not_wait_for_the_image_before(bench, script):
    script.hold = True
    detector = Watched(bench, script)
    checks, camera = detector.checks, detector.camera
    bench.until(lambda: bench.probe.count_publishers("image_check"), "the publisher of checks")
    camera.publish(image(1))
    bench.until(script.busy.is_set, "the worker at work")
    unusable = bad_images()["truncated"][0]
    for number, message in enumerate([image(2, grey=0), image(3, grey=0), unusable], start=2):
        camera.publish(message)
        bench.until(lambda n=number: len(checks) == n, "a check while the worker is busy")
    assert not detector.scenes
    assert [(c.image_width, c.image_height, c.repeats) for c in checks] == [
        (64, 48, 1),
        (64, 48, 1),
        (64, 48, 2),
        (0, 0, 1),
    ]
    assert [c.exposure.mean_level for c in checks[:3]] == [100.0, 0.0, 0.0]
    assert [c.previous_stamp.sec for c in checks] == [0, 1, 2, 3]
    assert "image data is truncated" in checks[3].problem
    assert checks[3].header == unusable.header


def test_no_age_is_told_by_a_clock_that_has_not_started(bench, script):
    detector = Watched(bench, script, use_sim_time=True)
    newest = detector.newest
    detector.camera.publish(image(5))
    bench.until(lambda: newest.value("detector: images", "received") == "1", "diagnostics without a clock")
    assert newest.value("detector: images", "last_image_age_s") == "n/a"


def test_pictures_only_for_who_looks(bench, script):
    detector = Watched(bench, script, annotated_rate=60.0)
    node = detector.node
    detector.sees(image(1))
    annotated, saliency = bench.collect(Image, "annotated"), bench.collect(Image, "saliency")
    bench.until(
        lambda: node.count_subscribers("annotated") and node.feeds[0].outputs.saliency_wanted(), "the viewers"
    )
    detector.camera.publish(image(2))
    bench.until(lambda: annotated and saliency, "the pictures")
    assert script.saliency_asked == [False, True]
    assert (annotated[0].encoding, annotated[0].width, annotated[0].height) == ("bgr8", 64, 48)
    assert annotated[0].header == saliency[0].header == image(2).header
    assert saliency[0].encoding == "32FC1"
    assert set(np.frombuffer(saliency[0].data, np.float32)) == {0.5}


def test_a_process_whose_worker_is_stuck_ends_cleanly_too(bench):
    with NodeProcess(PROCESS, {"autostart": "true"}, ["--", "endless"]) as process:
        process.wait_for("waiting for first image on /image")
        scenes = bench.collect(SceneAssessment, "scene")
        bench.image_publisher().publish(image(1))
        process.wait_for("an assessment waits")
        assert process.stop(signal.SIGINT) == 0
        assert "its result will be dropped" in process.output
        assert not scenes

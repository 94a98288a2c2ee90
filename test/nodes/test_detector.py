"""The detector node with a fake perception: images in, scenes out, and everything that may go wrong between."""

from __future__ import annotations

import signal
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rcl_interfaces.msg import Log
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.datasets.images import encode_jpeg
from sticker_uq.nodes import image_input
from sticker_uq.nodes.detector import DetectorNode
from sticker_uq.nodes.images import bgr_to_compressed, bgr_to_image
from sticker_uq_msgs.msg import (
    DistinctiveLocalization,
    ImageCheck,
    ImageUncertainty,
    SceneAssessment,
    StickerDetectionArray,
)
from sticker_uq_msgs.srv import SelectModel
from test.helpers.ros import Bench, NodeProcess, overrides, values_of
from test.nodes.fake_perception import Script, detector_with

OTHER = "ssd300_vgg16"
PROCESS = "test.nodes.fake_perception"


def image(second: int, grey: int = 100, frame_id: str = "camera") -> Image:
    return bgr_to_image(np.full((48, 64, 3), grey, np.uint8), Time(sec=second, nanosec=7), frame_id)


@pytest.fixture
def script() -> Iterator[Script]:
    made = Script()
    yield made
    made.go.set()
    made.load_go.set()


def detector(bench: Bench, script: Script, **values: object) -> DetectorNode:
    return bench.add(detector_with(script)(parameter_overrides=overrides(**values)))


def active(bench: Bench, script: Script, **values: object) -> DetectorNode:
    node = detector(bench, script, **values)
    assert node.start(), node.last_failure
    return node


def seconds(messages: list[Any]) -> list[int]:
    return [m.header.stamp.sec for m in messages]


def test_every_output_carries_the_header_of_the_image(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    parts = [
        bench.collect(kind, topic)
        for kind, topic in (
            (StickerDetectionArray, "detections"),
            (ImageUncertainty, "uncertainty"),
            (DistinctiveLocalization, "dil"),
        )
    ]
    active(bench, script)
    camera = bench.image_publisher()
    for second in (5, 6):
        camera.publish(image(second, grey=10 * second))
        bench.until(lambda s=second: seconds(scenes)[-1:] == [s], "the scene")
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


def test_compressed_images(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    active(bench, script, image_transport="compressed")
    camera = bench.image_publisher(CompressedImage, "image/compressed")
    camera.publish(bgr_to_compressed(np.full((48, 64, 3), 90, np.uint8), Time(sec=3), "camera"))
    bench.until(lambda: scenes, "the scene")
    assert scenes[0].objects[0].box.x2 == pytest.approx(90, abs=1)


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


def test_bad_images_become_failed_scenes_and_the_node_goes_on(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    newest = bench.diagnostics()
    active(bench, script)
    camera = bench.image_publisher()
    for name, (message, reason) in bad_images().items():
        before = len(scenes)
        camera.publish(message)
        bench.until(lambda n=before: len(scenes) > n, f"a scene about the {name} image")
        assert scenes[-1].status == SceneAssessment.STATUS_FAILED
        assert reason in scenes[-1].status_text
        assert scenes[-1].header == message.header
        assert not scenes[-1].objects
    bench.until(
        lambda: (
            newest.value("detector: images", "unusable") == "6"
            and newest.value("detector: perception", "failed") == "2"
        ),
        "the counts in /diagnostics",
    )
    assert newest["detector: perception"].level == b"\x02"
    assert "non-finite output" in newest["detector: perception"].message
    camera.publish(image(30))
    bench.until(lambda: scenes[-1].status == SceneAssessment.STATUS_OK, "a good scene after all that")
    assert seconds(scenes)[-1] == 30


def test_bad_images_are_logged_once_not_each(bench: Bench, script: Script) -> None:
    log = bench.collect(Log, "/rosout", QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    scenes = bench.collect(SceneAssessment, "scene")
    active(bench, script)
    camera = bench.image_publisher()
    for count in range(1, 4):
        camera.publish(bad_images()["empty"][0])
        bench.until(lambda n=count: len(scenes) == n, "a failed scene")
    bench.until(lambda: [line for line in log if "image data is empty" in line.msg], "the line of log")
    camera.publish(image(9))
    bench.until(lambda: len(scenes) == 4, "a scene")
    assert len([line for line in log if "image data is empty" in line.msg]) == 1


def test_only_the_newest_waits_and_drops_are_counted(bench: Bench, script: Script) -> None:
    script.hold = True
    scenes = bench.collect(SceneAssessment, "scene")
    newest = bench.diagnostics()
    active(bench, script)
    camera = bench.image_publisher()
    camera.publish(image(1))
    bench.until(script.busy.is_set, "the worker at work")
    for second in range(2, 7):
        camera.publish(image(second))
        bench.until(
            lambda n=second: newest.value("detector: images", "received") == str(n),
            "reception while the worker is busy",
        )
    bench.until(lambda: newest.value("detector: images", "dropped") == "4", "the count of the replaced ones")
    script.hold = False
    script.go.set()
    bench.until(lambda: len(scenes) == 2, "two scenes")
    assert seconds(scenes) == [1, 6]


def test_what_is_known_about_an_image_does_not_wait_for_the_image_before(
    bench: Bench, script: Script
) -> None:
    script.hold = True
    scenes, checks = bench.collect(SceneAssessment, "scene"), bench.collect(ImageCheck, "image_check")
    active(bench, script)
    camera = bench.image_publisher()
    bench.until(lambda: bench.probe.count_publishers("image_check"), "the publisher of checks")
    camera.publish(image(1))
    bench.until(script.busy.is_set, "the worker at work")
    unusable = bad_images()["truncated"][0]
    for number, message in enumerate([image(2, grey=0), image(3, grey=0), unusable], start=2):
        camera.publish(message)
        bench.until(lambda n=number: len(checks) == n, "a check while the worker is busy")
    assert not scenes
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


def test_too_old_images_fail(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    active(bench, script, max_image_age_s=60)
    camera = bench.image_publisher()
    camera.publish(image(5))
    bench.until(lambda: scenes, "the scene")
    assert "s old, max_image_age_s is 60" in scenes[0].status_text
    fresh = image(5)
    fresh.header.stamp = bench.probe.get_clock().now().to_msg()
    camera.publish(fresh)
    bench.until(lambda: len(scenes) == 2, "the second scene")
    assert scenes[1].status == SceneAssessment.STATUS_OK


def test_no_age_is_told_by_a_clock_that_has_not_started(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    newest = bench.diagnostics()
    active(bench, script, use_sim_time=True, max_image_age_s=1.0)
    bench.image_publisher().publish(image(5))
    bench.until(lambda: scenes, "the scene")
    assert scenes[0].status == SceneAssessment.STATUS_OK
    bench.until(lambda: newest.value("detector: images", "received") == "1", "diagnostics without a clock")
    assert newest.value("detector: images", "last_image_age_s") == "n/a"


def test_pictures_only_for_who_looks(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    node = active(bench, script, annotated_rate=60.0)
    camera = bench.image_publisher()
    camera.publish(image(1))
    bench.until(lambda: len(scenes) == 1, "a scene")
    annotated, saliency = bench.collect(Image, "annotated"), bench.collect(Image, "saliency")
    bench.until(
        lambda: node.count_subscribers("annotated") and node.feeds[0].outputs.saliency_wanted(), "the viewers"
    )
    camera.publish(image(2))
    bench.until(lambda: annotated and saliency, "the pictures")
    assert script.saliency_asked == [False, True]
    assert (annotated[0].encoding, annotated[0].width, annotated[0].height) == ("bgr8", 64, 48)
    assert annotated[0].header == saliency[0].header == image(2).header
    assert saliency[0].encoding == "32FC1"
    assert set(np.frombuffer(saliency[0].data, np.float32)) == {0.5}


# Lifecycle


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"weights": "/nowhere.safetensors"}, "weights file '/nowhere.safetensors': no such file"),
        ({"passes": 0}, "parameter passes = 0: expected an integer from 1 to 200"),
        ({"dropout_rate": 0.95}, "parameter dropout_rate = 0.95: expected a number from 0.0 to 0.9"),
        ({"model": "yolo"}, "parameter model = 'yolo': expected one of 'fasterrcnn_resnet50_fpn'"),
        (
            {"image_transport": "zip"},
            "parameter image_transport = 'zip': expected one of 'raw', 'compressed'",
        ),
        ({"drop_rate": 0.1}, "unknown parameter drop_rate, did you mean dropout_rate?"),
    ],
)
def test_configure_fails_with_the_reason(
    bench: Bench, script: Script, values: dict[str, object], reason: str
) -> None:
    node = detector(bench, script, **values)
    assert not bench.transition("detector", "configure")
    assert bench.state("detector") == "unconfigured"
    assert reason in node.last_failure


def test_a_second_life_after_cleanup(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    active(bench, script)
    camera = bench.image_publisher()
    camera.publish(image(1))
    bench.until(lambda: len(scenes) == 1, "a scene")
    for transition in ("deactivate", "cleanup"):
        assert bench.transition("detector", transition)
    bench.until(lambda: not camera.get_subscription_count(), "the end of the subscription")
    camera.publish(image(2))
    for transition in ("configure", "activate"):
        assert bench.transition("detector", transition)
    bench.until_heard(camera)
    camera.publish(image(3))
    bench.until(lambda: len(scenes) == 2, "a scene of the second life")
    assert seconds(scenes) == [1, 3]
    assert scenes[1].sequence == 1
    assert script.warm_ups == 2


def test_deactivation_does_not_wait_for_ever_and_drops_what_comes_late(
    bench: Bench, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sticker_uq.nodes.detector.PATIENCE_S", 0.2)
    script.hold = True
    scenes = bench.collect(SceneAssessment, "scene")
    active(bench, script)
    camera = bench.image_publisher()
    camera.publish(image(1))
    bench.until(script.busy.is_set, "the worker at work")
    assert bench.transition("detector", "deactivate")
    assert bench.transition("detector", "activate")
    bench.until_heard(camera)
    camera.publish(image(2))
    script.hold = False
    script.go.set()
    bench.until(lambda: scenes, "the scene of the second worker")
    assert script.assessed == [1_000_000_007, 2_000_000_007]
    assert seconds(scenes) == [2]


# Exchanging the model


def select(model: str, weights: str = "") -> SelectModel.Request:
    return SelectModel.Request(model=model, weights=weights)


def test_the_old_model_serves_until_the_new_one_is_ready(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    node = active(bench, script)
    camera = bench.image_publisher()
    script.hold_load = True
    client = bench.probe.create_client(SelectModel, "select_model")
    bench.until(client.service_is_ready, "service")
    answer = client.call_async(select(OTHER))
    bench.until(lambda: node.models.busy, "loading")
    camera.publish(image(1))
    bench.until(lambda: len(scenes) == 1, "a scene while the new model is loaded")
    assert not answer.done()
    script.load_go.set()
    response = bench.until(answer.done, "the answer") and answer.result()
    assert response.success
    assert response.message.startswith(
        f"{OTHER} (weights {response.model_hash[:12]}) serves in place of ssdlite320"
    )
    camera.publish(image(2))
    bench.until(lambda: len(scenes) == 2, "a scene of the new model")
    assert [s.model for s in scenes] == ["ssdlite320_mobilenet_v3_large", OTHER]
    assert scenes[1].model_hash == response.model_hash != scenes[0].model_hash
    assert node.get_parameter("model").value == OTHER
    assert node.settings.model == OTHER


@pytest.mark.parametrize(
    ("request_", "error", "reason"),
    [
        (select("yolo"), None, "parameter model = 'yolo': expected one of"),
        (select(OTHER, "/nowhere"), None, "weights file '/nowhere': no such file"),
        (select(OTHER), RuntimeError("CUDA out of memory"), "RuntimeError: CUDA out of memory"),
    ],
)
def test_a_model_that_cannot_be_loaded_leaves_the_old_one(
    bench: Bench, script: Script, request_: SelectModel.Request, error: Exception | None, reason: str
) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    node = active(bench, script)
    script.load_error = error
    response = bench.call(SelectModel, "select_model", request_)
    assert not response.success
    assert reason in response.message
    bench.image_publisher().publish(image(1))
    bench.until(lambda: scenes, "a scene")
    assert scenes[0].model == "ssdlite320_mobilenet_v3_large"
    assert response.model_hash == scenes[0].model_hash
    assert node.get_parameter("model").value == "ssdlite320_mobilenet_v3_large"


def test_an_unconfigured_detector_selects_nothing(bench: Bench, script: Script) -> None:
    detector(bench, script)
    response = bench.call(SelectModel, "select_model", select(OTHER))
    assert (response.success, response.message) == (False, "detector is not configured")


def test_cleanup_while_a_model_is_loaded(bench: Bench, script: Script) -> None:
    node = active(bench, script)
    script.hold_load = True
    client = bench.probe.create_client(SelectModel, "select_model")
    bench.until(client.service_is_ready, "service")
    answer = client.call_async(select(OTHER))
    bench.until(lambda: node.models.busy, "loading")
    assert bench.transition("detector", "deactivate")
    assert bench.transition("detector", "cleanup")
    script.load_go.set()
    bench.until(answer.done, "the answer")
    assert (answer.result().success, answer.result().message) == (False, "detector was cleaned up meanwhile")


def test_whoever_asked_for_a_model_may_leave_before_the_answer(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    node = active(bench, script)
    script.hold_load = True
    client = bench.probe.create_client(SelectModel, "select_model")
    bench.until(client.service_is_ready, "service")
    client.call_async(select(OTHER))
    bench.until(lambda: node.models.busy, "loading")
    bench.probe.destroy_client(client)
    script.load_go.set()
    bench.until(lambda: not node.models.busy, "the new model")
    bench.image_publisher().publish(image(1))
    bench.until(lambda: scenes, "a scene")
    assert scenes[0].model == OTHER


def set_parameter(bench: Bench, name: str, value: object) -> Any:
    request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
    return bench.call(SetParameters, "detector/set_parameters", request).results[0]


def test_parameters_of_perception_change_while_it_works(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    node = active(bench, script)
    camera = bench.image_publisher()
    assert set_parameter(bench, "passes", 7).successful
    bench.until(lambda: not node.models.busy, "the new perception")
    camera.publish(image(1))
    bench.until(lambda: scenes, "a scene")
    assert scenes[0].passes == 7
    refused = set_parameter(bench, "device", "cuda")
    assert not refused.successful
    assert "device cannot be changed while detector is active" in refused.reason
    script.hold_load = True
    script.load_error = RuntimeError("no")
    assert set_parameter(bench, "passes", 9).successful
    assert "while a model is being loaded" in set_parameter(bench, "passes", 11).reason
    script.load_go.set()
    bench.until(lambda: not node.models.busy, "the failure")
    assert node.get_parameter("passes").value == 7, "the parameter tells what serves"


# Finding the images


def best_effort_camera(bench: Bench) -> Any:
    return bench.publisher(Image, "image", QoSProfile(depth=2, reliability=ReliabilityPolicy.BEST_EFFORT))


def test_auto_reliability_follows_the_publishers(bench: Bench, script: Script) -> None:
    scenes = bench.collect(SceneAssessment, "scene")
    node = active(bench, script)
    reliable = bench.image_publisher()
    reliable.publish(image(1))
    bench.until(lambda: len(scenes) == 1, "a scene over a reliable connection")
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


def test_what_is_waited_for_is_told_from_the_first_second(bench: Bench, script: Script) -> None:
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


def test_incompatible_publishers_are_named_with_both_policies(bench: Bench, script: Script) -> None:
    newest = bench.diagnostics()
    active(bench, script, image_reliability="reliable")
    best_effort_camera(bench)
    image_report(
        bench,
        newest,
        "incompatible publishers of /image: /probe offers best effort, volatile but reliable, volatile is asked for",
        b"\x02",
    )


def test_a_publisher_of_another_type_is_named(bench: Bench, script: Script, tmp_path: Path) -> None:
    newest = bench.diagnostics()
    active(bench, script)
    (tmp_path / "lid.jpg").write_bytes(encode_jpeg(np.zeros((8, 8, 3), np.uint8)))
    values = {"source": str(tmp_path), "transport": "compressed", "autostart": "true"}
    # another process: one participant cannot have two types on a topic
    with NodeProcess("sticker_uq.nodes.image_source", values, ["-r", "image/compressed:=image"]):
        words = "/image_source publishes sensor_msgs/msg/CompressedImage, expected sensor_msgs/msg/Image"
        image_report(bench, newest, words, b"\x02")


def test_a_matched_but_silent_publisher_is_a_fault(
    bench: Bench, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_input, "QUIET_S", 0.3)
    newest = bench.diagnostics()
    active(bench, script)
    camera = bench.image_publisher()
    image_report(bench, newest, "/image: 1 publisher(s) matched but no image for", b"\x02")
    camera.publish(image(1))
    bench.probe.destroy_publisher(camera)
    image_report(bench, newest, "waiting for an image on /image: the publisher is gone", b"\x02")


def test_diagnostics_keep_their_keys_in_every_state(bench: Bench, script: Script) -> None:
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


def test_a_shortage_of_memory_is_told_and_the_node_goes_on(bench: Bench, script: Script) -> None:
    newest = bench.diagnostics()
    active(bench, script)
    part = "detector: perception"
    bench.until(lambda: newest.value(part, "shortage") == "n/a", "a report without shortage")
    script.shortage = "the memory of cuda:0 suffices for 5 passes at once, not for 20"
    bench.until(lambda: newest.value(part, "shortage") == script.shortage, "the shortage")
    assert (newest[part].message, newest[part].level) == (script.shortage, b"\x01")


# Real processes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_cleanly(ros_domain: int, number: signal.Signals) -> None:
    with NodeProcess(PROCESS, {"autostart": "true"}) as process:
        process.wait_for("waiting for first image on /image")
        assert process.stop(number) == 0
        assert "Traceback" not in process.output


def test_a_process_whose_worker_is_stuck_ends_cleanly_too(bench: Bench) -> None:
    with NodeProcess(PROCESS, {"autostart": "true"}, ["--", "endless"]) as process:
        process.wait_for("waiting for first image on /image")
        scenes = bench.collect(SceneAssessment, "scene")
        newest = bench.diagnostics()
        camera = bench.image_publisher()
        camera.publish(image(1))
        bench.until(
            lambda: newest.value("detector: images", "received") == "1",
            "the image at the worker",
        )
        assert process.stop(signal.SIGINT) == 0
        assert "its result will be dropped" in process.output
        assert not scenes


def test_bad_weights_end_an_autostarted_process(ros_domain: int) -> None:
    with NodeProcess(PROCESS, {"autostart": "true", "weights": "/nowhere.safetensors"}) as process:
        assert process.wait() == 1
        assert "weights file '/nowhere.safetensors': no such file" in process.output
        assert "Traceback" not in process.output

# SPDX-License-Identifier: Apache-2.0
"""One model, several cameras: turns, topics, diagnostics, recordings, with real processes too."""

from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.nodes.common.images import bgr_to_image
from sticker_uq.testing.bench import overrides
from sticker_uq_msgs.msg import SceneAssessment, StickerDetectionArray
from test.nodes.fake_perception import detector_with

TOPICS = {"": "image", "left": "left/image", "right": "right/image"}
MORE = "left/image, right/image"


def image(second: int, frame_id: str, grey: int = 100) -> Image:
    return bgr_to_image(np.full((48, 64, 3), grey, np.uint8), Time(sec=second), frame_id)


def beside(camera: str, topic: str) -> str:
    return f"{camera}/{topic}" if camera else topic


def seen(messages: list[Any]) -> list[tuple[int, int, str]]:
    return [(m.header.stamp.sec, m.sequence, m.header.frame_id) for m in messages]


def test_cameras_take_turns_with_their_newest_images(bench, script):
    script.hold = True
    scenes = {name: bench.collect(SceneAssessment, beside(name, "scene")) for name in TOPICS}
    detections = bench.collect(StickerDetectionArray, "left/detections")
    newest = bench.diagnostics()
    node = bench.add(detector_with(script)(parameter_overrides=overrides(more_image_topics=MORE)))
    assert node.start(), node.last_failure
    cameras = {name: bench.image_publisher(topic=topic) for name, topic in TOPICS.items()}
    cameras[""].publish(image(1, ""))
    bench.until(script.busy.is_set, "the worker at work")

    def part(name: str) -> str:
        return "detector: images" + (f" of {TOPICS[name]}" if name else "")

    def received(name: str) -> int:
        return node.feeds[list(TOPICS).index(name)].input.received

    # the first camera floods, the others send two images each
    for count, second in enumerate(range(2, 8), start=2):
        cameras[""].publish(image(second, ""))
        bench.until(lambda n=count: received("") == n, "the flood")
    for name in ("left", "right"):
        for count, second in enumerate((10, 20), start=1):
            cameras[name].publish(image(second, name))
            bench.until(lambda n=count, c=name: received(c) == n, f"{name}'s")
    dropped = ["5", "1", "1"]
    bench.until(lambda: [newest.value(part(name), "dropped") for name in TOPICS] == dropped, "the losses")
    assert [newest.value(part(name), "topic") for name in TOPICS] == ["/image", "/left/image", "/right/image"]
    script.hold = False
    script.go.set()
    bench.until(lambda: len(scenes[""]) == 2 and scenes["left"] and scenes["right"], "the scenes")
    assert [stamp // 10**9 for stamp in script.assessed] == [1, 20, 20, 7], (
        "who waits longest is served first"
    )
    assert seen(scenes[""]) == [(1, 1, ""), (7, 2, "")]
    assert seen(scenes["left"]) == [(20, 1, "left")]
    assert seen(scenes["right"]) == [(20, 1, "right")]
    bench.until(lambda: detections, "the parts")
    assert detections[0].header.frame_id == "left"
    bench.until(lambda: newest.value("detector: perception", "assessed") == "4", "the count of all")


def test_a_broken_camera_harms_no_other(bench, script):
    left, own = bench.collect(SceneAssessment, "left/scene"), bench.collect(SceneAssessment, "scene")
    newest = bench.diagnostics()
    node = bench.add(detector_with(script)(parameter_overrides=overrides(more_image_topics="left/image")))
    assert node.start(), node.last_failure
    bad = image(3, "left")
    bad.step = 1
    bench.image_publisher(topic="left/image").publish(bad)
    bench.until(lambda: left, "the failed scene")
    assert left[0].status == SceneAssessment.STATUS_FAILED
    bench.image_publisher().publish(image(4, ""))
    bench.until(lambda: own, "the scene of the other")
    assert own[0].status == SceneAssessment.STATUS_OK
    bench.until(lambda: newest.value("detector: images of left/image", "unusable") == "1", "the count")
    assert newest.value("detector: images", "unusable") == "0"


def test_cameras_are_chosen_before_configure(bench, script):
    node = bench.add(detector_with(script)(parameter_overrides=overrides(more_image_topics="/image")))
    assert not bench.transition("detector", "configure")
    assert "'/image': expected an image topic in a namespace" in node.last_failure

    def choose(text: str) -> Any:
        request = SetParameters.Request(
            parameters=[Parameter("more_image_topics", value=text).to_parameter_msg()]
        )
        return bench.call(SetParameters, "detector/set_parameters", request).results[0]

    assert choose("left/image").successful
    assert bench.transition("detector", "configure")
    assert "more_image_topics cannot be changed while detector is configured" in choose("right/image").reason
    assert bench.transition("detector", "cleanup")
    newest = bench.diagnostics()
    bench.until(lambda: "detector: images" in newest, "a report")
    assert "detector: images of left/image" not in newest
    assert choose("right/image").successful


def test_two_cameras_cannot_share_a_scene(bench, script):
    arguments = ["--ros-args", "-r", "__ns:=/cell"]
    node = bench.add(
        detector_with(script)(
            cli_args=arguments, parameter_overrides=overrides(more_image_topics="/cell/other_image")
        )
    )
    assert not node.start()
    assert (
        "scenes of /cell/other_image and of image would both be published on /cell/scene" in node.last_failure
    )


def test_the_cell_hands_further_cameras_to_detector_and_recorder():
    options = CellOptions(record="bag", camera_topic="/camera/image_raw", more_camera_topics=MORE)
    specs = {spec.name: spec for spec in cell_processes(options)}
    assert specs["detector"].parameters["more_image_topics"] == MORE
    assert specs["recorder"].parameters["more_image_topics"] == MORE
    assert "more_image_topics" not in specs["supervisor"].parameters

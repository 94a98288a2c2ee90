# SPDX-License-Identifier: Apache-2.0
"""The recorder: what it writes can be read again, and what it cannot write is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcap.reader import make_reader
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import Reader
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.io.bags import Bag
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.recorder import node as recorder
from sticker_uq.nodes.recorder.node import Recorder
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.bench import Bench, overrides
from sticker_uq_msgs.msg import Box, GateState, SceneAssessment, SceneDecision, Verdict

RAW = Image(height=2, width=3, encoding="bgr8", step=9, data=bytes(range(18)))
# publishing bytes sends them as they are; two serialisations may differ in what lies between the fields
RAW_BYTES = serialize_message(RAW)
COMPRESSED = CompressedImage(format="jpeg", data=bytes(range(7)))


@contextmanager
def _recording(bench: Bench, bag: Path, **parameters: str | float) -> Iterator[Recorder]:
    """A recorder on the bench that is closed at the end, so that its bag can be read."""
    node = Recorder(parameter_overrides=overrides(bag=str(bag), **parameters))
    bench.executor.add_node(node)
    try:
        yield node
    finally:
        bench.executor.remove_node(node)
        node.destroy_node()


def _bytes(bag: Path, topic: str) -> list[bytes]:
    with Reader(bag) as reader:
        return [bytes(d) for _, _, d in reader.messages([c for c in reader.connections if c.topic == topic])]


@pytest.mark.parametrize(
    ("transport", "topic", "message"),
    [("raw", "/image", RAW), ("compressed", "/image/compressed", COMPRESSED)],
)
def test_messages_are_read_again_byte_for_byte(bench, tmp_path, transport, topic, message):
    scene = SceneAssessment()
    scene.header.frame_id = "camera"
    image_bytes, scene_bytes = serialize_message(message), serialize_message(scene)
    with _recording(bench, tmp_path / "bag", image_transport=transport) as node:
        bench.publisher_matched(type(message), topic).publish(image_bytes)
        bench.publisher_matched(SceneAssessment, "scene", qos.RELIABLE).publish(scene_bytes)
        bench.until(lambda: node.recorded[topic] and node.recorded["/scene"], "both messages recorded")
    bag = Bag(tmp_path / "bag")
    assert not bag.damage
    found = {name for name, count in bag.counts.items() if count and name != "/diagnostics"}
    assert found == {topic, "/scene"}
    [image], [read] = bag.messages(topic), bag.messages("/scene")
    assert (bytes(image.message.data), read.message.header.frame_id) == (bytes(message.data), "camera")
    assert _bytes(tmp_path / "bag", topic) == [image_bytes]
    assert _bytes(tmp_path / "bag", "/scene") == [scene_bytes]


def test_decisions_are_recorded_as_boxes_that_foxglove_draws_over_their_image(bench, tmp_path):
    sticker, nowhere = Box(x1=10.0, y1=20.0, x2=30.0, y2=50.0), Box(x1=float("nan"), y1=0.0, x2=1.0, y2=1.0)
    decision = SceneDecision(
        verdicts=[Verdict(label=2, box=sticker, verdict=1), Verdict(box=nowhere), Verdict(verdict=77)]
    )
    decision.header.stamp.sec = 7
    with _recording(bench, tmp_path / "bag") as node:
        bench.publisher_matched(SceneDecision, "decision", qos.RELIABLE).publish(decision)
        bench.until(lambda: node.recorded["/annotations"], "annotations recorded")
    [read] = Bag(tmp_path / "bag").messages("/annotations")
    drawn = read.message
    assert drawn.timestamp.sec == 7
    assert [(p.x, p.y) for p in drawn.points[0].points] == [(10, 20), (30, 20), (30, 50), (10, 50)]
    assert [text.text for text in drawn.texts] == ["sticker: remove", "background: 77"]


def test_a_recording_is_played_as_its_topics_were_offered(bench, tmp_path):
    """``ros2 bag play`` offers a topic with the quality of service that the recording says; an empty one is volatile."""
    with _recording(bench, tmp_path / "bag") as node:
        bench.until(lambda: node.recorded["/diagnostics"], "something recorded")
    with Reader(tmp_path / "bag") as reader:
        offered = {c.topic: c.ext.offered_qos_profiles for c in reader.connections}
    latched = {f"/{topic}" for topic, (_, profile) in recorder.TOPICS.items() if profile is qos.LATCHED}
    assert latched
    for topic, profiles in offered.items():
        [profile] = profiles
        assert profile.reliability.name == "RELIABLE"
        assert profile.durability.name == ("TRANSIENT_LOCAL" if topic in latched else "VOLATILE"), topic


def test_what_viewers_draw_is_recorded_with_every_schema(bench, tmp_path):
    with _recording(bench, tmp_path / "bag") as node:
        bench.publisher_matched(Image, "image").publish(RAW)
        bench.publisher_matched(CameraInfo, "camera_info").publish(CameraInfo(height=2, width=3))
        wanted = ("/image", "/camera_info", "/diagnostics")
        bench.until(lambda: all(node.recorded[topic] for topic in wanted), "all recorded")
    [path] = (tmp_path / "bag").glob("*.mcap")
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    schemas = {channel.topic: summary.schemas[channel.schema_id] for channel in summary.channels.values()}
    assert {*wanted, *("/" + topic.lstrip("/") for topic in recorder.TOPICS)} <= schemas.keys()
    assert all((schema.encoding, bool(schema.data)) == ("ros2msg", True) for schema in schemas.values())


def test_further_cameras_are_recorded_to_any_name_that_a_file_system_allows(bench, tmp_path):
    bag, more = tmp_path / "mit Leerzeichen 笔记本 №1 a#b?c%20d", {"more_image_topics": "left/image"}
    with _recording(bench, bag, **more) as node:
        for topic in ("image", "left/image"):
            bench.publisher_matched(Image, topic).publish(RAW_BYTES)
        bench.publisher_matched(SceneAssessment, "left/scene", qos.RELIABLE).publish(SceneAssessment())
        wanted = {"/image", "/left/image", "/left/scene"}
        bench.until(lambda: all(node.recorded[topic] for topic in wanted), "all recorded")
    assert {topic for topic, count in Bag(bag).counts.items() if count} - {"/diagnostics"} == wanted


def test_a_camera_with_best_effort_is_recorded(bench, tmp_path):
    with _recording(bench, tmp_path / "bag") as node:
        publisher = bench.publisher_matched(Image, "image", qos.NEWEST_IMAGE_BEST_EFFORT)
        # a single best-effort message may be lost
        bench.until(lambda: publisher.publish(RAW_BYTES) or node.recorded["/image"], "an image recorded")
    assert _bytes(tmp_path / "bag", "/image")[0] == RAW_BYTES


def test_scenes_without_images_are_warned_about_once(bench, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(recorder, "NO_IMAGE_S", 0.05)
    with _recording(bench, tmp_path / "bag", image_transport="compressed") as node:
        bench.publisher_matched(SceneAssessment, "scene", qos.RELIABLE).publish(SceneAssessment())
        bench.until(node._image_check.is_canceled, "the warning")
    assert capfd.readouterr().err.count("no image on /image/compressed") == 1


def test_scenes_with_images_are_not_warned_about(bench, tmp_path, capfd):
    with _recording(bench, tmp_path / "bag") as node:
        bench.publisher_matched(SceneAssessment, "scene", qos.RELIABLE).publish(SceneAssessment())
        bench.publisher_matched(Image, "image").publish(RAW)
        bench.until(lambda: node.recorded["/image"] and node.recorded["/scene"], "both recorded")
        node._check_images()
    assert "no image" not in capfd.readouterr().err


@pytest.mark.parametrize(("bag", "reason"), [("", "parameter bag = ''"), ("there", "there exists already")])
def test_an_unusable_folder_is_refused(bench, tmp_path, monkeypatch, bag, reason):
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    with pytest.raises(InvalidInput, match=reason), _recording(bench, bag):
        pass
    assert not list(Path("there").iterdir())


@pytest.mark.parametrize("transport", ["", "compressed"])
def test_the_recorder_listens_where_the_detector_does(transport):
    options = CellOptions(record="bag", camera_topic="/camera/image_raw", image_transport=transport)
    specs = {spec.name: spec for spec in cell_processes(options)}
    detector, recording = specs["detector"], specs["recorder"]
    assert set(detector.remappings) < set(recording.remappings)
    assert "camera_info:=/camera/camera_info" in recording.ros_arguments(None)
    assert "image/compressed:=/camera/image_raw/compressed" in recording.ros_arguments(None)
    assert recording.parameters.get("image_transport") == detector.parameters.get("image_transport")


def test_a_recording_goes_on_in_a_folder_that_begins_with_the_state_of_the_gate(bench, tmp_path, capfd):
    bench.publisher(GateState, "gate", qos.LATCHED).publish(GateState(supervisor="one"))
    with _recording(bench, tmp_path / "bag", split_mb=1e-6) as node:
        bench.until(lambda: node.recorded["/gate"], "the gate's state recorded")
        bench.publisher_matched(Image, "image").publish(RAW_BYTES)
        bench.until(lambda: node.recorded["/image"], "the image recorded")
    [again] = Bag(tmp_path / "bag_2").messages("/gate")
    assert again.message.supervisor == "one"
    assert _bytes(tmp_path / "bag_2", "/image") == [RAW_BYTES]
    assert f"goes on in {tmp_path / 'bag_2'}" in capfd.readouterr().err


def test_nothing_is_removed_where_nothing_is_split(bench, tmp_path):
    with (
        pytest.raises(InvalidInput, match="keep = 3 with split_mb = 0"),
        _recording(bench, tmp_path / "bag", keep=3),
    ):
        pass
    assert not (tmp_path / "bag").exists()

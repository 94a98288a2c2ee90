# SPDX-License-Identifier: Apache-2.0
"""The node that plays files and devices as images."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.images import bgr_from_msg, bgr_to_image
from sticker_uq.nodes.image_source.node import ImageSourceNode
from sticker_uq.testing.bench import Bench, overrides, values_of

NODE = "image_source"


def shade(index: int) -> int:
    return 40 * (index + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in range(4):
        cv2.imwrite(str(tmp_path / f"lid{index}.png"), np.full((6, 8, 3), shade(index), np.uint8))
    return tmp_path


@contextmanager
def recording(path: Path) -> Iterator[Callable[[str, Any], None]]:
    """A recording that the yielded function writes ROS messages to."""
    types = get_typestore(Stores.ROS2_JAZZY)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:

        def write(topic: str, message: Any) -> None:
            kind = f"sensor_msgs/msg/{type(message).__name__}"
            writer.write(writer.add_connection(topic, kind, typestore=types), 1, serialize_message(message))

        yield write


def node(bench: Bench, **values: object) -> ImageSourceNode:
    return bench.add(ImageSourceNode(parameter_overrides=overrides(**values)))


def every(bench: Bench, message_type: type, topic: str) -> list[Image]:
    """All messages: a queue that holds the whole source."""
    return bench.collect(message_type, topic, qos.QoSProfile(depth=50))


def test_a_folder_is_played_in_order_with_fresh_stamps(bench, folder):
    raw = every(bench, Image, "image")
    before = bench.probe.get_clock().now().nanoseconds
    assert node(bench, source=str(folder), rate=50.0, frame_id="lid_camera").start()
    bench.until(lambda: len(raw) == 4, "four images")
    assert [int(bgr_from_msg(m)[0, 0, 0]) for m in raw] == [shade(i) for i in range(4)]
    stamps = [m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for m in raw]
    assert before < stamps[0]
    assert stamps == sorted(stamps)
    assert {m.header.frame_id for m in raw} == {"lid_camera"}
    newest = bench.diagnostics()
    bench.until(lambda: "image_source: source" in newest, "diagnostics")
    bench.until(lambda: newest["image_source: source"].message == "finished", "the end is told")
    assert values_of(newest["image_source: source"])["published"] == "4"
    assert bench.state(NODE) == "active", "the end of the source is normal"


def test_nothing_is_played_to_nobody(bench, folder):
    subject = node(bench, source=str(folder), rate=50.0)
    newest = bench.diagnostics()
    assert subject.start()
    bench.until(
        lambda: (
            "image_source: source" in newest
            and newest["image_source: source"].message == "waiting for a subscriber"
        ),
        "a source that waits",
    )
    raw = every(bench, Image, "image")
    bench.until(lambda: len(raw) == 4, "all four images")


def test_compressed_and_both(bench, folder):
    compressed, raw = every(bench, CompressedImage, "image/compressed"), every(bench, Image, "image")
    assert node(bench, source=str(folder), rate=20.0, transport="both", loop=True).start()
    bench.until(lambda: len(compressed) > 4 and len(raw) > 4, "more images than there are pictures")
    assert abs(int(bgr_from_msg(compressed[0]).mean()) - shade(0)) <= 2
    assert bench.transition(NODE, "deactivate")
    assert bench.transition(NODE, "cleanup")


def test_a_recording_plays_as_the_camera_of_a_cell_with_its_camera_info(bench, tmp_path):
    """As the processes of a cell do it: on the camera's topics, over and over, with the recorded calibration."""
    with recording(tmp_path / "bag") as write:
        write(
            "/cam/camera_info", CameraInfo(width=8, height=6, k=[7.0, 0.0, 4.0, 0.0, 7.0, 3.0, 0.0, 0.0, 1.0])
        )
        write("/cam/image", bgr_to_image(np.full((6, 8, 3), 50, np.uint8), Time(sec=1), "lid_camera"))
    options = CellOptions(source=str(tmp_path / "bag"), source_rate=20.0, camera_topic="/camera/image_raw")
    specs = [spec for spec in cell_processes(options) if spec.name == NODE]
    images, infos = every(bench, Image, "/camera/image_raw"), every(bench, CameraInfo, "/camera/camera_info")

    def together() -> bool:
        stamps = [image.header.stamp for image in images]
        return len(stamps) >= 2 and any(info.header.stamp in stamps for info in infos)

    # Either reader may find the camera an image before the other.
    with ProcessGroup(specs, lambda line: None):
        bench.until(together, "two images, and the camera info of one of them")
    assert all(list(info.k) == [7.0, 0.0, 4.0, 0.0, 7.0, 3.0, 0.0, 0.0, 1.0] for info in infos)
    assert {message.header.frame_id for message in [*images, *infos]} == {"lid_camera"}


def test_an_unreadable_picture_is_skipped_and_counted(bench, folder):
    (folder / "lid1.png").write_bytes(b"not a picture")
    raw = every(bench, Image, "image")
    subject = node(bench, source=str(folder), rate=50.0)
    newest = bench.diagnostics()
    assert subject.start()
    bench.until(lambda: len(raw) == 3, "three images")
    bench.until(lambda: newest.get("image_source: source"), "diagnostics")
    bench.until(lambda: values_of(newest["image_source: source"])["unreadable"] == "1", "the count")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "parameter source is empty"),
        ({"source": "/nowhere"}, "/nowhere: no such file or folder"),
        ({"source": "977"}, "/dev/video977"),
    ],
)
def test_a_source_that_cannot_be_played_fails_configure(bench, values, reason):
    subject = node(bench, **values)
    assert not bench.transition(NODE, "configure")
    assert reason in subject.last_failure

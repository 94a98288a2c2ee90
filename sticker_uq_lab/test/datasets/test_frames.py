# SPDX-License-Identifier: Apache-2.0
"""Frames to label: chosen by time and motion, named after their number and laptop."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.images import encode_jpeg
from sticker_uq.io.sources import SourceImage
from sticker_uq_lab.datasets.frames import choose_frames
from sticker_uq_msgs.msg import Workpiece


def grey(level: int) -> np.ndarray:
    return np.full((48, 64, 3), level, np.uint8)


def frames(*levels: int, period_s: float = 0.5) -> list[SourceImage]:
    """Grey frames; one of a negative level cannot be read."""
    found = []
    for number, level in enumerate(levels):
        image, error = (grey(level), "") if level >= 0 else (None, "cut off")
        found.append(SourceImage(image, round(number * period_s * 1e9), "", f"{number:06d}", error))
    return found


def names(source: list[SourceImage], every: float, motion: float) -> list[str]:
    return [picture.name for picture, chosen in choose_frames(source, every, motion) if chosen]


def test_frames_are_some_time_apart_and_differ_from_the_last_chosen_one():
    moving = frames(*range(0, 100, 10))
    assert names(moving, 1.0, 0.0) == ["000000", "000002", "000004", "000006", "000008"]
    assert names(moving, 0.0, 25.0) == ["000000", "000003", "000006", "000009"]
    # slow motion adds up, because the last chosen frame counts, not the last one
    assert names(frames(*range(0, 20)), 0.0, 5.0) == ["000000", "000005", "000010", "000015"]
    assert names(frames(7, 7, 7, 7), 0.0, 1.0) == ["000000"]


def test_unreadable_frames_are_not_chosen():
    every = choose_frames(frames(0, -1, 50, -1), 0.0, 1.0)
    assert [chosen for _, chosen in every] == [True, False, True, False]


def test_a_clock_that_goes_back_starts_anew():
    later, start = frames(0, 10, 20)[1:], frames(30, 40)
    assert names([*later, *start], 10.0, 1.0) == ["000001", "000000"]


@pytest.fixture
def video(tmp_path: Path) -> Path:
    path = tmp_path / "lids.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 2.0, (64, 48))
    for level in range(0, 200, 10):
        writer.write(grey(level))
    writer.release()
    return path


def chosen(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["dataset", "frames", *map(str, arguments)])


def test_the_command_writes_the_frames_of_a_video(video, tmp_path):
    result = chosen(video, "--out", tmp_path / "frames", "--every", 3)
    assert result.exit_code == 0, result.output
    written = sorted((tmp_path / "frames").iterdir())
    assert [path.stem for path in written] == ["000000", "000006", "000012", "000018"]
    assert "4 of 20 frames" in result.output
    assert abs(float(cv2.imread(str(written[1])).mean()) - 60) < 3
    assert chosen(video, "--out", tmp_path / "two", "--every", 0, "--count", 2).exit_code == 0
    assert len(list((tmp_path / "two").iterdir())) == 2


def test_frames_of_a_recording_are_named_after_their_laptop(tmp_path):
    def header(second: float) -> Header:
        return Header(stamp=Time(sec=int(second), nanosec=int(second % 1 * 1e9)), frame_id="camera")

    with BagWriter(tmp_path / "bag") as bag:
        bag.add_topic("/image/compressed", "sensor_msgs/msg/CompressedImage")
        bag.add_topic("/workpiece", "sticker_uq_msgs/msg/Workpiece")
        for second, name in ((1, "a"), (4, "b")):
            bag.write(
                "/workpiece", second * 10**9, serialize_message(Workpiece(header=header(second), id=name))
            )
        for number in range(6):
            data = encode_jpeg(grey(30 * number))
            message = CompressedImage(header=header(number + 0.5), format="jpeg", data=data)
            bag.write("/image/compressed", round((number + 0.5) * 10**9), serialize_message(message))
    result = chosen(tmp_path / "bag", "--out", tmp_path / "frames", "--every", 2, "--format", "jpg")
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "frames").iterdir())
    assert names == ["000000.jpg", "laptop0001_000002.jpg", "laptop0002_000004.jpg"]


def test_what_cannot_be_chosen_from_is_refused(video, tmp_path):
    assert chosen(video, "--out", tmp_path / "frames").exit_code == 0
    again = chosen(video, "--out", tmp_path / "frames")
    assert again.exit_code == 2
    assert "not an empty folder" in again.output
    pictures = chosen(tmp_path / "frames", "--out", tmp_path / "more")
    assert pictures.exit_code == 2
    assert "is no recording or video" in pictures.output
    assert not (tmp_path / "more").exists()

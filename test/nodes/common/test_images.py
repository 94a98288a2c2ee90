# SPDX-License-Identifier: Apache-2.0
"""Image messages: both ways of decoding agree, and what is sent can be read back."""

import itertools
import re
from array import array
from typing import Any

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.io.images import ENCODINGS, encode_jpeg
from sticker_uq.nodes.common import images
from sticker_uq.scene import InvalidInput

STAMP = Time(sec=3, nanosec=5)
PIXEL_BYTES = {"bgr8": 3, "rgb8": 3, "bgra8": 4, "rgba8": 4, "mono8": 1, "bayer8": 1} | {
    "bgr16": 6, "rgb16": 6, "bgra16": 8, "rgba16": 8
}  # fmt: skip


def picture(height: int = 6, width: int = 8) -> Any:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def raw_message(encoding: str, padding: int = 0, big: int = 0) -> Image:
    """A valid message of 8 x 6 random pixels."""
    step = 8 * PIXEL_BYTES.get(re.sub("_[rgb]{4}", "", encoding), 2) + padding
    data = np.random.default_rng(1).integers(0, 256, 6 * step, np.uint8)
    return Image(
        encoding=encoding, width=8, height=6, step=step, is_bigendian=big, data=array("B", data.tobytes())
    )


def test_a_picture_survives_the_wire():
    message = images.bgr_to_image(picture(), STAMP, "camera")
    assert isinstance(message.data, array)
    assert (message.encoding, message.width, message.height, message.step) == ("bgr8", 8, 6, 24)
    assert (message.header.stamp, message.header.frame_id) == (STAMP, "camera")
    back = deserialize_message(serialize_message(message), Image)
    np.testing.assert_array_equal(images.bgr_from_msg(back), picture())


def test_a_view_is_sent_as_it_looks():
    np.testing.assert_array_equal(
        images.bgr_from_msg(images.bgr_to_image(picture()[::-1, ::2], STAMP, "")), picture()[::-1, ::2]
    )


def test_a_compressed_picture_survives_the_wire():
    message = images.bgr_to_compressed(picture(), STAMP, "camera", quality=80)
    assert isinstance(message.data, array)
    assert "jpeg" in message.format
    assert message.header.stamp == STAMP
    back = images.bgr_from_msg(deserialize_message(serialize_message(message), CompressedImage))
    assert back.shape == (6, 8, 3)
    assert bytes(message.data) == encode_jpeg(picture(), 80)


def test_a_map_is_sent_as_32_bit_floats():
    values = np.linspace(0, 1, 12, dtype=np.float64).reshape(3, 4)
    message = images.map_to_image(values, STAMP, "camera")
    assert (message.encoding, message.step) == ("32FC1", 16)
    np.testing.assert_array_equal(
        np.frombuffer(message.data, np.float32).reshape(3, 4), values.astype(np.float32)
    )


@pytest.mark.skipif(
    images.cv_bridge()[0] is None, reason=f"{images.cv_bridge()[1]}: apt install ros-jazzy-cv-bridge"
)
def test_cv_bridge_and_numpy_agree():
    for encoding, padding, big in itertools.product(ENCODINGS, (0, 4, 6), (0, 1)):
        message = raw_message(encoding, padding, big)
        bridged = images.bgr_with_cv_bridge(message, images.cv_bridge()[0])
        np.testing.assert_array_equal(bridged, images.decode_message(message), f"{encoding} +{padding} {big}")


class Bridge:
    """Decodes as cv_bridge does where it is asked, and tells what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def imgmsg_to_cv2(self, message: Image, desired_encoding: str) -> Any:
        assert desired_encoding == "bgr8"
        self.asked.append(message.encoding)
        if message.encoding == "bayer_rggb8":
            raise TypeError("not today")
        return images.decode_message(message)


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        (raw_message("rgb8"), True),
        (raw_message("rgb8", padding=3), True),
        (raw_message("rgb8", padding=4), False),
        (raw_message("mono16", big=1), False),
        (raw_message("uyvy"), False),
    ],
)
def test_cv_bridge_is_asked_only_for_what_it_does_right(message, asked):
    bridge = Bridge()
    np.testing.assert_array_equal(images.bgr_with_cv_bridge(message, bridge), images.decode_message(message))
    assert bool(bridge.asked) is asked


def test_what_cv_bridge_refuses_is_invalid_input():
    with pytest.raises(InvalidInput, match="cannot decode a bayer_rggb8 image: not today"):
        images.bgr_with_cv_bridge(raw_message("bayer_rggb8"), Bridge())
    with pytest.raises(InvalidInput, match="image encoding '8UC3'"):
        images.bgr_with_cv_bridge(raw_message("8UC3"), Bridge())


@pytest.mark.parametrize("message", [Image(), CompressedImage(), raw_message("32FC1")])
def test_unusable_messages_are_invalid_input(message):
    with pytest.raises(InvalidInput):
        images.bgr_from_msg(message)

# SPDX-License-Identifier: Apache-2.0
"""Conversion of ROS image messages to arrays and back, for the nodes.

Decoding uses cv_bridge where a working one is installed, otherwise :mod:`sticker_uq.io.images`, with the same result; the checks
and their error messages are this package's in both cases.
"""

from __future__ import annotations

import functools
from array import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from numpy.typing import NDArray
from sensor_msgs.msg import CompressedImage, Image

from sticker_uq.gate.state import Relief
from sticker_uq.io.images import (
    ENCODINGS,
    Picture,
    check_layout,
    decode_compressed,
    decode_message,
    encode_jpeg,
)
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.scene import InvalidInput

# Encodings that every version of cv_bridge knows; newer names of the same layouts are decoded with NumPy.
# 16 bits are scaled after the conversion here, and cv_bridge may do it before.
_BRIDGED = frozenset(name for name in ENCODINGS if not name.endswith("16")) - {"uyvy", "yuyv"} | {"mono16"}


def bgr_from_msg(message: Image | CompressedImage) -> Picture:
    """The picture in ``message``, uint8 (H, W, 3) BGR; raises :class:`InvalidInput` naming what is invalid.

    A bgr8 image without padding is not copied but shares the memory of ``message``.
    """
    if isinstance(message, CompressedImage):
        return decode_compressed(message.data, message.format)
    bridge, _ = cv_bridge()
    return decode_message(message) if bridge is None else bgr_with_cv_bridge(message, bridge)


def bgr_with_cv_bridge(message: Image, bridge: Any) -> Picture:
    """The picture in ``message``, by ``bridge``, a ``cv_bridge.CvBridge``.

    NumPy decodes where cv_bridge fails: rows whose padding is not a whole number of pixels, which it shears, and swapped
    bytes, for which it uses a method that NumPy 2 has removed.
    """
    encoding, step = message.encoding, message.step
    pixel_bytes = check_layout(encoding, message.width, message.height, step, len(message.data))
    if message.is_bigendian or step % pixel_bytes or encoding not in _BRIDGED:
        return decode_message(message)
    try:
        picture = bridge.imgmsg_to_cv2(message, desired_encoding="bgr8")
    except Exception as error:  # noqa: BLE001 - CvBridgeError, TypeError and ValueError have no common base
        raise InvalidInput(f"cv_bridge cannot decode a {encoding} image: {error}") from None
    return np.ascontiguousarray(picture, np.uint8)


@functools.cache
def cv_bridge() -> tuple[Any, str]:
    """A working ``CvBridge`` and "", or None and the reason why there is none.

    Tested once: that of a distribution may be built for another NumPy.
    """
    try:
        from cv_bridge import CvBridge

        bridge = CvBridge()
        probe = Image(encoding="rgb8", width=1, height=1, step=3, data=array("B", (1, 2, 3)))
        if bridge.imgmsg_to_cv2(probe, desired_encoding="bgr8").tolist() != [[[3, 2, 1]]]:
            return None, "cv_bridge converts wrongly"
    except ImportError as error:
        return None, f"cv_bridge is not importable ({error})"
    except Exception as error:  # noqa: BLE001 - whatever a broken build raises
        return None, f"cv_bridge does not work ({type(error).__name__}: {error})"
    return bridge, ""


def bgr_to_image(image: Picture, stamp: Time, frame_id: str) -> Image:
    return _to_image(image, "bgr8", stamp, frame_id)


def map_to_image(values: NDArray[np.floating[Any]], stamp: Time, frame_id: str) -> Image:
    return _to_image(np.asarray(values, np.float32), "32FC1", stamp, frame_id)


def relief_from_msg(message: Image) -> Relief:
    """The map of heights in ``message``; raises :class:`InvalidInput` naming what is invalid."""
    found = (message.encoding, message.step, len(message.data))
    expected = ("32FC1", 4 * message.width, 4 * message.width * message.height)
    if found != expected:
        raise InvalidInput(f"relief of encoding, row and size in bytes {found}: expected {expected}")
    values = np.frombuffer(message.data, ">f4" if message.is_bigendian else "<f4")
    heights = values.reshape(message.height, message.width)
    return Relief(stamp_to_ns(message.header.stamp), message.header.frame_id, heights)


def bgr_to_compressed(image: Picture, stamp: Time, frame_id: str, quality: int = 90) -> CompressedImage:
    """``image`` (H, W, 3) BGR as a JPEG; ``format`` is written as compressed_image_transport does."""
    message = CompressedImage(format="bgr8; jpeg compressed bgr8", data=_bytes(encode_jpeg(image, quality)))
    message.header.stamp = stamp
    message.header.frame_id = frame_id
    return message


def _to_image(values: NDArray[Any], encoding: str, stamp: Time, frame_id: str) -> Image:
    height, width = values.shape[:2]
    contiguous = np.ascontiguousarray(values)
    message = Image(
        height=height,
        width=width,
        encoding=encoding,
        step=contiguous.nbytes // height,
        data=_bytes(contiguous),
    )
    message.header.stamp = stamp
    message.header.frame_id = frame_id
    return message


def _bytes(data: Any) -> array[int]:
    # An ndarray assigned to the field would be copied element by element: 150 ms instead of 0.15 ms for 1280
    # x 960.
    pixels = array("B")
    pixels.frombytes(memoryview(data).cast("B"))
    return pixels

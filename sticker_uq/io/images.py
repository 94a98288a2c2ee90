# SPDX-License-Identifier: Apache-2.0
"""Decoding of camera images and image files to uint8 (H, W, 3) BGR, C-contiguous.

The encodings and their names are those of ``sensor_msgs/image_encodings.hpp``. What cannot be decoded
faithfully (truncated data, an impossible size, an encoding whose meaning as a colour is not defined) raises
:class:`sticker_uq.scene.InvalidInput`, which names the value and what was expected.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.reading import MIB, read_bytes
from sticker_uq.scene import InvalidInput

Transport = Literal["raw", "compressed"]

Picture = NDArray[np.uint8]
#: Anything that offers the buffer protocol: bytes, array.array, NumPy arrays.
Buffer = Any

MAX_PIXELS = 2**28
MOST_PICTURE = 256 * MIB
"""Bytes of an image file."""
MOST_SCANS = 64
"""Scans of a JPEG file, each of which takes as long as a whole picture. Progressive files have about ten."""
_GENERIC = re.compile(r"(8|16|32|64)[USF]C\d*")
"""Encodings without a meaning as colours, for instance 16UC1 of a depth camera."""
_JPEG_START = b"\xff\xd8\xff"
_PNG_START = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class _Encoding:
    """Memory layout of one pixel, and the conversion of a picture (H, W, channels) to BGR."""

    channels: int
    to_bgr: Callable[[NDArray[Any]], NDArray[Any]]
    dtype: type[np.unsignedinteger[Any]] = np.uint8
    width_multiple: int = 1

    @property
    def pixel_bytes(self) -> int:
        return self.channels * np.dtype(self.dtype).itemsize


def _with(code: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda picture: _to_8_bit(cv2.cvtColor(picture, code))


def _to_8_bit(picture: NDArray[Any]) -> NDArray[Any]:
    """A picture of 16 bit per channel, scaled as cv_bridge does; one of 8 bit stays."""
    return cv2.convertScaleAbs(picture, alpha=255.0 / 65535.0) if picture.dtype == np.uint16 else picture


_UYVY = _Encoding(2, _with(cv2.COLOR_YUV2BGR_UYVY), width_multiple=2)
_YUY2 = _Encoding(2, _with(cv2.COLOR_YUV2BGR_YUY2), width_multiple=2)

_ENCODINGS = {
    "bgr8": _Encoding(3, lambda picture: picture),
    "rgb8": _Encoding(3, _with(cv2.COLOR_RGB2BGR)),
    "bgra8": _Encoding(4, _with(cv2.COLOR_BGRA2BGR)),
    "rgba8": _Encoding(4, _with(cv2.COLOR_RGBA2BGR)),
    "mono8": _Encoding(1, _with(cv2.COLOR_GRAY2BGR)),
    "mono16": _Encoding(1, _with(cv2.COLOR_GRAY2BGR), np.uint16),
    "bgr16": _Encoding(3, _to_8_bit, np.uint16),
    "rgb16": _Encoding(3, _with(cv2.COLOR_RGB2BGR), np.uint16),
    "bgra16": _Encoding(4, _with(cv2.COLOR_BGRA2BGR), np.uint16),
    "rgba16": _Encoding(4, _with(cv2.COLOR_RGBA2BGR), np.uint16),
    "bayer_rggb8": _Encoding(1, _with(cv2.COLOR_BayerRGGB2BGR)),
    "bayer_bggr8": _Encoding(1, _with(cv2.COLOR_BayerBGGR2BGR)),
    "bayer_gbrg8": _Encoding(1, _with(cv2.COLOR_BayerGBRG2BGR)),
    "bayer_grbg8": _Encoding(1, _with(cv2.COLOR_BayerGRBG2BGR)),
    "bayer_rggb16": _Encoding(1, _with(cv2.COLOR_BayerRGGB2BGR), np.uint16),
    "bayer_bggr16": _Encoding(1, _with(cv2.COLOR_BayerBGGR2BGR), np.uint16),
    "bayer_gbrg16": _Encoding(1, _with(cv2.COLOR_BayerGBRG2BGR), np.uint16),
    "bayer_grbg16": _Encoding(1, _with(cv2.COLOR_BayerGRBG2BGR), np.uint16),
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUY2,
    "yuyv": _YUY2,
}

ENCODINGS = tuple(_ENCODINGS)


def check_layout(encoding: str, width: int, height: int, step: int, size: int) -> int:
    """Bytes per pixel of an image message of ``size`` bytes in ``height`` rows of ``step`` bytes; raises if they do not fit.

    Raises :class:`InvalidInput` when the encoding is unknown or the numbers are inconsistent.
    """
    layout = _ENCODINGS.get(encoding)
    if layout is None:
        raise InvalidInput(
            f"image encoding {encoding!r}: expected one of {', '.join(ENCODINGS)}; set the pixel format of the camera's driver"
        )
    _check_size(width, height)
    if width % layout.width_multiple:
        raise InvalidInput(f"image width {width}: {encoding} needs a multiple of {layout.width_multiple}")
    if step < width * layout.pixel_bytes:
        raise InvalidInput(
            f"image step {step}: a row of {width} {encoding} pixels has at least {width * layout.pixel_bytes} bytes"
        )
    if step % np.dtype(layout.dtype).itemsize:
        raise InvalidInput(f"image step {step}: expected a multiple of the 2 bytes of {encoding}")
    if size != height * step:
        state = "is empty" if size == 0 else "is truncated" if size < height * step else "is too long"
        raise InvalidInput(
            f"image data {state}: {size} bytes, expected height {height} x step {step} = {height * step}"
        )
    return layout.pixel_bytes


def decode_image(
    encoding: str, width: int, height: int, step: int, is_bigendian: bool, data: Buffer
) -> Picture:
    """The picture in the fields of a ``sensor_msgs/Image``, uint8 (H, W, 3) BGR.

    ``step`` is the length of a row in bytes, padding included. 16 bits are scaled to 8 by 255 / 65535.
    bgr8 without padding is not copied: the result then shares ``data``'s memory. Raises
    :class:`InvalidInput`.
    """
    flat = np.frombuffer(data, np.uint8)
    check_layout(encoding, width, height, step, flat.size)
    layout = _ENCODINGS[encoding]
    rows = flat.reshape(height, step)[:, : width * layout.pixel_bytes]
    pixels: NDArray[Any] = np.ascontiguousarray(rows)
    if layout.dtype is np.uint16:
        pixels = pixels.view(">u2" if is_bigendian else "<u2").astype(np.uint16, copy=False)
    shape = (height, width) if layout.channels == 1 else (height, width, layout.channels)
    try:
        picture = layout.to_bgr(pixels.reshape(shape))
    except cv2.error as error:
        raise InvalidInput(
            f"a {width} x {height} image cannot be decoded as {encoding}: {error.err}"
        ) from None
    return np.ascontiguousarray(picture, np.uint8)


def decode_compressed(data: Buffer, sent_as: str = "") -> Picture:
    """The image in a JPEG or PNG file, uint8 (H, W, 3) BGR, rotated according to its EXIF orientation.

    ``sent_as``: the ``format`` of a ``sensor_msgs/CompressedImage``, read as compressed_image_transport writes it: the mosaic of
    a Bayer camera becomes colours, 16 bits are scaled as in :func:`decode_image`, red and blue are where the sender had them.
    Raises :class:`InvalidInput` for other formats, for encodings that are no colours (depth), and for truncated files, which
    OpenCV would fill with grey.
    """
    flat = np.frombuffer(data, np.uint8)
    if _GENERIC.match(encoding := _sent_encoding(sent_as)):
        raise InvalidInput(
            f"compressed image of encoding {encoding!r}: expected one of {', '.join(ENCODINGS)}; name the topic of colours"
        )
    if flat.size == 0:
        raise InvalidInput("compressed image is empty, expected a JPEG or PNG file")
    blob = flat.tobytes()
    if blob.startswith(_JPEG_START):
        name, (width, height), complete = "JPEG", *_inspect_jpeg(blob)
    elif blob.startswith(_PNG_START):
        name, (width, height), complete = "PNG", *_inspect_png(blob)
    else:
        raise InvalidInput(f"compressed image starts with {blob[:8]!r}: expected a JPEG or PNG file")
    if not complete:
        raise InvalidInput(
            f"compressed image is truncated: {len(blob)} bytes of a {name} file without its end"
        )
    _check_size(width, height)
    if encoding not in _ENCODINGS or not sent_as.partition(";")[1]:
        return _decoded(blob, name)
    return _as_sent(blob, name, encoding, sent_as.partition(";")[2])


def lost_colours(data: Buffer, sent_as: str) -> str:
    """What to say about a ``sensor_msgs/CompressedImage`` whose ``format`` names colours while its picture is grey; "" else."""
    encoding, _, target = sent_as.partition(";")
    mosaic = encoding.startswith("bayer_") and "mono8" not in target
    if not target or mosaic or encoding.startswith("mono") or _GENERIC.match(encoding):
        return ""
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_ANYCOLOR)
    except cv2.error:
        return ""
    if picture is None or picture.ndim == 3:
        return ""
    return (
        f"compressed images are grey, although their format {sent_as!r} says {encoding}: the driver's compressed topic has lost "
        "the colours; use the raw topic, or another pixel format of the driver"
    )


def _sent_encoding(sent_as: str) -> str:
    """The encoding in the ``format`` of a compressed image, "" where only the codec is named ("jpeg")."""
    encoding, separator, _ = sent_as.partition(";")
    return encoding.strip() if separator else ""


def _as_sent(blob: bytes, name: str, encoding: str, target: str) -> Picture:
    """The picture in a file that was an image of ``encoding`` when it was sent, compressed as ``target`` says."""
    picture = _imdecoded(blob, name, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH)
    if picture.ndim == 3:
        turned = encoding.startswith(("bgr", "rgb")) and "compressed bgr" not in target
        return np.ascontiguousarray(_to_8_bit(picture)[..., :: -1 if turned else 1], np.uint8)
    grey = "mono8" if "mono8" in target or not encoding.startswith("bayer_") else encoding
    try:
        return np.ascontiguousarray(_ENCODINGS[grey].to_bgr(picture), np.uint8)
    except cv2.error as error:
        raise InvalidInput(
            f"a compressed image of {picture.shape[1]} x {picture.shape[0]} is no {encoding}: {error.err}"
        ) from None


def decode_picture(data: Buffer) -> Picture:
    """The image in a JPEG, PNG, BMP or WebP file, as :func:`decode_compressed` returns it; raises the same."""
    blob = np.frombuffer(data, np.uint8).tobytes()
    if blob.startswith(b"BM"):
        name, (width, height), complete = "BMP", _inspect_bmp(blob), True
    elif blob.startswith(b"RIFF") and blob[8:12] == b"WEBP":
        # the format has no more than 2^28 pixels, in a file that says its length
        name, (width, height), complete = "WebP", (1, 1), len(blob) >= 8 + int.from_bytes(blob[4:8], "little")
    else:
        return decode_compressed(blob)
    if not complete:
        raise InvalidInput(f"picture is truncated: {len(blob)} bytes of a {name} file without its end")
    _check_size(width, height)
    return _decoded(blob, name)


def read_image_file(path: str | os.PathLike[str], name: str = "") -> Picture:
    """The image in a JPEG, PNG, BMP or WebP file, uint8 (H, W, 3) BGR.

    Raises :class:`InvalidInput`, which calls the file ``name`` (default: its path), when it is no regular file, has more than
    :data:`MOST_PICTURE` bytes or cannot be decoded.
    """
    name = name or os.fspath(path)
    data = read_bytes(path, MOST_PICTURE, name)
    try:
        return decode_picture(data)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None


def encode_jpeg(image: Picture, quality: int = 90) -> bytes:
    """``image`` (H, W, 3) BGR as a JPEG file of ``quality`` 1 to 100."""
    _, buffer = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return bytes(buffer)


def _decoded(blob: bytes, name: str) -> Picture:
    return np.ascontiguousarray(_imdecoded(blob, name, cv2.IMREAD_COLOR), np.uint8)


def _imdecoded(blob: bytes, name: str, flag: int) -> NDArray[Any]:
    try:
        picture = cv2.imdecode(np.frombuffer(blob, np.uint8), flag)
    except cv2.error:
        picture = None
    if picture is None:
        raise InvalidInput(f"compressed image of {len(blob)} bytes is a corrupt {name} file")
    return picture


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise InvalidInput(f"image size {width} x {height}: expected at least one pixel")
    if width * height > MAX_PIXELS:
        raise InvalidInput(f"image size {width} x {height}: expected at most {MAX_PIXELS} pixels")


def _inspect_png(blob: bytes) -> tuple[tuple[int, int], bool]:
    """Width and height, and whether the file has its end chunk (ISO/IEC 15948, clause 11.2)."""
    if len(blob) < 24:
        return (0, 0), False
    width, height = struct.unpack(">II", blob[16:24])
    return (width, height), b"IEND" in blob[-64:]


def _inspect_bmp(blob: bytes) -> tuple[int, int]:
    """Width and height in the header of OS/2 or Windows; the height is negative where the first row is the upper one."""
    if len(blob) < 26:
        return 0, 0
    if int.from_bytes(blob[14:18], "little") == 12:
        width, height = struct.unpack("<HH", blob[18:22])
    else:
        width, height = struct.unpack("<ii", blob[18:26])
    return width, abs(height)


def _inspect_jpeg(blob: bytes) -> tuple[tuple[int, int], bool]:
    """Width and height, and whether the scan is closed by an end-of-image marker (ITU-T T.81, annex B).

    Segments are walked one by one, because an embedded thumbnail has markers of its own.
    """
    size, at = (0, 0), 2
    while at + 4 <= len(blob) and blob[at] == 0xFF:
        marker, length = blob[at + 1], int.from_bytes(blob[at + 2 : at + 4])
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        # start of frame, all kinds; 0xC4, 0xC8 and 0xCC are tables and reserved
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and at + 9 <= len(blob):
            height, width = struct.unpack(">HH", blob[at + 5 : at + 9])
            size = (width, height)
        at += 2 + length
        if marker == 0xDA:  # entropy-coded data never contains FF D9 or FF DA
            scans = 1 + blob.count(b"\xff\xda", at)
            if scans > MOST_SCANS:
                raise InvalidInput(f"JPEG file with {scans} scans: expected at most {MOST_SCANS}")
            return size, blob.find(b"\xff\xd9", at) >= 0
    return size, False

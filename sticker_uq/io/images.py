# SPDX-License-Identifier: Apache-2.0
"""Decoding of camera images and image files to uint8 (H, W, 3) BGR, C-contiguous.

The encodings and their names are those of ``sensor_msgs/image_encodings.hpp``. What cannot be decoded
faithfully (truncated data, an impossible size, an encoding whose meaning as a colour is not defined) raises
:class:`sticker_uq.scene.InvalidInput`, which names the value and what was expected.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.files import files_in
from sticker_uq.io.reading import MIB, read_bytes
from sticker_uq.io.stored_pictures import (
    GIF_STARTS,
    JPEG_START,
    PNG_START,
    STORED,
    TIFF_STARTS,
    check_size,
    check_stored,
    decode,
    open_picture,
)
from sticker_uq.scene import InvalidInput

Transport = Literal["raw", "compressed"]

Picture = NDArray[np.uint8]
#: Anything that offers the buffer protocol: bytes, array.array, NumPy arrays.
Buffer = Any

MOST_PICTURE = 256 * MIB
"""Bytes of an image file."""
_GENERIC = re.compile(r"(8|16|32|64)[USF]C\d*")
"""Encodings without a meaning as colours, for instance 16UC1 of a depth camera."""
_EXCHANGED = "compressed rgb"
"""In the format of a compressed image: a sender that hands RGB to OpenCV, which takes it for BGR."""
_STARTS = (JPEG_START, PNG_START, *TIFF_STARTS, *GIF_STARTS)
PICTURE_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".bmp", ".webp", ".jpe", ".jfif", ".tif", ".tiff", ".gif"
)  # fmt: skip
"""Of picture files that can be read, in lower case; their content decides what they are."""
_BRANDS = {
    "HEIC": {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"},
    "AVIF": {b"avif", b"avis"},
}
"""Brands in the header of ISO base media files that are pictures."""
_FOREIGN_SUFFIXES = {
    **dict.fromkeys((".heic", ".heif", ".hif"), "HEIC"),
    ".avif": "AVIF",
    ".jxl": "JPEG XL",
    **dict.fromkeys((".jp2", ".j2k", ".jpf", ".jpx"), "JPEG 2000"),
    **dict.fromkeys((".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf", ".raw"), "raw camera"),
    **dict.fromkeys((".ppm", ".pgm", ".pbm", ".pnm"), "Netpbm"),
    **dict.fromkeys((".psd", ".svg", ".tga", ".exr", ".hdr", ".ico", ".jxr"), "picture"),
}
"""Of pictures that are not read here, and what to call them."""


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
    """Bytes per pixel; InvalidInput for an unknown encoding and for inconsistent numbers (``step`` and ``size``: bytes)."""
    layout = _ENCODINGS.get(encoding)
    if layout is None:
        raise InvalidInput(
            f"image encoding {encoding!r}: expected one of {', '.join(ENCODINGS)}; set the pixel format of the camera's driver"
        )
    check_size(width, height)
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

    ``step`` is the length of a row in bytes, padding included. 16 bits are scaled to 8 by 255 / 65535. bgr8 without padding is
    not copied: the result then shares ``data``'s memory. Raises :class:`InvalidInput`.
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


def decode_message(message: Any) -> Picture:
    """The picture in a ``sensor_msgs/Image``, live or recorded, as :func:`decode_image` returns it; raises the same."""
    big = bool(message.is_bigendian)
    return decode_image(message.encoding, message.width, message.height, message.step, big, message.data)


def decode_compressed(data: Buffer, sent_as: str = "") -> Picture:
    """The image in a JPEG or PNG file, uint8 (H, W, 3) BGR, rotated according to its EXIF orientation.

    ``sent_as``: the ``format`` of a ``sensor_msgs/CompressedImage``, read as compressed_image_transport writes it: the mosaic of
    a Bayer camera becomes colours, 16 bits are scaled as in :func:`decode_image`, red and blue are where the sender had them.
    Raises :class:`InvalidInput` for other formats, for encodings that are no colours (depth), and for truncated files, which
    OpenCV would fill with grey.
    """
    flat = np.frombuffer(data, np.uint8)
    if _GENERIC.match(encoding := _encoding_of(sent_as)):
        raise InvalidInput(
            f"compressed image of encoding {encoding!r}: expected one of {', '.join(ENCODINGS)}; name the topic of colours"
        )
    if flat.size == 0:
        raise InvalidInput("compressed image is empty, expected a JPEG or PNG file")
    blob = flat.tobytes()
    if encoding not in _ENCODINGS or not sent_as.partition(";")[1]:
        return decode(blob)
    return _as_sent(blob, encoding, sent_as.partition(";")[2])


def colour_remark(data: Buffer, sent_as: str) -> str:
    """What to say about the colours of a ``sensor_msgs/CompressedImage`` with this ``format``; "" for nothing.

    That they are lost where the format names colours and the picture is grey, and how red and blue are read where
    compressed_image_transport and viewers of files differ.
    """
    encoding, _, target = sent_as.partition(";")
    mosaic = encoding.startswith("bayer_") and "mono8" not in target
    if not target or mosaic or encoding.startswith("mono") or _GENERIC.match(encoding):
        return ""
    try:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_ANYCOLOR)
    except cv2.error:
        return ""
    if picture is None:
        return ""
    if picture.ndim == 2:
        return (
            f"compressed images are grey, although their format {sent_as!r} says {encoding}: the driver's compressed topic has "
            "lost the colours; use the raw topic, or another pixel format of the driver"
        )
    if not encoding.startswith(("bgr", "rgb")) or "compressed bgr" in target or "mono" in target:
        return ""
    other = "if they are wrong, its sender should write 'jpeg' or 'png'"
    if _EXCHANGED in target:
        return f"format {sent_as!r}: red and blue exchanged, as compressed_image_transport does; {other}"
    return (
        f"format {sent_as!r}: red and blue as in the file; compressed_image_transport, which does not write this format, would "
        f"exchange them; {other}"
    )


def _encoding_of(sent_as: str) -> str:
    """The encoding in the ``format`` of a compressed image, "" where only the codec is named ("jpeg")."""
    encoding, separator, _ = sent_as.partition(";")
    return encoding.strip() if separator else ""


def _as_sent(blob: bytes, encoding: str, target: str) -> Picture:
    """The picture in a file that was an image of ``encoding`` when it was sent, compressed as ``target`` says."""
    picture = decode(blob, cv2.IMREAD_ANYCOLOR | cv2.IMREAD_ANYDEPTH)
    if picture.ndim == 3:
        turned = encoding.startswith(("bgr", "rgb")) and _EXCHANGED in target
        return np.ascontiguousarray(_to_8_bit(picture)[..., :: -1 if turned else 1], np.uint8)
    grey = "mono8" if "mono8" in target or not encoding.startswith("bayer_") else encoding
    try:
        return np.ascontiguousarray(_ENCODINGS[grey].to_bgr(picture), np.uint8)
    except cv2.error as error:
        raise InvalidInput(
            f"a compressed image of {picture.shape[1]} x {picture.shape[0]} is no {encoding}: {error.err}"
        ) from None


def decode_picture(data: Buffer) -> Picture:
    """The image in a JPEG, PNG, BMP, WebP, TIFF or GIF file, of several the first, as :func:`decode_compressed` returns it.

    Raises the same. A HEIC or AVIF picture is refused with the way to convert it.
    """
    blob = np.frombuffer(data, np.uint8).tobytes()
    if blob[4:8] == b"ftyp":
        kind = next((kind for kind, brands in _BRANDS.items() if blob[8:12] in brands), "")
        raise InvalidInput(_foreign(kind) if kind else "is a film, expected a picture")
    name = next((kind for kind, starts in STORED.items() if blob.startswith(starts)), "")
    if not name or (name == "WEBP" and blob[8:12] != b"WEBP"):
        return decode_compressed(blob)
    check_stored(blob, name)
    return np.ascontiguousarray(open_picture(blob, name), np.uint8)


def picture_files(folder: Path, below: bool = False) -> list[Path]:
    """The pictures in ``folder``, or ``below`` it, by name: every file that looks like one, without hidden files.

    Also those of a kind that no decoder here reads: :func:`read_image_file` says of them what to do. InvalidInput for more than
    :data:`~sticker_uq.io.files.MOST_FILES` files.
    """
    return [path for path in files_in(folder, below) if looks_like_picture(path)]


def looks_like_picture(path: Path) -> bool:
    """Whether ``path`` is a picture by its suffix in any case, or by its first bytes where the suffix says nothing else."""
    suffix = path.suffix.lower()
    if suffix in PICTURE_SUFFIXES or suffix in _FOREIGN_SUFFIXES:
        return True
    if suffix and not suffix[1:].isdecimal():
        return False
    try:
        with path.open("rb") if path.is_file() else BytesIO() as stream:
            start = stream.read(12)
    except OSError:
        return False
    foreign = start[4:8] == b"ftyp" and any(start[8:12] in brands for brands in _BRANDS.values())
    return foreign or start.startswith(_STARTS)


def read_image_file(path: str | os.PathLike[str], name: str = "") -> Picture:
    """The image in a picture file, uint8 (H, W, 3) BGR, see :func:`decode_picture`.

    Raises :class:`InvalidInput`, which calls the file ``name`` (default: its path), when it is no regular file, has more than
    :data:`MOST_PICTURE` bytes or cannot be decoded.
    """
    name = name or os.fspath(path)
    data = read_bytes(path, MOST_PICTURE, name)
    try:
        kind = _FOREIGN_SUFFIXES.get(Path(path).suffix.lower())
        if kind and not data.startswith(_STARTS) and data[4:8] != b"ftyp":
            raise InvalidInput(_foreign(kind))
        return decode_picture(data)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None


def encode_jpeg(image: Picture, quality: int = 90) -> bytes:
    _, buffer = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return bytes(buffer)


def _foreign(kind: str) -> str:
    tool = {
        "HEIC": "`heif-convert FILE FILE.jpg` (Debian: libheif-examples)",
        "AVIF": "`avifdec FILE FILE.png` (Debian: libavif-bin)",
    }
    way = tool.get(kind, "an image editor such as ImageMagick (`convert FILE FILE.png`)")
    return f"is a {kind} file, which is not read: convert it, for example with {way}"

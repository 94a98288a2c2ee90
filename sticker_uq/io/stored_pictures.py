# SPDX-License-Identifier: Apache-2.0
"""Decoding of picture files that reports damage: what a decoder fills with grey, or only warns of, is InvalidInput here.

JPEG has no checksum. libjpeg warns where data are missing or left over; OpenCV and Pillow keep that to themselves, simplejpeg
raises it. Its pixels are those of OpenCV: both have libjpeg-turbo. PNG has a checksum of every chunk, which OpenCV checks.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from sticker_uq.scene import InvalidInput

MAX_PIXELS = 2**28
MOST_SCANS = 64
"""Scans of a JPEG file, each of which takes as long as a whole picture. Progressive files have about ten."""
JPEG_START = b"\xff\xd8\xff"
PNG_START = b"\x89PNG\r\n\x1a\n"
TIFF_STARTS = (b"II*\0", b"MM\0*")
GIF_STARTS = (b"GIF87a", b"GIF89a")
STORED = {"BMP": (b"BM",), "WEBP": (b"RIFF",), "TIFF": TIFF_STARTS, "GIF": GIF_STARTS}
"""Kinds of stored pictures that no camera sends, by Pillow's name."""
_LOST = bytes(64)
"""A run of zeros that no encoder writes: a block that a disk, a memory or a network lost."""
_STANDARD = bytes.fromhex("0002010303020403050504040000017d01020300041105122131410613516107")
"""Begins the Huffman table of nearly every encoder that does not optimise (ITU-T T.81, table K.5)."""
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)  # by 90 or 270 degrees


def check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise InvalidInput(f"image size {width} x {height}: expected at least one pixel")
    if width * height > MAX_PIXELS:
        raise InvalidInput(f"image size {width} x {height}: expected at most {MAX_PIXELS} pixels")


def decode(blob: bytes, flag: int = cv2.IMREAD_COLOR) -> NDArray[Any]:
    """The picture in a JPEG or PNG file as ``cv2.imdecode(blob, flag)`` gives it; InvalidInput for any other, and for damage."""
    if blob.startswith(JPEG_START):
        return _jpeg(blob, flag)
    if not blob.startswith(PNG_START):
        raise InvalidInput(f"compressed image starts with {blob[:8]!r}: expected a JPEG or PNG file")
    size, complete = _inspect_png(blob)
    _check(blob, "PNG", size, complete)
    return open_picture(blob, "PNG", flag)


def open_picture(blob: bytes, name: str, flag: int = cv2.IMREAD_COLOR) -> NDArray[Any]:
    """The picture in ``blob``, a file of the kind ``name``, as OpenCV decodes it."""
    try:
        picture = cv2.imdecode(np.frombuffer(blob, np.uint8), flag)
    except cv2.error:
        picture = None
    if picture is None:
        unknown = name in ("TIFF", "GIF")
        known = f", or of a kind that OpenCV {cv2.__version__} does not read" if unknown else ""
        raise InvalidInput(f"compressed image of {len(blob)} bytes is a corrupt {name} file{known}")
    return picture


def check_stored(blob: bytes, name: str) -> None:
    """InvalidInput for a picture that no camera sends (``name``: key of STORED) that is too large, cut off or damaged.

    What its format lets be seen: Deflate has a checksum, LZW and GIF a grammar, BMP and plain TIFF nothing but their length.
    """
    if name == "WEBP" and len(blob) < 8 + int.from_bytes(blob[4:8], "little"):
        raise InvalidInput(f"picture is truncated: {len(blob)} bytes of a WebP file without its end")
    try:
        with _header(blob, (name,)) as picture:
            check_size(*picture.size)
            if name == "TIFF":
                _check_deflated(blob, picture)
            # the code of a flat place is zeros too, at most 1 byte of 10,000 pixels
            zeros = _LOST + bytes(picture.width * picture.height // 8192)
            if name == "WEBP" and any(
                kind.startswith(b"VP8") and zeros in data for kind, data in _riff(blob)
            ):
                raise InvalidInput(f"picture lacks data: {len(zeros)} bytes in a row are zero in a WebP file")
            picture.load()
    except InvalidInput:
        raise
    except Exception as error:  # noqa: BLE001 - Pillow raises anything for a broken file
        raise InvalidInput(f"a {name} file of {len(blob)} bytes cannot be read: {error}") from None


def orientation_of(blob: bytes) -> tuple[int, tuple[int, int]]:
    """EXIF orientation 1 to 8 of a picture file, and width and height in px as stored; InvalidInput for a broken header."""
    try:
        with _header(blob) as picture:
            value, size = picture.getexif().get(_ORIENTATION, 1), picture.size
            if picture.format == "TIFF" and value in _TURNED:  # Pillow has turned it
                size = size[::-1]
    except Exception as error:  # noqa: BLE001 - Pillow raises anything for hostile metadata
        raise InvalidInput(f"the header of the picture cannot be read ({type(error).__name__})") from None
    return (value if isinstance(value, int) and 1 <= value <= 8 else 1), size


def _header(blob: bytes, kinds: tuple[str, ...] | None = None) -> Any:
    from PIL import Image  # what runs beside the arm reads no such files

    Image.MAX_IMAGE_PIXELS = None  # MAX_PIXELS is the limit, whichever library reads
    return Image.open(BytesIO(blob), formats=kinds)


def _check(blob: bytes, name: str, size: tuple[int, int], complete: bool) -> None:
    if not complete:
        raise InvalidInput(
            f"compressed image is truncated: {len(blob)} bytes of a {name} file without its end"
        )
    check_size(*size)


def _jpeg(blob: bytes, flag: int) -> NDArray[Any]:
    head = _inspect_jpeg(blob)
    _check(blob, "JPEG", head.size, head.end >= 0)
    if missing := head.describe_missing():
        raise InvalidInput(f"compressed image lacks data: a JPEG file without {missing}")
    optimised = b"\xff\xc4" in blob[: head.start] and _STANDARD not in blob[: head.start]
    if (
        not optimised and blob.find(_LOST, head.start, head.end) >= 0
    ):  # else they may be the code of a flat place
        raise InvalidInput(
            f"compressed image lacks data: {len(_LOST)} bytes in a row are zero in a JPEG file"
        )
    grey = len(head.refined) == 1 and flag != cv2.IMREAD_COLOR
    turned = b"Exif\0\0" in blob[: head.start]  # maybe; simplejpeg does not turn pictures
    try:
        picture = simplejpeg.decode_jpeg(blob, "GRAY" if grey or turned else "BGR")
    except ValueError as error:
        raise InvalidInput(f"compressed image of {len(blob)} bytes is a damaged JPEG file: {error}") from None
    return open_picture(blob, "JPEG", flag) if turned else picture[..., 0] if grey else picture


def _inspect_png(blob: bytes) -> tuple[tuple[int, int], bool]:
    """Width and height, and whether the file has its end chunk (ISO/IEC 15948, clauses 5.3 and 11.2), whatever follows it."""
    if len(blob) < 24:
        return (0, 0), False
    width, height = struct.unpack(">II", blob[16:24])
    at = len(PNG_START)
    while at + 12 <= len(blob):
        if blob[at + 4 : at + 8] == b"IEND":
            return (width, height), True
        at += 12 + int.from_bytes(blob[at : at + 4])
    return (width, height), False


@dataclass
class _JpegHead:
    """What the markers of a JPEG file say (ITU-T T.81, annex B); ``start``, ``end``: where its first scan begins and the last
    ends, -1 without an end; ``refined``: the bits that each coefficient of a component still lacks, None before its first scan.
    """

    size: tuple[int, int] = (0, 0)
    progressive: bool = False
    start: int = 0
    end: int = -1
    refined: dict[int, list[int | None]] = field(default_factory=dict)

    def frame(self, marker: int, data: bytes) -> None:
        height, width, components = struct.unpack_from(">HHB", data, 1)
        self.size, self.progressive = (width, height), marker in (0xC2, 0xC6, 0xCA, 0xCE)
        self.refined = {number: [None] * 64 for number in data[6 : 6 + 3 * components : 3]}

    def scan(self, data: bytes) -> None:
        components = data[0] if data else 0
        first, last, bits = data[1 + 2 * components :][:3].ljust(3, b"\0")
        places = slice(first, last + 1) if self.progressive else slice(64)
        for number in data[1 : 1 + 2 * components : 2]:
            if number in self.refined:
                lacking = self.refined[number]
                lacking[places] = [bits & 15 if self.progressive else 0] * len(lacking[places])

    def describe_missing(self) -> str:
        """The scans that an encoder writes and that are not there, in words; "" for none: decoders show what they have."""
        lacking = sum(any(lacking) or None in lacking for lacking in self.refined.values())
        return f"all scans of {lacking} of its {len(self.refined)} components" if lacking else ""


def _inspect_jpeg(blob: bytes) -> _JpegHead:
    """Segments are walked one by one up to the first scan, because an embedded thumbnail has markers of its own."""
    head, at = _JpegHead(), 2
    while at + 4 <= len(blob) and blob[at] == 0xFF:
        marker, length = blob[at + 1], int.from_bytes(blob[at + 2 : at + 4])
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        # start of frame, all kinds; 0xC4, 0xC8 and 0xCC are tables and reserved
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and at + 10 <= len(blob):
            head.frame(marker, blob[at + 4 : at + 2 + length].ljust(6, b"\0"))
        if marker == 0xDA:  # entropy-coded data never contains FF D9 or FF DA
            head.start = at
            head.end = blob.find(b"\xff\xd9", at + 2 + length)
            break
        at += 2 + length
    scans = blob.count(b"\xff\xda", head.start) if head.start else 0
    if scans > MOST_SCANS:
        raise InvalidInput(f"JPEG file with {scans} scans: expected at most {MOST_SCANS}")
    at = head.start
    while head.end >= 0 and 0 <= at < head.end:
        head.scan(blob[at + 4 : at + 2 + int.from_bytes(blob[at + 2 : at + 4])])
        at = blob.find(b"\xff\xda", at + 2)
    return head


def _riff(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name and content of the chunks of a WebP file."""
    at = 12
    while at + 8 <= len(blob):
        length = int.from_bytes(blob[at + 4 : at + 8], "little")
        yield blob[at : at + 4], blob[at + 8 : at + 8 + length]
        at += 8 + length + length % 2


def _check_deflated(blob: bytes, picture: Any) -> None:
    """InvalidInput where a deflated part of a TIFF picture does not match its checksum, which libtiff does not read."""
    tags = picture.tag_v2
    if tags.get(259) not in (8, 32946):
        return
    offsets, counts = (tags.get(strips, tags.get(tiles, ())) for strips, tiles in ((273, 324), (279, 325)))
    most = 64 * picture.width * picture.height + (1 << 20)
    for at, length in zip(offsets, counts, strict=True):
        part, data = zlib.decompressobj(), blob[at : at + length]
        while not part.eof and (out := part.decompress(data, 1 << 20)):
            data, most = part.unconsumed_tail, most - len(out)
            if most < 0:
                raise InvalidInput("a TIFF file that unpacks to more than its pixels")
        if not part.eof:
            raise InvalidInput("a TIFF file whose deflated data end too early")

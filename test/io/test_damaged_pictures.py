# SPDX-License-Identifier: Apache-2.0
"""Damage with an intact end: a decoder reports it, or every pixel is right; where a format cannot tell, the test says so."""

import io
from functools import cache
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from sticker_uq.io.images import decode_compressed, decode_picture, encode_jpeg
from sticker_uq.io.sources import open_source
from sticker_uq.io.stored_pictures import orientation_of
from sticker_uq.scene import InvalidInput
from test.helpers.laptops import laptop

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpeg": ("JPEG", {"quality": 90}),
    "jpeg optimised": ("JPEG", {"quality": 90, "optimize": True}),
    "jpeg with restarts": ("JPEG", {"restart_marker_rows": 1}),
    "jpeg progressive": ("JPEG", {"progressive": True}),
    "png": ("PNG", {}),
    "tiff deflated": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    "tiff lzw": ("TIFF", {"compression": "tiff_lzw"}),
    "tiff": ("TIFF", {}),
    "webp": ("WEBP", {}),
    "webp lossless": ("WEBP", {"lossless": True}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
}
CHECKED = ("png", "tiff deflated")
"""Kinds with a checksum of every pixel."""
SEEN_ZEROS = ("jpeg", "jpeg with restarts", "webp", "webp lossless")
"""Kinds in which no encoder writes so many zeros."""
BLOCK = 512
"""Bytes that a USB packet or a sector of a disk holds."""


@cache
def scene() -> NDArray[np.uint8]:
    return laptop(size=(320, 240))


@cache
def encoded(kind: str) -> tuple[bytes, int]:
    """A picture file, and where its pixels begin."""
    name, options = KINDS[kind]
    stream = io.BytesIO()
    Image.fromarray(scene()[..., ::-1]).save(stream, name, **options)
    blob = stream.getvalue()
    return blob, blob.find(b"\xff\xda") + 14 if name == "JPEG" else 8 if name == "PNG" else 400


@cache
def whole(kind: str) -> NDArray[np.uint8]:
    return decode_picture(encoded(kind)[0])


def reported(kind: str, damaged: bytes) -> bool:
    """Whether the decoder reports it; every pixel is right otherwise."""
    try:
        picture = decode_picture(damaged)
    except InvalidInput:
        return True
    return np.array_equal(picture, whole(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_pixels_are_those_of_opencv(kind):
    blob = np.frombuffer(encoded(kind)[0], np.uint8)
    np.testing.assert_array_equal(whole(kind), cv2.imdecode(blob, cv2.IMREAD_COLOR))


@pytest.mark.parametrize("sampling", ["411", "420", "422", "440", "444"])
@pytest.mark.parametrize("size", [(1, 1), (13, 17), (99, 100)])
@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("colours", [cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE])
def test_pixels_of_every_kind_of_jpeg_are_those_of_opencv(sampling, size, progressive, colours):
    noise = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    noise = noise if colours == cv2.IMREAD_COLOR else noise[..., 0]
    factor = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{sampling}")
    options = [
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
        factor,
        cv2.IMWRITE_JPEG_PROGRESSIVE,
        progressive,
        cv2.IMWRITE_JPEG_RST_INTERVAL,
        2,
    ]
    blob = cv2.imencode(".jpg", noise, options)[1]
    for sent_as in ("jpeg", "bgr8; jpeg compressed bgr8"):
        np.testing.assert_array_equal(decode_compressed(blob, sent_as), cv2.imdecode(blob, cv2.IMREAD_COLOR))


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), at=st.floats(0, 1))
def test_a_cut_is_reported_wherever_it_is(kind, at):
    blob, _ = encoded(kind)
    assert reported(kind, blob[: int(at * (len(blob) - 1))])


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), at=st.floats(0, 1), length=st.integers(BLOCK, 3 * BLOCK))
def test_a_hole_of_a_block_is_reported_wherever_it_is(kind, at, length):
    blob, first = encoded(kind)
    start = first + int(at * (len(blob) - 2 - length - first))
    assert reported(kind, blob[:start] + blob[start + length :])


@settings(max_examples=120, derandomize=True, database=None, deadline=None)
@given(
    kind=st.sampled_from((*CHECKED, *SEEN_ZEROS)), at=st.floats(0, 1), length=st.integers(BLOCK, 3 * BLOCK)
)
def test_a_block_of_zeros_is_reported_where_none_is_written(kind, at, length):
    blob, first = encoded(kind)
    start = first + int(at * (len(blob) - 2 - length - first))
    assert reported(kind, blob[:start] + bytes(length) + blob[start + length :])


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), at=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_reported_where_there_is_a_checksum_and_else_a_picture_or_a_refusal(kind, at, bit):
    """JPEG, WebP, GIF, BMP and other TIFF files have none: a flipped bit of their data is another picture, to everybody."""
    blob, first = encoded(kind)
    damaged = bytearray(blob)
    damaged[first + int(at * (len(blob) - 1 - first))] ^= 1 << bit
    good = reported(kind, bytes(damaged))
    assert good or kind not in CHECKED


@pytest.mark.parametrize("scans", [1, 3, 5, 9])
def test_a_progressive_jpeg_without_its_last_scans_is_reported(scans):
    blob, _ = encoded("jpeg progressive")
    at = 0
    for _ in range(scans + 1):
        at = blob.find(b"\xff\xda", at + 2)
    last = max(blob.rfind(b"\xff\xc4", 0, at), blob.rfind(b"\xff\xda", 0, at))
    assert last > 0
    # up to the tables of the scan after it
    end = (
        blob.rfind(b"\xff\xc4", 0, at)
        if blob.rfind(b"\xff\xc4", 0, at) > blob.rfind(b"\xff\xda", 0, at)
        else at
    )
    with pytest.raises(InvalidInput, match=r"without all scans of \d of its 3 components"):
        decode_picture(blob[:end] + b"\xff\xd9")
    assert decode_picture(blob).shape == (240, 320, 3)


def test_a_picture_of_one_colour_has_long_zeros_and_is_whole():
    flat = Image.new("RGB", (2000, 1500), (0, 0, 0))
    for name, options in KINDS.values():
        stream = io.BytesIO()
        flat.save(stream, name, **options)
        assert decode_picture(stream.getvalue()).shape == (1500, 2000, 3)


def test_half_a_jpeg_with_its_end_marker_fails_in_a_folder_and_the_others_do_not(tmp_path):
    blob, first = encoded("jpeg")
    half = first + (len(blob) - first) // 2
    (tmp_path / "a_whole.jpg").write_bytes(blob)
    (tmp_path / "b_half.jpg").write_bytes(blob[:half] + b"\xff\xd9")
    (tmp_path / "c_hole.jpg").write_bytes(blob[: half - 3000] + blob[half:])
    whole, *others = open_source(tmp_path)
    assert whole.error == ""
    for image in others:
        assert image.image is None
        assert "premature end of data segment" in image.error


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_a_turned_picture_is_upright_and_its_header_says_the_size_as_stored(kind, orientation):
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(scene()[..., ::-1]).save(stream, kind, exif=exif)
    assert orientation_of(stream.getvalue()) == (orientation, (320, 240))
    assert decode_picture(stream.getvalue()).shape == ((320, 240, 3) if orientation > 4 else (240, 320, 3))


def test_one_limit_and_no_word_of_a_library_for_large_pictures(recwarn):
    for kind, side in (
        ("PNG", 13400),
        ("BMP", 13400),
        ("TIFF", 9500),
    ):  # more than 178 and 89 megapixels: Pillow's limits
        stream = io.BytesIO()
        Image.new("1", (side, side)).save(stream, kind)
        assert orientation_of(stream.getvalue()) == (1, (side, side))
    assert decode_picture(stream.getvalue()).shape == (side, side, 3)
    assert not recwarn.list


def test_an_exif_jpeg_is_checked_too():
    stream = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene()).save(stream, "JPEG", exif=exif)
    blob = stream.getvalue()
    with pytest.raises(InvalidInput, match="damaged JPEG file"):
        decode_picture(blob[: len(blob) // 2] + b"\xff\xd9")


def test_what_encode_jpeg_writes_is_whole_to_the_bit():
    blob = encode_jpeg(scene())
    np.testing.assert_array_equal(
        decode_compressed(blob), cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR)
    )

# SPDX-License-Identifier: Apache-2.0
"""Decoding of raw and compressed images: every encoding, padding, endianness, and everything that must be refused."""

import struct
from array import array
from typing import Any

import cv2
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image

from sticker_uq.io.images import (
    ENCODINGS,
    colour_remark,
    decode_compressed,
    decode_image,
    encode_jpeg,
    picture_files,
    read_image_file,
)
from sticker_uq.io.stored_pictures import MAX_PIXELS
from sticker_uq.scene import InvalidInput

COLOUR = np.array([40, 120, 220], np.uint8)  # blue, green, red


def picture(height: int = 6, width: int = 8) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def padded(rows: NDArray[np.uint8], padding: int) -> tuple[int, bytes]:
    """Step and data of `rows` (H, bytes) with garbage behind every row."""
    garbage = np.full((len(rows), padding), 0xAB, np.uint8)
    whole = np.concatenate([rows.reshape(len(rows), -1), garbage], axis=1)
    return whole.shape[1], whole.tobytes()


@pytest.mark.parametrize(
    ("encoding", "order"),
    [("bgr", [0, 1, 2]), ("rgb", [2, 1, 0]), ("bgra", [0, 1, 2, 0]), ("rgba", [2, 1, 0, 0]), ("mono", [0])],
)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.parametrize("big", [False, True])
def test_colours_and_greys_are_scaled_to_8_bits(encoding, order, bits, padding, big):
    deep = np.random.default_rng(1).integers(0, 2**bits, (6, 8, 3))
    deep[0, :3, 0] = [0, 2**bits - 1, 257 % 2**bits]
    stored = np.ascontiguousarray(deep[:, :, order].astype(f"{'>' if big else '<'}u{bits // 8}"))
    step, data = padded(stored.view(np.uint8).reshape(6, -1), padding)
    decoded = decode_image(f"{encoding}{bits}", 8, 6, step, big, data)
    expected = np.rint(deep * (255 / (2**bits - 1))).astype(np.uint8)
    np.testing.assert_array_equal(decoded, expected[:, :, [0, 0, 0]] if encoding == "mono" else expected)
    assert decoded.flags.c_contiguous
    assert decoded.dtype == np.uint8


def mosaic_of(colour: NDArray[Any], pattern: str, size: tuple[int, int] = (8, 10)) -> NDArray[Any]:
    """The mosaic that a Bayer camera with ``pattern`` sees of one ``colour`` (blue, green, red)."""
    seen = np.empty(size, colour.dtype)
    for place, letter in enumerate(pattern):
        seen[place // 2 :: 2, place % 2 :: 2] = colour["bgr".index(letter)]
    return seen


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize(("bits", "big"), [(8, False), (16, False), (16, True)])
@pytest.mark.parametrize("padding", [0, 2])
def test_mosaics_become_colours(pattern, bits, big, padding):
    seen = mosaic_of(COLOUR.astype(int) * (257 if bits == 16 else 1), pattern)
    stored = seen.astype(f"{'>' if big else '<'}u{bits // 8}")
    step, data = padded(stored.view(np.uint8), padding)
    assert np.all(decode_image(f"bayer_{pattern}{bits}", 10, 8, step, big, data) == COLOUR)


def png(pixels: NDArray[Any]) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


@pytest.mark.parametrize("pattern", ["rggb", "bggr", "gbrg", "grbg"])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_compressed_mosaic_becomes_the_colours_of_its_raw_topic(pattern, bits):
    seen = np.random.default_rng(2).integers(0, 2**bits, (8, 10), np.uint16 if bits == 16 else np.uint8)
    encoding = f"bayer_{pattern}{bits}"
    raw = decode_image(encoding, 10, 8, 10 * bits // 8, False, seen.tobytes())
    np.testing.assert_array_equal(decode_compressed(png(seen), f"{encoding}; png compressed "), raw)
    assert colour_remark(png(seen), f"{encoding}; png compressed ") == ""
    flat = png(mosaic_of(COLOUR, pattern))
    assert np.all(decode_compressed(flat, f"bayer_{pattern}8; png compressed ") == COLOUR)


@pytest.mark.parametrize(
    "encoding", ["16UC1", "32FC1", "8UC1", "8UC3", "16SC1", "64FC3", "16UC1; compressedDepth png"]
)
def test_compressed_depth_is_refused_as_its_raw_topic_is(encoding):
    sent_as = encoding if ";" in encoding else f"{encoding}; png compressed "
    with pytest.raises(InvalidInput, match=f"encoding '{encoding.split(';')[0]}': expected one of bgr8"):
        decode_compressed(png(picture()[:, :, 0].astype(np.uint16) * 20), sent_as)


@pytest.mark.parametrize(
    ("sent_as", "colours"),
    [
        ("yuv422_yuy2; jpeg compressed mono8", "yuv422_yuy2"),
        ("bgr8; jpeg compressed mono8", "bgr8"),
        ("bayer_rggb8; jpeg compressed mono8", "bayer_rggb8"),
        ("nv12; jpeg compressed mono8", "nv12"),
        ("mono8; jpeg compressed mono8", ""),
        ("jpeg", ""),
        ("", ""),
    ],
)
def test_a_grey_picture_of_a_colour_camera_is_read_as_grey_and_said(sent_as, colours):
    grey = np.full((16, 16), 100, np.uint8)
    data = cv2.imencode(".jpg", grey)[1].tobytes()
    assert np.all(decode_compressed(data, sent_as) == 100)
    said = colour_remark(data, sent_as)
    assert (
        (f"says {colours}: the driver's compressed topic has lost the colours" in said)
        if colours
        else not said
    )
    assert colour_remark(cv2.imencode(".jpg", np.dstack([grey, grey, grey]))[1].tobytes(), sent_as) == ""


@pytest.mark.parametrize(
    ("sent_as", "turned"),
    [
        ("bgr8; png compressed bgr8", False), ("rgb8; jpeg compressed bgr8", False), ("rgba16; png compressed bgr16", False),
        ("rgb8; png compressed rgb8", True), ("bgr8; png compressed rgb8", True), ("yuv422; png compressed ", False),
        ("rgb8; png compressed ", False), ("bgr8; png compressed ", False), ("rgb8; jpeg", False),
        ("mono8; png compressed mono8", False), ("png", False), ("rgb8", False),
    ],
)  # fmt: skip
def test_red_and_blue_are_exchanged_only_for_a_sender_of_rgb_and_what_is_ambiguous_is_said(sent_as, turned):
    image = picture()
    said = colour_remark(png(image), sent_as)
    plain = (
        "bgr8; png compressed bgr8",
        "rgb8; jpeg compressed bgr8",
        "rgba16; png compressed bgr16",
        "png",
        "rgb8",
    )
    if turned:
        assert said.startswith(
            f"format {sent_as!r}: red and blue exchanged, as compressed_image_transport does"
        )
    elif sent_as.startswith(("rgb", "bgr")) and sent_as not in plain:
        assert said.startswith(f"format {sent_as!r}: red and blue as in the file")
    else:
        assert "red and blue" not in said
    np.testing.assert_array_equal(
        decode_compressed(png(image), sent_as), image[..., ::-1] if turned else image
    )


@pytest.mark.parametrize("sent_as", ["mono16; png compressed ", "bgr16; png compressed bgr16"])
def test_compressed_16_bits_are_scaled_as_raw_ones(sent_as):
    deep = np.random.default_rng(3).integers(0, 65536, (6, 8, 3), np.uint16)
    stored = deep[:, :, 0] if sent_as.startswith("mono") else deep
    expected = np.rint(stored * (255 / 65535)).astype(np.uint8)
    decoded = decode_compressed(png(stored), sent_as)
    np.testing.assert_array_equal(decoded if stored.ndim == 3 else decoded[:, :, 0], expected)


@pytest.mark.parametrize(
    ("encoding", "order"), [("yuv422", "uyvy"), ("uyvy", "uyvy"), ("yuv422_yuy2", "yuyv"), ("yuyv", "yuyv")]
)
@pytest.mark.parametrize("padding", [0, 4])
def test_yuv_of_one_colour(encoding, order, padding):
    # BT.601, limited range (ITU-R BT.601-7, section 2.5)
    blue, green, red = COLOUR / 255.0
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    values = {
        "y": 16 + 219 * luma,
        "u": 128 + 224 * (blue - luma) / 1.772,
        "v": 128 + 224 * (red - luma) / 1.402,
    }
    pair = np.rint([values[c] for c in order]).astype(np.uint8)
    step, data = padded(np.tile(pair, (6, 4)), padding)
    decoded = decode_image(encoding, 8, 6, step, False, data)
    assert np.abs(decoded.astype(int) - COLOUR).max() <= 3


@given(
    image=hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))),
    padding=st.integers(0, 7),
)
def test_any_size_and_padding(image, padding):
    height, width, _ = image.shape
    step, data = padded(image[:, :, ::-1], padding)
    np.testing.assert_array_equal(decode_image("rgb8", width, height, step, False, data), image)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"encoding": "8UC3"}, "image encoding '8UC3': expected one of bgr8, rgb8"),
        ({"encoding": "16UC1"}, "image encoding '16UC1'"),
        ({"encoding": ""}, "image encoding ''"),
        ({"width": 0}, "image size 0 x 6: expected at least one pixel"),
        ({"height": 0}, "image size 8 x 0: expected at least one pixel"),
        ({"step": 23}, "image step 23: a row of 8 bgr8 pixels has at least 24 bytes"),
        ({"data": b""}, "image data is empty: 0 bytes, expected height 6 x step 24 = 144"),
        ({"data": bytes(143)}, "image data is truncated: 143 bytes"),
        ({"data": bytes(145)}, "image data is too long: 145 bytes"),
        ({"width": 2**15, "height": 2**14, "step": 3 * 2**15}, f"expected at most {MAX_PIXELS} pixels"),
        ({"encoding": "yuv422", "width": 7, "step": 14}, "image width 7: yuv422 needs a multiple of 2"),
        (
            {"encoding": "mono16", "width": 8, "step": 17, "data": bytes(102)},
            "image step 17: expected a multiple",
        ),
    ],
)
def test_what_cannot_be_an_image_is_refused_by_name(changes, complaint):
    fields = {"encoding": "bgr8", "width": 8, "height": 6, "step": 24, "is_bigendian": False, "data": bytes(144)}  # fmt: skip
    with pytest.raises(InvalidInput) as error:
        decode_image(**(fields | changes))
    assert complaint in str(error.value)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_smallest_pictures_decode_or_are_refused(encoding):
    for width, height in ((1, 1), (2, 1), (1, 2), (2, 2), (3, 3)):
        step = width * {"bgr8": 3, "rgb8": 3, "bgra8": 4, "rgba8": 4, "mono8": 1}.get(encoding, 2)
        try:
            decoded = decode_image(encoding, width, height, step, False, bytes(step * height))
        except InvalidInput:
            continue
        assert decoded.shape == (height, width, 3)


def smooth() -> NDArray[np.uint8]:
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    return np.stack(
        [np.tile(ramp, (48, 1)), np.full((48, 64), 90, np.uint8), np.tile(ramp[::-1], (48, 1))], axis=2
    )


def test_png_is_exact_and_jpeg_nearly():
    np.testing.assert_array_equal(decode_compressed(png(smooth())), smooth())
    decoded = decode_compressed(array("B", encode_jpeg(smooth(), 95)))
    assert np.abs(decoded.astype(int) - smooth()).mean() < 3


@pytest.mark.parametrize("whole", [encode_jpeg(smooth()), png(smooth())], ids=["jpeg", "png"])
def test_a_file_with_something_behind_its_end_is_complete(whole, tmp_path):
    (tmp_path / "a").write_bytes(whole + bytes(500))
    np.testing.assert_array_equal(decode_compressed(whole + bytes(500)), decode_compressed(whole))
    np.testing.assert_array_equal(read_image_file(tmp_path / "a"), decode_compressed(whole))


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_picture():
    thumbnail = encode_jpeg(smooth()[:8, :8])
    blob = encode_jpeg(smooth())
    application = b"\xff\xe1" + struct.pack(">H", 2 + len(thumbnail)) + thumbnail
    whole = blob[:2] + application + blob[2:]
    np.testing.assert_array_equal(decode_compressed(whole), decode_compressed(blob))
    with pytest.raises(InvalidInput, match="truncated"):
        decode_compressed(whole[:-30])


@pytest.mark.parametrize("whole", [encode_jpeg(smooth()), png(smooth())], ids=["jpeg", "png"])
@pytest.mark.parametrize("kept", [0.05, 0.3, 0.6, 0.98])
def test_a_cut_off_file_is_refused_wherever_it_is_cut(whole, kept):
    with pytest.raises(InvalidInput, match="truncated"):
        decode_compressed(whole[: int(len(whole) * kept)])


@pytest.mark.parametrize(
    ("blob", "complaint"),
    [
        (b"", "empty"),
        (b"BM123456789", "starts with b'BM123456': expected a JPEG or PNG file"),
        (b"\xff\xd8\xff", "truncated"),
    ],
)
def test_other_files_are_refused(blob, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        decode_compressed(blob)


def test_broken_inside_but_complete_is_refused():
    blob = bytearray(png(smooth()))
    blob[40:120] = bytes(80)
    with pytest.raises(InvalidInput, match="corrupt PNG"):
        decode_compressed(bytes(blob))


def test_a_bomb_is_refused_before_it_is_unpacked():
    blob = bytearray(png(smooth()))
    blob[16:24] = struct.pack(">II", 2**20, 2**20)
    with pytest.raises(InvalidInput, match="1048576 x 1048576: expected at most"):
        decode_compressed(bytes(blob))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.JPE", "JPEG"), ("a.jfif", "JPEG"), ("a.tif", "TIFF"), ("a.TIFF", "TIFF"), ("a.gif", "GIF"), ("a", "PNG"),
        ("a.1", "PNG"), ("a.bmp", "BMP"), ("a.webp", "WEBP"),
    ],
)  # fmt: skip
def test_a_picture_is_read_whatever_its_suffix(tmp_path, name, kind):
    path = tmp_path / name
    Image.new("RGB", (7, 5), (250, 0, 0)).save(path, format=kind)
    assert picture_files(tmp_path) == [path]
    assert read_image_file(path).shape == (5, 7, 3)
    assert read_image_file(path)[0, 0].tolist() == pytest.approx([0, 0, 250], abs=4)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 4])
    with pytest.raises(InvalidInput):
        read_image_file(path)


def test_the_first_picture_of_an_animation_counts(tmp_path):
    first, second = (Image.new("RGB", (7, 5), colour) for colour in ((255, 0, 0), (0, 255, 0)))
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    assert read_image_file(tmp_path / "a.gif")[0, 0].tolist() == [0, 0, 255]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(300), "HEIC .*heif-convert"),
        ("IMG_1.jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(300), "HEIC .*heif-convert"),
        ("a.AVIF", b"\0\0\0\x1cftypavif" + bytes(300), "AVIF .*avifdec"),
        ("a.nef", b"MM\0*" + bytes(300), "TIFF"),
        ("a.jxl", b"\xff\x0a" + bytes(300), "JPEG XL .*convert"),
        ("clip.jpg", b"\0\0\0\x18ftypisom" + bytes(300), "is a film"),
    ],
)
def test_a_picture_of_another_kind_is_listed_and_says_how_to_convert_it(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert picture_files(tmp_path) == [tmp_path / name]
    with pytest.raises(InvalidInput, match=expected):
        read_image_file(tmp_path / name)

# SPDX-License-Identifier: Apache-2.0
"""What is told about an image as it arrives, whatever the image is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.perception.image_facts import ImageInspector, measure_exposure, same_pixels
from sticker_uq.scene import Exposure, ImageCheck, InvalidInput


def picture(level: int = 100, height: int = 70, width: int = 5) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def test_a_usable_image_is_described_and_its_pixels_are_handed_on() -> None:
    pixels = picture(100)
    check, seen = ImageInspector().inspect(7, "camera", lambda: pixels)
    assert check.exposure is not None
    bright = Exposure(100.0, 0.0, 0.0, check.exposure.noise, check.exposure.sharpness)
    assert check == ImageCheck(7, "camera", "", (5, 70), bright, 1, 0)
    whole = measure_exposure(pixels)
    levels = ("mean_level", "dark_share", "saturated_share")
    assert [getattr(bright, name) for name in levels] == [getattr(whole, name) for name in levels]
    assert seen is pixels


def test_identical_images_are_counted_until_one_pixel_differs() -> None:
    inspector = ImageInspector()
    other = picture()
    other[-1, -1, 2] += 1
    counts = [
        inspector.inspect(t, "c", lambda pixels=pixels: pixels)[0].repeats
        for t, pixels in enumerate([picture(), picture(), picture(), other, picture(), picture()], start=1)
    ]
    assert counts == [1, 2, 3, 1, 1, 2]


def test_each_check_tells_the_stamp_of_the_image_before_usable_or_not() -> None:
    inspector = ImageInspector()

    def broken() -> np.ndarray:
        raise InvalidInput("image data is empty")

    checks = [
        inspector.inspect(5, "c", picture)[0],
        inspector.inspect(9, "c", broken)[0],
        inspector.inspect(3, "c", picture)[0],
    ]
    assert [check.previous_stamp_ns for check in checks] == [0, 5, 9]
    assert checks[2].repeats == 2, "an unusable image between them does not hide a frozen camera"


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (InvalidInput("image data is empty"), "image data is empty"),
        (MemoryError("too large"), "MemoryError: too large"),
    ],
)
def test_an_unusable_image_is_told_and_not_raised(error: Exception, problem: str) -> None:
    def decode() -> np.ndarray:
        raise error

    check, seen = ImageInspector().inspect(4, "camera", decode)
    assert check == ImageCheck(4, "camera", problem)
    assert seen is None


@given(rows=st.integers(1, 200), row=st.integers(0, 199), column=st.integers(0, 2), channel=st.integers(0, 2))
def test_one_other_pixel_anywhere_is_noticed(rows: int, row: int, column: int, channel: int) -> None:
    one, other = picture(9, rows, 3), picture(9, rows, 3)
    assert same_pixels(one, other)
    other[row % rows, column, channel] = 10
    assert not same_pixels(one, other)


def test_another_shape_is_another_image() -> None:
    assert not same_pixels(picture(9, 4, 6), picture(9, 6, 4))


def test_another_size_is_known_before_the_image_is_decoded() -> None:
    inspector = ImageInspector()
    assert inspector.glance(3, "c", (6000, 4000)) is None, "nothing is known of the camera yet"
    inspector.inspect(5, "c", picture)
    assert inspector.glance(7, "c", (5, 70)) is None
    assert inspector.glance(7, "c", (70, 5)) == ImageCheck(7, "c", "", (70, 5), previous_stamp_ns=5)
    assert inspector.inspect(7, "c", picture)[0].previous_stamp_ns == 5

# SPDX-License-Identifier: Apache-2.0
"""What is told of an image without a model: brightness, noise, sharpness, whether it can be used and repeats the last."""

import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.perception.image_facts import (
    DARK_LEVEL,
    SATURATED_LEVEL,
    ImageInspector,
    measure_exposure,
    same_pixels,
)
from sticker_uq.scene import Exposure, ImageCheck, InvalidInput


def grey(levels: np.ndarray) -> np.ndarray:
    return np.repeat(levels.astype(np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize(
    ("level", "dark", "saturated"),
    [
        (0, 1.0, 0.0),
        (DARK_LEVEL, 1.0, 0.0),
        (DARK_LEVEL + 1, 0.0, 0.0),
        (SATURATED_LEVEL - 1, 0.0, 0.0),
        (SATURATED_LEVEL, 0.0, 1.0),
        (255, 0.0, 1.0),
    ],
)
def test_an_even_picture_is_what_its_level_is(level, dark, saturated):
    exposure = measure_exposure(grey(np.full((7, 5), level)))
    assert (exposure.mean_level, exposure.dark_share, exposure.saturated_share) == (level, dark, saturated)
    assert exposure.sharpness == 0.0
    assert math.isnan(exposure.noise), "35 pixels are too few to tell noise"


def scenery(height: int, width: int) -> np.ndarray:
    """Soft and hard edges, as a picture without noise has them, (H, W) float."""
    y, x = np.mgrid[:height, :width]
    return 120.0 + 40.0 * np.sin(x / 40.0) + 30.0 * ((x // 60 + y // 50) % 2)


@pytest.mark.parametrize("size", [(240, 320), (1500, 2000)])
@pytest.mark.parametrize("sigma", [0.0, 2.0, 8.0, 25.0])
def test_noise_is_its_standard_deviation_whatever_the_picture_shows(sigma, size):
    noisy = scenery(*size) + np.random.default_rng(0).normal(0.0, sigma, size)
    assert measure_exposure(grey(np.clip(np.rint(noisy), 0, 255))).noise == pytest.approx(
        sigma, rel=0.1, abs=0.4
    )


def test_clipped_pixels_do_not_hide_noise():
    levels = scenery(240, 320) + np.random.default_rng(0).normal(0.0, 8.0, (240, 320))
    levels[:, :200] = 255
    assert measure_exposure(grey(np.clip(np.rint(levels), 0, 255))).noise == pytest.approx(8.0, rel=0.1)
    assert math.isnan(measure_exposure(grey(np.full((240, 320), 255))).noise)


def test_blur_lowers_the_sharpness():
    sharp = grey(scenery(240, 320))
    seen = [
        measure_exposure(cv2.GaussianBlur(sharp, (0, 0), width)).sharpness for width in (0.5, 1.0, 2.0, 4.0)
    ]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < seen[0] / 4


def test_a_large_picture_is_measured_by_a_part_of_its_pixels():
    levels = np.zeros((3000, 4000))
    levels[:, 2000:] = 255
    exposure = measure_exposure(grey(levels))
    assert exposure.dark_share == pytest.approx(0.5, abs=0.01)
    assert exposure.saturated_share == pytest.approx(0.5, abs=0.01)
    assert exposure.mean_level == pytest.approx(127.5, abs=1.5)


def picture(level: int = 100, height: int = 70, width: int = 5) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def test_a_usable_image_is_described_and_its_pixels_are_handed_on():
    pixels = picture(100)
    check, seen = ImageInspector().inspect(7, "camera", lambda: pixels)
    bright = Exposure(100.0, 0.0, 0.0, check.exposure.noise, check.exposure.sharpness)
    assert check == ImageCheck(7, "camera", "", (5, 70), bright, 1, 0)
    whole = measure_exposure(pixels)
    levels = ("mean_level", "dark_share", "saturated_share")
    assert [getattr(bright, name) for name in levels] == [getattr(whole, name) for name in levels]
    assert seen is pixels


def test_identical_images_are_counted_until_one_pixel_differs():
    inspector = ImageInspector()
    other = picture()
    other[-1, -1, 2] += 1
    counts = [
        inspector.inspect(t, "c", lambda pixels=pixels: pixels)[0].repeats
        for t, pixels in enumerate([picture(), picture(), picture(), other, picture(), picture()], start=1)
    ]
    assert counts == [1, 2, 3, 1, 1, 2]


def test_each_check_tells_the_stamp_of_the_image_before_usable_or_not():
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
def test_an_unusable_image_is_told_and_not_raised(error, problem):
    def decode() -> np.ndarray:
        raise error

    check, seen = ImageInspector().inspect(4, "camera", decode)
    assert check == ImageCheck(4, "camera", problem)
    assert seen is None


@given(rows=st.integers(1, 200), row=st.integers(0, 199), column=st.integers(0, 2), channel=st.integers(0, 2))
def test_one_other_pixel_anywhere_is_noticed(rows, row, column, channel):
    one, other = picture(9, rows, 3), picture(9, rows, 3)
    assert same_pixels(one, other)
    other[row % rows, column, channel] = 10
    assert not same_pixels(one, other)


def test_another_shape_is_another_image():
    assert not same_pixels(picture(9, 4, 6), picture(9, 6, 4))


def test_another_size_is_known_before_the_image_is_decoded():
    inspector = ImageInspector()
    assert inspector.glance(3, "c", (6000, 4000)) is None, "nothing is known of the camera yet"
    inspector.inspect(5, "c", picture)
    assert inspector.glance(7, "c", (5, 70)) is None
    assert inspector.glance(7, "c", (70, 5)) == ImageCheck(7, "c", "", (70, 5), previous_stamp_ns=5)
    assert inspector.inspect(7, "c", picture)[0].previous_stamp_ns == 5

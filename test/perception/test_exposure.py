# SPDX-License-Identifier: Apache-2.0
"""How an image was taken: brightness, noise, sharpness."""

import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.perception.image_facts import DARK_LEVEL, SATURATED_LEVEL, measure_exposure


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
def test_an_even_picture_is_what_its_level_is(level: int, dark: float, saturated: float) -> None:
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
def test_noise_is_its_standard_deviation_whatever_the_picture_shows(
    sigma: float, size: tuple[int, int]
) -> None:
    noisy = scenery(*size) + np.random.default_rng(0).normal(0.0, sigma, size)
    assert measure_exposure(grey(np.clip(np.rint(noisy), 0, 255))).noise == pytest.approx(
        sigma, rel=0.1, abs=0.4
    )


def test_clipped_pixels_do_not_hide_noise() -> None:
    levels = scenery(240, 320) + np.random.default_rng(0).normal(0.0, 8.0, (240, 320))
    levels[:, :200] = 255
    assert measure_exposure(grey(np.clip(np.rint(levels), 0, 255))).noise == pytest.approx(8.0, rel=0.1)
    assert math.isnan(measure_exposure(grey(np.full((240, 320), 255))).noise)


def test_blur_lowers_the_sharpness() -> None:
    sharp = grey(scenery(240, 320))
    seen = [
        measure_exposure(cv2.GaussianBlur(sharp, (0, 0), width)).sharpness for width in (0.5, 1.0, 2.0, 4.0)
    ]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < seen[0] / 4


@given(
    height=st.integers(1, 9), width=st.integers(1, 9), level=st.integers(0, 255), seed=st.integers(0, 2**32)
)
def test_pictures_of_any_size_can_be_measured(height: int, width: int, level: int, seed: int) -> None:
    levels = np.random.default_rng(seed).integers(0, level + 1, (height, width))
    exposure = measure_exposure(grey(levels))
    assert 0.0 <= exposure.mean_level <= 255.0
    assert math.isnan(exposure.sharpness) == (min(height, width) < 3)


@given(dark=st.integers(0, 40), bright=st.integers(0, 40))
def test_shares_count_pixels(dark: int, bright: int) -> None:
    levels = np.full(100, 100)
    levels[:dark] = 3
    levels[dark : dark + bright] = 252
    exposure = measure_exposure(grey(levels.reshape(10, 10)))
    assert (exposure.dark_share, exposure.saturated_share) == (dark / 100, bright / 100)
    assert exposure.mean_level == pytest.approx(levels.mean())


def test_a_large_picture_is_measured_by_a_part_of_its_pixels() -> None:
    levels = np.zeros((3000, 4000))
    levels[:, 2000:] = 255
    exposure = measure_exposure(grey(levels))
    assert exposure.dark_share == pytest.approx(0.5, abs=0.01)
    assert exposure.saturated_share == pytest.approx(0.5, abs=0.01)
    assert exposure.mean_level == pytest.approx(127.5, abs=1.5)

"""The brightness of an image."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.perception.exposure import DARK_LEVEL, SATURATED_LEVEL, measure_exposure
from sticker_uq.scene import Exposure


def grey(levels: np.ndarray) -> np.ndarray:
    return np.repeat(levels.astype(np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0, Exposure(0.0, 1.0, 0.0)),
        (DARK_LEVEL, Exposure(16.0, 1.0, 0.0)),
        (DARK_LEVEL + 1, Exposure(17.0, 0.0, 0.0)),
        (SATURATED_LEVEL - 1, Exposure(249.0, 0.0, 0.0)),
        (SATURATED_LEVEL, Exposure(250.0, 0.0, 1.0)),
        (255, Exposure(255.0, 0.0, 1.0)),
    ],
)
def test_an_even_picture_is_what_its_level_is(level: int, expected: Exposure) -> None:
    assert measure_exposure(grey(np.full((7, 5), level))) == expected


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

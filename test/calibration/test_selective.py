# SPDX-License-Identifier: Apache-2.0
"""Risk-coverage curves against values worked out by hand and against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.calibration.outcomes import Objects
from sticker_uq.calibration.selective import areas, augrc, aurc, curve
from sticker_uq.gate.policy.signals import SIGNALS


def objects(image: list[int], right: list[bool], truth: list[int]) -> Objects:
    return Objects(
        np.array(image),
        np.array(right),
        1.0 - np.array(right),
        np.array(truth),
        {name: np.zeros(len(image)) for name in SIGNALS},
    )


def test_areas_by_hand() -> None:
    wrong, doubt = np.array([False, False, True, False]), np.array([0.1, 0.2, 0.3, 0.4])
    # selective risk 0, 0, 1/3, 1/4 at each quarter
    assert aurc(wrong, doubt) == pytest.approx((0 + 0 + 1 / 3 + 1 / 4) / 4)
    # P(accepted and wrong) 0, 0, 1/4, 1/4 at the ends of the quarters, straight in between
    assert augrc(wrong, doubt) == pytest.approx((0 + 0 + 1 / 8 + 1 / 4) / 4)
    # twice the first object is like having it twice
    assert aurc(wrong, doubt, np.array([2.0, 1, 1, 1])) == pytest.approx(
        aurc(np.insert(wrong, 0, False), np.insert(doubt, 0, 0.1))
    )
    assert np.isnan(aurc(wrong[:0], doubt[:0]))
    assert augrc(~wrong, np.zeros(4)) == pytest.approx(3 / 8)  # no ranking at all: half the error rate


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30))
def test_a_perfect_ranking_is_never_worse(rows: list[tuple[bool, int]]) -> None:
    wrong, doubt = np.array([r[0] for r in rows]), np.array([float(r[1]) for r in rows])
    assert augrc(wrong, wrong.astype(float)) <= augrc(wrong, doubt) + 1e-12
    assert 0 <= augrc(wrong, doubt) <= 1
    assert 0 <= aurc(wrong, doubt) <= 1


def test_a_curve_counts_images_and_stickers_not_objects() -> None:
    # image 0: a right one, then two wrong ones; image 1: two objects at the same sticker; image 2: nothing
    seen = objects([0, 0, 0, 1, 1], [True, False, False, True, True], [0, -1, -1, 1, 1])
    line = curve(seen, np.array([0.1, 0.3, 0.4, 0.2, 0.3]), images=3, stickers=4)
    assert line.threshold.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert line.wrong_images == pytest.approx([0, 0, 1 / 3, 1 / 3])
    assert line.removed == pytest.approx([0.25, 0.5, 0.5, 0.5])
    assert line.selective_risk == pytest.approx([0, 0, 1 / 4, 2 / 5])
    assert line.removed_at(0.1) == pytest.approx(0.5)
    assert line.removed_at(0.4) == pytest.approx(0.5)
    assert curve(seen, np.array([1.0, 0, 0, 1, 1]), 3, 4).removed_at(0.1) == 0.0


def test_intervals_hold_the_value_and_shrink_with_more_images() -> None:
    rng = np.random.default_rng(0)

    def width(images: int) -> float:
        image = np.repeat(np.arange(images), 3)
        doubt = rng.random(len(image))
        right = rng.random(len(image)) > 0.3 * doubt
        _, generalised = areas(objects(image.tolist(), right.tolist(), [-1] * len(image)), doubt, images, 200)
        assert generalised.low <= generalised.value <= generalised.high
        return generalised.high - generalised.low

    assert width(400) < 0.7 * width(50)

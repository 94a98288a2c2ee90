# SPDX-License-Identifier: Apache-2.0
"""Measures of selective prediction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.calibration.measuring import augrc, curve
from sticker_uq.calibration.outcomes import CalledStickers
from sticker_uq.gate.policy.signals import SIGNALS


def objects(image: list[int], right: list[bool], truth: list[int]) -> CalledStickers:
    return CalledStickers(
        np.array(image),
        np.array(right),
        1.0 - np.array(right),
        np.array(truth),
        {name: np.zeros(len(image)) for name in SIGNALS},
    )


def test_areas_by_hand():
    wrong, doubt = np.array([False, False, True, False]), np.array([0.1, 0.2, 0.3, 0.4])
    # P(accepted and wrong) 0, 0, 1/4, 1/4 at the ends of the quarters, straight in between
    assert augrc(wrong, doubt) == pytest.approx((0 + 0 + 1 / 8 + 1 / 4) / 4)
    assert np.isnan(augrc(wrong[:0], doubt[:0]))
    assert augrc(~wrong, np.zeros(4)) == pytest.approx(3 / 8)  # no ranking at all: half the error rate


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30))
def test_a_perfect_ranking_is_never_worse(rows):
    wrong, doubt = np.array([r[0] for r in rows]), np.array([float(r[1]) for r in rows])
    assert augrc(wrong, wrong.astype(float)) <= augrc(wrong, doubt) + 1e-12
    assert 0 <= augrc(wrong, doubt) <= 1


def test_a_curve_counts_images_and_stickers_not_objects():
    # image 0: a right one, then two wrong ones; image 1: two objects at the same sticker; image 2: nothing
    seen = objects([0, 0, 0, 1, 1], [True, False, False, True, True], [0, -1, -1, 1, 1])
    line = curve(seen, np.array([0.1, 0.3, 0.4, 0.2, 0.3]), images=3, stickers=4)
    assert line.wrong_images == pytest.approx([0, 0, 1 / 3, 1 / 3])
    assert line.removed == pytest.approx([0.25, 0.5, 0.5, 0.5])
    assert line.removal_share_at(0.1) == pytest.approx(0.5)
    assert line.removal_share_at(0.4) == pytest.approx(0.5)
    assert curve(seen, np.array([1.0, 0, 0, 1, 1]), 3, 4).removal_share_at(0.1) == 0.0

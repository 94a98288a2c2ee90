# SPDX-License-Identifier: Apache-2.0
"""Figures whose value is known by hand or by a library."""

from __future__ import annotations

import numpy as np
import pytest

from sticker_uq.lab.studies.monitors.classifier_study import (
    ambiguous_row,
    missed_share,
    nominal_row,
    threshold_at,
)


def test_rows_of_table_1() -> None:
    vectors = np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.1, 0.4, 0.5]])
    row = nominal_row(vectors, np.array([0, 2, 2]))
    assert (row.top_1, row.top_2) == pytest.approx((1 / 3, 2 / 3))
    assert row.entropy == pytest.approx((1 + 2 - (0.1 * np.log2(0.1) + 0.4 * np.log2(0.4) - 0.5)) / 3)
    assert np.isnan(row.top_pair)
    ambiguous = ambiguous_row(vectors, np.array([[1, 0], [3, 2], [2, 3]]), np.tile([0.4, 0.6], (3, 1)))
    assert ambiguous.top_1 == pytest.approx(2 / 3)  # classes 0, 2, 3 are right
    assert ambiguous.top_pair == pytest.approx(2 / 3)


def test_the_threshold_refuses_the_share_it_may() -> None:
    usual = np.arange(100.0)
    threshold = threshold_at(usual, 0.05)
    assert (usual > threshold).sum() == 5
    wrong, scores = np.array([True, True, True, False]), np.array([threshold, threshold + 1, np.nan, 0])
    assert missed_share(wrong, scores, threshold) == (1, 3)

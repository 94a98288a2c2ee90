# SPDX-License-Identifier: Apache-2.0
"""Intervals and areas whose value is known by hand or by a library."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from sticker_uq.evaluation.metrics.statistics import (
    Interval,
    area_under_roc,
    bca_mean_interval,
    clopper_pearson,
    cluster_bootstrap,
    mean_interval,
    roc_interval,
    share_above,
)


@given(arrays(np.float64, 7, elements=st.integers(0, 4)), arrays(np.float64, 5, elements=st.integers(0, 4)))
def test_auc_is_that_of_scikit_learn(nominal, other):
    expected = roc_auc_score(np.repeat([0, 1], [7, 5]), np.concatenate([nominal, other]))
    assert area_under_roc(nominal, other) == pytest.approx(expected)


def test_auc_of_scores_that_are_no_numbers():
    assert area_under_roc(np.array([0.0, 1.0]), np.array([np.inf, np.nan])) == 1
    assert np.isnan(area_under_roc(np.zeros(0), np.ones(2)))


def test_interval_holds_the_figure_and_narrows_with_more_scenes():
    rng = np.random.default_rng(0)
    widths = []
    for n in (20, 500):
        found = roc_interval(rng.normal(0, 1, n), rng.normal(1, 1, n))
        assert found.low < found.value < found.high
        widths.append(found.high - found.low)
    assert widths[1] < 0.5 * widths[0]
    assert str(roc_interval(np.zeros(0), np.ones(3))) == "-"
    assert str(mean_interval(np.array([np.nan, 2.0, 2.0]))) == "2.000 [2.000, 2.000]"
    assert share_above(np.array([1.0, 2.0, 3.0]), 2.0) == pytest.approx(1 / 3)


def test_bca_interval_of_a_mean():
    values = np.random.default_rng(0).uniform(0, 1, 100)
    found = bca_mean_interval(values, 500)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * values.std() / 10, rel=0.25)
    assert bca_mean_interval(np.ones(4), 500) == Interval(1.0, 1.0, 1.0)
    assert math.isnan(bca_mean_interval(np.zeros(0), 500).value)


def test_clopper_pearson():
    # Clopper and Pearson (1934): 0 of 10 at 95 %; 1 - 0.025^(1/10)
    assert clopper_pearson(0, 10, 0.95) == pytest.approx((0, 1 - 0.025**0.1))
    assert clopper_pearson(10, 10, 0.95) == pytest.approx((0.025**0.1, 1))
    assert clopper_pearson(5, 10, 0.95) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    assert clopper_pearson(0, 0) == (0, 1)


def test_bootstrap_draws_whole_images():
    """Ten images of 20 equal objects each are ten observations, not 200."""
    rng = np.random.default_rng(5)
    units = np.repeat(np.arange(10), 20)
    right = (rng.random(10) < 0.5)[units]
    low, high = cluster_bootstrap(lambda chosen: np.array([right[chosen].mean()]), units, 300)
    alone = cluster_bootstrap(lambda chosen: np.array([right[chosen].mean()]), np.arange(200), 300)
    assert high[0] - low[0] > 3 * (alone[1][0] - alone[0][0])

# SPDX-License-Identifier: Apache-2.0
"""Measures of probability quality: against values worked out by hand, against each other, and a published observation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from sticker_uq.evaluation.metrics import probability_quality as pq
from sticker_uq.evaluation.metrics.probability_quality import localization_aware_calibration_error
from sticker_uq.evaluation.metrics.statistics import cluster_bootstrap
from sticker_uq.scene import InvalidInput

P = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.95, 0.05]])
Y = np.array([0, 1, 1, 0])


def random_probabilities(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return rng.dirichlet(np.ones(k), n)


def calibrated(rng: np.random.Generator, n: int = 4000, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and classes drawn from them: calibrated by construction."""
    p = random_probabilities(rng, n, k)
    return p, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def test_values_worked_out_by_hand():
    assert pq.accuracy(P, Y) == 0.75
    assert pq.brier_score(P, Y) == pytest.approx(2 * (0.2**2 + 0.6**2 + 0.3**2 + 0.05**2) / 4)
    assert pq.negative_log_likelihood(P, Y) == pytest.approx(-np.log([0.8, 0.4, 0.7, 0.95]).mean())
    # bins of the predicted class: 0.8 right, 0.6 wrong, 0.7 right, 0.95 right; each in a bin of its own
    assert pq.expected_calibration_error(P, Y) == pytest.approx((0.2 + 0.6 + 0.3 + 0.05) / 4)
    # of the true class: 0.8, 0.4 (predicted wrongly), 0.7, 0.95
    assert pq.expected_calibration_error(P, Y, variant="true_class") == pytest.approx(
        (0.2 + 0.4 + 0.3 + 0.05) / 4
    )


def test_one_subset_of_everything_is_the_error_in_numbers():
    errors = pq.class_errors(P, Y, pq.Sampling(subsets=3, ratio=1.0))
    assert errors.errors == pytest.approx(np.full((3, 2), 0.65))  # E(#0) = 2.65, #0 = 2
    assert errors.eace == pytest.approx([0.65, 0.65])
    assert errors.vace == pytest.approx([0.0, 0.0], abs=1e-12)


def test_the_presets_differ_by_the_mean_class_count_of_a_subset():
    p, y = calibrated(np.random.default_rng(1), 1000, 10)
    paper, code = (pq.class_errors(p, y, preset) for preset in (pq.PAPER, pq.CODE))
    assert paper.errors.shape == (1000, 10)
    assert code.eace == pytest.approx(paper.eace / 5)  # 50 objects of 10 classes
    assert code.vace == pytest.approx(paper.vace / 25)
    assert pq.class_errors(p, y, pq.PAPER).errors == pytest.approx(paper.errors)
    assert not np.array_equal(pq.class_errors(p, y, pq.PAPER, seed=1).errors, paper.errors)


def test_a_better_model_can_have_the_worse_error_of_one_class():
    """Ullah et al., sections V-A and V-B: on handwritten digits a model is better by accuracy, Brier score and ECE, and still

    EACE and VACE of one class are lower for the other one. There CNN and ResNet, here two classifiers that train at once.
    """
    pictures, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    train, test = order[:900], order[900:]
    y = digits[test]
    better, worse = (
        model.fit(pictures[train], digits[train]).predict_proba(pictures[test])
        for model in (KNeighborsClassifier(5), LinearDiscriminantAnalysis())
    )
    assert pq.accuracy(better, y) > pq.accuracy(worse, y) + 0.01
    assert pq.brier_score(better, y) < 0.8 * pq.brier_score(worse, y)
    assert pq.expected_calibration_error(better, y) < 0.8 * pq.expected_calibration_error(worse, y)
    errors = [pq.class_errors(p, y, pq.CODE) for p in (better, worse)]
    assert (errors[0].eace < errors[1].eace).sum() >= 6, "most classes follow the overall figures"
    assert errors[0].eace[2] > 1.5 * errors[1].eace[2]
    assert errors[0].vace[2] > 1.5 * errors[1].vace[2]

    def excess(chosen: np.ndarray) -> np.ndarray:
        drawn = (pq.class_errors(p[chosen], y[chosen], pq.Sampling(200, 0.05, True)) for p in (better, worse))
        return np.subtract(*(one.eace for one in drawn))

    low, _ = cluster_bootstrap(excess, np.arange(len(y)), 100)
    assert low[2] > 0, "not by chance"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.integers(2, 20))
def test_a_bin_holds_what_lies_above_its_lower_edge(values, bins):
    edges = np.linspace(0, 1, bins + 1)
    for value, index in zip(values, pq.bin_index(np.array(values), bins), strict=True):
        assert value <= edges[index + 1]
        assert value > edges[index] or index == 0


def test_detection_errors_worked_out_by_hand():
    score = np.array([0.95, 0.95, 0.35, 0.35])
    right = np.array([True, False, True, False])
    iou = np.array([0.8, 0.0, 0.6, 0.0])
    assert pq.calibration_error(score, right) == pytest.approx((0.45 + 0.15) / 2)
    # precision 1/2 times IoU 0.8 and 0.6 against the scores
    assert localization_aware_calibration_error(score, right, iou) == pytest.approx((0.55 + 0.05) / 2)


def test_of_nothing_nothing_is_measured():
    p, y = np.zeros((0, 3)), np.zeros(0, int)
    for measure in (pq.accuracy, pq.brier_score, pq.negative_log_likelihood, pq.expected_calibration_error):
        assert math.isnan(measure(p, y))
    with pytest.raises(InvalidInput, match="no objects"):
        pq.class_errors(p, y, pq.PAPER)


@pytest.mark.parametrize(("subsets", "ratio"), [(0, 0.5), (10, 0.0), (10, 1.5)])
def test_impossible_samplings_are_refused(subsets, ratio):
    with pytest.raises(InvalidInput, match="subsets of ratio"):
        pq.Sampling(subsets, ratio)

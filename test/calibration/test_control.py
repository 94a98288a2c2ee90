# SPDX-License-Identifier: Apache-2.0
"""How many bad images prove what: against closed forms, against MAPIE, and against simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.calibration import control
from sticker_uq.calibration.control import Trial
from sticker_uq.evaluation.metrics.statistics import clopper_pearson, upper_bound
from sticker_uq.scene import InvalidInput


@pytest.mark.parametrize(("level", "images"), [(0.10, 22), (0.05, 45), (0.02, 114), (0.01, 230)])
def test_how_many_images_without_a_bad_one_prove_a_level(level, images):
    assert control.images_needed(level, 0.1) == images
    assert control.smallest_level(images, 0.1) <= level < control.smallest_level(images - 1, 0.1)
    assert len(control.learn_then_test([Trial(1.0, images, 0)], level, 0.1)) == 1
    assert len(control.learn_then_test([Trial(1.0, images - 1, 0)], level, 0.1)) == 0


@pytest.mark.parametrize(("level", "images"), [(0.10, 9), (0.05, 19), (0.02, 49), (0.01, 99)])
def test_how_many_images_bound_the_risk_on_average(level, images):
    assert control.conformal_risk_control([Trial(1.0, images, 0)], level) == 0
    assert control.conformal_risk_control([Trial(1.0, images - 1, 0)], level) == -1


def test_the_sequence_ends_at_the_first_limit_that_cannot_be_proved():
    tests = [Trial(0.1, 300, 0), Trial(0.2, 300, 9), Trial(0.3, 300, 0)]
    assert control.learn_then_test(tests, 0.02, 0.1).tolist() == [0]
    assert control.conformal_risk_control(tests, 0.02) == 0


def test_limits_equal_those_of_mapie():
    from mapie.risk_control import (
        BinaryClassificationController,
        BinaryRisk,
    )  # not before it is needed: each process collects all tests

    rng = np.random.default_rng(0)
    worst = rng.beta(5, 1, 400)  # the doubt from which each image is bad
    limits = np.quantile(rng.beta(5, 1, 400), np.linspace(0, 1, 40))
    tests = [Trial(float(t), 400, int((worst <= t).sum())) for t in limits]
    held = control.learn_then_test(tests, 0.1, 0.1)
    loss = BinaryRisk(
        risk_occurrence=lambda y_true, y_pred: y_pred == 1,
        risk_condition=lambda y_true, y_pred: np.ones(len(y_pred), bool),
        higher_is_better=False,
    )
    theirs = BinaryClassificationController(
        # bad when 1 - worst >= 1 - limit; MAPIE's parameter is a lower threshold of a probability
        predict_function=lambda x: np.column_stack([x[:, 0], 1 - x[:, 0]]),
        risk=loss,
        target_level=0.1,
        confidence_level=0.9,
        best_predict_param_choice=loss,
        list_predict_params=1 - limits,
        fwer_method="fixed_sequence",
    )
    theirs.calibrate(worst[:, None], np.ones(400, int))
    assert sorted(limits[held]) == pytest.approx(sorted(1 - theirs.valid_predict_params))
    assert 0 < len(held) < len(limits)


def test_a_promise_is_broken_as_seldom_as_its_confidence_says():
    level, delta, images = 0.1, 0.1, 120
    rng = np.random.default_rng(1)
    limits = np.linspace(0.02, 0.3, 60)  # a limit's true risk is the limit itself
    broken = 0
    for _ in range(400):
        worst = np.sort(rng.random(images))
        events = np.searchsorted(worst, limits, side="right")
        tests = [Trial(float(t), images, int(k)) for t, k in zip(limits, events, strict=True)]
        held = control.learn_then_test(tests, level, delta)
        broken += bool(len(held)) and limits[held[-1]] > level
    assert broken / 400 <= delta + 3 * math.sqrt(delta * (1 - delta) / 400)
    assert broken > 0  # or it would not be as loose as it may be


@given(st.integers(1, 2000), st.data())
def test_bounds_are_consistent_with_the_tests(images, data):
    events = data.draw(st.integers(0, min(images, 20)))
    bound = upper_bound(events, images, 0.1)
    low, high = clopper_pearson(events, images)
    assert low <= events / images <= bound <= max(high, bound)
    if 0 < bound < 0.99:
        held = [
            len(control.learn_then_test([Trial(0, images, events)], bound * f, 0.1)) for f in (1.01, 0.99)
        ]
        assert held == [1, 0]


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, math.nan])
def test_levels_that_are_no_probabilities_are_refused(bad):
    with pytest.raises(InvalidInput, match="alpha"):
        control.check_levels(bad, 0.1, 0.1)

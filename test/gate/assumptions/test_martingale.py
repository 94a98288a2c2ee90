# SPDX-License-Identifier: Apache-2.0
"""The gambler cannot win against a true claim, and wins quickly against a false one."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate.assumptions.martingale import EProcess, RiskTest
from sticker_uq.scene import InvalidInput


@pytest.mark.parametrize("limit", [0.01, 0.1, 0.5])
def test_the_expected_capital_is_one_while_the_risk_is_at_its_limit(limit):
    """Over all sequences of eight losses, each weighed with its probability: exact, no simulation."""
    expected = 0.0
    for losses in itertools.product((0.0, 1.0), repeat=8):
        test = RiskTest(limit)
        for loss in losses:
            test.observe(loss)
        expected += limit ** sum(losses) * (1 - limit) ** (8 - sum(losses)) * math.exp(test.log_evidence)
    assert expected == pytest.approx(1.0)


@given(st.lists(st.floats(0, 1), max_size=60), st.floats(0.01, 0.9))
def test_the_capital_stays_a_number_whatever_the_losses(losses, limit):
    test = RiskTest(limit)
    for loss in losses:
        test.observe(loss)
    assert math.isfinite(test.log_evidence)
    assert test.observed == len(losses)


@pytest.mark.parametrize("calm", [0, 300])
def test_a_risk_ten_times_too_high_is_found_even_when_it_starts_late(calm):
    rng = np.random.default_rng(2)
    test = RiskTest(0.01)
    for _ in range(calm):
        test.observe(0.0)
    needed = 0
    while test.log_evidence < math.log(1 / 0.005):
        needed += 1
        assert needed < 200
        test.observe(float(rng.random() < 0.1))


def test_a_strategy_that_lost_everything_does_not_stop_the_others():
    capital = EProcess(2)
    capital.bet(np.array([0.0, 2.0]))
    capital.bet(np.array([1.0, 2.0]))
    assert capital.log_evidence > 0


@pytest.mark.parametrize("factors", [[1.0], [1.0, -0.1], [1.0, math.nan]])
def test_impossible_factors_are_refused(factors):
    with pytest.raises(InvalidInput, match="expected 2 numbers"):
        EProcess(2).bet(np.array(factors))


def test_impossible_losses_and_limits_are_refused():
    with pytest.raises(InvalidInput, match=r"loss nan: expected 0 to 1"):
        RiskTest(0.1).observe(math.nan)
    with pytest.raises(InvalidInput, match="expected above 0"):
        RiskTest(0.0)

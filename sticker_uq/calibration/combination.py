# SPDX-License-Identifier: Apache-2.0
"""All signals of doubt about an object combined into one: a generalised additive model of the log odds of being wrong.

Every signal adds a non-decreasing piecewise linear function, so that more doubt by any signal never lowers the risk, and the
whole fits into a small table that a policy file holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from sticker_uq.gate.policy.policy_schema import RiskScore, RiskTerm
from sticker_uq.gate.policy.signals import SignalName
from sticker_uq.scene import FloatArray, InvalidInput

_KNOT_QUANTILES = (0.0, 0.5, 0.75, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 1.0)
_DIGITS = 9  # of what goes into the file; the score that is certified is the one read back from these digits
PENALTIES = (1.0, 10.0, 0.1, 100.0)
"""Strengths of the shrinkage to choose from, the usual one first."""
# thousands of products too small for several threads, which wait long for each other where others compute too; and the last
# digits depend on their number. Counted after scipy.optimize, which brings a BLAS of its own
_BLAS = ThreadpoolController()


def fit_risk(
    signals: Mapping[SignalName, FloatArray], badness: FloatArray, penalty: float = PENALTIES[0]
) -> RiskScore:
    """The policy's risk score that best tells how bad a removal would be, ``badness`` (N,) 0..1, by ``signals`` (N,) each.

    Logistic regression on ramps between quantiles of each signal with weights that must not be negative and an L2
    ``penalty``. Its limit admits everything; a certificate lowers it. Wrong objects are few; those that fit their sticker badly
    go wrong in the same way and teach the score more than a yes or no would. Raises :class:`InvalidInput` when there is no
    object, or a signal is not finite.
    """
    if not len(badness):
        raise InvalidInput(
            "the risk score needs at least one detected sticker in the images that it is fitted on"
        )
    for name, values in signals.items():
        if not np.isfinite(values).all():
            raise InvalidInput(f"signal {name}: {int((~np.isfinite(values)).sum())} values are not finite")
    knots = {name: _knots(values) for name, values in signals.items()}
    ramps = {name: _ramps(signals[name], knots[name]) for name in signals}
    design = np.hstack(list(ramps.values())) if ramps else np.zeros((len(badness), 0))
    intercept, weights = _non_negative_logistic(design, np.asarray(badness, float), penalty)
    terms, used = [], 0
    for name in signals:
        count = len(knots[name]) - 1
        own = weights[used : used + count]
        used += count
        if own.max(initial=0.0) > 1e-6:
            heights = np.concatenate(([0.0], np.cumsum(own)))
            terms.append(RiskTerm(signal=name, knots=_rounded(knots[name]), log_odds=_rounded(heights)))
    return RiskScore(intercept=round(float(intercept), _DIGITS), terms=tuple(terms), max_removal=1.0)


def _knots(values: FloatArray) -> FloatArray:
    rounded = np.array(_rounded(np.quantile(values, _KNOT_QUANTILES)))
    return np.unique(rounded)


def _ramps(values: FloatArray, knots: FloatArray) -> FloatArray:
    """Columns that go from 0 to 1 between one knot and the next, (N, len(knots) - 1)."""
    lower, upper = knots[:-1], knots[1:]
    return np.clip((np.asarray(values, float)[:, None] - lower) / (upper - lower), 0.0, 1.0)


def _non_negative_logistic(
    design: FloatArray, badness: FloatArray, penalty: float
) -> tuple[float, FloatArray]:
    """Intercept and weights >= 0 of the penalised logistic regression of ``badness`` on the columns of ``design``."""
    # one right and one wrong object are added, so that data without any wrong one still give a finite intercept
    prior = (badness.sum() + 0.5) / (len(badness) + 1.0)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        odds = parameters[0] + design @ parameters[1:]
        likelihood = np.logaddexp(0.0, odds) - badness * odds
        slack = 1.0 / (1.0 + np.exp(-odds)) - badness
        anchor = parameters[0] - np.log(prior / (1.0 - prior))
        value = likelihood.sum() + 0.5 * penalty * (parameters[1:] @ parameters[1:]) + 0.005 * anchor**2
        gradient = np.concatenate(
            ([slack.sum() + 0.01 * anchor], design.T @ slack + penalty * parameters[1:])
        )
        return float(value), gradient

    start = np.concatenate(([np.log(prior / (1.0 - prior))], np.zeros(design.shape[1])))
    bounds = [(-20.0, 20.0)] + [(0.0, None)] * design.shape[1]
    with _BLAS.limit(limits=1, user_api="blas"):
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 2000})
    return float(found.x[0]), found.x[1:]


def _rounded(values: Sequence[float] | FloatArray) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)

# SPDX-License-Identifier: Apache-2.0
"""Which combination of signals a calibrated policy uses: cross-validation on the images that are fitted on, and on no others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from sticker_uq.calibration.measuring import curve
from sticker_uq.calibration.outcomes import CalledStickers
from sticker_uq.gate.policy.policy_schema import LeftScore, LeftTerm, RiskScore, RiskTerm
from sticker_uq.gate.policy.signals import LeftSignal, SignalName
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

# All signals of doubt about an object combined into one: a generalised additive model of the log odds of being wrong.
# Every signal adds a non-decreasing piecewise linear function, so that more doubt by any signal never lowers the risk, and the
# whole fits into a small table that a policy file holds.
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
    """The risk score that best tells how bad a removal would be, ``badness`` (N,) 0..1, by ``signals`` (N,) each.

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
    intercept, added = _fit_terms(signals, badness, penalty)
    terms = (RiskTerm(signal=name, knots=at, log_odds=heights) for name, (at, heights) in added.items())
    return RiskScore(intercept=intercept, terms=tuple(terms), max_removal=1.0)


def fit_left(
    signals: Mapping[LeftSignal, FloatArray], dirty: NDArray[np.bool_], penalty: float | None = None
) -> LeftScore:
    """The score that best tells which laptops finished alone are ``dirty`` (E,), by ``signals`` (E,) each, all finite.

    Made as :func:`fit_risk` makes its own; of the ``PENALTIES`` that with the least loss in cross-validation, unless given.
    """
    if penalty is None:
        fold = np.random.default_rng(0).permutation(np.arange(len(dirty)) % FOLDS)
        penalty = min(PENALTIES, key=lambda one: _left_loss(signals, dirty, one, fold))
    intercept, added = _fit_terms(signals, np.asarray(dirty, float), penalty)
    terms = (LeftTerm(signal=name, knots=at, log_odds=heights) for name, (at, heights) in added.items())
    return LeftScore(intercept=intercept, terms=tuple(terms))


def _left_loss(
    signals: Mapping[LeftSignal, FloatArray], dirty: NDArray[np.bool_], penalty: float, fold: IntArray
) -> float:
    loss = 0.0
    for number in range(FOLDS):
        own, others = fold == number, fold != number
        score = fit_left({name: values[others] for name, values in signals.items()}, dirty[others], penalty)
        rows = ({name: float(values[row]) for name, values in signals.items()} for row in np.flatnonzero(own))
        chance = np.array([score(row) for row in rows])
        loss -= float(np.log(np.where(dirty[own], chance, 1.0 - chance)).sum())
    return loss


_Name = TypeVar("_Name", bound=str)


def _fit_terms(
    signals: Mapping[_Name, FloatArray], badness: FloatArray, penalty: float
) -> tuple[float, dict[_Name, tuple[tuple[float, ...], tuple[float, ...]]]]:
    """Intercept, and knots and log odds of each signal that adds anything."""
    knots, ramps = {}, [np.zeros((len(badness), 0))]
    for name, values in signals.items():
        at = knots[name] = np.unique(_round(np.quantile(values, _KNOT_QUANTILES)))
        ramps.append(np.clip((np.asarray(values, float)[:, None] - at[:-1]) / np.diff(at), 0.0, 1.0))
    design = np.hstack(ramps)
    intercept, weights = _logistic(design, np.asarray(badness, float), penalty)
    terms, used = {}, 0
    for name in signals:
        count = len(knots[name]) - 1
        own = weights[used : used + count]
        used += count
        if own.max(initial=0.0) > 1e-6:
            heights = np.concatenate(([0.0], np.cumsum(own)))
            terms[name] = (_round(knots[name]), _round(heights))
    return round(float(intercept), _DIGITS), terms


def _logistic(design: FloatArray, badness: FloatArray, penalty: float) -> tuple[float, FloatArray]:
    """Intercept and weights >= 0 of the penalised logistic regression of ``badness`` on the columns of ``design``."""
    # one right and one wrong object are added, so that data without any wrong one still give a finite intercept
    prior = (badness.sum() + 0.5) / (len(badness) + 1.0)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        odds = parameters[0] + design @ parameters[1:]
        likelihood = np.logaddexp(0.0, odds) - badness * odds
        slack = 1.0 / (1.0 + np.exp(-odds)) - badness
        anchor = parameters[0] - np.log(prior / (1.0 - prior))
        value = likelihood.sum() + 0.5 * penalty * (parameters[1:] @ parameters[1:]) + 0.005 * anchor**2
        slopes = design.T @ slack + penalty * parameters[1:]
        return float(value), np.concatenate(([slack.sum() + 0.01 * anchor], slopes))

    start = np.concatenate(([np.log(prior / (1.0 - prior))], np.zeros(design.shape[1])))
    bounds = [(-20.0, 20.0)] + [(0.0, None)] * design.shape[1]
    with _BLAS.limit(limits=1, user_api="blas"):
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 2000})
    return float(found.x[0]), found.x[1:]


def _round(values: Sequence[float] | FloatArray) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)


FOLDS = 4
SPLITS = 3
"""Times that the images are divided into folds anew."""
LEAST_LAPTOPS, LEAST_WRONG = 100, 20
"""Laptops fitted on and wrong objects on them, below which many signals fit noise: the mean score alone is used."""
BACKUPS: tuple[SignalName, ...] = ("improbability", "single_pass_improbability", "shannon_entropy")
"""Signals that may be all there is to a risk score, when no combination comes up to one of them."""
MARGIN = 0.002
"""So much less coverage a combination may have: it notices more in circumstances that nobody calibrated."""


@dataclass(frozen=True)
class RiskRecipe:
    """A way to make a risk score: of which signals, and with which penalty on their weights."""

    signals: tuple[SignalName, ...]
    penalty: float

    def fit(self, signals: Mapping[SignalName, FloatArray], badness: FloatArray) -> RiskScore:
        return fit_risk({name: signals[name] for name in self.signals}, badness, self.penalty)


def choose_risk(
    objects: CalledStickers,
    names: Sequence[SignalName],
    level: float,
    say: Callable[[str], None] = lambda _: None,
) -> RiskScore:
    """The risk score that removes most stickers while ``level`` of the images go wrong, fitted to all ``objects``.

    Combinations of the signals ``names`` with several penalties, and the best single signals, are compared by cross-validation
    over images; half the level counts as much as the level, where fewer mistakes decide. A combination stays unless a single
    signal removes noticeably more in every split. With few laptops or few mistakes it is the mean score, as ``say`` tells.
    """
    laptops, wrong = len(np.unique(objects.image)), int((~objects.right).sum())
    if (laptops < LEAST_LAPTOPS or wrong < LEAST_WRONG) and len(names) > 1 and BACKUPS[0] in names:
        say(
            f"the risk score is the mean score alone: {laptops} laptops with {wrong} wrong objects to fit on, expected "
            f"{LEAST_LAPTOPS} with {LEAST_WRONG} or more for a combination of signals"
        )
        # rising everywhere, so that a limit on the risk is one on the mean score; what is fitted to few may be level in parts
        rising = RiskTerm(signal=BACKUPS[0], knots=(0.0, 1.0), log_odds=(0.0, 8.0))
        return RiskScore(intercept=-4.0, terms=(rising,), max_removal=1.0)
    combined = [RiskRecipe(tuple(names), penalty) for penalty in PENALTIES]
    single = [RiskRecipe((name,), PENALTIES[0]) for name in BACKUPS if name in names and len(names) > 1]
    images = np.unique(objects.image, return_inverse=True)[1]
    best = combined[0]
    if objects.right.any() and not objects.right.all() and images.max(initial=0) >= 2 * FOLDS:
        covered = {one: _coverage(one, objects, images, level) for one in (*combined, *single)}
        best = max(combined, key=lambda one: covered[one].mean())
        runner_up = max(single, key=lambda one: covered[one].mean(), default=best)
        if (covered[runner_up] > covered[best] + MARGIN).all():
            best = runner_up
    return best.fit(objects.signals, objects.badness)


def _coverage(candidate: RiskRecipe, objects: CalledStickers, images: IntArray, level: float) -> FloatArray:
    """Share of stickers removed by scores that never saw the image, mean over ``level`` and half of it, for each split."""
    count = int(images.max()) + 1
    shares = []
    for split in range(SPLITS):
        fold = np.random.default_rng(split).integers(FOLDS, size=count)[images]
        doubt = np.zeros(len(objects))
        for number in range(FOLDS):
            own, others = fold == number, fold != number
            if not own.any() or not others.any():
                continue
            signals = {name: objects.signals[name] for name in candidate.signals}
            score = candidate.fit({n: v[others] for n, v in signals.items()}, objects.badness[others])
            doubt[own] = log_odds(score, {n: v[own] for n, v in signals.items()})
        renumbered = CalledStickers(images, objects.right, objects.badness, objects.truth, {})
        line = curve(renumbered, doubt, count, len(np.unique(objects.truth[objects.right])))
        shares.append((line.removal_share_at(level) + line.removal_share_at(level / 2)) / 2)
    return np.array(shares)


def log_odds(score: RiskScore, signals: Mapping[SignalName, FloatArray]) -> FloatArray:
    added = [np.interp(signals[term.signal], term.knots, term.log_odds) for term in score.terms]
    return np.asarray(score.intercept + np.sum(added, axis=0), float)

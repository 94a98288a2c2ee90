# SPDX-License-Identifier: Apache-2.0
"""What calibration would do to probabilities, measured on objects that took no part in learning it.

Each class is calibrated against the rest and the rows are scaled back to sum to 1. The data are split into folds of whole
images; each fold is calibrated by what the others taught.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit, logit

from sticker_uq.scene import FloatArray, IntArray, InvalidInput

Method = Literal["isotonic", "temperature"]
FOLDS = 5
_EDGE = 1e-6
_Map = Callable[[FloatArray], FloatArray]


def cross_calibrated(
    p: FloatArray, y: IntArray, units: IntArray, method: Method, folds: int = FOLDS, seed: int = 0
) -> FloatArray:
    """Probabilities ``p`` (N, K) after calibration learned from other ``units`` (N,) than the object's own, (N, K) float64.

    Raises :class:`InvalidInput` when there are fewer units than folds.
    """
    found, owner = np.unique(units, return_inverse=True)
    if len(found) < folds:
        raise InvalidInput(f"{len(found)} images with objects, expected at least {folds} to calibrate")
    fold = np.random.default_rng(seed).permutation(np.arange(len(found)) % folds)[owner]
    fit = _isotonic if method == "isotonic" else _tempered
    calibrated = np.empty(p.shape)
    for number in range(folds):
        held_out = fold == number
        for c in range(p.shape[1]):
            learned = fit(p[~held_out, c].astype(np.float64), y[~held_out] == c)
            calibrated[held_out, c] = learned(p[held_out, c].astype(np.float64))
    total = calibrated.sum(axis=1, keepdims=True)
    # nothing is left of a row when all of its classes were always wrong at these probabilities
    return np.where(total > 0, calibrated / np.where(total > 0, total, 1.0), 1.0 / p.shape[1])


def _isotonic(p: FloatArray, right: NDArray[np.bool_]) -> _Map:
    """The non-decreasing map that fits best, straight between the probabilities seen (Zadrozny and Elkan 2002)."""
    points, owner = np.unique(p, return_inverse=True)
    count = np.bincount(owner).astype(np.float64)
    share = np.bincount(owner, right.astype(np.float64)) / count
    levels = isotonic_regression(share, weights=count).x
    return lambda values: np.interp(values, points, levels)


def temperature(p: FloatArray, right: NDArray[np.bool_]) -> float:
    """The temperature of log odds of ``p`` (N,) most likely for ``right`` (N,), from 0.05 to 20.

    Guo et al. 2017, section 4.2.
    """
    odds = _log_odds(p)
    sign = np.where(right, 1.0, -1.0)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0.0, -sign * odds / np.exp(log_temperature)).sum())

    return float(np.exp(minimize_scalar(loss, bounds=np.log([0.05, 20.0]), method="bounded").x))


def _tempered(p: FloatArray, right: NDArray[np.bool_]) -> _Map:
    best = temperature(p, right)
    return lambda values: expit(_log_odds(values) / best)


def _log_odds(p: FloatArray) -> FloatArray:
    return np.asarray(logit(np.clip(p, _EDGE, 1 - _EDGE)))

# SPDX-License-Identifier: Apache-2.0
"""How good class probabilities are, over all classes and for each class by itself, and what calibration would do to them.

Ullah, Fan and Wongpiromsarn, "Design and Evaluation of Object Classifiers for Probabilistic Decision-Making in Autonomous
Systems": ACE, EACE and VACE (section IV-A), and the measures they are compared with (section II). All functions take class
probabilities ``p`` (N, K), rows summing to 1, and true classes ``y`` (N,) in [0, K); of no object the result is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import expit, logit

from sticker_uq.evaluation.metrics.statistics import wilson
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

EceVariant = Literal["standard", "true_class"]
BINS, LAECE_BINS = 10, 25
Method = Literal["isotonic", "temperature"]
FOLDS = 5
_Map = Callable[[FloatArray], FloatArray]
_EDGE = 1e-6
_SMALLEST = 1e-15
"""Probability below which the logarithm is cut off: a calibrated probability may be 0."""


@dataclass(frozen=True)
class Sampling:
    """How subsets are drawn for the calibration error ACE: ``subsets`` of ``ratio`` of the objects each, without replacement.

    ``relative``: errors are divided by the mean number of objects per class in a subset, so that data sets of other sizes
    compare. Raises :class:`InvalidInput` for a number outside its range.
    """

    subsets: int = 1000
    ratio: float = 0.05
    relative: bool = False

    def __post_init__(self) -> None:
        if self.subsets < 1 or not 0 < self.ratio <= 1:
            raise InvalidInput(
                f"{self.subsets} subsets of ratio {self.ratio}: expected at least one, and a ratio above 0 and up to 1"
            )


PAPER = Sampling()
"""The steps of section IV-A. The paper gives neither m nor p; these are those of its published code."""
CODE = Sampling(relative=True)
"""What its published code plots: 1000 subsets of 5 %, errors divided by 50, the mean class count of 500 of 10 classes."""


@dataclass(frozen=True)
class ClassErrors:
    """Calibration error ACE of every subset and class, ``errors`` (m, K); ``eace`` and ``vace`` (K,): its mean and variance."""

    errors: FloatArray

    @property
    def eace(self) -> FloatArray:
        """Calibration error EACE: expectation of the absolute class error, (K,), objects or share of the mean class count."""
        return self.errors.mean(axis=0)

    @property
    def vace(self) -> FloatArray:
        """Calibration error VACE: variance of the absolute class error, (K,), divided by m as in the paper."""
        return self.errors.var(axis=0)


def check(p: FloatArray, y: IntArray) -> None:
    """Raise :class:`InvalidInput` unless ``p`` and ``y`` are the probabilities and classes that calibration measures take."""
    if p.ndim != 2 or y.shape != p.shape[:1] or p.shape[1] < 2:
        raise InvalidInput(
            f"probabilities {p.shape} and classes {y.shape}: expected (N, K) and (N,), at least two classes"
        )
    bad = ~np.isfinite(p).all(axis=1) | (p < 0).any(axis=1) | (np.abs(p.sum(axis=1) - 1) > 1e-3)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidInput(
            f"probabilities of object {row}: {p[row].tolist()}, expected numbers from 0 that sum to 1"
        )
    if len(y) and not (int(y.min()) >= 0 and int(y.max()) < p.shape[1]):
        raise InvalidInput(f"classes from {y.min()} to {y.max()}, expected 0 to {p.shape[1] - 1}")


def class_errors(p: FloatArray, y: IntArray, sampling: Sampling, seed: int = 0) -> ClassErrors:
    r"""Calibration error ACE_c = \|E(#c) - #c\| of random subsets, E(#c) the sum of p_c (Ullah et al., IV-A, steps a to c).

    Errors of one subset cancel: a model with as many objects too sure as too unsure of a class scores 0. Raises
    :class:`InvalidInput` when there is no object.
    """
    n, classes = p.shape
    if not n:
        raise InvalidInput("no objects to draw subsets from")
    size = max(1, round(sampling.ratio * n))
    excess = p.astype(np.float64)
    excess[np.arange(n), y] -= 1.0
    rng = np.random.default_rng(seed)
    errors = np.empty((sampling.subsets, classes))
    for number in range(sampling.subsets):
        errors[number] = np.abs(excess[rng.permutation(n)[:size]].sum(axis=0))
    return ClassErrors(errors / (size / classes) if sampling.relative else errors)


def accuracy(p: FloatArray, y: IntArray) -> float:
    """Classification accuracy, the share of the objects whose most probable class is the true one."""
    return _mean(p.argmax(axis=1) == y)


def brier_score(p: FloatArray, y: IntArray) -> float:
    """Brier score, the mean over the objects of squared errors summed over classes, 0..2 (Ullah et al., II, 1)."""
    return float(np.sum(class_brier_scores(p, y)))


def class_brier_scores(p: FloatArray, y: IntArray) -> FloatArray:
    """Brier score of each class against the rest, (K,), 0..1; their sum is :func:`brier_score`."""
    if not len(y):
        return np.full(p.shape[1], np.nan)
    return np.mean((p - np.eye(p.shape[1])[y]) ** 2, axis=0)


def negative_log_likelihood(p: FloatArray, y: IntArray) -> float:
    """NLL, the mean over the objects of -ln p of the true class, nats. The paper's (section II, 3) is the sum."""
    return _mean(-np.log(np.maximum(p[np.arange(len(y)), y], _SMALLEST)))


def calibration_error(confidence: FloatArray, right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Mean over the objects of the gap between confidence and share that is right in its bin, 0..1.

    Of the scores of detections this is D-ECE (Küppers et al. 2020, without the box); ``right`` (N,) says of each whether it found
    an object of its class at IoU 0.5 that no surer one found.

    ``bins`` of equal width, open below and closed above: (0, 0.1], (0.1, 0.2] and so on, 0 belongs to the first.
    """
    if not len(confidence):
        return float("nan")
    gap = np.bincount(bin_index(confidence, bins), right - confidence.astype(np.float64), bins)
    return float(np.abs(gap).sum() / len(confidence))


def expected_calibration_error(
    p: FloatArray, y: IntArray, bins: int = BINS, variant: EceVariant = "standard"
) -> float:
    """ECE, 0..1: ``standard`` bins and averages the probability of the predicted class (Guo et al. 2017).

    ``true_class`` bins and averages the probability of the true class instead, as the published code of Ullah et al. does;
    their text (section II, 2) bins by the true class and averages the predicted one. That probability is not known when
    the classifier is used, so that a low value promises nothing.
    """
    predicted = p.argmax(axis=1)
    used = predicted if variant == "standard" else y
    return calibration_error(p[np.arange(len(y)), used], predicted == y, bins)


def class_calibration_errors(p: FloatArray, y: IntArray, bins: int = BINS) -> FloatArray:
    """ECE of each class against the rest, (K,) (class-wise ECE; Kull et al. 2019): bins over its own probability."""
    return np.array([calibration_error(p[:, c], y == c, bins) for c in range(p.shape[1])])


def bin_index(confidence: FloatArray, bins: int) -> IntArray:
    """The calibration bin of each confidence in [0, 1]: (0, 1/bins] is 0, and so is exactly 0."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    return np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)


def _mean(values: FloatArray | NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


@dataclass(frozen=True)
class Bin:
    """Objects whose confidence lies in (``low``, ``high``]: how many, their mean ``confidence`` and the share that is right
    with its 95 % Wilson interval. NaN in an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float
    right: float
    right_low: float
    right_high: float


def reliability(confidence: FloatArray, right: NDArray[np.bool_], bins: int = BINS) -> tuple[Bin, ...]:
    """Bins of a reliability diagram of ``confidence`` (N,) in [0, 1], lowest first (Guo et al. 2017)."""
    index = bin_index(confidence, bins)
    found = []
    for number in range(bins):
        inside = index == number
        count = int(inside.sum())
        hits = int(right[inside].sum())
        found.append(
            Bin(
                number / bins,
                (number + 1) / bins,
                count,
                float(confidence[inside].mean()) if count else math.nan,
                hits / count if count else math.nan,
                *wilson(hits, count),
            )
        )
    return tuple(found)


def localization_aware_calibration_error(
    score: FloatArray, right: NDArray[np.bool_], iou: FloatArray, bins: int = LAECE_BINS
) -> float:
    """Calibration error LaECE of a class, 0..1: a score should be precision times mean IoU of its bin's hits (Oksuz et al.
    2023, eq 5).

    The LaECE of a detector is the mean over its classes. ``iou`` (N,) of each hit with its object; NaN without detections.
    """
    if not len(score):
        return math.nan
    index = bin_index(score, bins)
    # per bin: count times precision times mean IoU of the hits is the sum of their IoU
    gap = np.bincount(index, np.where(right, iou, 0.0) - score.astype(np.float64), bins)
    return float(np.abs(gap).sum() / len(score))


def cross_calibrated(
    p: FloatArray, y: IntArray, units: IntArray, method: Method, folds: int = FOLDS, seed: int = 0
) -> FloatArray:
    """Probabilities ``p`` (N, K) after calibration learned from other ``units`` (N,) than the object's own, (N, K) float64.

    Each class is calibrated against the rest and the rows are scaled back to sum to 1, in folds of whole images.
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

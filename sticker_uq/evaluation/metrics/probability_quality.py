# SPDX-License-Identifier: Apache-2.0
"""How good class probabilities are, over all classes and for each class by itself.

Ullah, Fan and Wongpiromsarn, "Design and Evaluation of Object Classifiers for Probabilistic Decision-Making in Autonomous
Systems": ACE, EACE and VACE (section IV-A), and the measures they are compared with (section II). All functions take class
probabilities ``p`` (N, K), rows summing to 1, and true classes ``y`` (N,) in [0, K); of no object the result is NaN.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sticker_uq.scene import FloatArray, IntArray, InvalidInput

EceVariant = Literal["standard", "true_class"]
BINS, LAECE_BINS = 10, 25
_SMALLEST = 1e-15
"""Probability below which the logarithm is cut off: a calibrated probability may be 0."""


@dataclass(frozen=True)
class Sampling:
    """How subsets are drawn for ACE: ``subsets`` of ``ratio`` of the objects each, without replacement.

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
    """ACE of every subset and class, ``errors`` (m, K); ``eace`` and ``vace`` (K,): its mean and variance."""

    errors: FloatArray

    @property
    def eace(self) -> FloatArray:
        """Expectation of the absolute class error, (K,), in objects or as a share of the mean class count."""
        return self.errors.mean(axis=0)

    @property
    def vace(self) -> FloatArray:
        """Variance of the absolute class error, (K,), divided by m as in the paper."""
        return self.errors.var(axis=0)


def class_errors(p: FloatArray, y: IntArray, sampling: Sampling, seed: int = 0) -> ClassErrors:
    r"""ACE_c = \|E(#c) - #c\| of random subsets, E(#c) the sum of p_c (Ullah et al., IV-A, steps a to c).

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
    """Share of the objects whose most probable class is the true one."""
    return _mean(p.argmax(axis=1) == y)


def brier_score(p: FloatArray, y: IntArray) -> float:
    """Mean over the objects of squared errors summed over classes, 0..2 (Ullah et al., II, 1)."""
    return float(np.sum(class_brier_scores(p, y)))


def class_brier_scores(p: FloatArray, y: IntArray) -> FloatArray:
    """Brier score of each class against the rest, (K,), 0..1; their sum is :func:`brier_score`."""
    if not len(y):
        return np.full(p.shape[1], np.nan)
    return np.mean((p - np.eye(p.shape[1])[y]) ** 2, axis=0)


def negative_log_likelihood(p: FloatArray, y: IntArray) -> float:
    """Mean over the objects of -ln p of the true class, nats. The paper's (section II, 3) is the sum."""
    return _mean(-np.log(np.maximum(p[np.arange(len(y)), y], _SMALLEST)))


def calibration_error(confidence: FloatArray, right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Mean over the objects of the gap between mean confidence and share of right ones in their bin, 0..1.

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


def bin_index(confidence: FloatArray, bins: int) -> IntArray:
    """The bin of each confidence in [0, 1]: (0, 1/bins] is 0, and so is exactly 0."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    return np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)


def _mean(values: FloatArray | NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def localization_aware_calibration_error(
    score: FloatArray, right: NDArray[np.bool_], iou: FloatArray, bins: int = LAECE_BINS
) -> float:
    """LaECE of a class, 0..1: a score should be precision times mean IoU of its bin's hits (Oksuz et al. 2023, eq 5).

    The LaECE of a detector is the mean over its classes. ``iou`` (N,) of each hit with its object; NaN without detections.
    """
    if not len(score):
        return math.nan
    index = bin_index(score, bins)
    # per bin: count times precision times mean IoU of the hits is the sum of their IoU
    gap = np.bincount(index, np.where(right, iou, 0.0) - score.astype(np.float64), bins)
    return float(np.abs(gap).sum() / len(score))

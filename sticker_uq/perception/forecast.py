"""What an object that some of the passes saw may look like after all of them.

Every number of an object is given the interval in which its value after the last pass lies, so many standard deviations wide:
beta-binomial for counts, Student's distribution for means, log-normal for variances and hulls, which grow with the passes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from sticker_uq.scene import FloatArray, ObservedObject, StochasticSamples
from sticker_uq.uncertainty import iou_matrix

_SAME_THING = 0.5  # IoU from which a box counts as one of an object's
_PRIOR = 0.5  # Jeffreys' prior of a share
_PRIOR_VALUES = 2  # values that the prior of a standard deviation counts for
_PRIOR_DEVIATION = 0.02  # of a probability, or of an entropy in bits
_HULL = 4.0, 0.8  # area of the hull of n normal points over their standard deviations: 4 (ln n - 0.8)
_UNMEASURED = 1e9  # the worst of a number that was not measured
_CORNERS = (0, 1), (2, 1), (0, 3), (2, 3)  # coordinates of a box's corners


class Forecast:
    """One object seen in the passes of ``samples``, and its intervals after ``most`` passes."""

    def __init__(self, observed: ObservedObject, samples: StochasticSamples, most: int) -> None:
        self.object, self.most, self.taken = observed, most, samples.passes
        rows = iou_matrix(observed.box[None], samples.boxes)[0] >= _SAME_THING
        vectors = np.asarray(
            samples.probabilities[rows] if rows.any() else observed.probabilities[None], np.float64
        )
        vectors = vectors / vectors.sum(axis=1, keepdims=True)
        self._count = len(vectors)
        self._expected = max(self._count * most / samples.passes, self._count + 1e-9)
        # standard deviation of the difference of the mean of these values and of all after the last pass, over that of one
        self._scale = float(np.sqrt(1 / self._count - 1 / self._expected))
        label = int(observed.label)
        mean = vectors.mean(axis=0)
        own = -(vectors * _log2(vectors)).sum(axis=1)
        cross = -vectors @ _log2(mean)
        self._deviations = {
            "probability": _deviation(vectors[:, label]),
            "shannon_entropy": _deviation(cross),
            "mutual_information": _deviation(cross - own),
        }

    def most_seen(self, width: float) -> int:
        """How many of all passes see the object at most, within ``width`` standard deviations."""
        return self.object.passes + self._seen(width)[1]

    def at(self, width: float, sure: bool, clustered: bool) -> ObservedObject:
        """The object with every number as good, or as bad, as ``width`` standard deviations allow.

        ``clustered``: as an object that enough passes saw. One that was not so far has no measured metrics: none is bad if
        ``sure``, otherwise all are.
        """
        o, sign = self.object, -1.0 if sure else 1.0
        label = int(o.label)
        rate = (o.passes + self._seen(width)[int(sure)]) / self.most
        moved = replace(
            o,
            detection_rate=rate,
            probabilities=_shifted(o.probabilities, label, -sign * self._half("probability", width)),
        )
        if not clustered:
            return moved
        if o.unstable:
            worst = 0.0 if sure else _UNMEASURED
            return replace(
                moved,
                unstable=False,
                variation_ratio=worst,
                shannon_entropy=worst,
                mutual_information=worst,
                total_variance=worst,
                predictive_surface=worst,
                relative_total_variance=worst,
                relative_predictive_surface=worst,
            )
        entropy = o.shannon_entropy + sign * self._half("shannon_entropy", width)
        information = o.mutual_information * self._growth() + sign * self._half("mutual_information", width)
        variance = self._growth() * np.exp(sign * width * self._spread())
        surface = np.exp(max(0.0, self._surface + sign * width * self._spread()))
        return replace(
            moved,
            variation_ratio=self._variation(width, sure),
            shannon_entropy=max(0.0, entropy),
            mutual_information=max(0.0, information),
            total_variance=o.total_variance * variance,
            relative_total_variance=o.relative_total_variance * variance,
            predictive_surface=o.predictive_surface * surface,
            relative_predictive_surface=o.relative_predictive_surface * surface,
        )

    def _seen(self, width: float) -> tuple[int, int]:
        return _share(self.most - self.taken, self.object.passes, self.taken, width)

    def _half(self, name: str, width: float) -> float:
        """Half the width of the interval of a mean after the last pass."""
        return self._deviations[name] * self._scale * _quantile(self._count, width)

    def _growth(self) -> float:
        """By how much a variance over so few values falls short of that over all."""
        return (1 - 1 / max(self._expected, 2.0)) / (1 - 1 / max(self._count, 2.0))

    def _spread(self) -> float:
        """Standard deviation of the logarithm of a variance or hull after the last pass."""
        return 1.1 * self._scale

    @cached_property
    def _surface(self) -> float:
        """Logarithm of the predictive surface after the last pass over the present one.

        The hull of few points says little: that of normal points with their covariance says more, until most passes are made.
        """
        o = self.object
        share = self._count / self._expected
        factor, offset = _HULL
        whole = factor * (np.log(max(self._expected, 3.0)) - offset)
        present = factor * (np.log(max(self._count, 3.0)) - offset)
        unbiased = self._count / max(self._count - 1, 1)
        roots = [np.sqrt(max(np.linalg.det(o.box_covariance[np.ix_(c, c)]), 0.0)) for c in _CORNERS]
        normal = np.mean(roots) * unbiased * whole
        if not (normal > 0 and o.predictive_surface > 0):
            return 0.0
        return float((1 - share) * np.log(normal / o.predictive_surface) + share * np.log(whole / present))

    def _variation(self, width: float, sure: bool) -> float:
        """Variation ratio after the last pass: the label's share among the new boxes is beta-binomial."""
        new = max(round(self._expected) - self._count, 0)
        agreeing = round((1 - self.object.variation_ratio) * self._count)
        more = _share(new, agreeing, self._count, width)[int(sure)]
        return float(max(0.0, 1 - (agreeing + more) / (self._count + new)))


def _log2(vectors: FloatArray) -> FloatArray:
    return np.log2(np.maximum(vectors, 1e-12))


def _deviation(values: FloatArray) -> float:
    """Standard deviation of ``values`` (K,), towards that of the prior where they are few."""
    squares = float(((values - values.mean()) ** 2).sum())
    return float(
        np.sqrt((squares + _PRIOR_VALUES * _PRIOR_DEVIATION**2) / (max(len(values), 1) - 1 + _PRIOR_VALUES))
    )


@lru_cache(maxsize=4096)
def _share(new: int, successes: int, trials: int, width: float) -> tuple[int, int]:
    """Interval of the number of successes among ``new`` trials after ``successes`` in ``trials``."""
    if new == 0:
        return 0, 0
    from scipy.stats import (
        betabinom,
        norm,
    )  # half a second, which a detector without adaptive passes need not wait

    tail = float(norm.sf(width))
    low, high = betabinom.ppf([tail, 1 - tail], new, successes + _PRIOR, trials - successes + _PRIOR)
    return int(low), int(high)


@lru_cache(maxsize=1024)
def _quantile(count: int, width: float) -> float:
    """Student's quantile that has the probability of ``width`` normal standard deviations, for the mean of ``count`` values."""
    from scipy.stats import norm
    from scipy.stats import t as student

    return float(student.isf(norm.sf(width), count - 1 + _PRIOR_VALUES))


def _shifted(vector: FloatArray, label: int, by: float) -> FloatArray:
    """``vector`` (3,) with the probability of ``label`` changed ``by`` so much, the others in proportion."""
    wanted = float(np.clip(vector[label] + by, 0.0, 1.0))
    rest = 1.0 - float(vector[label])
    others = vector * ((1.0 - wanted) / rest) if rest > 1e-9 else np.full(len(vector), (1.0 - wanted) / 2)
    others[label] = wanted
    return np.asarray(others, np.float32)

"""How well a number per scene tells two kinds of scenes apart: area under the ROC curve, rates at cut-offs, intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sticker_uq.scene import FloatArray

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure with its bootstrap interval at CONFIDENCE; all NaN where nothing can be measured."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """The figure and its interval, or a dash."""
        if np.isnan(self.value):
            return "-"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def area_under_roc(negative: FloatArray, positive: FloatArray) -> float:
    """Probability that a ``positive`` (M,) is above a ``negative`` (N,), ties counting half; NaN without either, or with a NaN.

    This is the area under the ROC curve (Mann-Whitney U over N * M).
    """
    n, m = len(negative), len(positive)
    if not n or not m or np.isnan(negative).any() or np.isnan(positive).any():
        return float("nan")
    ordered = np.sort(negative)
    not_above, below = (np.searchsorted(ordered, positive, side) for side in ("right", "left"))
    return float((not_above.sum() + below.sum()) / 2 / (n * m))


def roc_interval(negative: FloatArray, positive: FloatArray, seed: int = 0) -> Interval:
    """`area_under_roc` with the percentile bootstrap over scenes of both kinds."""
    n, m = len(negative), len(positive)
    if not n or not m:
        return Interval(*[float("nan")] * 3)
    rng = np.random.default_rng(seed)
    areas = [
        area_under_roc(negative[rng.integers(0, n, n)], positive[rng.integers(0, m, m)])
        for _ in range(RESAMPLES)
    ]
    return Interval(area_under_roc(negative, positive), *_limits(np.asarray(areas)))


def mean_interval(values: FloatArray, seed: int = 0) -> Interval:
    """Mean of the values that are numbers, with its percentile bootstrap."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return Interval(*[float("nan")] * 3)
    rng = np.random.default_rng(seed)
    means = known[rng.integers(0, len(known), (RESAMPLES, len(known)))].mean(axis=1)
    return Interval(float(known.mean()), *_limits(means))


def share_above(values: FloatArray, cut_off: float) -> float:
    """Share of ``values`` above ``cut_off``; NaN without any."""
    return float((values > cut_off).mean()) if len(values) else float("nan")


def _limits(samples: FloatArray) -> tuple[float, float]:
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(samples, [tail, 100 - tail])
    return float(low), float(high)

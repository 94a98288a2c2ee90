# SPDX-License-Identifier: Apache-2.0
"""How well a score tells wrong removals from right ones: risk-coverage curves, AURC, AUGRC, and coverage at equal risk.

Accepted are the objects whose score of doubt is at most a threshold. Intervals resample images, not objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.outcomes import Objects
from sticker_uq.evaluation.metrics.statistics import Interval, bootstrap
from sticker_uq.scene import FloatArray, IntArray


@dataclass(frozen=True)
class Curve:
    """Risk-coverage curve: what every threshold of a score would do, from strict to loose, (L,) each.

    ``wrong_images``: share of the images in which something wrong is removed; ``removed``: share of the labelled stickers that
    are removed; ``coverage`` and ``selective_risk``: share of the objects that are accepted, and wrong ones among those.
    """

    threshold: FloatArray
    wrong_images: FloatArray
    removed: FloatArray
    coverage: FloatArray
    selective_risk: FloatArray

    def removed_at(self, risk: float) -> float:
        """Highest share of stickers removed by a threshold up to which the rate of wrong images stays within ``risk``."""
        within = self.wrong_images <= risk
        last = len(within) if within.all() else int(np.argmin(within))
        return float(self.removed[last - 1]) if last else 0.0


def curve(objects: Objects, doubt: FloatArray, images: int, stickers: int) -> Curve:
    """A policy's risk-coverage curve of the score ``doubt`` (N,) over ``objects`` of ``images`` images with ``stickers``
    labelled.
    """
    order = np.argsort(doubt, kind="stable")
    value = doubt[order]
    wrong = ~objects.right[order]
    first_wrong = _first_of(np.where(wrong, objects.image[order], -1))
    first_right = _first_of(objects.truth[order])
    last = np.ones(len(value), bool)
    last[:-1] = value[1:] > value[:-1]  # a threshold accepts all objects of the same score
    accepted = np.arange(1, len(value) + 1)
    return Curve(
        threshold=value[last],
        wrong_images=(np.cumsum(first_wrong) / max(images, 1))[last],
        removed=(np.cumsum(first_right) / max(stickers, 1))[last],
        coverage=(accepted / max(len(value), 1))[last],
        selective_risk=(np.cumsum(wrong) / accepted)[last],
    )


def _first_of(keys: IntArray) -> NDArray[np.bool_]:
    first = np.zeros(len(keys), bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first & (keys >= 0)


def aurc(wrong: NDArray[np.bool_], doubt: FloatArray, weights: FloatArray | None = None) -> float:
    """Area under the risk-coverage curve, mean over all coverages of the share of wrong ones among the accepted.

    ``weights`` (N,): how often each object counts. Objects of equal doubt are accepted together. NaN without an object.
    """
    coverage, joint = _steps(wrong, doubt, weights)
    return (
        float("nan") if not len(coverage) else float(np.average(joint / coverage, weights=_widths(coverage)))
    )


def augrc(wrong: NDArray[np.bool_], doubt: FloatArray, weights: FloatArray | None = None) -> float:
    """Area under the generalised risk-coverage curve, mean of P(accepted and wrong) (Traub et al. 2024, eq 7).

    As :func:`aurc`, but a wrong object does not count for more because few are accepted.
    """
    coverage, joint = _steps(wrong, doubt, weights)
    if not len(coverage):
        return float("nan")
    middle = (joint + np.concatenate(([0.0], joint[:-1]))) / 2
    return float(np.average(middle, weights=_widths(coverage)))


def _widths(coverage: FloatArray) -> FloatArray:
    return np.diff(coverage, prepend=0.0)


def _steps(
    wrong: NDArray[np.bool_], doubt: FloatArray, weights: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Coverage and share of accepted and wrong ones after each distinct doubt, ascending."""
    weight = np.ones(len(doubt)) if weights is None else weights
    order = np.argsort(doubt, kind="stable")
    order = order[weight[order] > 0]
    if not len(order):
        return np.zeros(0), np.zeros(0)
    last = np.append(np.diff(doubt[order]) > 0, True)
    total = weight[order].sum()
    accepted = np.cumsum(weight[order]) / total
    joint = np.cumsum(weight[order] * wrong[order]) / total
    return accepted[last], joint[last]


def areas(
    objects: Objects, doubt: FloatArray, images: int, resamples: int = 500, seed: int = 0
) -> tuple[Interval, Interval]:
    """Of a policy's risk score ``doubt`` (N,): AURC and AUGRC, 95 % intervals from ``resamples`` draws of ``images`` with
    replacement.
    """
    wrong = ~objects.right

    def both(drawn: IntArray) -> tuple[float, float]:
        weights = np.bincount(drawn, minlength=images)[objects.image].astype(float)
        return aurc(wrong, doubt, weights), augrc(wrong, doubt, weights)

    low, high = bootstrap(both, [images], resamples, seed)
    return (
        Interval(aurc(wrong, doubt), float(low[0]), float(high[0])),
        Interval(augrc(wrong, doubt), float(low[1]), float(high[1])),
    )

# SPDX-License-Identifier: Apache-2.0
"""What a policy does with labelled images, and the same for a threshold on the score, side by side:
risk-coverage curves, AURC, AUGRC, and coverage at equal risk. Accepted are objects whose score of doubt is at most a threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.outcomes import MATCH_IOU, CalledStickers, Outcomes
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.evaluation.metrics.decisions import Count, DecisionCounts, Measured, released_regions
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.judge import once_peeled
from sticker_uq.scene import FloatArray, IntArray


@dataclass(frozen=True)
class Curve:
    """Risk-coverage curve: what every threshold of a score would do, from strict to loose, (L,) each.

    ``wrong_images``: share of the images in which something wrong is removed; ``removed``: share of the labelled stickers that
    are removed.
    """

    wrong_images: FloatArray
    removed: FloatArray

    def removal_share_at(self, risk: float) -> float:
        """Highest share of stickers removed by a threshold up to which the rate of wrong images stays within ``risk``."""
        within = self.wrong_images <= risk
        last = len(within) if within.all() else int(np.argmin(within))
        return float(self.removed[last - 1]) if last else 0.0


def curve(objects: CalledStickers, doubt: FloatArray, images: int, stickers: int) -> Curve:
    """The curve of the score ``doubt`` (N,) over ``objects`` of ``images`` images with ``stickers`` labelled."""
    order = np.argsort(doubt, kind="stable")
    value = doubt[order]
    wrong = ~objects.right[order]
    first_wrong = _first_of(np.where(wrong, objects.image[order], -1))
    first_right = _first_of(objects.truth[order])
    last = np.ones(len(value), bool)
    last[:-1] = value[1:] > value[:-1]  # a threshold accepts all objects of the same score
    return Curve(
        wrong_images=(np.cumsum(first_wrong) / max(images, 1))[last],
        removed=(np.cumsum(first_right) / max(stickers, 1))[last],
    )


def _first_of(keys: IntArray) -> NDArray[np.bool_]:
    first = np.zeros(len(keys), bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first & (keys >= 0)


def augrc(wrong: NDArray[np.bool_], doubt: FloatArray) -> float:
    """Area under the generalised risk-coverage curve, mean of P(accepted and wrong) (Traub et al. 2024, eq 7).

    Objects of equal doubt are accepted together. NaN without an object.
    """
    count, order = len(doubt), np.argsort(doubt, kind="stable")
    if not count:
        return float("nan")
    last = np.append(np.diff(doubt[order]) > 0, True)
    coverage = (np.arange(1, count + 1) / count)[last]
    joint = (np.cumsum(wrong[order]) / count)[last]
    middle = (joint + np.concatenate(([0.0], joint[:-1]))) / 2
    return float(np.average(middle, weights=np.diff(coverage, prepend=0.0)))


def measure(records: Sequence[Record], policy: Policy, match_iou: float = MATCH_IOU) -> Measured:
    """What ``policy`` decides about labelled ``records``, each for itself; the gate's K scenes in a row come on top."""
    free = policy.model_copy(update={"validity": None})
    counts = DecisionCounts(match_iou)
    for unit, record in zip(units_of(records).tolist(), records, strict=True):
        decision = judge(record.assessment, free)
        end = once_peeled(decision, record.assessment, free)
        met = record.met(released_regions(decision), match_iou)
        counts.add_met(str(unit), record.sticker_count, met, decision, end)
    return counts.measure()


@dataclass(frozen=True)
class Score:
    """One way to rank objects by doubt: the ``objects`` (N) of ``images`` images and the ``doubt`` about each (N,)."""

    name: str
    objects: CalledStickers
    doubt: FloatArray
    images: int
    stickers: int

    @property
    def curve(self) -> Curve:
        return curve(self.objects, self.doubt, self.images, self.stickers)

    def count_removed(self, limit: float) -> Count:
        """Labelled stickers that a threshold ``limit`` of this score would remove."""
        truth = self.objects.truth[(self.doubt <= limit) & self.objects.right]
        return Count(len(np.unique(truth)), self.stickers)


PLAIN = "plain score threshold"
COMBINED = "combined risk"


def scores(outcomes: Outcomes) -> list[Score]:
    """The policy's risk on what its other rules let through, and the mean probability of every object called sticker."""
    every = outcomes.detected
    ways = [(COMBINED, *outcomes.select_removable()), (PLAIN, every, every.signals["improbability"])]
    return [
        Score(name, kept.chosen(finite), doubt[finite], outcomes.images, outcomes.stickers)
        for name, kept, doubt in ways
        if (finite := np.isfinite(doubt)).any()
    ]

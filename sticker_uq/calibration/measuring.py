# SPDX-License-Identifier: Apache-2.0
"""What a policy does with labelled images, and the same for a threshold on the score, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sticker_uq.calibration.outcomes import MATCH_IOU, Objects, Outcomes
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.calibration.selective import Curve, curve
from sticker_uq.evaluation.metrics.decisions import Count, DecisionCounts, Measured
from sticker_uq.gate import Policy, judge
from sticker_uq.scene import FloatArray


def measure(records: Sequence[Record], policy: Policy, match_iou: float = MATCH_IOU) -> Measured:
    """What the calibrated ``policy`` decides about labelled ``records``, each for itself; the gate's K scenes in a row come on
    top.
    """
    free = policy.model_copy(update={"validity": None})
    counts = DecisionCounts(match_iou)
    for unit, record in zip(units_of(records).tolist(), records, strict=True):
        counts.add(str(unit), record.boxes, record.labels, judge(record.assessment, free))
    return counts.measured()


@dataclass(frozen=True)
class Score:
    """One way to rank the objects of an image by doubt, in the comparison of a policy with simpler rules. ``objects`` (N) and the
    doubt about each (N,).
    """

    name: str
    objects: Objects
    doubt: FloatArray
    images: int
    stickers: int

    @property
    def curve(self) -> Curve:
        return curve(self.objects, self.doubt, self.images, self.stickers)

    def removed(self, limit: float) -> Count:
        """Labelled stickers that a threshold of this score, beside the calibrated policy, would remove."""
        truth = self.objects.truth[(self.doubt <= limit) & self.objects.right]
        return Count(len(np.unique(truth)), self.stickers)


PLAIN = "plain score threshold"
COMBINED = "combined risk"


def scores(outcomes: Outcomes) -> list[Score]:
    """The policy's risk on what its other rules let through, and to compare it with the mean probability of every object called
    sticker, which knows nothing else.
    """
    ways = [
        (COMBINED, *outcomes.removed()),
        (PLAIN, outcomes.detected, outcomes.detected.signals["improbability"]),
    ]
    return [
        Score(name, kept.chosen(finite), doubt[finite], outcomes.images, outcomes.stickers)
        for name, kept, doubt in ways
        if (finite := np.isfinite(doubt)).any()
    ]

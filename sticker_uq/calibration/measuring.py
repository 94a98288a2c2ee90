# SPDX-License-Identifier: Apache-2.0
"""What a policy does with labelled images, and the same for simpler rules, side by side at equal risk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sticker_uq.calibration import control
from sticker_uq.calibration.fitting import limits_to_try, removal_tests
from sticker_uq.calibration.outcomes import MATCH_IOU, Objects, Outcomes, outcomes_of
from sticker_uq.calibration.records import Record, units_of
from sticker_uq.calibration.selective import Curve, areas, curve
from sticker_uq.evaluation.metrics.decisions import Count, DecisionCounts, Measured
from sticker_uq.evaluation.metrics.statistics import Interval
from sticker_uq.gate import Policy, judge
from sticker_uq.gate.policy.signals import SIGNALS
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

    def wrongful(self, limit: float) -> Count:
        """Images in which a threshold of this score, beside the calibrated policy, would remove something wrong."""
        (test,) = removal_tests(self.objects, self.doubt, self.images, np.array([limit]))
        return Count(test.events, test.images)

    def removed(self, limit: float) -> Count:
        """Labelled stickers that a threshold of this score, beside the calibrated policy, would remove."""
        truth = self.objects.truth[(self.doubt <= limit) & self.objects.right]
        return Count(len(np.unique(truth)), self.stickers)


PLAIN = "plain score threshold"
COMBINED = "combined risk"


def scores(outcomes: Outcomes) -> list[Score]:
    """Scores to compare a policy with: combined risk and single signals on what its other rules let through,
    plain score threshold.

    The plain one knows nothing but the mean probability of every object called sticker.
    """
    objects, risk = outcomes.removed()
    ways = [(COMBINED, objects, risk)]
    ways += [(PLAIN, outcomes.detected, outcomes.detected.signals["improbability"])]
    ways += [(name, objects, objects.signals[name]) for name in SIGNALS]
    return [
        Score(name, kept.chosen(finite), doubt[finite], outcomes.images, outcomes.stickers)
        for name, kept, doubt in ways
        if (finite := np.isfinite(doubt)).any()
    ]


@dataclass(frozen=True)
class Ablation:
    """One score at the policy's risk. ``limit``: the loosest that is proved for the level, None when none is.

    ``removed`` and ``wrongful`` what that limit does; ``at_equal_risk``: share of stickers removed by the loosest threshold
    whose measured rate of bad images stays within the level.
    """

    name: str
    limit: float | None
    removed: Count | None
    wrongful: Count | None
    at_equal_risk: float
    aurc: Interval
    augrc: Interval


def ablation(
    fit: Sequence[Record],
    proof: Sequence[Record],
    test: Sequence[Record],
    draft: Policy,
    level: float,
    delta: float,
    match_iou: float = MATCH_IOU,
    resamples: int = 500,
) -> list[Ablation]:
    """Every score of :func:`scores` under the same procedure: limits to try from ``fit``, proved on ``proof``, measured on
    ``test`` (which may be ``proof`` where there is nothing else).
    """
    parts = [
        {score.name: score for score in scores(outcomes_of(records, draft, match_iou))}
        for records in (fit, proof, test)
    ]
    rows = []
    for name, measured in parts[2].items():
        if name not in parts[0] or name not in parts[1]:
            continue
        proved = parts[1][name]
        tests = removal_tests(
            proved.objects, proved.doubt, proved.images, limits_to_try(parts[0][name].doubt)
        )
        held = control.learn_then_test(tests, level, delta)
        limit = tests[held[-1]].limit if len(held) else None
        below, above = areas(measured.objects, measured.doubt, measured.images, resamples)
        rows.append(
            Ablation(
                name=name,
                limit=limit,
                removed=None if limit is None else measured.removed(limit),
                wrongful=None if limit is None else measured.wrongful(limit),
                at_equal_risk=measured.curve.removed_at(level),
                aurc=below,
                augrc=above,
            )
        )
    return rows

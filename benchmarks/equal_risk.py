# SPDX-License-Identifier: Apache-2.0
"""What two detectors ask at the same measured risk, whatever limits their policies chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sticker_uq.calibration.outcomes import opened, outcomes_of
from sticker_uq.calibration.records import Record
from sticker_uq.gate import Policy, judge
from sticker_uq.scene import FloatArray, IntArray, Outcome, Verdict

RESAMPLES = 2000


@dataclass(frozen=True)
class Answers:
    """What every limit on the risk of a removal would do with N laptops.

    ``objects`` (N,) and ``always`` (N,): objects of each, those asked about at any limit; ``laptop`` (R,) and ``risk`` (R,) of
    the objects that a limit decides about, by rising risk; ``worst`` (N,): the risk from which a removal on a laptop is wrongful,
    infinite where none is.
    """

    objects: FloatArray
    always: FloatArray
    laptop: IntArray
    risk: FloatArray
    worst: FloatArray

    def asked(self, level: float, times: FloatArray | None = None) -> float:
        """Share of the objects asked about at the loosest limit with wrongful removals on at most ``level`` of the laptops.

        ``times`` (N,): how often each laptop counts.
        """
        weight = np.ones(len(self.objects)) if times is None else times
        order = np.argsort(self.worst, kind="stable")
        rate = np.cumsum(weight[order]) / weight.sum()
        # the limit lies below the first wrongful removal that is one too many
        too_many = np.flatnonzero((rate > level) & (weight[order] > 0))
        limit = self.worst[order[too_many[0]]] if len(too_many) else np.inf
        removed = weight[self.laptop[: np.searchsorted(self.risk, limit, side="left")]].sum()
        open_questions = weight @ self.always + weight[self.laptop].sum() - removed
        return float(open_questions / (weight @ self.objects))


def answers_of(records: Sequence[Record], policy: Policy) -> Answers:
    """What every limit would do with ``records``, one image of each laptop, judged by ``policy``."""
    outcomes = outcomes_of(records, policy)
    objects, risk = outcomes.removed()
    order = np.argsort(risk, kind="stable")
    worst = np.full(len(records), np.inf)
    np.minimum.at(worst, objects.image[~objects.right], risk[~objects.right])
    free = opened(policy).model_copy(update={"validity": None})
    counts = []
    for record in records:
        decision = judge(record.assessment, free)
        held = decision.outcome is not Outcome.WORK
        asked = sum(
            v.verdict is Verdict.ASK or (held and v.verdict is Verdict.REMOVE) for v in decision.verdicts
        )
        counts.append((len(decision.verdicts), asked))
    table = np.array(counts, float)
    return Answers(table[:, 0], table[:, 1], objects.image[order], risk[order], worst)


def fewer_asked(
    before: Sequence[Answers], after: Sequence[Answers], level: float
) -> tuple[float, float, float]:
    """Share of the objects asked about after minus before, each the mean over its trainings, with its 95 % interval.

    Percentile bootstrap over the laptops, which all of them saw; every limit is chosen anew in every resample.
    """
    rng = np.random.default_rng(0)
    laptops = len(before[0].objects)

    def difference(times: FloatArray | None) -> float:
        means = [np.mean([one.asked(level, times) for one in group]) for group in (after, before)]
        return float(means[0] - means[1])

    drawn = [
        difference(np.bincount(rng.integers(0, laptops, laptops), minlength=laptops).astype(float))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return difference(None), float(low), float(high)

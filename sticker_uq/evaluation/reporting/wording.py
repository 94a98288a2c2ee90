# SPDX-License-Identifier: Apache-2.0
"""The words that pictures and reports use for metrics, verdicts and reasons."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sticker_uq.messages import OUTCOMES, text_of
from sticker_uq.scene import METRICS, ObjectVerdict, Outcome, Reason, SceneDecision, Verdict


@dataclass(frozen=True)
class ShownMetric:
    """A number of an object in a report. ``top``: the value at which a bar is full; ``low_is_good``: the direction."""

    field: str
    short: str
    name: str
    unit: str
    top: float
    low_is_good: bool
    meaning: str


_TOP_OF_UNBOUNDED = 0.1
SHOWN_METRICS = (
    ShownMetric(
        "score",
        "P",
        "probability",
        "",
        1.0,
        False,
        "How strongly the passes together vote for the class that is named. 1 is certain.",
    ),
    ShownMetric(
        "detection_rate",
        "K/T",
        "seen in",
        "",
        1.0,
        False,
        "Share of the passes that saw the object at all. What is seen only now and then is doubtful.",
    ),
    *(
        ShownMetric(
            name,
            one.short,
            one.words,
            one.unit,
            _TOP_OF_UNBOUNDED if math.isinf(one.highest) else one.highest,
            True,
            one.meaning,
        )
        for name, one in METRICS.items()
        if not one.relative
    ),
)
"""What is shown of every object, in this order; of the metrics those that compare between objects of any size."""

SHORT = {metric.field: metric.short for metric in SHOWN_METRICS} | {
    "probability": "P",
    "sticker_probability": "P(sticker)",
    "logo_probability": "P(logo)",
    "dil": "DiL",
    "unexplained_objectness": "missed?",
    "novelty": "novel?",
    "object_novelty": "novel?",
    "scene_distance": "distance",
    "missed_sticker_probability": "P(missed)",
    "logo_overlap": "logo overlap",
}


def number(value: float) -> str:
    """`value` as reports show it: at most three significant digits, "n/a" when it was not measured."""
    return "n/a" if math.isnan(value) else f"{value:.3g}"


def short_reason(reason: Reason) -> str:
    """A reason as pictures and reports show it: the comparison ("SE 1.02 > 0.9"), or its words where nothing was compared."""
    name = SHORT.get(reason.subject)
    if name is None or math.isnan(reason.limit):
        return text_of(reason)
    if math.isnan(reason.value):
        return f"{name} not measured"
    relation = ">" if reason.value > reason.limit else "<" if reason.value < reason.limit else "="
    return f"{name} {number(reason.value)} {relation} {number(reason.limit)}"


def deciding_words(verdict: ObjectVerdict) -> str:
    if verdict.by_operator:
        return "an operator said so"
    if verdict.verdict is Verdict.REMOVE:
        return "within all limits"
    return short_reason(verdict.reasons[0]) if verdict.reasons else "no reason given"


def outcome_words(decision: SceneDecision) -> str:
    """What was decided about the scene, in one sentence without a full stop."""
    removable = len(decision.removable())
    if decision.outcome is Outcome.WORK and removable > 1:
        return f"{removable} stickers may be removed, one at a time"
    return OUTCOMES[decision.outcome.name.lower()]

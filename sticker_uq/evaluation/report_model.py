# SPDX-License-Identifier: Apache-2.0
"""What a report tells: filled by the replay and by the demo, laid out by :mod:`sticker_uq.evaluation.reporting.report`;
and the words that pictures and reports use for metrics, verdicts and reasons.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sticker_uq.messages import OUTCOMES, text_of
from sticker_uq.scene import METRICS, ObjectVerdict, Outcome, Reason, SceneAssessment, SceneDecision, Verdict


class Tone(StrEnum):
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True)
class TimelineEvent:
    """``stamp_ns`` on the clock of the images; ``who`` acted: camera, gate, arm, person, ..."""

    stamp_ns: int
    who: str
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class ReportEntry:
    """``picture``: uint8 (H, W, 3) BGR, best made by :func:`annotated_images.annotate`, None leaves it out; ``assessment`` None
    when there is only the picture; ``attention``: what the detector noticed, best made by
    :func:`annotated_images.saliency_overlay`, None leaves it out; ``told``: (label, value), what else is to be known first.
    """

    title: str
    assessment: SceneAssessment | None
    decision: SceneDecision | None = None
    picture: NDArray[np.uint8] | None = None
    attention: NDArray[np.uint8] | None = None
    told: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Course:
    """How one number went from image to image. NaN where there is none; ``limit`` NaN when there is no limit."""

    label: str
    values: tuple[float, ...]
    limit: float = float("nan")


@dataclass(frozen=True)
class ReportLaptop:
    """A laptop or stretch of a recording. ``result``: how it ended; ``facts``: (label, value); ``courses``: as small charts."""

    title: str
    entries: tuple[ReportEntry, ...]
    timeline: tuple[TimelineEvent, ...] = ()
    result: str = ""
    tone: Tone = Tone.PLAIN
    facts: tuple[tuple[str, str], ...] = ()
    courses: tuple[Course, ...] = ()


@dataclass(frozen=True)
class Headline:
    """A big number at the top: ``value`` as it is to be read, ``label`` below it."""

    label: str
    value: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class ReportSection:
    """A part about all images. ``note``: how to read it; ``folded``: shown when the reader opens it."""

    title: str
    note: str
    chart: Markup | str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | float | None, ...], ...] = ()
    pictures: tuple[tuple[str, NDArray[np.uint8]], ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """``lead``: what was done and how it went, in plain sentences; ``summary_columns`` and ``summary_rows`` make the table, cells
    are shown as they are (floats with three digits, None as a dash); ``limits`` maps a metric of ``ObservedObject`` or ``dil`` to
    the largest value the policy allows, those that can decide; ``timings`` maps a stage to its median milliseconds per image;
    ``environment`` lists versions, hashes and settings; ``sections``: what is said about all images together.
    """

    title: str
    lead: str
    laptops: tuple[ReportLaptop, ...]
    headlines: tuple[Headline, ...] = ()
    summary_columns: tuple[str, ...] = ()
    summary_rows: tuple[tuple[str | int | float | None, ...], ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[ReportSection, ...] = ()


@dataclass(frozen=True)
class ShownMetric:
    """A number of an object. ``top``: the value at which a bar is full; ``low_is_good``: the direction."""

    field: str
    short: str
    name: str
    unit: str
    top: float
    low_is_good: bool
    meaning: str


_FULL = {math.inf: 0.1}  # the value at which the bar of an unbounded metric is full
_SCORE = "How strongly the passes together vote for the class that is named. 1 is certain."
_RATE = "Share of the passes that saw the object at all. What is seen only now and then is doubtful."
SHOWN_METRICS = (
    ShownMetric("score", "P", "probability", "", 1.0, False, _SCORE),
    ShownMetric("detection_rate", "K/T", "seen in", "", 1.0, False, _RATE),
    *(
        ShownMetric(
            name, one.short, one.words, one.unit, _FULL.get(one.highest, one.highest), True, one.meaning
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
    "obstruction": "in front?",
    "logo_overlap": "logo overlap",
}


def number(value: float) -> str:
    """`value` with at most three significant digits, "n/a" when it was not measured."""
    return "n/a" if math.isnan(value) else f"{value:.3g}"


def short_reason(reason: Reason) -> str:
    """The comparison of a reason ("SE 1.02 > 0.9"), or its words where nothing was compared."""
    name = SHORT.get(reason.subject)
    if name is None or math.isnan(reason.limit):
        return text_of(reason)
    if math.isnan(reason.value):
        return f"{name} not measured"
    relation = ">" if reason.value > reason.limit else "<" if reason.value < reason.limit else "="
    return f"{name} {number(reason.value)} {relation} {number(reason.limit)}"


def explain_verdict(verdict: ObjectVerdict) -> str:
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

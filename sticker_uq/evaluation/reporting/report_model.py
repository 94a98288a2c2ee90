# SPDX-License-Identifier: Apache-2.0
"""What a report tells: filled by the replay and by the demo, laid out by :mod:`sticker_uq.evaluation.reporting.report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from sticker_uq.scene import SceneAssessment, SceneDecision


class Tone(StrEnum):
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    PLAIN = "plain"


@dataclass(frozen=True)
class TimelineEvent:
    """One event on a report's time line. ``stamp_ns`` on the clock of the images; ``who`` acted: camera, gate, arm,
    person, ...
    """

    stamp_ns: int
    who: str
    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class ReportEntry:
    """One image that a report shows.

    ``picture``: uint8 (H, W, 3) BGR, best made by :func:`annotated_images.annotate`, None leaves it out;
    ``assessment`` None when there is only the picture; ``attention``: what the detector
    noticed, best made by :func:`annotated_images.saliency_overlay`, None leaves it out.
    """

    title: str
    assessment: SceneAssessment | None
    decision: SceneDecision | None = None
    picture: NDArray[np.uint8] | None = None
    attention: NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class Course:
    """How one number of a report went from image to image. NaN where there is none; ``limit`` NaN when there is no limit."""

    label: str
    values: tuple[float, ...]
    limit: float = float("nan")


@dataclass(frozen=True)
class ReportLaptop:
    """One laptop of a report, or one stretch of a recording.

    ``result``: how it ended, in a few words; ``facts``: (label, value) pairs; ``courses``: drawn as small charts.
    """

    title: str
    entries: tuple[ReportEntry, ...]
    timeline: tuple[TimelineEvent, ...] = ()
    result: str = ""
    tone: Tone = Tone.PLAIN
    facts: tuple[tuple[str, str], ...] = ()
    courses: tuple[Course, ...] = ()


@dataclass(frozen=True)
class Headline:
    """One big number at the top of the report: ``value`` as it is to be read, ``label`` below it."""

    label: str
    value: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class Section:
    """A part of a report about all images: a ``note`` on how to read it, a chart, a table, and small pictures with captions.

    ``folded``: shown when the reader opens it.
    """

    title: str
    note: str
    chart: Markup | str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | float | None, ...], ...] = ()
    pictures: tuple[tuple[str, NDArray[np.uint8]], ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Report:
    """The whole report of a replay or a cell.

    ``lead``: what was done and how it went, in plain sentences; ``summary_columns`` and ``summary_rows`` make the table, cells
    are shown as they are (floats with three digits, None as a dash); ``limits`` maps a metric of ``ObservedObject`` or ``dil``
    to the largest value the policy allows; ``timings`` maps a stage to its median milliseconds per image;
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
    sections: tuple[Section, ...] = ()

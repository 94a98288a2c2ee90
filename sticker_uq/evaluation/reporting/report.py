# SPDX-License-Identifier: Apache-2.0
"""The report of a replay or a cell: one HTML file that says what was seen, how sure it was, what was decided and why.

Nothing in the file refers to anything outside it, so it can be mailed, archived and read offline.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation import report_model
from sticker_uq.evaluation.report_model import SHOWN_METRICS, ReportEntry, Tone, number
from sticker_uq.evaluation.reporting.document import course_chart, templates
from sticker_uq.io.files import write_file
from sticker_uq.messages import LABELS, VERDICTS, texts_of
from sticker_uq.scene import (
    MonitorScore,
    ObjectClass,
    ObjectVerdict,
    ObservedObject,
    Outcome,
    SceneAssessment,
    Status,
    Verdict,
)

PICTURE_BUDGET = 6_000_000
"""Bytes that all pictures of a report may take as JPEG; with base64 and the text the file stays below 10 MB."""
_WIDEST = 960
_SIGNS = {Tone.GOOD: "✓", Tone.WARN: "?", Tone.BAD: "✕", Tone.PLAIN: "•"}
_TONE_OF_VERDICT = {Verdict.REMOVE: Tone.GOOD, Verdict.KEEP: Tone.PLAIN, Verdict.ASK: Tone.WARN}
_TONE_OF_OUTCOME = {
    Outcome.WORK: Tone.GOOD,
    Outcome.CLEAN: Tone.GOOD,
    Outcome.ASK: Tone.WARN,
    Outcome.BLOCKED: Tone.BAD,
}


@dataclass(frozen=True)
class _Bar:
    """One metric of one object as it is shown: ``share`` and ``limit_share`` of the full bar in percent."""

    short: str
    text: str
    share: float
    limit_share: float | None
    good: bool | None
    measured: bool = True


@dataclass(frozen=True)
class _Row:
    name: str
    tone: Tone
    verdict: str
    why: str
    bars: tuple[_Bar, ...]

    @property
    def votes(self) -> tuple[str, ...]:
        return tuple(bar.short for bar in self.bars[len(SHOWN_METRICS) :])


def write_report(report: report_model.Report, path: Path) -> None:
    """Write one HTML file that refers to nothing else, below 10 MB by smaller pictures; OSError when the disk refuses."""
    write_file(path, render_report(report))


def render_report(report: report_model.Report) -> str:
    environment = templates()
    environment.filters |= {"cell": _cell, "sign": _SIGNS.__getitem__}
    environment.globals |= {
        "course_chart": course_chart,
        "rows_of": lambda entry: _rows(entry, report.limits),
        "dil_bar": lambda entry: _dil_bar(entry, report.limits),
        "scene_tone": _scene_tone,
        "scene_words": _scene_words,
        "seconds": lambda stamp_ns, first_ns: f"{(stamp_ns - first_ns) / 1e9:+.1f} s",
    }
    drawn = {
        (id(e), kind): picture
        for laptop in report.laptops
        for e in laptop.entries
        for kind, picture in (("picture", e.picture), ("attention", e.attention))
        if picture is not None
    } | {
        (id(section), number): picture
        for section in report.sections
        for number, (_, picture) in enumerate(section.pictures)
    }
    jpegs = _jpegs(list(drawn.values()))
    images = {place: base64.b64encode(jpeg).decode() for place, jpeg in zip(drawn, jpegs, strict=True)}
    return environment.get_template("report.html").render(
        report=report,
        metrics=SHOWN_METRICS,
        image_of=lambda entry, kind="picture": images.get((id(entry), kind), ""),
    )


def _jpegs(pictures: list[NDArray[np.uint8]]) -> list[bytes]:
    widest = float(_WIDEST)
    while True:
        encoded = [_jpeg(picture, widest) for picture in pictures]
        size = sum(map(len, encoded))
        if size <= PICTURE_BUDGET or widest < 64:
            return encoded
        widest *= max(min(math.sqrt(PICTURE_BUDGET / size), 0.9), 0.4)


def _jpeg(picture: NDArray[np.uint8], widest: float) -> bytes:
    height, width = picture.shape[:2]
    share = widest / width
    if share < 1.0:
        small = (max(round(width * share), 1), max(round(height * share), 1))
        picture = cv2.resize(picture, small, interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 84])[1].tobytes()


def _rows(entry: ReportEntry, limits: Mapping[str, float]) -> list[_Row]:
    if entry.assessment is None:
        return []
    verdicts = {} if entry.decision is None else {v.object.id: v for v in entry.decision.verdicts}
    rows = []
    for observed in (*entry.assessment.objects, *entry.assessment.unstable):
        # The limits are those of a sticker that is to be removed.
        held = limits if observed.label is ObjectClass.STICKER and not observed.unstable else {}
        name = f"#{observed.id} {LABELS[observed.label.name.lower()]}"
        rows.append(_row(name, verdicts.pop(observed.id, None), _bars(observed, held)))
    rows += [_row(f"#{v.object.id} drawn by a person", v, ()) for v in verdicts.values()]
    return rows


def _row(name: str, verdict: ObjectVerdict | None, bars: tuple[_Bar, ...]) -> _Row:
    if verdict is None:
        return _Row(name, Tone.PLAIN, "", "", bars)
    tone = _TONE_OF_VERDICT.get(verdict.verdict, Tone.BAD)
    plain = verdict.verdict is Verdict.REMOVE and not verdict.by_operator
    why = report_model.explain_verdict(verdict) if plain else texts_of(verdict.reasons)
    return _Row(name, tone, VERDICTS[verdict.verdict.name.lower()], why, bars)


def _bars(observed: ObservedObject, limits: Mapping[str, float]) -> tuple[_Bar, ...]:
    bars = []
    for metric in SHOWN_METRICS:
        value = float(getattr(observed, metric.field))
        limit = limits.get(metric.field)
        text = f"{number(value)} {metric.unit}".strip()
        bars.append(_bar(metric.short, text, value, limit, metric.top, metric.low_is_good))
    return (*bars, *map(_vote, observed.monitors))


def _vote(one: MonitorScore) -> _Bar:
    """The bar of a monitor, whose scale is its own: the limit lies in the middle, 0 or twice the limit at the ends."""
    if math.isnan(one.score):
        return _Bar(one.name, "–", 0.0, None, None, measured=False)
    reach = max(abs(one.limit), 1e-12)
    share = 50 + 50 * min(max((one.score - one.limit) / reach, -1.0), 1.0)
    return _Bar(one.name, number(one.score), share, 50.0, not one.objection)


def _bar(short: str, text: str, value: float, limit: float | None, top: float, low_is_good: bool) -> _Bar:
    if math.isnan(value):
        return _Bar(short, "–", 0.0, None, None, measured=False)
    share = 100 * min(max(value / top, 0.0), 1.0)
    if limit is None:
        return _Bar(short, text, share, None, None)
    good = value <= limit if low_is_good else value >= limit
    return _Bar(short, text, share, 100 * min(max(limit / top, 0.0), 1.0), good)


def _dil_bar(entry: ReportEntry, limits: Mapping[str, float]) -> _Bar | None:
    if entry.assessment is None or entry.assessment.localization is None:
        return None
    dil = entry.assessment.localization.dil
    return _bar("DiL", number(dil), dil, limits.get("dil"), 1.0, True)


def _scene_tone(entry: ReportEntry) -> Tone:
    if entry.assessment is not None and entry.assessment.status is Status.FAILED:
        return Tone.BAD
    return Tone.PLAIN if entry.decision is None else _TONE_OF_OUTCOME.get(entry.decision.outcome, Tone.BAD)


def _scene_words(entry: ReportEntry) -> str:
    if entry.assessment is None:
        return ""
    if entry.assessment.status is Status.FAILED:
        return f"The image could not be assessed: {entry.assessment.status_text}."
    sentences = [f"{_describe_objects(entry.assessment)}."]
    if entry.decision is not None:
        words = report_model.outcome_words(entry.decision)
        reasons = texts_of(entry.decision.reasons)
        sentences.append(f"Decision: {words}{' because ' + reasons if reasons else ''}.")
    return " ".join(sentences)


def _describe_objects(assessment: SceneAssessment) -> str:
    counted = [
        (sum(o.label is label for o in assessment.objects), words)
        for label, words in (
            (ObjectClass.STICKER, ("sticker", "stickers")),
            (ObjectClass.LOGO, ("logo", "logos")),
            (ObjectClass.BACKGROUND, ("spot that is rather background", "spots that are rather background")),
        )
    ]
    seen = [f"{count} {words[count != 1]}" for count, words in counted if count]
    listed = " and ".join([", ".join(seen[:-1]), seen[-1]] if len(seen) > 1 else seen)
    text = f"{listed or 'Nothing'} seen"
    if assessment.unstable:
        text += f", {len(assessment.unstable)} more too seldom to be measured"
    return text


def _cell(value: str | int | float | None) -> str:
    if value is None:
        return "–"
    return number(value) if isinstance(value, float) else str(value)

# SPDX-License-Identifier: Apache-2.0
"""The report of probability quality: a page, a table for programs and one for documents, and the charts as files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from sticker_uq.evaluation.metrics.quality import (
    AS_IS,
    MEASURES,
    OVERALL,
    Quality,
    QualityRow,
    QualitySettings,
)
from sticker_uq.evaluation.reporting.charts import COLOURS, error_scatter, reliability_diagram, variance_bars
from sticker_uq.evaluation.reporting.document import Table, as_html
from sticker_uq.evaluation.reporting.document import as_markdown as markdown_of
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import InvalidInput

_OVERALL = ("accuracy", "brier", "nll", "ece", "ece_true_class", "d_ece", "laece")
_PER_CLASS = ("eace", "vace", "brier", "class_ece", "d_ece", "laece")
_MEANINGS = (
    (
        "Brier score, NLL",
        "How far the probabilities are from what is true. Lower is better; 0 is certain and right.",
    ),
    (
        "ECE, class-wise ECE, D-ECE",
        "How far a probability is from the share of cases in which it comes true. D-ECE: score and precision of detections.",
    ),
    (
        "ECE, true class",
        "The variant that compares the probability of the true class; only to set figures beside published ones.",
    ),
    ("LaECE", "Like D-ECE, but a score should be precision times overlap of the boxes."),
    (
        "EACE, VACE",
        "Error in the number of objects of a class that the probabilities add up to, in random subsets: mean and variance. "
        "Errors of single objects may cancel.",
    ),
)
_COLUMNS = ("name", "state", "class", "measure", "value", "low", "high", "objects")


def write_quality(
    measured: Sequence[Quality], settings: QualitySettings, notes: Sequence[str], out: Path
) -> None:
    """Write quality.html, quality.csv, quality.md and the charts into the folder ``out``, each completely or not at all.

    ``notes``: sentences about where the figures come from. Raises :class:`InvalidInput` when there is nothing to write.
    """
    if not measured:
        raise InvalidInput("nothing was measured")
    charts = _charts(measured, settings)
    files = {f"{name}.svg": str(chart) for name, chart in charts.items()}
    files["quality.csv"] = as_csv(measured)
    files["quality.md"] = as_markdown(measured, settings, notes)
    files["quality.html"] = _html(measured, settings, notes, charts)
    for name, text in files.items():
        with atomic_write(out / name, "w") as stream:
            stream.write(text)


def as_csv(measured: Sequence[Quality]) -> str:
    """The report of probability quality as CSV: one row per value, with every digit; what could not be measured is ``nan``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for quality in measured:
        for row in quality.rows:
            found = (row.value, row.low, row.high, row.count)
            writer.writerow((row.name, row.state, row.subject, row.measure, *found))
    return stream.getvalue()


def as_markdown(measured: Sequence[Quality], settings: QualitySettings, notes: Sequence[str]) -> str:
    """The report of probability quality as Markdown: two tables, overall and by class."""
    return markdown_of([*notes, _legend(settings), _overall_table(measured), _class_table(measured)])


def _legend(settings: QualitySettings) -> str:
    sampling = settings.sampling
    unit = "shares of the mean class count" if sampling.relative else "objects"
    return (
        f"EACE and VACE: {sampling.subsets} subsets of {100 * sampling.ratio:g} %, in {unit}. Calibration errors: "
        f"{settings.bins} bins, LaECE 25. In brackets: 95 % bootstrap interval, {settings.resamples} resamples of images."
    )


def _overall_table(measured: Sequence[Quality]) -> Table:
    known = [m for m in _OVERALL if any(_find(q, m, OVERALL) for q in measured)]
    header = ["detector", "calibration", *(MEASURES[m] for m in known)]
    rows = [[q.vectors.name, q.state, *(_cell(_find(q, m, OVERALL)) for m in known)] for q in measured]
    return Table(header, rows)


def _class_table(measured: Sequence[Quality]) -> Table:
    subjects = measured[0].vectors.classes
    known = [m for m in _PER_CLASS if any(_find(q, m, s) for q in measured for s in subjects)]
    header = ["class", "detector", "calibration", *(MEASURES[m] for m in known)]
    rows = [
        [s, q.vectors.name, q.state, *(_cell(_find(q, m, s)) for m in known)]
        for s in subjects
        for q in measured
    ]
    return Table(header, rows)


def _find(quality: Quality, measure: str, subject: str) -> QualityRow | None:
    return next((r for r in quality.rows if (r.measure, r.subject) == (measure, subject)), None)


def _cell(row: QualityRow | None) -> str:
    if row is None or math.isnan(row.value):
        return "–"
    value = f"{row.value:.3g}"
    return value if math.isnan(row.low) else f"{value} [{row.low:.2g}, {row.high:.2g}]"


def _charts(measured: Sequence[Quality], settings: QualitySettings) -> dict[str, Markup]:
    plain = [q for q in measured if q.state == AS_IS]
    classes = plain[0].vectors.classes
    unit = "shares of the mean class count" if settings.sampling.relative else "objects"
    charts = {
        "error_scatter": error_scatter(classes, [(q.vectors.name, q.errors.errors) for q in plain], unit),
        "error_variance": variance_bars(classes, [(q.vectors.name, q.errors.vace) for q in plain], unit),
    }
    for number, quality in enumerate(measured):
        for subject, bins in quality.diagrams.items():
            title = f"{quality.vectors.name}, {quality.state}: {subject}"
            name = f"reliability_{number + 1}_{subject}"
            charts[_file_name(name)] = reliability_diagram(title, bins, COLOURS[number % len(COLOURS)])
    return charts


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in text)


def _html(
    measured: Sequence[Quality], settings: QualitySettings, notes: Sequence[str], charts: dict[str, Markup]
) -> str:
    diagrams = [chart for name, chart in charts.items() if name.startswith("reliability_")]
    return as_html(
        "Quality of the probabilities",
        [
            "# Quality of the probabilities",
            *notes,
            "## Overall",
            _overall_table(measured),
            "## By class",
            _class_table(measured),
            "## What the figures say",
            _legend(settings),
            Table(("figure", "what it says"), _MEANINGS),
            "## Class errors",
            charts["error_scatter"],
            charts["error_variance"],
            "## Reliability diagrams",
            "A point below the diagonal: too sure. The lines are 95 % intervals, the bars below say how many objects.",
            *diagrams,
        ],
    )

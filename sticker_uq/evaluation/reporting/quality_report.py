# SPDX-License-Identifier: Apache-2.0
"""The report of probability quality: a page, a table for programs and one for documents, and the charts as files."""

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sticker_uq.evaluation.metrics.probability_quality import Sampling
from sticker_uq.evaluation.metrics.quality import BY_CLASS, OVERALL, WHOLE, Quality
from sticker_uq.evaluation.reporting import document
from sticker_uq.io.files import write_file

TITLE = "# Quality of the probabilities"
_SHOWN = {
    "accuracy": "accuracy",
    "brier": "Brier score",
    "nll": "NLL",
    "ece": "ECE",
    "ece_true_class": "ECE, true class",
    "eace": "EACE",
    "vace": "VACE",
}


def write_quality(measured: Sequence[Quality], sampling: Sampling, notes: Sequence[str], out: Path) -> str:
    """Write quality.html, .csv, .md (returned) and charts into ``out``, each whole or not at all; ``notes``: on their origin."""
    classes = measured[0].classes
    unit = "shares of the mean class count" if sampling.relative else "objects"
    charts = {
        "error_scatter": document.error_scatter(classes, [(q.name, q.errors.errors) for q in measured], unit),
        "error_variance": document.variance_bars(classes, [(q.name, q.errors.vace) for q in measured], unit),
    }
    blocks: list[document.Block] = [
        TITLE,
        *notes,
        *(q.note for q in measured),
        f"EACE and VACE: {sampling.subsets} subsets of {100 * sampling.ratio:g} %, in {unit}. Errors of single objects cancel in "
        "them. In brackets: 95 % bootstrap interval over images.",
        _table(measured, WHOLE, (OVERALL,)),
        _table(measured, BY_CLASS, classes),
    ]
    text = document.as_markdown(blocks)
    files = {f"{name}.svg": str(chart) for name, chart in charts.items()}
    files["quality.csv"] = pd.concat([q.rows for q in measured]).to_csv(index=False, lineterminator="\n")
    files |= {"quality.md": text, "quality.html": document.as_html(TITLE[2:], [*blocks, *charts.values()])}
    for name, content in files.items():
        write_file(out / name, content)
    return text


def _table(measured: Sequence[Quality], measures: Sequence[str], subjects: Sequence[str]) -> document.Table:
    rows = [
        (subject, q.name, *(_cell(q.rows, measure, subject) for measure in measures))
        for subject in subjects
        for q in measured
    ]
    return document.Table(("class", "detector", *(_SHOWN[measure] for measure in measures)), rows)


def _cell(rows: pd.DataFrame, measure: str, subject: str) -> str:
    _, _, _, value, low, high = next(
        r for r in rows.itertuples(index=False, name=None) if (r[2], r[1]) == (measure, subject)
    )
    if math.isnan(value):
        return "–"
    return f"{value:.3g}" if math.isnan(low) else f"{value:.3g} [{low:.2g}, {high:.2g}]"

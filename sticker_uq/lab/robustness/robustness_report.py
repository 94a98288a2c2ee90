# SPDX-License-Identifier: Apache-2.0
"""The report of a robustness assessment: one HTML file for people, a Markdown summary for a pull request,
and all figures as CSV.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sticker_uq.evaluation.reporting.document import Block, Table, as_markdown, templates
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.robustness.assessment_tables import FOLDER, all_tables
from sticker_uq.lab.robustness.frequencies import coverage
from sticker_uq.lab.robustness.result import Assessment, SweepResult
from sticker_uq.lab.robustness.robustness_charts import forest_plot, sweep_plot
from sticker_uq.lab.robustness.spec import Circumstance
from sticker_uq.lab.robustness.verdicts import Finding, RelationCheck
from sticker_uq.lab.table_files import write_tables

REPORT, SUMMARY = "report.html", "summary.md"
TONES = {Finding.HOLDS: "good", Finding.VIOLATED: "bad", Finding.UNDECIDED: "warn"}
_ORDER = (Finding.VIOLATED, Finding.UNDECIDED, Finding.HOLDS)
_PERFORMANCE = ("precision", "recall", "ap", "ap50", "ap75", "ar_1", "ar_10", "ar_100")
_SIZES = ("ap_small", "ap_medium", "ap_large", "ar_small", "ar_medium", "ar_large")
_COUNTS = ("images", "true_positives", "false_positives", "false_negatives", "failures")
_GATE = (
    ("wrongly_removed", "something else removed"),
    ("ungated_wrongly_removed", "the same without the gate"),
    ("missed_called_clean", "called clean with a sticker on it"),
    ("ungated_missed_called_clean", "the same without the gate"),
    ("left_to_person", "left to a person"),
)
WHOLE = "all"


@dataclass(frozen=True)
class _Row:
    """One set in a table of the report."""

    name: str
    values: tuple[float, ...]
    tone: str = ""


def write_report(assessment: Assessment, folder: Path) -> None:
    """Write report.html, summary.md and tables/*.csv of a robustness assessment into ``folder``, where its pictures lie.

    The HTML refers to nothing outside itself. Raises OSError when the disk refuses.
    """
    tables = all_tables(assessment)
    write_tables(tables, folder / FOLDER)
    with atomic_write(folder / REPORT, "w") as stream:
        stream.write(render_report(assessment, tables, folder))
    with atomic_write(folder / SUMMARY, "w") as stream:
        stream.write(markdown_summary(assessment))


def render_report(assessment: Assessment, tables: Mapping[str, pd.DataFrame], folder: Path) -> str:
    """The HTML of a robustness assessment's report."""
    environment = templates("sticker_uq.lab.robustness")
    environment.filters |= {"figure": figure_text, "tone": lambda finding: TONES.get(finding, "plain")}
    by_metric = {
        metric: [c for c in assessment.checks if c.metric == metric]
        for metric in assessment.specification.relations
    }
    return environment.get_template("robustness.html").render(
        a=assessment,
        spec=assessment.specification,
        lead=assessment_findings(assessment),
        share=lambda finding: assessment.significance_shares.get(Finding(finding), 0.0),
        forests={metric: forest_plot(checks) for metric, checks in by_metric.items() if checks},
        checks_by_circumstance=_by_circumstance(assessment.checks),
        covered=coverage(assessment.coverage),
        matrix=_matrix(assessment.specification.circumstances),
        performance=_rows(assessment, _PERFORMANCE),
        performance_columns=_PERFORMANCE,
        sizes=_rows(assessment, _SIZES),
        sizes_columns=_SIZES,
        counts=_rows(assessment, _COUNTS),
        counts_columns=_COUNTS,
        gate=_rows(assessment, tuple(name for name, _ in _GATE)),
        gate_columns=[words for _, words in _GATE],
        distances=_distance_rows(assessment),
        distances_columns=_distance_names(assessment),
        sweeps=_sweeps(assessment),
        breaks=breaks_words,
        pictures=[
            (one, base64.b64encode((folder / one.file).read_bytes()).decode())
            for one in assessment.worst
            if (folder / one.file).is_file()
        ],
        downloads=[
            (name, base64.b64encode(table.to_csv(index=False).encode()).decode())
            for name, table in tables.items()
            if len(table)
        ],
    )


def assessment_findings(assessment: Assessment) -> str:
    """What a robustness assessment found, in plain sentences."""
    counts = {f: sum(v is f for n, v in assessment.by_circumstance.items() if n != WHOLE) for f in Finding}
    total = sum(counts.values())
    listed = ", ".join(f"{counts[f]} {f}" for f in _ORDER if counts[f])
    whole = assessment.by_circumstance.get(WHOLE)
    words = {
        Finding.HOLDS: "The relation holds in every circumstance.",
        Finding.VIOLATED: "The system is not robust with respect to its metamorphic relation.",
        Finding.UNDECIDED: "Whether the system is robust cannot be said from these images.",
    }
    sentences = [words[assessment.finding], f"Of {total} circumstances: {listed}."]
    if whole is not None:
        sentences.append(f"In all circumstances together, as often as they are expected: {whole}.")
    return " ".join(sentences)


def markdown_summary(assessment: Assessment) -> str:
    """A robustness assessment as Markdown: verdict, one line per circumstance, what the gate did."""
    source = assessment.set_named("source")
    assert source is not None
    spec = assessment.specification
    metrics = list(spec.relations)
    significance = {c.name: str(c.significance) for c in spec.circumstances}
    shares = ", ".join(f"{assessment.significance_shares.get(f, 0.0):.0%} {f}" for f in _ORDER)
    blocks: list[Block] = [
        f"# Robustness of {spec.system.name}: {assessment.finding}",
        f"{assessment.system}. {assessment_findings(assessment)}",
        f"Share of the significance: {shares}.",
        f"Source images: {', '.join(f'{m} {figure_text(source.figures[m])}' for m in metrics)}.",
        Table(
            (
                "circumstance",
                "significance",
                f"d ({spec.distance})",
                *(f"change of {m}" for m in metrics),
                "finding",
            ),
            [
                (
                    name,
                    significance.get(name, ""),
                    figure_text(checks[0].distance),
                    *map(_change, checks),
                    str(assessment.by_circumstance[name]),
                )
                for name, checks in _by_circumstance(assessment.checks).items()
            ],
        ),
        "Shares of the images:",
        Table(
            ("images", *(words for _, words in _GATE)),
            [
                (row.name, *(f"{v:.1%}" for v in row.values))
                for row in _rows(assessment, tuple(name for name, _ in _GATE))
            ],
        ),
    ]
    broken = [
        (s.circumstance, s.metric, breaks_words(s)) for s in assessment.sweeps if s.metric in spec.relations
    ]
    if broken:
        blocks += [
            "Strength from which epsilon is exceeded:",
            Table(("circumstance", "metric", "strength"), broken),
        ]
    return as_markdown(blocks)


def _change(check: RelationCheck) -> str:
    if not math.isfinite(check.change):
        return "–"
    return f"{check.change:+.3f} [{check.low:+.3f}, {check.high:+.3f}] (±{check.epsilon:.3f})"


def breaks_words(sweep: SweepResult) -> str:
    """From which strength a severity sweep breaks the assessed system, with its interval, in words."""
    strengths = [p.strength for p in sweep.points]
    if sweep.at_mildest:
        return f"at {strengths[0]:g} {sweep.unit} or before"
    if math.isnan(sweep.breaks_at):
        return f"not up to {strengths[-1]:g} {sweep.unit}"
    high = f"{sweep.breaks_high:.3g}" if math.isfinite(sweep.breaks_high) else f"beyond {strengths[-1]:g}"
    return f"{sweep.breaks_at:.3g} {sweep.unit} [{sweep.breaks_low:.3g}, {high}]"


def figure_text(value: float) -> str:
    """A number of a robustness assessment's report with three digits, a dash for what was not measured."""
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) > 1 else f"{value:.3f}"


def _by_circumstance(checks: Sequence[RelationCheck]) -> dict[str, list[RelationCheck]]:
    grouped: dict[str, list[RelationCheck]] = {}
    for check in checks:
        grouped.setdefault(check.circumstance, []).append(check)
    return grouped


def _rows(assessment: Assessment, names: Sequence[str]) -> list[_Row]:
    titles = {"source": "source", "target": "target, all circumstances"}
    return [
        _Row(
            titles.get(one.kind, one.circumstance),
            tuple(one.figures.get(name, math.nan) for name in names),
            TONES.get(assessment.by_circumstance.get(one.circumstance or WHOLE, Finding.HOLDS), "")
            if one.kind != "source"
            else "",
        )
        for one in assessment.sets
        if one.kind != "sweep"
    ]


def _distance_names(assessment: Assessment) -> list[str]:
    return list(dict.fromkeys(n for one in assessment.sets if one.kind != "sweep" for n in one.distances))


def _distance_rows(assessment: Assessment) -> list[_Row]:
    names = _distance_names(assessment)
    return [
        _Row(
            one.circumstance or "target, all circumstances",
            tuple(one.distances.get(n, math.nan) for n in names),
        )
        for one in assessment.sets
        if one.kind in ("target", "circumstance")
    ]


def _matrix(circumstances: Sequence[Circumstance]) -> dict[tuple[int, int], list[Circumstance]]:
    """Circumstances by how often they are met (exposure times likelihood, in five steps) and severity."""
    cells: dict[tuple[int, int], list[Circumstance]] = {}
    for one in circumstances:
        often = min(math.ceil(one.exposure * one.likelihood / 5), 5)
        cells.setdefault((one.severity, often), []).append(one)
    return cells


def _sweeps(assessment: Assessment) -> dict[str, list[tuple[SweepResult, str]]]:
    grouped: dict[str, list[tuple[SweepResult, str]]] = {}
    for one in assessment.sweeps:
        grouped.setdefault(one.circumstance, []).append((one, sweep_plot(one)))
    return grouped

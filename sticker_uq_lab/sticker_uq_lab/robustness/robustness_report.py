# SPDX-License-Identifier: Apache-2.0
"""The report: one HTML file for people, a Markdown summary for a pull request, and all figures as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from markupsafe import Markup

from sticker_uq.evaluation.reporting.document import COLOURS, INK, TABLES, Block, Table, svg, write_pages
from sticker_uq_lab.robustness.assessment import WHOLE, Assessment
from sticker_uq_lab.robustness.frequencies import coverage
from sticker_uq_lab.robustness.verdicts import Finding, RelationCheck

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def all_tables(assessment: Assessment) -> dict[str, pd.DataFrame]:
    """Tables significance, coverage, performance, distances and checks; NaN: not measured."""
    sets = assessment.sets
    where = ("kind", "circumstance")
    risk = ("frequency", "exposure", "likelihood", "severity", "significance")
    significance = [
        {"circumstance": c.name}
        | {name: getattr(c, name) for name in risk}
        | {"finding": str(assessment.by_circumstance.get(c.name, "not assessed"))}
        for c in sorted(assessment.specification.circumstances, key=lambda c: (-c.significance, c.name))
    ]
    tables = {
        "significance": significance,
        "coverage": [row.model_dump() for row in assessment.coverage],
        "performance": [{name: getattr(one, name) for name in where} | one.figures for one in sets],
        "distances": [
            {name: getattr(one, name) for name in where} | one.distances for one in sets if one.distances
        ],
        "checks": [vars(check) | {"finding": str(check.finding)} for check in assessment.checks],
    }
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}


def sheet(assessment: Assessment) -> dict[str, pd.DataFrame]:
    """The three tabs of the paper's spreadsheet (Wozniak et al., section 6): specification, test_cases, evaluation."""
    spec, tables = assessment.specification, all_tables(assessment)
    by_name = {row.circumstance: row for row in assessment.coverage}
    specification, test_cases = [], []
    for c in sorted(spec.circumstances, key=lambda c: (-c.significance, c.name)):
        specification.append(
            {"circumstance": c.name}
            | {f"seen by the {who}": text for who, text in c.views.items()}
            | {
                "probability": c.frequency,
                "exposure": c.exposure,
                "likelihood": c.likelihood,
                "severity": c.severity,
            }
            | {"significance": c.significance}
        )
        source = by_name[c.name].source if c.name in by_name else math.nan
        lacking = "not tagged" if math.isnan(source) else "yes" if source < c.frequency else "no"
        test_cases.append(
            {"circumstance": c.name, "significance": c.significance, "probability": c.frequency}
            | {"relative frequency": source, "to be generated": lacking}
        )
    evaluation = tables["checks"]
    return {
        "specification": pd.DataFrame(specification),
        "test_cases": pd.DataFrame(test_cases),
        "evaluation": evaluation.rename(
            columns={"distance": f"d ({spec.distance})", "epsilon": "epsilon(d)"}
        ),
    }


_COLOUR_OF = {Finding.HOLDS: COLOURS[2], Finding.VIOLATED: COLOURS[5], Finding.UNDECIDED: COLOURS[1]}


def forest_plot(checks: Sequence[RelationCheck]) -> Markup:
    """Change of a metric in each circumstance, with its interval, over the band that epsilon allows."""
    drawn = [v for c in checks for v in (c.change, c.low, c.high, c.epsilon) if math.isfinite(v)]
    reach = 1.05 * min(max([0.05, *map(abs, drawn)]), 1.0)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, check in enumerate(checks):
            colour = _COLOUR_OF[check.finding]
            if math.isfinite(check.epsilon):
                axes.barh(row, 2 * check.epsilon, 0.7, -check.epsilon, color=INK, alpha=0.25)
            axes.plot([check.low, check.high], [row, row], color=colour, lw=2.4)
            axes.plot(check.change, row, "o", color=colour)
        axes.axvline(0, color=INK, lw=1)
        axes.set_yticks(range(len(checks)), [check.circumstance for check in checks])
        axes.set(xlim=(-reach, reach), ylim=(len(checks) - 0.5, -0.5))
        axes.grid(False, axis="y")

    metric = checks[0].metric
    return svg(draw, 8.0, 0.5 + 0.28 * len(checks), f"change of {metric} by circumstance")


_ORDER = (Finding.VIOLATED, Finding.UNDECIDED, Finding.HOLDS)
_GATE = (
    ("wrongly_removed", "something else removed"),
    ("ungated_wrongly_removed", "the same without the gate"),
    ("missed_called_clean", "called clean with a sticker on it"),
    ("ungated_missed_called_clean", "the same without the gate"),
    ("left_to_person", "left to a person"),
)


def write_report(assessment: Assessment, folder: Path) -> None:
    tables, summary = all_tables(assessment), _summary(assessment)
    title = f"Robustness of {assessment.specification.system.name}"
    write_pages(folder, title, [*summary, *_details(assessment, tables)], summary, tables)


def _details(assessment: Assessment, tables: Mapping[str, pd.DataFrame]) -> list[Block]:
    spec = assessment.specification
    blocks: list[Block] = [
        "The relation: performance may change by at most epsilon(d) from source to follow-up images at distance d. It holds "
        "where the whole interval of the change lies within epsilon, is violated where it lies beyond, and is undecided "
        f"otherwise: then more images would tell. Intervals: {spec.confidence:.0%}, {spec.resamples} resamples of the sources.",
        "Not a safety function in the sense of ISO 10218 or ISO 13849: this software protects laptops and logos, not people.",
    ]
    for metric in spec.relations:
        checks = [check for check in assessment.checks if check.metric == metric]
        if checks:
            blocks += [f"## Change of {metric}, target minus source", forest_plot(checks)]
    reasons = [(c.circumstance, c.metric, c.reason) for c in assessment.checks if c.reason]
    if reasons:
        blocks.append(Table(("circumstance", "metric", "not measured because"), reasons))
    risks = [
        (f"{c.name} {c.significance}", f"{c.exposure} x {c.likelihood} x {c.severity}", f"{who}: {text}")
        for c in spec.circumstances
        for who, text in c.views.items()
    ]
    if risks:
        blocks += [
            "## Significance",
            Table(("circumstance", "exposure x likelihood x severity", "seen by"), risks),
        ]
    if assessment.coverage:
        found = coverage(assessment.coverage)
        blocks.append(
            f"Of the circumstances {found.missing:.0%} are missing in the source images, "
            f"{found.misrepresented:.0%} more or less frequent than expected, {found.covered:.0%} covered. Less frequent than "
            f"expected: {', '.join(found.to_generate) or 'none'}."
        )
    for name in ("performance", "distances", "coverage"):
        if len(tables[name]):
            blocks += [f"## {name.capitalize()}", _as_table(tables[name])]
    facts = Table(("", ""), [(name, str(value)) for name, value in assessment.environment.items()])
    return [*blocks, "## Versions and settings", facts, f"Every figure is in {TABLES}/*.csv."]


def _as_table(table: pd.DataFrame) -> Table:
    def text(value: object) -> str:
        return figure_text(value) if isinstance(value, float) else str(value)

    rows = [[text(value) for value in row] for row in table.itertuples(index=False)]
    return Table([str(name).replace("_", " ") for name in table.columns], rows)


def assessment_findings(assessment: Assessment) -> str:
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


def _summary(assessment: Assessment) -> list[Block]:
    source = assessment.sets[0]
    spec = assessment.specification
    metrics = list(spec.relations)
    significance = {c.name: str(c.significance) for c in spec.circumstances}
    shares = ", ".join(f"{assessment.significance_shares.get(f, 0.0):.0%} {f}" for f in _ORDER)
    grouped: dict[str, list[RelationCheck]] = {}
    for check in assessment.checks:
        grouped.setdefault(check.circumstance, []).append(check)
    changes = [f"change of {metric}" for metric in metrics]
    rows = []
    for name, checks in grouped.items():
        found = significance.get(name, ""), figure_text(checks[0].distance), *map(_change, checks)
        rows.append((name, *found, str(assessment.by_circumstance[name])))
    titles = {"source": "source", "target": "target, all circumstances"}
    gate = [
        (titles.get(one.kind, one.circumstance), *(f"{one.figures.get(k, math.nan):.1%}" for k, _ in _GATE))
        for one in assessment.sets
    ]
    return [
        f"# Robustness of {spec.system.name}: {assessment.finding}",
        f"{assessment.system}. {assessment_findings(assessment)}",
        f"Share of the significance: {shares}.",
        f"Source images: {', '.join(f'{m} {figure_text(source.figures[m])}' for m in metrics)}.",
        Table(("circumstance", "significance", f"d ({spec.distance})", *changes, "finding"), rows),
        "Shares of the images:",
        Table(("images", *(words for _, words in _GATE)), gate),
    ]


def _change(check: RelationCheck) -> str:
    if not math.isfinite(check.change):
        return "–"
    return f"{check.change:+.3f} [{check.low:+.3f}, {check.high:+.3f}] (±{check.epsilon:.3f})"


def figure_text(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) > 1 else f"{value:.3f}"

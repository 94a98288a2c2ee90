# SPDX-License-Identifier: Apache-2.0
"""The report of a detector study: one HTML file for people, a Markdown summary for a pull request, every figure as CSV."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from sticker_uq.evaluation.metrics.reliability import Bin
from sticker_uq.evaluation.reporting.chart_style import COLOURS
from sticker_uq.evaluation.reporting.charts import reliability_diagram
from sticker_uq.evaluation.reporting.document import Block, Table, as_markdown, templates
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.studies.detectors.analysis import RESAMPLES, Analysis, analyse
from sticker_uq.lab.studies.detectors.captions import as_text, in_short, shown, study_findings
from sticker_uq.lab.studies.detectors.measures import BY_NAME, in_order
from sticker_uq.lab.studies.detectors.ranks import mean_ranks
from sticker_uq.lab.studies.detectors.report_pictures import FAINT, gallery
from sticker_uq.lab.studies.detectors.results import CLEAN
from sticker_uq.lab.studies.detectors.robustness_score import robustness_scores
from sticker_uq.lab.studies.detectors.study_charts import (
    correlation_map,
    critical_differences,
    rate_curves,
    tier_map,
    transfer_map,
)
from sticker_uq.lab.studies.detectors.study_run import Study
from sticker_uq.lab.studies.detectors.summaries import (
    attack_table,
    circumstance_table,
    headline,
    quality,
    reference_rate,
    reliability_table,
    transfer_table,
)
from sticker_uq.lab.table_files import write_tables
from sticker_uq.scene import ObjectClass

REPORT, SUMMARY, TABLES = "report.html", "summary.md", "tables"
_KEYS = ["dataset", "dropout_rate", "model", "image"]


@dataclass(frozen=True)
class Written:
    """What the report of a detector study wrote: the statistics and the text of the summary."""

    analysis: Analysis
    summary: str


def write_report(study: Study, folder: Path, resamples: int = RESAMPLES) -> Written:
    """Write a detector study's results into its ``folder``: report.html, summary.md, tables/*.csv. OSError when the disk
    refuses.
    """
    settings = study.settings
    scores = robustness_scores(study.images, settings.profile)
    clean = study.images[study.images["variant"] == CLEAN]
    wanted = [*_KEYS, "rs_map", "rs_uqm"]
    table = clean if scores.empty else clean.merge(scores[wanted], on=_KEYS, validate="one_to_one")
    analysis = analyse(table, settings.profile, resamples, settings.seed)
    tables = {
        "headline": headline(study, analysis, scores),
        **analysis.tables(),
        "robustness_scores": scores,
        "quality": quality(study),
        "attacks": attack_table(study),
        "transfer": transfer_table(study),
        "circumstances": circumstance_table(study),
        "ranks": mean_ranks(table, analysis, settings.profile),
        "reliability": reliability_table(study),
    }
    summary = _summary(study, analysis, tables)
    html = _html(study, analysis, tables, scores, folder)
    write_tables(tables, folder / TABLES)
    with atomic_write(folder / REPORT, "w") as stream:
        stream.write(html)
    with atomic_write(folder / SUMMARY, "w") as stream:
        stream.write(summary)
    return Written(analysis, summary)


def _summary(study: Study, analysis: Analysis, tables: Mapping[str, pd.DataFrame]) -> str:
    blocks: list[Block] = [f"# Study of {len(study.settings.models)} models", study_findings(study)]
    if answers := in_short(study, analysis):
        blocks.append("\n".join(f"- {question}: {answer}" for question, answer in answers))
    for told in shown(study, tables):
        blocks += [f"## {told.title}", told.note, Table(*as_text(told.table))]
    return as_markdown(blocks)


def _html(
    study: Study, analysis: Analysis, tables: Mapping[str, pd.DataFrame], scores: pd.DataFrame, folder: Path
) -> str:
    template = templates("sticker_uq.lab.studies.detectors").get_template("study.html")
    return template.render(
        lead=study_findings(study),
        answers=in_short(study, analysis),
        tables=[(told, *as_text(told.table)) for told in shown(study, tables)],
        rate=reference_rate(study),
        plots=[(name, _charts(name, analysis, tables)) for name in dict.fromkeys(analysis.means["dataset"])],
        diagrams=_diagrams(tables["reliability"]),
        files=[name for name, table in tables.items() if not table.empty],
        environment=_environment(study),
        labels={int(one): one.name.lower() for one in ObjectClass},
        faint=FAINT,
        pictures=list(gallery(study, scores, folder)),
    )


def _charts(
    dataset: str, analysis: Analysis, tables: Mapping[str, pd.DataFrame]
) -> list[tuple[str, str, str, Markup]]:
    """Title, CSV file, how to read it and picture of every chart of a data set."""
    charts = [
        (
            "Over the dropout rate",
            "means",
            "Mean over the clean images; the band is its 95 % interval.",
            rate_curves(analysis.means, dataset, list(BY_NAME)),
        )
    ]
    if not tables["ranks"].empty:
        charts.append(
            (
                "Mean ranks",
                "ranks",
                "Left is better. A bar joins models of which none is better than another at every rate.",
                critical_differences(tables["ranks"], dataset),
            )
        )
    if not analysis.tiers.empty:
        charts.append(
            (
                "Tiers",
                "tiers",
                "1 is best; models of one tier do not differ significantly and relevantly. Mean over the rates.",
                tier_map(analysis.tiers, dataset),
            )
        )
    if not analysis.correlations.empty and analysis.correlations["rho"].notna().any():
        charts.append(
            (
                "Does uncertainty tell where the model is wrong?",
                "correlations",
                "Blue would say: surer where it is worse; red, below 0: less sure where it is worse, as it should be.",
                correlation_map(analysis.correlations, dataset),
            )
        )
    if not tables["transfer"].empty:
        charts.append(
            (
                "Whose attack breaks whom",
                "transfer",
                "Dark: little of the mAP is left. The diagonal is the attack on the model itself.",
                transfer_map(tables["transfer"], dataset),
            )
        )
    return charts


def _diagrams(table: pd.DataFrame) -> dict[str, list[Markup]]:
    """Reliability of the clusters of every model on every data set at the reference rate, in the colours of the curves."""
    found: dict[str, list[Markup]] = {}
    for dataset in dict.fromkeys(table["dataset"]) if len(table) else ():
        own = table[table["dataset"] == dataset]
        for number, model in enumerate(in_order(set(own["model"]))):
            rows = own[own["model"] == model].drop(columns=["dataset", "model"]).to_dict("records")
            bins = [Bin(**row) for row in rows]
            colour = COLOURS[number % len(COLOURS)]
            found.setdefault(dataset, []).append(reliability_diagram(model, bins, colour))
    return found


def _environment(study: Study) -> dict[str, str]:
    facts = {f"weights of {label}": digest for label, digest in study.weights.items()}
    facts |= {f"data {d.name}": str(d.folder.name) for d in study.settings.datasets}
    if "device" in study.images:  # published results do not say
        facts["computed on"] = ", ".join(sorted(study.images["device"].unique()))
        facts["precision"] = study.settings.precision
    facts |= {"machine": platform.machine(), "Python": platform.python_version()}
    for name in ("torch", "torchvision", "numpy", "scipy", "pandas"):
        facts[name] = metadata.version(name)
    return facts | {"settings": study.settings.model_dump_json(exclude={"datasets", "models"})}

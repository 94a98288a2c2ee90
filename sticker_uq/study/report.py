"""The report of a study: one HTML file for people, a Markdown summary for a pull request, every figure as CSV."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pandas as pd
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sticker_uq.datasets.files import atomic_write
from sticker_uq.evaluation.quality_charts import COLOURS, reliability_diagram
from sticker_uq.evaluation.reliability import Bin
from sticker_uq.study.analysis import RESAMPLES, Analysis, analyse
from sticker_uq.study.explorer import choose
from sticker_uq.study.measures import BY_NAME
from sticker_uq.study.plots import correlation_map, critical_differences, rate_curves, tier_map, transfer_map
from sticker_uq.study.ranks import mean_ranks
from sticker_uq.study.results import CLEAN
from sticker_uq.study.robustness_score import robustness_scores
from sticker_uq.study.running import Study
from sticker_uq.study.summaries import (
    attack_table,
    circumstance_table,
    headline,
    quality,
    reference_rate,
    reliability_table,
    transfer_table,
)
from sticker_uq.study.tables import write_tables

REPORT, SUMMARY, TABLES = "report.html", "summary.md", "tables"
_KEYS = ["dataset", "dropout_rate", "model", "image"]
_WORDS = {
    "dataset": "data set",
    "dropout_rate": "dropout rate",
    "map_adversarial": "mAP attacked",
    "ms": "ms per image",
    "p_holm": "p (Holm)",
    "d_ece": "D-ECE",
    "laece": "LaECE",
    "pdq": "PDQ",
    "lrp": "LRP",
    "dil": "DiL",
    "rms": "RMS",
    "linf": "L-inf",
    "largest_rms": "largest RMS",
}


@dataclass(frozen=True)
class Written:
    """What was written: the statistics and the text of the summary."""

    analysis: Analysis
    summary: str


def write_report(study: Study, folder: Path, resamples: int = RESAMPLES) -> Written:
    """Write report.html, summary.md and tables/*.csv of a study into its ``folder``. Raises OSError when the disk refuses."""
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
    (folder / TABLES).mkdir(exist_ok=True)
    write_tables(tables, folder / TABLES)
    summary = _summary(study, tables)
    with atomic_write(folder / REPORT, "w") as stream:
        stream.write(_html(study, analysis, tables, scores, folder))
    with atomic_write(folder / SUMMARY, "w") as stream:
        stream.write(summary)
    return Written(analysis, summary)


def _summary(study: Study, tables: Mapping[str, pd.DataFrame]) -> str:
    parts = [f"# Study of {len(study.settings.models)} models", "", _lead(study), ""]
    for title, table in _shown(study, tables).items():
        header, rows = as_text(table)
        parts += [f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        parts += ["| " + " | ".join(row) + " |" for row in rows]
        parts.append("")
    return "\n".join(parts)


def _shown(study: Study, tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables that a person reads, by their titles; empty ones are left out."""
    pairs = tables["pairs"]
    if not pairs.empty:
        columns = ["dataset", "dropout_rate", "measure", "first", "second", "p_holm", "rbc", "band", "better"]
        pairs = pairs.loc[pairs["opened"] & (pairs["better"] != ""), columns]
        pairs = pairs[pairs["dropout_rate"] == reference_rate(study)]
    quality_here = tables["quality"]
    found = {
        f"At a dropout rate of {reference_rate(study):g}": tables["headline"],
        "Best models at every dropout rate": tables["best"],
        f"Differences that are significant and relevant, rate {reference_rate(study):g}": pairs,
        "Boxes and probabilities, clean images": quality_here[
            quality_here["dropout_rate"] == reference_rate(study)
        ],
        "Attacks": tables["attacks"],
        "Whose attack breaks whom: mAP of the model in the column": tables["transfer"],
        "Circumstances and patches": tables["circumstances"],
        "Correlation of mAP with uncertainty, all rates": tables["pooled"],
    }
    return {title: table for title, table in found.items() if not table.empty}


def _lead(study: Study) -> str:
    settings = study.settings
    sets = ", ".join(
        f"{d.name} ({study.images.loc[study.images['dataset'] == d.name, 'image'].nunique()} images)"
        for d in settings.datasets
    )
    attacks = (
        f" Every image was attacked {settings.adversarial} times per model (DAG, mode {settings.attack.mode}, gamma "
        f"{settings.attack.gamma:g}, at most {settings.attack.iterations} iterations)."
        if settings.adversarial
        else ""
    )
    rates = ", ".join(f"{rate:g}" for rate in settings.rates)
    return (
        f"Models: {', '.join(m.label for m in settings.models)}. Data: {sets}. Dropout rates {rates}; T = {settings.passes}; "
        f"profile {settings.profile}; seed {settings.seed}.{attacks} In brackets: 95 % bootstrap interval over the images."
    )


def as_text(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and cells as a person reads them; NAME_low and NAME_high become the brackets of NAME."""
    names = [
        str(n)
        for n in table.columns
        if not str(n).endswith(("_low", "_high")) and n not in ("low", "high", "opened")
    ]
    header = [BY_NAME[n].short if n in BY_NAME else _WORDS.get(n, n) for n in names]
    rows = []
    for record in table.to_dict("records"):
        cells = []
        for name in names:
            low, high = (
                record.get(f"{name}_{end}", record.get(end) if name in ("rho",) else None)
                for end in ("low", "high")
            )
            cells.append(_cell(record[name], low, high))
        rows.append(cells)
    return header, rows


def _cell(value: object, low: object, high: object) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        text = f"{value:.3g}"
        known = (
            isinstance(low, float) and isinstance(high, float) and not (math.isnan(low) or math.isnan(high))
        )
        return f"{text} [{low:.2g}, {high:.2g}]" if known else text
    return BY_NAME[value].short if isinstance(value, str) and value in BY_NAME else str(value)


def _html(
    study: Study, analysis: Analysis, tables: Mapping[str, pd.DataFrame], scores: pd.DataFrame, folder: Path
) -> str:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("sticker_uq.study"), PackageLoader("sticker_uq.evaluation")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    plots = []
    for dataset in dict.fromkeys(analysis.means["dataset"]):
        charts = [("Over the dropout rate", rate_curves(analysis.means, dataset, list(BY_NAME)))]
        if not tables["ranks"].empty:
            title = "Ranks; a bar joins models of which none is better at every rate"
            charts.append((title, critical_differences(tables["ranks"], dataset)))
        if not analysis.tiers.empty:
            charts.append(("Tiers (1 = best), mean over the rates", tier_map(analysis.tiers, dataset)))
        if not analysis.correlations.empty and analysis.correlations["rho"].notna().any():
            charts.append(
                (
                    "Does uncertainty tell where the model is wrong?",
                    correlation_map(analysis.correlations, dataset),
                )
            )
        if not tables["transfer"].empty:
            charts.append(("Whose attack breaks whom", transfer_map(tables["transfer"], dataset)))
        plots.append((dataset, charts))
    return environment.get_template("study.html").render(
        lead=_lead(study),
        tables=[(title, *as_text(table)) for title, table in _shown(study, tables).items()],
        plots=plots,
        diagrams=_diagrams(tables["reliability"]),
        pictures=choose(study, scores, str(folder)),
        files=[name for name, table in tables.items() if not table.empty],
        environment=_environment(study),
    )


def _diagrams(table: pd.DataFrame) -> list[Markup]:
    """Reliability of the clusters of every model on every data set at the reference rate."""
    found = []
    groups = table.groupby(["dataset", "model"], sort=True) if len(table) else ()
    for number, ((dataset, model), own) in enumerate(groups):
        bins = [Bin(**row) for row in own.drop(columns=["dataset", "model"]).to_dict("records")]
        found.append(reliability_diagram(f"{model}, {dataset}", bins, COLOURS[number % len(COLOURS)]))
    return found


def _environment(study: Study) -> dict[str, str]:
    facts = {f"weights of {label}": digest for label, digest in study.weights.items()}
    facts |= {f"data {d.name}": str(d.folder.name) for d in study.settings.datasets}
    facts |= {"machine": platform.machine(), "Python": platform.python_version()}
    for name in ("torch", "torchvision", "numpy", "scipy", "pandas"):
        facts[name] = metadata.version(name)
    return facts | {"settings": study.settings.model_dump_json(exclude={"datasets", "models"})}

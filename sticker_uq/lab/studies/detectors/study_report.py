# SPDX-License-Identifier: Apache-2.0
"""The report of a detector study: one HTML page, a Markdown summary for a pull request, every figure as CSV."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup

from sticker_uq.evaluation.reporting.document import (
    COLOURS,
    MARKERS,
    Block,
    Table,
    as_html,
    as_markdown,
    legend_below,
    svg,
)
from sticker_uq.io.files import write_file
from sticker_uq.lab.studies.detectors.analysis import RESAMPLES, analyse
from sticker_uq.lab.studies.detectors.measures import BY_NAME, CLEAN, figures_table, heading, in_order, label
from sticker_uq.lab.studies.detectors.study_run import Study
from sticker_uq.lab.studies.detectors.summaries import (
    attack_table,
    headline,
    quality,
    reference_rate,
    robustness_scores,
)
from sticker_uq.lab.table_files import write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT, SUMMARY, TABLES = "report.html", "summary.md", "tables"
_SHOWN = {
    "headline": (
        "At a dropout rate of {rate:g}",
        "Means over the clean images with 95 % bootstrap intervals; an arrow says what is better. map_adversarial: mean over the "
        "attacks on the model itself; RS_mAP is worth what there was to lose, the mAP on clean images. ms: median of one encode "
        "and all passes.",
    ),
    "best": (
        "Best models at every dropout rate",
        "Models that no other is better than (significant, and of medium or large effect), at every rate; - where that differs "
        "between rates. {names}",
    ),
    "pairs": (
        "Differences that are significant and relevant, rate {rate:g}",
        "Wilcoxon's signed-rank test over the images, corrected after Holm. The effect is the matched-pairs rank-biserial "
        "correlation: medium from 0.3, large from 0.5. Other pairs and rates are in the file.",
    ),
    "quality": (
        "Boxes and probabilities on clean images, rate {rate:g}",
        "Over all images together. PDQ and recall: 1 is perfect; LRP, D-ECE and LaECE: 0 is.",
    ),
    "attacks": (
        "Attacks",
        "fooled: share of the attacked boxes that got the class the attack wanted. Changes in grey levels of 256.",
    ),
    "pooled": (
        "Correlation of mAP with uncertainty, all rates",
        "Clearly below 0: the model is less sure where it is worse, so that its uncertainty tells when to ask a person.",
    ),
}
"""Title and note of the tables that a person reads, by the name of their CSV file."""


def write_report(study: Study, folder: Path, resamples: int = RESAMPLES) -> str:
    """Write a detector study's results into its ``folder``: report.html, summary.md (returned), tables/*.csv."""
    settings = study.settings
    scores = robustness_scores(study.images, settings.profile)
    keys = ["dataset", "dropout_rate", "model", "image"]
    clean = study.images[study.images["variant"] == CLEAN]
    if not scores.empty:
        clean = clean.merge(scores[[*keys, "rs_map", "rs_uqm"]], on=keys, validate="one_to_one")
    analysis = analyse(clean, settings.profile, resamples, settings.seed)
    tables = {
        "headline": headline(study, analysis, scores),
        **analysis.tables(),
        "robustness_scores": scores,
        "quality": quality(study),
        "attacks": attack_table(study),
    }
    blocks: list[Block] = [f"# Study of {len(settings.models)} models", study_findings(study)]
    for title, note, table in _shown(study, tables):
        blocks += [f"## {title}", note, figures_table(table)]
    charts: list[Block] = []
    for dataset in dict.fromkeys(analysis.means["dataset"]):
        charts += [f"## Over the dropout rate: {dataset}", rate_curves(analysis.means, dataset)]
    page = [
        *blocks,
        *charts,
        "## Where the figures come from",
        Table(("", ""), list(_environment(study).items())),
    ]
    summary = as_markdown(blocks)
    write_tables(tables, folder / TABLES)
    for name, text in ((REPORT, as_html("Study of detectors", page)), (SUMMARY, summary)):
        write_file(folder / name, text)
    return summary


def study_findings(study: Study) -> str:
    settings = study.settings
    sets = ", ".join(
        f"{d.name} ({study.images.loc[study.images['dataset'] == d.name, 'image'].nunique()} images)"
        for d in settings.datasets
    )
    attacks = (
        f" Attacked variants of every image and model: {settings.adversarial} ({settings.attack})."
        if settings.adversarial
        else ""
    )
    return (
        f"Models: {', '.join(m.label for m in settings.models)}. Data: {sets}. Dropout rates "
        f"{', '.join(f'{rate:g}' for rate in settings.rates)}; every model looks T = {settings.passes} times at an image, each "
        f"time with another dropout mask; profile {settings.profile}; seed {settings.seed}.{attacks} In brackets: 95 % bootstrap "
        "interval over the images."
    )


def _shown(study: Study, tables: Mapping[str, pd.DataFrame]) -> list[tuple[str, str, pd.DataFrame]]:
    rate = reference_rate(study)
    pairs, by_rate = tables["pairs"], tables["quality"]
    if not pairs.empty:
        pairs = pairs[pairs["opened"] & (pairs["better"] != "") & (pairs["dropout_rate"] == rate)]
        worse = pairs["first"].where(pairs["first"] != pairs["better"], pairs["second"])
        columns = ["dataset", "measure", "better", "worse", "p_holm", "effect", "band"]
        pairs = pairs.assign(worse=worse, effect=pairs["rbc"].abs())[columns]
    here = {**tables, "pairs": pairs, "quality": by_rate[by_rate["dropout_rate"] == rate]}
    short = {label(m.label): m.label for m in study.settings.models if label(m.label) != m.label}
    names = "".join(f"{number} is {name}. " for number, name in sorted(short.items()))
    return [
        (title.format(rate=rate), note.format(names=names).strip(), here[name])
        for name, (title, note) in _SHOWN.items()
        if not here[name].empty
    ]


def rate_curves(means: pd.DataFrame, dataset: str) -> Markup:
    """Each measure over the dropout rate, a line per model, the 95 % interval over the images as a band."""
    own = means[means["dataset"] == dataset]
    shown = [m for m in BY_NAME.values() if (own["measure"] == m.name).any()]
    models, rates = in_order(set(own["model"])), sorted(set(own["dropout_rate"]))
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)

    def draw(figure: Figure) -> None:
        for place, measure in enumerate(shown, 1):
            axes = figure.add_subplot(rows, columns, place)
            for number, model in enumerate(models):
                line = own[(own["model"] == model) & (own["measure"] == measure.name)].sort_values(
                    "dropout_rate"
                )
                x, mean, low, high = (
                    line[n].to_numpy(float) for n in ("dropout_rate", "mean", "low", "high")
                )
                colour = COLOURS[number % len(COLOURS)]
                axes.plot(x, mean, ms=3.5, label=model, color=colour, marker=MARKERS[number % len(MARKERS)])
                axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
            axes.set_title(heading(measure.name))
            axes.set_xticks(np.array(rates)[:: -(-len(rates) // 6)])
            axes.set_xlabel("dropout rate")
        legend_below(figure, figure.axes[0])

    return svg(draw, 3.6 * columns, 2.7 * rows, f"measures over the dropout rate on {dataset}")


def _environment(study: Study) -> dict[str, str]:
    facts = {f"weights of {label}": digest for label, digest in study.weights.items()}
    facts |= {f"data {d.name}": str(d.folder.name) for d in study.settings.datasets}
    if "device" in study.images:  # published results do not say
        facts["computed on"] = ", ".join(sorted(study.images["device"].unique()))
        facts["precision"] = study.settings.precision
    facts |= {"machine": platform.machine(), "Python": platform.python_version()}
    for name in ("torch", "torchvision", "numpy", "scipy", "pandas"):
        facts[name] = metadata.version(name)
    return facts | {
        "settings": study.settings.model_dump_json(exclude={"datasets", "models"}),
        "every figure": f"{TABLES}/*.csv",
    }

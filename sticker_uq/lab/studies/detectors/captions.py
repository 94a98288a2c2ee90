# SPDX-License-Identifier: Apache-2.0
"""Captions of the report for somebody who has not read the paper: headings, notes and a few sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from sticker_uq.lab.studies.detectors.analysis import Analysis
from sticker_uq.lab.studies.detectors.measures import ACCURACY_FLOOR, BY_NAME, in_order, label
from sticker_uq.lab.studies.detectors.study_run import Study
from sticker_uq.lab.studies.detectors.summaries import accuracies, reference_rate

_WORDS = {
    "dataset": "data set",
    "dropout_rate": "dropout rate",
    "map_adversarial": "mAP attacked ↑",
    "ms": "time per image, ms ↓",
    "p_holm": "p (Holm)",
    "effect": "effect (rank-biserial)",
    "band": "size of the effect",
    "better": "better model",
    "worse": "than",
    "attacked": "attacked model",
    "fooled": "targets fooled",
    "iterations": "iterations, mean",
    "rms": "RMS, grey levels",
    "linf": "largest change, grey levels",
    "largest_rms": "largest RMS, grey levels",
    "detection_rate": "detection rate ↑",
    "recall": "recall ↑",
    "rho": "Spearman's rho",
    "d_ece": "D-ECE ↓",
    "laece": "LaECE ↓",
    "pdq": "PDQ ↑",
    "lrp": "LRP ↓",
    "dil": "DiL",
}
_QUESTIONS = {
    "map": "Most accurate (mAP)",
    "shannon_entropy": "Surest what an object is (SE)",
    "relative_total_variance": "Surest where it is (TV/area)",
    "rs_map": "Keeps its accuracy best under attack (RS_mAP)",
    "rs_uqm": "Keeps its certainty best under attack (RS_UQM)",
}


@dataclass(frozen=True)
class CaptionedTable:
    """A table of the report: ``name`` of its CSV file, a ``note`` on how to read it."""

    title: str
    name: str
    table: pd.DataFrame
    note: str


def study_findings(study: Study) -> str:
    """What the detector study studied, in a paragraph."""
    settings = study.settings
    sets = ", ".join(
        f"{d.name} ({study.images.loc[study.images['dataset'] == d.name, 'image'].nunique()} images)"
        for d in settings.datasets
    )
    attacks = (
        f" Every image was attacked {_times(settings.adversarial)} per model ({settings.attack})."
        if settings.adversarial
        else ""
    )
    rates = ", ".join(f"{rate:g}" for rate in settings.rates)
    return (
        f"Models: {', '.join(m.label for m in settings.models)}. Data: {sets}. Dropout rates {rates}; every "
        f"model looks T = {settings.passes} times at an image, each time with another dropout mask; profile {settings.profile}; "
        f"seed {settings.seed}.{attacks} In brackets: 95 % bootstrap interval over the images."
    )


def in_short(study: Study, analysis: Analysis) -> list[tuple[str, str]]:
    """The questions and answers about first tiers at the reference rate, per data set; none for a single model.

    Models with less than ACCURACY_FLOOR are left out of the answers, and named.
    """
    rate, found = reference_rate(study), []
    tiers = analysis.tiers
    if tiers.empty:
        return []
    weak = {model: ap for model, ap in accuracies(study, rate).items() if not ap >= ACCURACY_FLOOR}
    datasets = list(dict.fromkeys(tiers["dataset"]))
    for dataset in datasets:
        for measure, question in _QUESTIONS.items():
            own = tiers[(tiers["dataset"] == dataset) & (tiers["measure"] == measure)]
            own = own[~own["model"].isin(weak)]
            own = own[own["dropout_rate"] == rate]
            if own.empty:
                continue
            first = in_order(set(own.loc[own["tier"] == own["tier"].min(), "model"]))
            where = f"{dataset}: " if len(datasets) > 1 else ""
            answer = " and ".join(first)
            if len(first) == own["model"].nunique():
                answer = "no difference that is significant and relevant"
            elif len(first) > 1:
                answer += ", between which there is no significant and relevant difference"
            found.append((f"{where}{question}", answer))
    for model, accuracy in weak.items():
        found.append(
            (
                f"Sees too little to be compared: {model}",
                f"mAP {accuracy:.2f} on clean images, below {ACCURACY_FLOOR:g}; what it does not see, no attack can take from it",
            )
        )
    return found


def shown(study: Study, tables: Mapping[str, pd.DataFrame]) -> list[CaptionedTable]:
    """The tables of results of the detector study that a person reads, in order; empty ones are left out."""
    rate = reference_rate(study)
    pairs, quality = tables["pairs"], tables["quality"]
    if not pairs.empty:
        kept = pairs["opened"] & (pairs["better"] != "") & (pairs["dropout_rate"] == rate)
        pairs = pairs[kept]
        worse = pairs["first"].where(pairs["first"] != pairs["better"], pairs["second"])
        columns = ["dataset", "measure", "better", "worse", "p_holm", "effect", "band"]
        pairs = pairs.assign(worse=worse, effect=pairs["rbc"].abs())[columns]
    short = {label(m.label): m.label for m in study.settings.models if label(m.label) != m.label}
    names = ", ".join(f"{number} is {name}" for number, name in sorted(short.items()))
    found = [
        CaptionedTable(
            f"At a dropout rate of {rate:g}",
            "headline",
            tables["headline"],
            "Means over the clean images with 95 % bootstrap intervals; an arrow says what is better. Attacked: mean over the "
            "attacks on the model itself; RS_mAP is worth what there was to lose, the mAP on clean images. The time is the "
            "median of one encode and all passes.",
        ),
        CaptionedTable(
            "Best models at every dropout rate",
            "best",
            tables["best"],
            "Models that no other is better than (significant, and of medium or large effect), at every rate; - where that "
            f"differs between rates. {names + '.' if names else ''}".strip(),
        ),
        CaptionedTable(
            f"Differences that are significant and relevant, rate {rate:g}",
            "pairs",
            pairs,
            "Wilcoxon's signed-rank test over the images, corrected after Holm; below 0.05 is significant. The effect is the "
            "matched-pairs rank-biserial correlation: 1 when the model is better on every image, 0 when neither is; medium from "
            "0.3, large from 0.5. Other pairs and rates are in the file.",
        ),
        CaptionedTable(
            f"Boxes and probabilities on clean images, rate {rate:g}",
            "quality",
            quality[quality["dropout_rate"] == rate].drop(columns="dropout_rate"),
            "Over all images together. What the abbreviations mean is below.",
        ),
        CaptionedTable(
            "Attacks",
            "attacks",
            tables["attacks"],
            "How much the pictures were changed and which share of the attack's targets got the class that it wanted: boxes of "
            "the model for DAG and PGD, the stickers under it for a patch. RMS and largest change are of all 256 grey levels.",
        ),
        CaptionedTable(
            "Whose attack breaks whom",
            "transfer",
            tables["transfer"],
            "mAP of the model in the column on pictures that were made to deceive the model in the row; none: clean pictures.",
        ),
        CaptionedTable(
            f"Circumstances and patches, rate {rate:g}",
            "circumstances",
            tables["circumstances"],
            "Means over the images; the strength of a circumstance is in its own unit.",
        ),
        CaptionedTable(
            "Correlation of mAP with uncertainty, all rates",
            "pooled",
            tables["pooled"],
            "Clearly below 0: the model is less sure where it is worse, so that its uncertainty tells when to ask a person. The "
            "interval comes from drawing whole images.",
        ),
    ]
    return [one for one in found if not one.table.empty]


def heading(name: str) -> str:
    """A column's head in the report: the measure with unit and an arrow to what is better,
    or its name in words.
    """
    if name not in BY_NAME:
        return _WORDS.get(name, name)
    about = BY_NAME[name]
    return f"{about.short}{f', {about.unit}' if about.unit else ''} {'↑' if about.higher_is_better else '↓'}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def as_text(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and cells of a table of the results, for a person; NAME_low, NAME_high become brackets of NAME."""
    names = [
        str(n)
        for n in table.columns
        if not str(n).endswith(("_low", "_high")) and n not in ("low", "high", "opened")
    ]
    header = [heading(name) for name in names]
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

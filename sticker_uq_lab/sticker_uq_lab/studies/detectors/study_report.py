# SPDX-License-Identifier: Apache-2.0
"""The report of a detector study: one HTML page, a Markdown summary for a pull request, every figure as CSV; robustness scores
(Lu et al., eq 14-16) and the summary tables beside the statistics.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup

from sticker_uq.evaluation.metrics.probability_quality import (
    calibration_error,
    localization_aware_calibration_error,
)
from sticker_uq.evaluation.reporting import document
from sticker_uq.scene import FloatArray
from sticker_uq_lab.studies.detectors import measures
from sticker_uq_lab.studies.detectors.analysis import RESAMPLES, Analysis, analyse
from sticker_uq_lab.studies.detectors.measures import label
from sticker_uq_lab.studies.detectors.study_plan import ADVERSARIAL, TRANSFER
from sticker_uq_lab.studies.detectors.study_run import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELL = ["dataset", "dropout_rate", "model", "image"]


def accuracy_score(clean: FloatArray, attacked: FloatArray) -> FloatArray:
    """Robustness score RS_mAP -1..1, ``clean`` (N,), ``attacked`` (N, K): mean of all K + 1 less mean change (eq 14)."""
    everything = np.column_stack([clean, attacked])
    return np.asarray(everything.mean(axis=1) - np.abs(attacked - clean[:, None]).mean(axis=1))


def uncertainty_score(clean: FloatArray, attacked: FloatArray) -> FloatArray:
    """Robustness score of an uncertainty metric, -1..1, higher is better: 1 minus mean and mean change of u / (1 + u) (eq 15)."""
    squashed, moved = clean / (1 + clean), attacked / (1 + attacked)
    everything = np.column_stack([squashed, moved])
    return np.asarray(1 - (everything.mean(axis=1) + np.abs(moved - squashed[:, None]).mean(axis=1)))


def scored_measures(profile: measures.Profile) -> tuple[measures.Measure, ...]:
    """The uncertainty metrics behind the robustness score RS_UQM.

    In the profile ``paper`` TV and PS are relative to the area of the box: in px^2 they are so large that u / (1 + u) is always
    about 1, and two of five terms say nothing.
    """
    return measures.UNCERTAINTY if profile == "simula_rp" else (*measures.UNCERTAINTY[:3], *measures.RELATIVE)


def robustness_scores(images: pd.DataFrame, profile: measures.Profile) -> pd.DataFrame:
    """Scores per data set, rate, model, image: ``rs_map``, ``rs_`` of each metric, ``rs_uqm`` (eq 16), beside the clean and mean
    adversarial value of each measure. A score is NaN where the measure is undefined on one of the pictures, for instance because
    nothing was detected. Empty without adversarial variants.
    """
    attacked = images[images["variant"].str.startswith(ADVERSARIAL)]
    clean = images[images["variant"] == measures.CLEAN].set_index(_CELL)
    if attacked.empty:
        return pd.DataFrame(columns=[*_CELL, "rs_map", "rs_uqm"])
    result = pd.DataFrame(index=clean.index)
    names = []
    for measure in (measures.ACCURACY, *scored_measures(profile)):
        table = attacked.pivot(index=_CELL, columns="variant", values=measure.name).reindex(clean.index)
        own, moved = clean[measure.name].to_numpy(float), table.to_numpy(float)
        result[f"{measure.name}_clean"] = own
        result[f"{measure.name}_adversarial"] = moved.mean(axis=1)
        if measure is measures.ACCURACY:
            result["rs_map"] = accuracy_score(own, moved)
        else:
            names.append(f"rs_{measure.name}")
            # the published PS of a degenerate hull is -1, for which u / (1 + u) has no value
            result[names[-1]] = uncertainty_score(
                np.where(own < 0, np.nan, own), np.where(moved < 0, np.nan, moved)
            )
    result["rs_uqm"] = result[names].mean(axis=1, skipna=False)
    return result.reset_index()


REFERENCE_RATE = 0.2
_HEADLINE = ("map", "shannon_entropy", "relative_total_variance", "rs_map", "rs_uqm")


def reference_rate(study: Study) -> float:
    """The dropout rate of ``study`` nearest to the one that cells run with."""
    rates = [rate for rate in study.settings.rates if rate] or list(study.settings.rates)
    return min(rates, key=lambda rate: abs(rate - REFERENCE_RATE))


def accuracies(study: Study, rate: float) -> dict[str, float]:
    chosen = (study.images["dropout_rate"] == rate) & (study.images["variant"] == measures.CLEAN)
    found = study.images[chosen].groupby("model")["map"].mean()
    return {model: float(found[model]) for model in measures.in_order(set(found.index))}


def headline(study: Study, analysis: Analysis, scores: pd.DataFrame) -> pd.DataFrame:
    """Per data set and model at the reference rate mAP, uncertainty, scores with intervals, mAP attacked, time."""
    rate = reference_rate(study)
    rows = []
    means = analysis.means[analysis.means["dropout_rate"] == rate]
    clean = study.images[(study.images["variant"] == measures.CLEAN) & (study.images["dropout_rate"] == rate)]
    for (dataset, model), own in means.groupby(["dataset", "model"], sort=False):
        row: dict[str, object] = {"dataset": dataset, "model": model}
        by_measure = own.set_index("measure")
        for name in _HEADLINE:
            if name in by_measure.index:
                found = by_measure.loc[name]
                row |= {name: found["mean"], f"{name}_low": found["low"], f"{name}_high": found["high"]}
        if not scores.empty:
            chosen = (
                (scores["dataset"] == dataset) & (scores["model"] == model) & (scores["dropout_rate"] == rate)
            )
            row["map_adversarial"] = scores.loc[chosen, "map_adversarial"].mean()
        assessed = clean[(clean["dataset"] == dataset) & (clean["model"] == model)]
        row["ms"] = float((assessed["encode_ms"] + assessed["decode_ms"]).median())
        rows.append(row)
    return pd.DataFrame(rows)


def quality(study: Study) -> pd.DataFrame:
    """Per data set, model and rate, clean images: mAP, PDQ, LRP, D-ECE, LaECE over the set, DiL, recall."""
    rows = []
    clean = study.images[study.images["variant"] == measures.CLEAN]
    keys = ["dataset", "model", "dropout_rate"]
    found = study.objects[study.objects["variant"] == measures.CLEAN] if len(study.objects) else study.objects
    for key, own in clean.groupby(keys, sort=True):
        hits, wrong, missed = (own[n].sum() for n in ("true_positives", "false_positives", "false_negatives"))
        total = hits + wrong + missed
        errors = (
            own["lrp"].fillna(0) * (own["true_positives"] + own["false_positives"] + own["false_negatives"])
        ).sum()
        row = dict(zip(keys, key, strict=True)) | {
            "images": len(own),
            "map": own["map"].mean(),
            "pdq": own["pdq_sum"].sum() / total if total else np.nan,
            "lrp": errors / total if total else np.nan,
            "recall": hits / (hits + missed) if hits + missed else np.nan,
            "dil": own["dil"].mean(),
        }
        mine = found[(found[keys] == list(key)).all(axis=1)] if len(found) else found
        score, hit, iou = (
            mine[n].to_numpy(float) if len(mine) else np.zeros(0) for n in ("score", "right", "iou")
        )
        right = hit > 0
        row["d_ece"] = calibration_error(score, right)
        by_class = [mine["label"].to_numpy() == c if len(mine) else np.zeros(0, bool) for c in (1, 2)]
        aware = [localization_aware_calibration_error(score[c], right[c], iou[c]) for c in by_class]
        row["laece"] = float(np.nanmean(aware)) if not np.isnan(aware).all() else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def attack_table(study: Study) -> pd.DataFrame:
    """Per data set, model and attack: pictures, share of boxes fooled, iterations, RMS, L-inf in grey levels."""
    if study.attacks.empty:
        return pd.DataFrame()
    groups = study.attacks.groupby(["dataset", "attacked"], sort=True)
    rows = [
        {
            "dataset": dataset,
            "attacked": model,
            "attack": study.settings.attack.method.upper(),
            "pictures": len(own),
            "fooled": own["fooled"].sum() / max(own["targets"].sum(), 1),
            "iterations": own["iterations"].mean(),
            "rms": own["rms"].mean(),
            "largest_rms": own["rms"].max(),
            "linf": own["linf"].max(),
        }
        for (dataset, model), own in groups
    ]
    return pd.DataFrame(rows)


def transfer_table(study: Study) -> pd.DataFrame:
    """Mean mAP of each model (columns) on the first attacks on each (rows) at the study's first rate; "none": clean pictures."""
    if not study.settings.transfer:
        return pd.DataFrame()
    first, labels = f"{ADVERSARIAL}00", measures.in_order({m.label for m in study.settings.models})
    images = study.images[study.images["dropout_rate"] == study.settings.rates[0]]
    means = images.groupby(["dataset", "variant", "model"])["map"].mean()
    rows = []
    for dataset in [d.name for d in study.settings.datasets]:
        for attacked in ("none", *labels):
            seen = {m: first if m == attacked else f"{TRANSFER}{attacked}" for m in labels}
            row = {m: means[dataset, measures.CLEAN if attacked == "none" else seen[m], m] for m in labels}
            rows.append({"dataset": dataset, "attacked": attacked, **row})
    return pd.DataFrame(rows)


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
    "transfer": (
        "Whose attack breaks whom",
        "mAP of the model in the column on the first pictures that were made to deceive the model in the row, at the first "
        "dropout rate of the study; none: clean pictures.",
    ),
    "pooled": (
        "Correlation of mAP with uncertainty, all rates",
        "Clearly below 0: the model is less sure where it is worse, so that its uncertainty tells when to ask a person.",
    ),
}
"""Title and note of the tables that a person reads, by the name of their CSV file."""


def write_report(study: Study, folder: Path, resamples: int = RESAMPLES) -> str:
    """Write report.html, summary.md (returned) and tables/*.csv into ``folder``."""
    settings = study.settings
    scores = robustness_scores(study.images, settings.profile)
    clean = study.images[study.images["variant"] == measures.CLEAN]
    if not scores.empty:
        clean = clean.merge(scores[[*_CELL, "rs_map", "rs_uqm"]], on=_CELL, validate="one_to_one")
    analysis = analyse(clean, settings.profile, resamples, settings.seed)
    tables = {
        "headline": headline(study, analysis, scores),
        **analysis.tables(),
        "robustness_scores": scores,
        "quality": quality(study),
        "attacks": attack_table(study),
        "transfer": transfer_table(study),
    }
    blocks: list[document.Block] = [f"# Study of {len(settings.models)} models", study_findings(study)]
    for title, note, table in _show(study, tables):
        blocks += [f"## {title}", note, measures.figures_table(table)]
    charts: list[document.Block] = []
    for dataset in dict.fromkeys(analysis.means["dataset"]):
        charts += [f"## Over the dropout rate: {dataset}", rate_curves(analysis.means, dataset)]
    page = [
        *blocks,
        *charts,
        "## Where the figures come from",
        document.Table(("", ""), list(_environment(study).items())),
    ]
    return document.write_pages(folder, "Study of detectors", page, blocks, tables)


def study_findings(study: Study) -> str:
    settings = study.settings
    sets = ", ".join(
        f"{d.name} ({study.images.loc[study.images['dataset'] == d.name, 'image'].nunique()} images)"
        for d in settings.datasets
    )
    attacks = ""
    if settings.adversarial:
        attacks = f" Attacked variants of every image and model: {settings.adversarial} ({settings.attack})."
    return (
        f"Models: {', '.join(m.label for m in settings.models)}. Data: {sets}. Dropout rates "
        f"{', '.join(f'{rate:g}' for rate in settings.rates)}; every model looks T = {settings.passes} times at an image, each "
        f"time with another dropout mask; profile {settings.profile}; seed {settings.seed}.{attacks} In brackets: 95 % bootstrap "
        "interval over the images."
    )


def _show(study: Study, tables: Mapping[str, pd.DataFrame]) -> list[tuple[str, str, pd.DataFrame]]:
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
    shown = [m for m in measures.BY_NAME.values() if (own["measure"] == m.name).any()]
    models, rates = measures.in_order(set(own["model"])), sorted(set(own["dropout_rate"]))
    columns = min(len(shown), 3)
    rows = -(-len(shown) // columns)

    def draw(figure: Figure) -> None:
        for place, measure in enumerate(shown, 1):
            axes = figure.add_subplot(rows, columns, place)
            for number, model in enumerate(models):
                line = own[(own["model"] == model) & (own["measure"] == measure.name)]
                line = line.sort_values("dropout_rate")[["dropout_rate", "mean", "low", "high"]]
                x, mean, low, high = line.to_numpy(float).T
                colour = document.COLOURS[number % len(document.COLOURS)]
                marker = document.MARKERS[number % len(document.MARKERS)]
                axes.plot(x, mean, ms=3.5, label=model, color=colour, marker=marker)
                axes.fill_between(x, low, high, color=colour, alpha=0.2, lw=0)
            axes.set_title(measures.heading(measure.name))
            axes.set_xticks(np.array(rates)[:: -(-len(rates) // 6)])
            axes.set_xlabel("dropout rate")
        document.legend_below(figure, figure.axes[0])

    return document.svg(draw, 3.6 * columns, 2.7 * rows, f"measures over the dropout rate on {dataset}")


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
        "every figure": f"{document.TABLES}/*.csv",
    }

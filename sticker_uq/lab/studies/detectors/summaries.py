# SPDX-License-Identifier: Apache-2.0
"""Robustness scores (Lu et al., eq 14-16), and the summary tables of a detector study beside the statistics."""

import numpy as np
import pandas as pd

from sticker_uq.evaluation.metrics.probability_quality import (
    calibration_error,
    localization_aware_calibration_error,
)
from sticker_uq.lab.studies.detectors.analysis import Analysis
from sticker_uq.lab.studies.detectors.measures import (
    ACCURACY,
    CLEAN,
    RELATIVE,
    UNCERTAINTY,
    Measure,
    Profile,
    in_order,
)
from sticker_uq.lab.studies.detectors.study_plan import ADVERSARIAL
from sticker_uq.lab.studies.detectors.study_run import Study
from sticker_uq.scene import FloatArray

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


def scored_measures(profile: Profile) -> tuple[Measure, ...]:
    """The uncertainty metrics behind the robustness score RS_UQM.

    In the profile ``paper`` TV and PS are relative to the area of the box: in px^2 they are so large that u / (1 + u) is always
    about 1, and two of five terms say nothing.
    """
    return UNCERTAINTY if profile == "simula_rp" else (*UNCERTAINTY[:3], *RELATIVE)


def robustness_scores(images: pd.DataFrame, profile: Profile) -> pd.DataFrame:
    """Scores per data set, rate, model, image: ``rs_map``, ``rs_`` of each metric, ``rs_uqm`` (eq 16), beside the clean and mean
    adversarial value of each measure. A score is NaN where the measure is undefined on one of the pictures, for instance because
    nothing was detected. Empty without adversarial variants.
    """
    attacked = images[images["variant"].str.startswith(ADVERSARIAL)]
    clean = images[images["variant"] == CLEAN].set_index(_CELL)
    if attacked.empty:
        return pd.DataFrame(columns=[*_CELL, "rs_map", "rs_uqm"])
    result = pd.DataFrame(index=clean.index)
    names = []
    for measure in (ACCURACY, *scored_measures(profile)):
        table = attacked.pivot(index=_CELL, columns="variant", values=measure.name).reindex(clean.index)
        own, moved = clean[measure.name].to_numpy(float), table.to_numpy(float)
        result[f"{measure.name}_clean"] = own
        result[f"{measure.name}_adversarial"] = moved.mean(axis=1)
        if measure is ACCURACY:
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
    """The dropout rate of the detector study that is nearest to the one cells run with."""
    rates = [rate for rate in study.settings.rates if rate] or list(study.settings.rates)
    return min(rates, key=lambda rate: abs(rate - REFERENCE_RATE))


def accuracies(study: Study, rate: float) -> dict[str, float]:
    """Mean mAP of every model of the detector study on the clean images, 0..1, over all data sets."""
    chosen = (study.images["dropout_rate"] == rate) & (study.images["variant"] == CLEAN)
    found = study.images[chosen].groupby("model")["map"].mean()
    return {model: float(found[model]) for model in in_order(set(found.index))}


def headline(study: Study, analysis: Analysis, scores: pd.DataFrame) -> pd.DataFrame:
    """Per data set and model at the reference rate mAP, uncertainty, scores with intervals, mAP attacked, time."""
    rate = reference_rate(study)
    rows = []
    means = analysis.means[analysis.means["dropout_rate"] == rate]
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
        assessed = _of(study.images, dataset, model, CLEAN)
        assessed = assessed[assessed["dropout_rate"] == rate]
        row["ms"] = float((assessed["encode_ms"] + assessed["decode_ms"]).median())
        rows.append(row)
    return pd.DataFrame(rows)


def quality(study: Study) -> pd.DataFrame:
    """Per data set, model and rate, clean images: mAP, PDQ, LRP, D-ECE, LaECE over the set, DiL, recall."""
    rows = []
    clean = study.images[study.images["variant"] == CLEAN]
    keys = ["dataset", "model", "dropout_rate"]
    found = study.objects[study.objects["variant"] == CLEAN] if len(study.objects) else study.objects
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


def _of(images: pd.DataFrame, dataset: object, model: object, variant: str) -> pd.DataFrame:
    return images[
        (images["dataset"] == dataset) & (images["model"] == model) & (images["variant"] == variant)
    ]

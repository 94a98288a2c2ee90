# SPDX-License-Identifier: Apache-2.0
"""The statistics of the detector study from its per-image results: the tables of Lu et al., and the same with intervals."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sticker_uq.evaluation.metrics.statistics import bca_mean_interval
from sticker_uq.scene import METRICS, InvalidInput
from sticker_uq_lab.studies.detectors import significance
from sticker_uq_lab.studies.detectors.measures import (
    ACCURACY,
    CLEAN,
    UNCERTAINTY,
    Measure,
    Profile,
    conditions,
    in_order,
    label,
    measures_of,
    pair_measures,
)
from sticker_uq_lab.studies.detectors.significance import correlations, friedman, tiers

RECOMMENDED = "recommended"
RESAMPLES = 1000
Rows = defaultdict[str, list[significance.Row]]


@dataclass(frozen=True)
class Analysis:
    """Tables, one row per thing.

    ``means``: data set, rate, model, measure, images, mean, low, high (95 % bootstrap over images); ``friedman``; ``pairs``;
    ``tiers``: tier (1 = best) of each model; ``best``: Table 3, the models that are in the first tier at every rate, by data set
    and measure, as M1/M2; ``correlations``: rho of mAP with each metric; ``pooled``: Table 4, over all rates and data sets.
    """

    profile: Profile
    means: pd.DataFrame
    friedman: pd.DataFrame
    pairs: pd.DataFrame
    tiers: pd.DataFrame
    best: pd.DataFrame
    correlations: pd.DataFrame
    pooled: pd.DataFrame

    def tables(self) -> dict[str, pd.DataFrame]:
        return {name: table for name, table in vars(self).items() if name != "profile"}


def analyse(table: pd.DataFrame, profile: Profile, resamples: int = RESAMPLES, seed: int = 0) -> Analysis:
    """The statistics of per-image results as `read_results` gives them, of the clean images.

    ``paper``: two-sided tests that a significant Friedman test opens, two-sided correlations; ``simula_rp``: the published
    code's choices, where Friedman's test opens nothing. ``resamples`` of the bootstrap, 0 for no intervals. The statistics of a
    rate of 0 are means only: without dropout nothing is uncertain. Raises InvalidInput when there are no clean images.
    """
    groups = conditions(table)
    if not groups:
        raise InvalidInput(f"results without a row of variant {CLEAN!r}")
    measures = measures_of(table)
    collected: Rows = defaultdict(list)
    for dataset, rate, rows in groups:
        where = {"dataset": dataset, "dropout_rate": rate}
        for measure in measures:
            collected["means"] += _means(where, rows, measure, resamples, seed)
            if rate != 0:
                _compare(collected, where, rows, measure, profile)
        if rate != 0 and ACCURACY in measures:
            collected["correlations"] += _correlations(where, rows, measures, profile)
    ordered = pd.DataFrame(
        collected["tiers"], columns=["dataset", "dropout_rate", "measure", "model", "tier"]
    )
    frames = {name: pd.DataFrame(collected[name]) for name in ("means", "friedman", "pairs", "correlations")}
    pooled = pd.DataFrame(_pool(groups, measures, resamples, seed))
    return Analysis(profile, tiers=ordered, best=best_models(ordered), pooled=pooled, **frames)


def best_models(ordered: pd.DataFrame) -> pd.DataFrame:
    """Table 3 from tiers: a row per data set and one "recommended", a column per measure; "-" for none."""
    if ordered.empty:
        return pd.DataFrame({"dataset": []})
    measures = list(dict.fromkeys(ordered["measure"]))
    first = ordered[ordered["tier"] == 1]
    cells: dict[tuple[str, str], tuple[str, ...]] = {}
    datasets = list(dict.fromkeys(ordered["dataset"]))
    for (dataset, measure), rows in first.groupby(["dataset", "measure"], sort=False):
        tops = [tuple(group["model"]) for _, group in rows.groupby("dropout_rate", dropna=False)]
        cells[dataset, measure] = tuple(in_order(set(significance.best_everywhere(tops))))
    rows = [{"dataset": d} | {m: _join(cells[d, m]) for m in measures if (d, m) in cells} for d in datasets]
    last = {m: significance.recommend([cells[d, m] for d in datasets if (d, m) in cells]) for m in measures}
    return pd.DataFrame([*rows, {"dataset": RECOMMENDED} | {m: _join(last[m]) for m in measures}])


def _means(
    where: significance.Row, rows: pd.DataFrame, measure: Measure, resamples: int, seed: int
) -> list[significance.Row]:
    found = []
    for model in in_order(set(rows["model"])):
        values = rows.loc[rows["model"] == model, measure.name].to_numpy(float)
        known = values[~np.isnan(values)]
        mean = bca_mean_interval(known, resamples, seed)
        counts = {"measure": measure.name, "model": model, "images": len(values), "measured": len(known)}
        found.append(where | counts | {"mean": mean.value, "low": mean.low, "high": mean.high})
    return found


def _compare(
    collected: Rows, where: significance.Row, rows: pd.DataFrame, measure: Measure, profile: Profile
) -> None:
    values, left_out = pair_measures(rows, measure, profile)
    models = list(values.columns)
    if len(models) < 2 or values.empty:
        return
    here = where | {"measure": measure.name}
    whole = friedman(values.to_numpy(float))
    collected["friedman"].append(here | whole | {"left_out": left_out})
    pairs = significance.compare_pairs(values.to_numpy(float), models, measure, profile)
    # two models have no Friedman test that could forbid their comparison
    opened = profile == "simula_rp" or len(models) == 2 or whole["p"] < significance.ALPHA
    for pair in pairs:
        shown = pair if profile == "simula_rp" else {n: v for n, v in pair.items() if n != "md"}
        collected["pairs"].append(here | shown | {"opened": opened})
    order = tiers(models, pairs if opened else [], profile)
    for number, tier in enumerate(order, 1):
        collected["tiers"] += [here | {"model": model, "tier": number} for model in tier]


def _uqms(measures: Sequence[Measure], profile: Profile) -> list[Measure]:
    wanted = {m.name for m in UNCERTAINTY} if profile == "simula_rp" else METRICS.keys()
    return [measure for measure in measures if measure.name in wanted]


def _correlations(
    where: significance.Row, rows: pd.DataFrame, measures: Sequence[Measure], profile: Profile
) -> list[significance.Row]:
    uqms = _uqms(measures, profile)
    if profile == "simula_rp" and "predictive_surface" in rows:
        surface = rows["predictive_surface"]
        rows = rows[~rows["image"].isin(rows.loc[surface.isna() | (surface == -1), "image"])]
    found = []
    for model in in_order(set(rows["model"])):
        own = rows[rows["model"] == model]
        columns = [own[m.name].to_numpy(float) for m in uqms]
        accuracy = own[ACCURACY.name].to_numpy(float)
        results = correlations(accuracy, columns, "less" if profile == "simula_rp" else "two-sided")
        found += [where | {"model": model, "measure": m.name} | r for m, r in zip(uqms, results, strict=True)]
    return found


def _pool(
    groups: Sequence[tuple[str, float, pd.DataFrame]], measures: Sequence[Measure], resamples: int, seed: int
) -> list[significance.Row]:
    if ACCURACY not in measures:
        return []
    rows = pd.concat([part for _, rate, part in groups if rate != 0] or [groups[0][2][:0]])
    found = []
    for model in in_order(set(rows["model"])):
        own = rows[rows["model"] == model]
        images = pd.factorize(own["dataset"].astype(str) + "\0" + own["image"].astype(str))[0]
        for measure in _uqms(measures, "paper"):
            result = significance.pooled_correlation(
                own[ACCURACY.name].to_numpy(float), own[measure.name].to_numpy(float), images, resamples, seed
            )
            found.append({"model": model, "measure": measure.name} | result)
    return found


def _join(models: Sequence[str]) -> str:
    return "/".join(map(label, models)) or "-"

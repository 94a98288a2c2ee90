# SPDX-License-Identifier: Apache-2.0
"""Mean ranks of the detectors and who is tied with whom: what the study's critical-difference plot shows."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from sticker_uq.lab.studies.detectors.analysis import Analysis
from sticker_uq.lab.studies.detectors.measures import Profile, in_order
from sticker_uq.lab.studies.detectors.results import conditions, measures_of, paired


def mean_ranks(table: pd.DataFrame, analysis: Analysis, profile: Profile) -> pd.DataFrame:
    """The mean ranks of models, per data set and measure: over clean images at rates above 0, 1 is best, ties
    shared.

    ``tied``: the bars of the plot, each a pair of ranks; a bar covers the longest runs of models, in the order of their ranks,
    of which none is better than another at every rate. Empty for a single model.
    """
    ranks: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for dataset, rate, rows in conditions(table):
        for measure in measures_of(table) if rate else ():
            values, _ = paired(rows, measure, profile)
            if values.shape[1] > 1 and len(values):
                order = values.rank(axis=1, ascending=not measure.higher_is_better)
                ranks.setdefault((dataset, measure.name), []).append(order)
    found = []
    for (dataset, name), parts in ranks.items():
        mean = pd.concat(parts).mean()
        better = _always_better(analysis.pairs, dataset, name, len(parts))
        bars = _bars(mean.sort_values(kind="stable"), better)
        found += [
            {"dataset": dataset, "measure": name, "model": model, "rank": float(mean[model]), "tied": bars}
            for model in in_order(set(mean.index))
        ]
    return pd.DataFrame(found)


def _always_better(pairs: pd.DataFrame, dataset: str, measure: str, rates: int) -> set[frozenset[str]]:
    """Pairs of models of which one is better than the other at every rate."""
    here = pairs[
        (pairs["dataset"] == dataset)
        & (pairs["measure"] == measure)
        & pairs["opened"]
        & (pairs["better"] != "")
    ]
    counts = here.groupby(["first", "second", "better"]).size()
    return {frozenset((first, second)) for (first, second, _), count in counts.items() if count == rates}


def _bars(mean: pd.Series, better: Iterable[frozenset[str]]) -> list[tuple[float, float]]:
    """The longest runs of models by rank without a pair of ``better`` in them, as their first and last rank."""
    apart, models = set(better), list(mean.index)
    runs: list[tuple[int, int]] = []
    for start in range(len(models)):
        end = start
        while end + 1 < len(models) and not any(
            frozenset((models[i], models[end + 1])) in apart for i in range(start, end + 1)
        ):
            end += 1
        if end > start and (not runs or end > runs[-1][1]):
            runs.append((start, end))
    return [(float(mean.iloc[a]), float(mean.iloc[b])) for a, b in runs]

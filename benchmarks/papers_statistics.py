# SPDX-License-Identifier: Apache-2.0
"""The statistics of Lu et al. (S000), recomputed from what they publish, for :mod:`benchmarks.papers`."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.tables import markdown
from sticker_uq_lab.studies.detectors.analysis import Analysis, analyse, best_models
from sticker_uq_lab.studies.detectors.measures import BY_NAME, COLUMNS, MODEL_NAMES, UNCERTAINTY, read_results

PER_IMAGE = Path(__file__).parents[1] / "sticker_uq_lab/test/studies/detectors/published"
Printed = dict[str, Any]


def statistics(printed: Printed) -> str:
    """Friedman's test, pairwise tests and best models of Lu et al., recomputed from the published per-image results."""
    found = analysed()
    friedman = _published("friedman").merge(found.friedman, on="measure")
    pairs = _published("wilcoxon").rename(columns={"Model_1": "first", "Model_2": "second"})
    pairs = pairs.merge(found.pairs, on=["measure", "first", "second"])
    sets = (
        pd.read_csv(PER_IMAGE / "best_sets.csv")
        .query("dataset == 'dalleimg' and dropout_rate == 0.2")
        .iloc[0]
    )
    best = found.best.set_index("dataset").loc["all"]
    rows = []
    for _, row in friedman.iterrows():
        own = pairs[pairs["measure"] == row["measure"]]
        short = BY_NAME[row["measure"]].short
        rows.append(
            (
                short,
                f"{row['Friedman_statistic']:.3f}",
                f"{row['statistic']:.3f}",
                f"{len(own)}",
                _largest(own["p_holm"] - own["p_value"]),
                _largest(own["rbc_y"] - own["rbc_value"]),
                str(sets[short]),
                str(best[row["measure"]]),
            )
        )
    return markdown(
        (
            "metric", "Friedman, published", "here", "pairs of models", "largest difference of an adjusted p",
            "of a rank-biserial correlation", "best models, published", "here",
        ),
        rows,
    )  # fmt: skip


def best(printed: Printed) -> str:
    """Table 3 of Lu et al., recomputed from the published best models of every rate."""
    rates = pd.read_csv(PER_IMAGE / "best_sets.csv")
    shorts = list(rates.columns[2:])
    tiers = [
        {"dataset": r["dataset"], "dropout_rate": r["dropout_rate"], "measure": COLUMNS[s.lower()], "model": m, "tier": 1}
        for _, r in rates.iterrows()
        for s in shorts
        for m in (MODEL_NAMES[int(name[1:]) - 1] for name in r[s].split("/"))
    ]  # fmt: skip
    ours = best_models(pd.DataFrame(tiers)).set_index("dataset")
    rows = []
    for dataset, cells in printed["lu"]["table_3"].items():
        here = [ours.loc[dataset, COLUMNS[s.lower()]] for s in shorts]
        rows.append((dataset, *(p if p == h else f"{p}, here {h}" for p, h in zip(cells, here, strict=True))))
    return markdown(("data set", *shorts), rows)


def correlations(printed: Printed) -> str:
    """Table 4 of Lu et al. beside the correlations of one data set and rate, recomputed."""
    found = analysed().correlations.set_index(["model", "measure"])["rho"]
    rows = [
        (model, *(f"{number(p, 3)} ({number(found.get((model, m.name)), 3)})" for p, m in zip(cells, UNCERTAINTY, strict=True)))
        for model, cells in printed["lu"]["table_4"].items()
    ]  # fmt: skip
    return markdown(("model", *(measure.short for measure in UNCERTAINTY)), rows)


def guideline(printed: Printed) -> str:
    """Figure 6 of Lu et al., which model for which purpose: as published, and as Table 3, recomputed, recommends."""
    purposes = {
        "accuracy": ("mAP", "M2"),
        "uncertainty of labels": ("SE", "M4"),
        "uncertainty of boxes": ("TV", "M4"),
        "robustness of accuracy": ("RSmAP", "M2"),
        "robustness of uncertainty": ("RSUQM", "M4"),
    }
    shorts = list(pd.read_csv(PER_IMAGE / "best_sets.csv").columns[2:])
    (row,) = (line for line in best(printed).splitlines() if line.startswith("| recommended"))
    here = dict(zip(shorts, (cell.strip() for cell in row.strip("| ").split("|")[1:]), strict=True))
    known = {short.lower().replace("_", "").replace("-", ""): model for short, model in here.items()}
    rows = [(what, published, known[short.lower()]) for what, (short, published) in purposes.items()]
    return markdown(("purpose", "published", "here"), rows)


def analysed() -> Analysis:
    return analyse(read_results(PER_IMAGE / "dalleimg_0.2.csv"), "simula_rp", resamples=0)


def _published(name: str) -> pd.DataFrame:
    found = pd.read_csv(PER_IMAGE / f"{name}_dalleimg_0.2.csv")
    return found.assign(measure=found["metric"].map(lambda short: COLUMNS[short.lower()]))


def number(value: float | None, digits: int = 2) -> str:
    """``value`` with ``digits`` decimal places, n/a for None and NaN."""
    return "n/a" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _largest(differences: pd.Series) -> str:
    largest = float(differences.abs().max())
    return "< 1e-12" if largest < 1e-12 else f"{largest:.1e}"

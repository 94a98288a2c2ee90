# SPDX-License-Identifier: Apache-2.0
"""Which doubt tells a wrong release from a right one better than the score of one pass, and why MI and VR tell so little.

    python -m benchmarks.better_uncertainty --out FILE [--split development|test]

Every object that one pass of the packaged SSDLite calls a sticker is ranked by each doubt: dropout at other places and rates,
entropies at other temperatures, a Laplace approximation of the last layer, densities of features, agreement of neighbouring
boxes, augmented views, and models fitted to several of these. What is fitted sees the laptops of the split "fit", unchanged and
weakly shifted. The result of the split is added to FILE. The test split shows CHOSEN and the five metrics of Lu et al. only, and
nothing may be chosen by it: run it once. What is measured of a picture stays in the folder of --cache.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from scipy.stats import spearmanr

from benchmarks import better_recall
from benchmarks.better_measure import (
    KINDS,
    PACKAGED,
    PASS_SIGNALS,
    VIEWED,
    Instrument,
    Passes,
    Picture,
    log_odds,
    material_in,
    measure,
    plan,
)
from benchmarks.better_recall import measure_shrunk, recall_of
from benchmarks.better_signals import (
    PAPER_DOUBTS,
    REFERENCE,
    LastLayer,
    doubts_of,
    of_passes,
    table_of,
)
from benchmarks.better_signals import (
    Table as Objects,
)
from benchmarks.hard_scenes import NONE, STRENGTHS
from benchmarks.result_files import result_file
from sticker_uq.evaluation.metrics.probability_quality import calibration_error
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import FloatArray, InvalidInput

NOVELTIES = ("foreign object", "unknown sticker", "ambiguous object")
FIT_KINDS: tuple[Passes, ...] = (PACKAGED, VIEWED)
CHOSEN: tuple[str, ...] = (
    "gradient boosting on everything",
    of_passes("score_all", VIEWED),
    of_passes("mi_all", VIEWED),
    "calibrate's risk score on score and views",
    "calibrate's risk score on score and novelty",
    "calibrate's risk score on score and the five metrics",
    of_passes("anchor_mean", Passes("inputs", 0.1)),
    of_passes("anchor_mean", Passes("backbone", 0.1)),
    of_passes("mutual_information", Passes("backbone", 0.1)),
    of_passes("score", PACKAGED),
    of_passes("mi_all", PACKAGED),
    "entropy at temperature fitted, a single pass",
    "1 - score, last-layer Laplace",
    "mutual information, last-layer Laplace",
    "10th nearest sticker, last layer's input",
    "novelty of the object",
    "neighbour score, one pass",
)
"""The doubts that the test split shows beside the reference and the five metrics, chosen on the development split."""
TEST_KINDS: tuple[Passes, ...] = (PACKAGED, Passes("inputs", 0.1), Passes("backbone", 0.1), VIEWED)
FIRST = {"development": 0, "test": 1000}
"""Number of the first laptop of a split: those of the test split were not seen by benchmarks.hard either."""
RECALL_LAPTOPS = 20
"""Laptops of the split that the recall of small stickers is measured on."""
FIGURES = ("auroc", "ap", "passed")
"""Area under the ROC curve and average precision of wrong objects; share of these released where KEPT of the right ones are."""
KEPT = 0.8
ALL = "all"
_RESAMPLES = 1000
_CHUNK = 100


def groups_of(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Which objects each column is about: all, unchanged or weakly shifted, medium, strong, those with something added."""
    shift = (rows.part == "shift").to_numpy()
    strength = rows.strength.to_numpy()
    found = {ALL: np.ones(len(rows), bool), "none or weak": shift & np.isin(strength, (NONE, STRENGTHS[0]))}
    found |= {name: shift & (strength == name) for name in STRENGTHS[1:]}
    return found | {"novel": ~shift}


def figures(doubt: FloatArray, wrong: np.ndarray, weights: FloatArray) -> FloatArray:
    """FIGURES of ``doubt`` (N,) about objects that are ``wrong`` (N,), each counted as often as ``weights`` (R, N) says, (R, 3).

    Equal doubts count half for the area, and are released together. NaN where nothing is wrong, or nothing right.
    """
    values = np.where(np.isnan(doubt), np.inf, doubt)
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.append(True, values[order][1:] != values[order][:-1]))
    bad = np.add.reduceat(weights[:, order] * wrong[order], starts, axis=1)
    good = np.add.reduceat(weights[:, order] * ~wrong[order], starts, axis=1)
    all_bad, all_good = bad.sum(axis=1), good.sum(axis=1)
    below = np.cumsum(good, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        area = (bad * (below - good / 2)).sum(axis=1) / (all_bad * all_good)
        caught = np.cumsum(bad[:, ::-1], axis=1)  # from the most doubtful on
        flagged = caught + np.cumsum(good[:, ::-1], axis=1)
        precision = np.where(flagged > 0, caught / flagged, 0.0)
        average = (bad[:, ::-1] * precision).sum(axis=1) / all_bad
        reached = (below >= KEPT * all_good[:, None] - 1e-9).argmax(axis=1)
        passed = np.cumsum(bad, axis=1)[np.arange(len(weights)), reached] / all_bad
    return np.stack([area, average, passed], axis=1)


@cache
def _redrawn(laptops: int) -> FloatArray:
    """How often each of ``laptops`` is in every resample of the bootstrap, those as they are first, (1 + resamples, laptops)."""
    drawn = np.random.default_rng(0).integers(0, laptops, (_RESAMPLES, laptops))
    counts = np.stack([np.bincount(one, minlength=laptops) for one in drawn])
    return np.concatenate([np.ones((1, laptops)), counts])


def ranking(doubts: dict[str, FloatArray], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """FIGURES of every doubt, of single groups the first, with the 95 % interval of the difference to REFERENCE.

    Laptops are drawn anew, with all their pictures at once.
    """
    found = []
    for group, mask in groups_of(rows).items():
        wrong = rows.wrong.to_numpy()[mask]
        laptops, owner = np.unique(rows.seed.to_numpy()[mask], return_inverse=True)
        if not wrong.any() or wrong.all():
            continue
        weights = _redrawn(len(laptops))[:, owner]
        reference = figures(doubts[REFERENCE][mask], wrong, weights)
        for name, doubt in doubts.items():
            own = figures(doubt[mask], wrong, weights)
            row: dict[str, Any] = {
                "group": group,
                "doubt": name,
                "objects": len(wrong),
                "wrong": int(wrong.sum()),
            }
            for number, figure in enumerate(FIGURES if group == ALL else FIGURES[:1]):
                row[figure] = _interval(own[:, number])
                row[f"{figure}_minus_score"] = _interval(own[:, number] - reference[:, number])
            found.append(row)
    return found


def _interval(values: FloatArray) -> list[float | None]:
    """The first of ``values`` (R,) and the 95 % interval of the others."""
    low, high = np.nanquantile(values[1:], [0.025, 0.975])
    return [_rounded(v) for v in (values[0], low, high)]


def _rounded(value: float | np.floating) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)


def within_score(doubt: FloatArray, score: FloatArray, wrong: np.ndarray, bins: int = 10) -> float:
    """Area under the ROC curve among objects of about the same ``score`` (N,): 0.5 where ``doubt`` (N,) adds nothing to it.

    The mean over ``bins`` of equally many objects, weighted by their pairs of a wrong and a right one.
    """
    owner = np.argsort(np.argsort(score, kind="stable"), kind="stable") * bins // len(score)
    total = pairs = 0.0
    for number in range(bins):
        own = owner == number
        count = float(wrong[own].sum() * (~wrong[own]).sum())
        if count:
            total += count * figures(doubt[own], wrong[own], np.ones((1, int(own.sum()))))[0, 0]
            pairs += count
    return total / pairs if pairs else float("nan")


def causes(objects: Objects, doubts: dict[str, FloatArray]) -> dict[str, Any]:
    """What the metrics of every kind of passes are like, and how much of them the score of one pass already says."""
    wrong, score = objects.rows.wrong.to_numpy(), doubts[REFERENCE]
    odds = log_odds(objects.arrays["probabilities"].astype(float))
    found: dict[str, Any] = {"metrics": [], "kinds": [], "sure": []}
    for name in (*PAPER_DOUBTS, of_passes("score", PACKAGED), of_passes("anchor_mi", PACKAGED)):
        own = doubts[name]
        known = np.isfinite(own)
        found["metrics"].append(
            {
                "doubt": name,
                "zero": _rounded(np.mean(own[known] == 0)),
                "right": _quantiles(own[known & ~wrong]),
                "wrong": _quantiles(own[known & wrong]),
                "correlation": _rounded(spearmanr(own[known], score[known]).statistic),
                "within_score": _rounded(within_score(own, score, wrong)),
            }
        )
    for kind, values in objects.passes.items():
        column = {name: values[:, number] for number, name in enumerate(PASS_SIGNALS)}
        if not np.isfinite(column["anchor_sd"]).any():
            continue
        moved = column["anchor_sd"]
        found["kinds"].append(
            {
                "kind": kind,
                "moved": _rounded(np.median(moved)),
                "moved_wrong": _rounded(np.median(moved[wrong])),
                "moved_right": _rounded(np.median(moved[~wrong])),
                "shift": _rounded(np.median(column["anchor_mean"] - odds)),
                "box": _rounded(np.median(column["anchor_spread"])),
                "unanimous": _rounded(np.mean(column["variation_ratio"] == 0)),
                "unclustered": _rounded(np.mean(np.isnan(column["score"]))),
                "unclustered_wrong": _rounded(np.mean(np.isnan(column["score"][wrong]))),
                "correlation": _rounded(spearmanr(column["mi_all"], score).statistic),
                "within_score": _rounded(within_score(column["mi_all"], score, wrong)),
                "within_score_moved": _rounded(within_score(moved, score, wrong)),
            }
        )
    p = objects.arrays["probabilities"][:, 2]
    packaged = dict(zip(PASS_SIGNALS, objects.passes[PACKAGED.name].T, strict=True))
    for words, chosen in (("wrong", wrong), ("right", ~wrong)):
        sure = chosen & (p > 0.9)
        found["sure"].append(
            {
                "objects": words,
                "count": int(chosen.sum()),
                "sure": int(sure.sum()),
                "unanimous": int((packaged["variation_ratio"][sure] == 0).sum()),
                "little_information": int((packaged["mutual_information"][sure] < 0.02).sum()),
                "odds": _rounded(np.median(odds[chosen])),
                "moved": _rounded(np.median(packaged["anchor_sd"][chosen])),
            }
        )
    mean = 1 - packaged["score_all"]
    right = (~wrong).astype(bool)
    found["calibration"] = {
        "one pass": _rounded(calibration_error(p.astype(float), right)),
        "mean score, all passes": _rounded(calibration_error(mean, right)),
    }
    found["wrong_by_case"] = objects.rows[wrong].case.value_counts().to_dict()
    return found


def _quantiles(values: FloatArray) -> list[float | None]:
    return [_rounded(v) for v in np.quantile(values, [0.1, 0.5, 0.9])] if len(values) else []


def of_split(
    pictures: Sequence[Picture],
    found: Sequence[dict[str, np.ndarray]],
    fit: Objects,
    layer: LastLayer,
    shown: Sequence[str],
    shrunk: Sequence[dict[str, np.ndarray]],
) -> dict[str, Any]:
    """The result of a split: which of the doubts ``shown``, all if empty, ranks wrong objects above right ones."""
    objects = table_of(pictures, found)
    doubts, chosen = doubts_of(fit, objects, layer)
    objects = objects.stickers
    kept = (REFERENCE, *PAPER_DOUBTS, *shown) if shown else tuple(doubts)
    return {
        "pictures": len(pictures),
        "laptops": len({picture.seed for picture in pictures}),
        "chosen": chosen,
        "ranking": ranking({name: doubts[name] for name in dict.fromkeys(kept)}, objects.rows),
        "causes": causes(objects, doubts),
        "recall": recall_of(shrunk),
    }


TABLES = ("test", "development", "kinds", "metrics", "recall")
"""The tables of docs/results/uncertainty.md: the test split, the best of every family on the development split, what the kinds of
passes do, what the five metrics are like, and the recall of small stickers on
both."""


def table(found: dict[str, Any], name: str = TABLES[0]) -> str:
    """One of TABLES, as Markdown; what a split has not measured is missing there."""
    made = {
        "test": lambda: _by_group(found["test"]),
        "development": lambda: _families(found["development"]),
        "kinds": lambda: _kinds(found["development"]),
        "metrics": lambda: _metrics(found["development"]),
        "recall": lambda: _recall(found),
    }[name]()
    return as_markdown([made]).strip()


def _by_group(split: dict[str, Any]) -> Table:
    """A row per doubt, the best first: AUROC in every group, starred where it differs from the score's, and the differences."""
    by_key = {(row["doubt"], row["group"]): row for row in split["ranking"]}
    groups = {row["group"]: row for row in split["ranking"] if row["doubt"] == REFERENCE}
    head = ["doubt", *(f"{group}, {row['wrong']} of {row['objects']} wrong" for group, row in groups.items())]
    lines = []
    for doubt in _best_first(split):
        row = by_key[doubt, ALL]
        areas = [_with_star(by_key[doubt, group], "auroc") for group in groups]
        lines.append((doubt, *areas, *(_difference(row, figure) for figure in FIGURES)))
    return Table((*head, *(f"{words}, minus score" for words in _FIGURE_NAMES.values())), lines)


_FIGURE_NAMES = {
    "auroc": "AUROC",
    "ap": "average precision",
    "passed": f"wrong released at {KEPT:.0%} of the right".replace("%", " %"),
}


def _best_first(split: dict[str, Any]) -> list[str]:
    rows = [row for row in split["ranking"] if row["group"] == ALL]
    return [row["doubt"] for row in sorted(rows, key=lambda row: -row["auroc"][0])]


def _with_star(row: dict[str, Any], figure: str) -> str:
    low, high = row[f"{figure}_minus_score"][1:]
    return f"{row[figure][0]:.3f}{'*' if low is not None and (low > 0 or high < 0) else ''}"


def _difference(row: dict[str, Any], figure: str) -> str:
    value, low, high = row[f"{figure}_minus_score"]
    if value is None or low is None:
        return "-"
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})"


def family_of(doubt: str) -> str:
    """The family that a doubt belongs to, for the table of the development split."""
    for pattern, family in _FAMILIES.items():
        if re.search(pattern, doubt):
            return family
    return "one pass"


_FAMILIES = {
    r" on ": "fitted to several doubts",
    r"Laplace": "last-layer Laplace",
    r"temperature": "temperature before the entropy",
    r"pooled maps|last layer's input": "density of features",
    r"^novelty": "novelty network",
    r"augmented views": "augmented views",
    r"\(inputs, channels": "dropout of the heads' inputs, whole channels",
    r"\(inputs 0\.2\)": "dropout of the heads' inputs, rate 0.2 (packaged)",
    r"\(inputs": "dropout of the heads' inputs, other rates",
    r"\(last layer": "dropout before the heads' last layer",
    r"\(outputs": "dropout of the heads' outputs",
    r"\(backbone": "dropout in the backbone",
    r"merged|disagreement|neighbour|crowding": "neighbouring boxes of one pass",
}


def _families(split: dict[str, Any]) -> Table:
    """The best doubt of every family, of how many tried."""
    by_family: dict[str, list[str]] = {}
    for doubt in _best_first(split):
        by_family.setdefault(family_of(doubt), []).append(doubt)
    rows = {row["doubt"]: row for row in split["ranking"] if row["group"] == ALL}
    lines = [
        (
            family,
            str(len(own)),
            own[0],
            f"{rows[own[0]]['auroc'][0]:.3f}",
            *(_difference(rows[own[0]], f) for f in FIGURES),
        )
        for family, own in by_family.items()
    ]
    words = [f"{name}, minus score" for name in _FIGURE_NAMES.values()]
    return Table(("family", "tried", "best by AUROC", "AUROC", *words), lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _kinds(split: dict[str, Any]) -> Table:
    rows = {row["doubt"]: row for row in split["ranking"] if row["group"] == ALL}
    lines = []
    for one in split["causes"]["kinds"]:
        areas = [
            f"{rows[of_passes(s, one['kind'])]['auroc'][0]:.3f}"
            for s in ("mutual_information", "score_all", "score")
        ]
        figures_ = [_number(one[name]) for name in ("moved_right", "moved_wrong", "shift")]
        shares = [f"{100 * one[name]:.0f} %" for name in ("unanimous", "unclustered")]
        more = [_number(one[name]) for name in ("correlation", "within_score")]
        lines.append((one["kind"], *figures_, *shares, *areas, *more))
    head = (
        "dropout of",
        "spread of the log odds, right",
        "wrong",
        "shift of the log odds",
        "VR is 0",
        "no cluster",
        "AUROC of MI",
        "of the mean score, all passes",
        "of the mean score",
        "rank correlation of MI, all passes, with the score",
        "AUROC of it at the same score",
    )
    return Table(head, lines)


def _metrics(split: dict[str, Any]) -> Table:
    lines = []
    for one in split["causes"]["metrics"]:
        spread = [" / ".join(f"{v:.3g}" for v in one[name]) for name in ("right", "wrong")]
        zero = f"{100 * one['zero']:.0f} %"
        lines.append((one["doubt"], zero, *spread, _number(one["correlation"]), _number(one["within_score"])))
    head = (
        "metric",
        "is 0",
        "right: 10 / 50 / 90 %",
        "wrong: 10 / 50 / 90 %",
        "rank correlation with the score",
    )
    return Table((*head, "AUROC at the same score"), lines)


def _recall(found: dict[str, Any]) -> Table:
    """Both splits together: nothing is chosen by either."""
    summed: dict[tuple[str, str], dict[str, Any]] = {}
    for split in found.values():
        for row in split["recall"]["rows"]:
            own = summed.setdefault((row["by"], row["stickers"]), dict.fromkeys(row, 0))
            for name, value in row.items():
                own[name] = value if isinstance(value, str) else own[name] + value
    rows = list(summed.values())
    by_key = {(row["by"], row["stickers"]): row for row in rows}
    sizes = list(dict.fromkeys(row["stickers"] for row in rows))

    def cell(row: dict[str, Any]) -> str:
        low, high = clopper_pearson(row["found"], row["count"])
        lost = f"; -{row['lost']} +{row['gained']}" if "lost" in row else ""
        return f"{row['found'] / row['count']:.3f} ({low:.3f} to {high:.3f}){lost}" if row["count"] else "-"

    counted = [f"{size}, n = {by_key['one pass', size]['count']}" for size in sizes]
    names = dict.fromkeys(row["by"] for row in rows)
    return Table(
        ("found by", *counted), [(name, *(cell(by_key[name, size]) for size in sizes)) for name in names]
    )


def read(file: Path) -> dict[str, Any]:
    """What the runs wrote to ``file``, by split."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and add the result of the split to the file."""
    options = _options().parse_args(arguments)
    kept = read(options.out) if options.out.is_file() and options.out.stat().st_size else {}
    torch.set_num_threads(1)
    instrument, material = Instrument(), material_in(options.cache)
    test = options.split == "test"
    kinds = TEST_KINDS if test else KINDS
    few = plan(options.split, min(options.laptops, RECALL_LAPTOPS), (), FIRST[options.split])
    small_plan = [picture for picture in few if picture.case.name == NONE]
    fit_plan = plan("fit", options.fit, ())
    shown_plan = plan(options.split, options.laptops, NOVELTIES, FIRST[options.split])
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(
            "pictures", total=len(fit_plan) + len(shown_plan) + len(better_recall.SCALES) * len(small_plan)
        )

        def advance(count: int) -> None:
            bar.advance(task, count)

        fit, shown = (
            measure(pictures, options.cache, instrument, own, material, advance)
            for pictures, own in ((fit_plan, FIT_KINDS), (shown_plan, kinds))
        )
        shrunk = measure_shrunk(small_plan, options.cache, instrument, material, advance)
    layer = LastLayer(instrument, fit_plan, material)
    chosen = CHOSEN if test else ()
    kept[options.split] = of_split(shown_plan, shown, table_of(fit_plan, fit), layer, chosen, shrunk)
    kept[options.split]["fit_pictures"] = len(fit_plan)
    with atomic_write(options.out, "w") as stream:
        json.dump(kept, stream, separators=(",", ":"))
    print(table(kept, options.split))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.better_uncertainty",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", type=result_file, required=True, help="JSON file that the result is added to"
    )
    parser.add_argument("--split", choices=tuple(FIRST), default="development")
    parser.add_argument("--laptops", type=int, default=40, help="laptops of the split, ten pictures each")
    parser.add_argument("--fit", type=int, default=120, help="laptops to fit on, three pictures each")
    parser.add_argument(
        "--cache", type=Path, default=Path("out/benchmarks/better"), help="folder for what is measured"
    )
    return parser


if __name__ == "__main__":
    try:
        main()
    except InvalidInput as error:
        sys.exit(f"error: {error}")

# SPDX-License-Identifier: Apache-2.0
"""Where the uncertainty is worth something: the gate and simpler methods under graded shift, with novel objects, on photographs.

    python -m benchmarks.hard --out FILE [--photographs FOLDER] [--part PART ...] [--split development|test] [--scenes N]
        [--profile large|study] [--figure FILE] [--weights FILE] [--against RESULT]

Every method's limit is set on unchanged laptops of their own to the same rate of questions, that of config/limits.yaml, and again
to the same rate of wrongful removals, then frozen. A few are also set to equal rates of questions in every group, which compares
weights (``--weights``, ``--against``). What is measured of a scene stays in the folder of --cache, so that an
interrupted run continues and a new method needs no new run. Photographs come from `python -m benchmarks.photographs --to FOLDER`.
Nothing may be chosen by the split "test": run it once, for what ships.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.hard_measure import Instrument, Job, MeasuredScene, measure, measure_photographs
from benchmarks.hard_methods import (
    MOVED,
    Goal,
    Method,
    limit_for,
    methods,
    result,
)
from benchmarks.hard_scenes import BARE, NONE, SIZES, SPLITS, STRENGTHS, Case, cases
from sticker_uq.evaluation.metrics.statistics import (
    NOTHING,
    Interval,
    clopper_pearson,
)
from sticker_uq.evaluation.reporting.document import Table, as_markdown, legend_below, svg
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import FloatArray, InvalidInput
from sticker_uq_lab.rendering.scene_sampling import Profile

PARTS = ("shift", "photographs")
REFERENCE = "score, one pass"
"""The method that differences are taken to."""
BY_HAND = "limits.yaml"
"""The method whose rate of questions on unchanged laptops all others are set to."""
POLICIES = (BY_HAND, "policy.yaml")
TRADED = (REFERENCE, "mean score, T passes", MOVED)
"""The methods of which :func:`trade` says what they release wrongly where they ask about shares `AT` of the pictures."""
AT = (0.2, 0.3, 0.4)
WRONG_RATE = 0.01
"""Share of the unchanged laptops with a wrongful removal that limits are set to, the promise of `sticker-uq calibrate`."""
GOALS = ("asked", "wrong")
_RESAMPLES = 1000
FIGURES: dict[str, Callable[[pd.DataFrame], tuple[pd.Series, pd.Series]]] = {
    "wrong": lambda t: (t.wrong > 0, t.wrong >= 0),
    "wrong_objects": lambda t: (t.wrong, t.released),
    "dirty_clean": lambda t: (t.dirty_clean, t.stickers > 0),
    "asked": lambda t: (t.asked, t.wrong >= 0),
    "right": lambda t: (t.right, t.stickers),
}
"""What is counted of what: laptops with a wrongful removal, wrong among released objects, laptops with stickers that are called
clean though one remains, laptops asked about, and stickers rightly released."""


def plan(
    parts: Sequence[str], split: str, count: int, fit: int, limits: int, profile: Profile = "large"
) -> list[Job]:
    """What is measured: laptops to fit and to set limits on, then ``count`` per case, all cases of a laptop together."""
    plain = Case(NONE, NONE, profile)
    jobs = [Job("fit", plain, seed) for seed in SPLITS["fit"][:fit]]
    if (
        profile == "study"
    ):  # where hardly a laptop is without a sticker, and what clean ones look like is to be learned
        bare = SPLITS["fit"][fit : fit + fit // 10]
        jobs += [Job("fit", Case(BARE, NONE, profile), seed) for seed in bare]
    jobs += [Job("limits", plain, seed) for seed in SPLITS["limits"][:limits]]
    return jobs + [Job(split, case, seed) for seed in SPLITS[split][:count] for case in cases(parts, profile)]


def limits_of(chosen: Sequence[Method], scenes: Sequence[MeasuredScene]) -> dict[str, dict[str, float]]:
    """The limit of every method for each of GOALS, by their names, set on ``scenes``."""
    shipped = next(method for method in chosen if method.name == BY_HAND)
    asked = float(np.mean([shipped.decide(scene, np.inf).asked for scene in scenes]))
    goals: dict[str, Goal] = {"asked": ("asked", asked), "wrong": ("wrong", WRONG_RATE)}
    return {kind: {m.name: limit_for(m, scenes, goal) for m in chosen} for kind, goal in goals.items()}


def results_of(
    chosen: Sequence[Method], limits: dict[str, dict[str, float]], scenes: Sequence[MeasuredScene]
) -> pd.DataFrame:
    """A row per goal, method and scene."""
    rows: list[dict[str, Any]] = []
    for scene in scenes:
        key = {name: getattr(scene, name) for name in ("part", "case", "strength", "seed")}
        for goal, own in limits.items():
            for method in chosen:
                found = result(scene, method.decide(scene, own[method.name]))
                rows.append({"goal": goal, "method": method.name} | key | asdict(found))
    return pd.DataFrame(rows)


def groups_of(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Which rows each column of the tables is about: unchanged, each strength over all shifts, all photographs."""
    found = {NONE: rows.case == NONE}
    for strength in STRENGTHS:
        found[f"{strength} shift"] = (rows.part == "shift") & (rows.strength == strength)
    found["photographs"] = rows.part == "photographs"
    return {name: chosen for name, chosen in found.items() if chosen.any()}


def shares(
    rows: pd.DataFrame, figure: str, reference: pd.DataFrame | None = None
) -> tuple[int, int, Interval]:
    """Events, of how many, and the share with its 95 % interval; with ``reference`` the difference to the share there.

    Laptops are drawn anew, with all their cases at once, because those are not independent. The interval of a share without any
    event, or with nothing else, is that of Clopper and Pearson for as many laptops.
    """
    parts = [_by_laptop(rows, figure)]
    if reference is not None:
        parts.append(_by_laptop(reference, figure).reindex(parts[0].index, fill_value=0))
    counts = np.stack([part.to_numpy(float) for part in parts])  # (1 or 2, laptops, 2)
    events, of = (int(v) for v in counts[0].sum(axis=0))
    if not counts[:, :, 1].sum(axis=1).all():
        return events, of, NOTHING

    everyone = float(_difference(counts.sum(axis=1)))
    if reference is None and events in (0, of):
        laptops = len(parts[0])
        low, high = clopper_pearson(laptops if events else 0, laptops)
        return events, of, Interval(everyone, low, high)
    drawn = _difference(_redrawn(counts.shape[1]) @ counts)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return events, of, Interval(everyone, float(low), float(high))


def _difference(sums: FloatArray) -> FloatArray:
    """Share of the first of ``sums`` (1 or 2, ..., 2) of events and chances, minus that of the second; NaN without a chance."""
    ratios = sums[..., 0] / np.where(sums[..., 1] > 0, sums[..., 1], np.nan)
    return ratios[0] - (ratios[1] if len(ratios) > 1 else 0.0)


@cache
def _redrawn(laptops: int) -> FloatArray:
    """How often each of ``laptops`` is in every resample of the bootstrap, (resamples, laptops)."""
    drawn = np.random.default_rng(0).integers(0, laptops, (_RESAMPLES, laptops))
    return np.stack([np.bincount(one, minlength=laptops) for one in drawn]).astype(float)


def _by_laptop(rows: pd.DataFrame, figure: str) -> pd.DataFrame:
    events, of = FIGURES[figure](rows)
    return (
        pd.DataFrame({"events": events.astype(int), "of": of.astype(int), "seed": rows.seed})
        .groupby("seed")
        .sum()
    )


def summary(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Every figure of every goal and method in every group, and the difference of wrongful removals to REFERENCE."""
    found = []
    groups = groups_of(rows)
    for goal in dict.fromkeys(rows.goal):
        for group, chosen in groups.items():
            part = rows[chosen & (rows.goal == goal)]
            reference = part[part.method == REFERENCE]
            for method in dict.fromkeys(part.method):
                own = part[part.method == method]
                row: dict[str, Any] = {"goal": goal, "group": group, "method": method}
                for figure in FIGURES:
                    events, of, interval = shares(own, figure)
                    row[figure] = [events, of, *_rounded(interval)]
                row["on_logo"], row["on_thing"] = int(own.on_logo.sum()), int(own.on_thing.sum())
                for figure in ("wrong", "dirty_clean", "right"):
                    row[f"{figure}_minus_score"] = _rounded(shares(own, figure, reference)[2])
                found.append(row)
    return found


def trade(chosen: Sequence[Method], scenes: Sequence[MeasuredScene]) -> list[dict[str, Any]]:
    """Wrongful removals of the methods TRADED where each asks about a share AT of the pictures of a group, by laptop.

    The limit is set on the group itself, for every method alike: the best that the ranking of the method allows there.
    """
    keys = pd.DataFrame(
        {name: [getattr(s, name) for s in scenes] for name in ("part", "case", "strength", "seed")}
    )
    found = []
    for group, mask in groups_of(keys).items():
        own = [scene for scene, kept in zip(scenes, mask, strict=True) if kept]
        for method in (m for m in chosen if m.name in TRADED):
            for share in AT:
                limits = {"equal": {method.name: limit_for(method, own, ("asked", share))}}
                rows = results_of([method], limits, own)
                counts = {figure: _by_laptop(rows, figure) for figure in ("wrong", "asked", "dirty_clean")}
                found.append(
                    {"group": group, "method": method.name, "asked_for": share}
                    | {figure: table.to_numpy().tolist() for figure, table in counts.items()}
                    | {"laptops": counts["wrong"].index.tolist()}
                )
    return found


def cells(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Counts of every goal and method in every single case: events and of how many."""
    found = []
    for key, own in rows.groupby(["goal", "part", "case", "strength", "method"], sort=False):
        row = dict(zip(("goal", "part", "case", "strength", "method"), key, strict=True))
        for figure in FIGURES:
            events, of = FIGURES[figure](own)
            row[figure] = [int(events.sum()), int(of.sum())]
        found.append(row)
    return found


def _rounded(interval: Interval) -> list[float | None]:
    return [None if np.isnan(v) else round(v, 4) for v in (interval.value, interval.low, interval.high)]


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


FIGURE_TABLES = ("wrong", "dirty_clean", "asked", "right", "wrong_at_1_percent", "right_at_1_percent")
"""Tables of docs/results/hard.md: a figure at the same rate of questions or of wrongful removals."""


def table(found: dict[str, Any], name: str = FIGURE_TABLES[0]) -> str:
    """One of FIGURE_TABLES or OTHER_TABLES, as Markdown."""
    if name in OTHER_TABLES:
        return as_markdown([OTHER_TABLES[name](found)]).strip()
    at_equal_questions, at_equal_mistakes = GOALS
    figure = name.removesuffix("_at_1_percent")
    goal = at_equal_questions if figure == name else at_equal_mistakes
    return as_markdown([_by_group(found, goal, figure)]).strip()


def _by_group(found: dict[str, Any], goal: str, figure: str) -> Table:
    """A row per method and a column per group: percent with the interval, and a star where it differs from REFERENCE."""
    rows = [row for row in found["summary"] if row["goal"] == goal]
    by_key = {(row["method"], row["group"]): row for row in rows}
    groups = dict.fromkeys(row["group"] for row in rows)

    def cell(row: dict[str, Any]) -> str:
        share, low, high = row[figure][2:]
        if share is None:
            return "-"
        difference = row.get(f"{figure}_minus_score", [None] * 3)
        star = "*" if difference[0] is not None and (difference[1] > 0 or difference[2] < 0) else ""
        return f"{100 * share:.0f}{star} ({100 * low:.0f} to {100 * high:.0f})"

    counted = {group: max(row[figure][1] for row in rows if row["group"] == group) for group in groups}
    head = ("method", *(f"{group}, n = {counted[group]}" for group in groups))
    names = dict.fromkeys(row["method"] for row in rows)
    return Table(head, [(name, *(cell(by_key[name, group]) for group in groups)) for name in names])


LAPTOPS_PER_HOUR = 60
"""Of the cell in docs/worth.md: an assumption."""


def _worth(found: dict[str, Any]) -> Table:
    """For a manager: what the policy and the score do at the same rate of questions, with 95 % intervals over laptops."""
    groups = ("none", "weak shift", "strong shift", "photographs")
    names = {BY_HAND: "gate", POLICIES[1]: "gate, calibrated", REFERENCE: "score threshold"}
    rows = [
        row
        for row in found["summary"]
        if row["goal"] == "asked" and row["method"] in names and row["group"] in groups
    ]
    head = (
        "what is hard",
        "pictures",
        "with",
        "wrongful removals per 1,000 removals",
        "pictures with a wrongful removal, per 1,000",
        f"laptops an hour without a person, of {LAPTOPS_PER_HOUR}",
    )

    def of(interval: Sequence[float | None], times: float, rest: bool = False) -> str:
        if interval[0] is None or interval[1] is None or interval[2] is None:
            return "nothing removed"
        share, low, high = (times * (1 - v if rest else v) for v in interval if v is not None)
        return f"{share:.0f} ({min(low, high):.0f} to {max(low, high):.0f})"

    return Table(
        head,
        [
            (
                row["group"],
                str(row["wrong"][1]),
                names[row["method"]],
                "every one" if row["group"] == "photographs" else of(row["wrong_objects"][2:], 1000),
                of(row["wrong"][2:], 1000),
                of(row["asked"][2:], LAPTOPS_PER_HOUR, rest=True),
            )
            for row in rows
        ],
    )


def _traded(found: dict[str, Any]) -> dict[tuple[str, str, str, float], dict[str, Any]]:
    """What was counted, by weights ("": the packaged), method, group and share of questions."""
    results = {"": found["trade"]} | {name: other["trade"] for name, other in found["against"].items()}
    return {
        (name, row["method"], row["group"], row["asked_for"]): row
        for name, rows in results.items()
        for row in rows
        if row["method"] in TRADED and row["group"] != "photographs"
    }


def _trade(found: dict[str, Any]) -> Table:
    """Wrongful removals at equal questions: of each method, and less than those of REFERENCE with the same and other weights.

    With the questions that were reached, below which no limit of a method gets, and the laptops with a sticker called clean.
    """
    counts = _traded(found)

    def cell(*keys: tuple[Any, ...]) -> str:
        if any(key not in counts for key in keys):
            return "-"
        wrong, asked, dirty = (
            np.stack([np.array(counts[key][figure], float) for key in keys])
            for figure in ("wrong", "asked", "dirty_clean")
        )
        value, questions, missed = (
            100 * float(_difference(one.sum(axis=1))) for one in (wrong, asked, dirty)
        )
        low, high = 100 * np.nanquantile(_difference(_redrawn(wrong.shape[1]) @ wrong), [0.025, 0.975])
        return f"{value:.1f} ({low:.1f} to {high:.1f}), asked {questions:.0f}, dirty {missed:.0f}"

    columns: dict[str, tuple[tuple[str, str], ...]] = {
        f"{method}{f', {name}' if name else ''}": ((name, method),)
        for name in ("", *found["against"])
        for method in TRADED
    }
    for name in ("", *found["against"]):
        for method in (
            TRADED if name else TRADED[1:]
        ):  # with the same weights the first is the reference itself
            title = f"{method} minus {REFERENCE}{f', {name}' if name else ''}"
            columns[title] = (("", method), (name, REFERENCE))
    measured = {key[:2] for key in counts}
    columns = {title: keys for title, keys in columns.items() if measured.issuperset(keys)}
    lines: dict[tuple[str, ...], list[str]] = {}
    for group, share in dict.fromkeys(key[2:] for key in counts):
        cells = (cell(*((*key, group, share) for key in keys)) for keys in columns.values())
        lines.setdefault((group, *cells), []).append(f"{100 * share:.0f}")
    return Table(
        ("% of pictures", "asked for", *columns),
        [(group, ", ".join(shares), *cells) for (group, *cells), shares in lines.items()],
    )


OTHER_TABLES = {"trade": _trade, "worth": _worth}
"""Further tables, by name: wrongful removals at equal questions, and for a manager."""


def drawing(found: dict[str, Any]) -> str:
    """Wrongful removals over questions under shift, percent of the pictures, as SVG: scores, other weights, and the policy."""
    counts = _traded(found)
    by_policy = {(row["method"], row["group"]): row for row in found["summary"] if row["goal"] == GOALS[0]}

    def draw(canvas: Any) -> None:
        for axes, group in zip(
            canvas.subplots(1, 3, sharey=True), (f"{one} shift" for one in STRENGTHS), strict=True
        ):
            for name, method in dict.fromkeys(key[:2] for key in counts):
                own = [counts[name, method, group, share] for share in AT]
                sums = np.array([[np.sum(row[what], axis=0) for row in own] for what in ("asked", "wrong")])
                asked, wrong = 100 * sums[..., 0] / sums[..., 1]
                axes.plot(asked, wrong, "o-", label=f"{method}, {name}".rstrip(", "), markersize=3)
            for name in POLICIES:
                asked, wrong = (100 * by_policy[name, group][what][2] for what in ("asked", "wrong"))
                axes.plot(asked, wrong, "*", label=name, markersize=10)
            axes.set(title=group, xlabel="asked, %", xlim=(0, 100))
        canvas.axes[0].set(ylabel="wrongful removal, %", ylim=(0, None))
        legend_below(canvas, canvas.axes[0], columns=2)

    return f"{svg(draw, 6.5, 3.2, 'wrongful removals over questions, by strength of shift')}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and write the result file."""
    options = _options().parse_args(arguments)
    torch.set_num_threads(1)
    parts = list(options.part)
    if "photographs" in parts and options.photographs is None:
        print("photographs: skipped, no folder is given by --photographs", file=sys.stderr)
        parts.remove("photographs")
    instrument = Instrument(str(options.panel or ""), str(options.weights or ""))
    jobs = plan(parts, options.split, options.scenes, options.fit, options.limits, options.profile)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("scenes", total=len(jobs))
        scenes = measure(jobs, options.cache, instrument, options.jobs, lambda n: bar.advance(task, n))
    if "photographs" in parts:
        scenes += measure_photographs(options.photographs, options.split, instrument)
    fit, calm = ([s for s in scenes if s.split == split] for split in ("fit", "limits"))
    shown = [s for s in scenes if s.split == options.split]
    chosen = methods(fit)
    limits = limits_of(chosen, calm)
    rows = results_of(chosen, limits, shown)
    found = {
        "split": options.split,
        "profile": options.profile,
        "scenes": {"fit": len(fit), "limits": len(calm), "per_case": options.scenes, "all": len(shown)},
        "limits": {
            goal: {n: v if np.isfinite(v) else str(v) for n, v in own.items()} for goal, own in limits.items()
        },
        "summary": summary(rows),
        "cells": cells(rows),
        "trade": trade(chosen, shown),
        "against": {file.stem: {"trade": read(file)["trade"]} for file in options.against},
    }
    with atomic_write(options.out, "w") as stream:
        json.dump(found, stream, separators=(",", ":"))
    if options.figure:
        with atomic_write(options.figure, "w") as stream:
            stream.write(drawing(found))
    print(table(found))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hard",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the result")
    parser.add_argument("--figure", type=Path, help="SVG file to draw, of wrongful removals over questions")
    parser.add_argument("--profile", choices=SIZES, default="large", help="as `dataset render` has them")
    parser.add_argument("--weights", type=Path, help="weights file; none: the packaged")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="results of other weights")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--split", choices=("development", "test"), default="development")
    parser.add_argument("--scenes", type=int, default=60, help="laptops per case")
    parser.add_argument("--fit", type=int, default=200, help="laptops that methods are fitted on")
    parser.add_argument("--limits", type=int, default=300, help="laptops that limits are set on")
    parser.add_argument("--jobs", type=int, default=1, help="processes that render and measure")
    parser.add_argument("--photographs", type=Path, help="folder of benchmarks.photographs; none: skipped")
    parser.add_argument("--panel", type=Path, help="folder of `sticker-uq monitors fit`; none: no panel")
    parser.add_argument(
        "--cache", type=Path, default=Path("out/benchmarks/hard"), help="folder for what is measured"
    )
    return parser


if __name__ == "__main__":
    try:
        main()
    except InvalidInput as error:
        sys.exit(f"error: {error}")

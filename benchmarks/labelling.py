# SPDX-License-Identifier: Apache-2.0
"""How many labels `sticker-uq dataset suggest` saves against random choice.

    python -m benchmarks.labelling --work FOLDER --out benchmarks/results/labelling.json --figure docs/images/labelling.svg

A detector starts from the packaged weights and a few labelled pictures. Of a pool of pictures without labels some are chosen, by
``suggest`` or at random, labelled by the ground truth, and learned in as many steps as every other choice gets. The mAP@0.5 on
other pictures, over the number of chosen ones, is the curve of a choice. ``--data`` names the pools: ``rare`` (rendered laptops
of the known kind, few of a new kind), ``alike`` (rendered laptops of the new kind alone) and the sets of
public_photographs.yaml, which are downloaded. Each training is kept in ``--work``, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchmarks.labelling_measure import (
    METHODS,
    RANDOM,
    SUGGEST,
    Bench,
    Pool,
    Sizes,
    curves,
    photographs,
    rendered,
)
from benchmarks.result_files import result_file, result_folder
from sticker_uq.evaluation.reporting.chart_style import COLOURS, MARKERS, legend_below, svg
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.scene import InvalidInput

POOLS = ("rare", "alike", "cells")
RESAMPLES = 500
POOLS_DRAWN, COUNTS = 10, (10, 20, 40)
FRESH = 5_000_000
"""Pools from which pictures are chosen without a training, to count those of a rare kind; how many are chosen; and by what
their laptops' seeds differ from those of the trainings.
"""


def read(file: Path) -> dict[str, Any]:
    """The result in ``file``."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(found: dict[str, Any], name: str) -> str:
    """A table of docs/results/labelling.md in Markdown: "saved" or "chosen"."""
    return as_markdown([TABLES[name](found["sets"])]).rstrip("\n")


def saved_table(sets: Sequence[dict[str, Any]]) -> Table:
    """The mAP of both choices at each number of labels, the difference, and the labels saved."""
    rows = []
    for one in sets:
        points = {(point["method"], point["labels"]): point for point in one["points"]}
        for (method, labels), point in points.items():
            if method == SUGGEST:
                other = points[RANDOM, labels]
                rows.append(
                    (
                        one["title"],
                        str(labels),
                        _interval(other["map"]),
                        _interval(point["map"]),
                        _interval(point["minus_random"], "+.3f"),
                        _saved(point["saved"], one["most"] - labels),
                    )
                )
    return Table(
        ("pool", "labels", "mAP, at random", "mAP, `suggest`", "difference", "random labels saved"), rows
    )


def chosen_table(sets: Sequence[dict[str, Any]]) -> Table:
    """What each choice takes: objects in a picture, rare pictures; and its mAP."""
    rows = [
        (
            one["title"],
            METHODS[point["method"]],
            str(point["labels"]),
            f"{point['logos']:.2f}",
            f"{point['stickers']:.2f}",
            f"{100 * point['rare']:.0f} %" if "rare" in point else "-",
            _interval(point["map"]),
            _interval(point["minus_random"], "+.3f") if "minus_random" in point else "",
        )
        for one in sets
        for point in one["points"]
        if point["labels"]
    ]
    head = ("pool", "choice", "labels", "logos in each", "stickers in each", "of the rare kind")
    return Table((*head, "mAP", "minus at random"), rows)


def rare_table(sets: Sequence[dict[str, Any]]) -> Table:
    """How many pictures of the rare kind each choice finds."""
    counts = list(dict.fromkeys(row["labels"] for one in sets for row in one.get("rare_found", ())))
    rows = []
    for one in sets:
        cells = {(row["method"], row["labels"]): row["rare"] for row in one.get("rare_found", ())}
        for method in dict.fromkeys(method for method, _ in cells):
            found = (cells[method, count] for count in counts)
            rows.append((METHODS[method], *(f"{mean:.1f} ({low} to {high})" for mean, low, high in found)))
    return Table(("choice", *(f"of {count} chosen" for count in counts)), rows)


TABLES = {"saved": saved_table, "chosen": chosen_table, "rare": rare_table}
"""The tables of docs/results/labelling.md."""


def _interval(values: Sequence[float], shape: str = ".3f") -> str:
    value, low, high = (f"{v:{shape}}" for v in values)
    return f"{value} ({low} to {high})"


def _saved(values: Sequence[float], most: int) -> str:
    """Labels saved; ``most``: where the curve of random choice ends, and no more can be said."""
    value, low, high = (f"{'at least ' if v >= most else ''}{v:.0f}" for v in values)
    return f"{value} ({low} to {high})"


def chart(found: dict[str, Any]) -> str:
    """The mAP of every choice over the number of labels, a panel for each pool, with 95 % intervals, as SVG."""
    sets = found["sets"]

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(sets), squeeze=False)[0]
        for axes, one in zip(panels, sets, strict=True):
            for number, (method, words) in enumerate(METHODS.items()):
                points = [point for point in one["points"] if point["method"] == method]
                if not points:
                    continue
                labels = [point["labels"] for point in points]
                value, low, high = zip(*(point["map"] for point in points), strict=True)
                colour = COLOURS[number]
                axes.fill_between(labels, low, high, color=colour, alpha=0.15, linewidth=0)
                axes.plot(labels, value, color=colour, marker=MARKERS[number], label=words.replace("`", ""))
            axes.set_title(one["title"])
            axes.set_xlabel("labelled pictures")
        panels[0].set_ylabel("mAP@0.5")
        legend_below(figure, panels[0])

    return str(
        svg(draw, 7.5, 3.0, "mAP over the number of labelled pictures, chosen at random and by suggest")
    )


def main() -> int:
    """Measure what is not measured yet, write the result, draw it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=result_folder, help="folder for pictures, trainings and weights")
    parser.add_argument("--out", type=result_file, required=True, help="file of the result")
    parser.add_argument("--figure", type=result_file, help="SVG file to draw the result to")
    parser.add_argument("--data", nargs="+", default=POOLS, help="pools: %(default)s")
    parser.add_argument("--methods", nargs="+", default=(RANDOM, SUGGEST), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    for name, field in Sizes.model_fields.items():
        several = isinstance(field.default, tuple)
        parser.add_argument(
            f"--{name}",
            type=int if several else type(field.default),
            nargs="*" if several else None,
            default=field.default,
        )
    chosen = parser.parse_args()
    try:
        if chosen.work is not None:
            sizes = Sizes.model_validate({name: getattr(chosen, name) for name in Sizes.model_fields})
            seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
            found = measured(chosen.work, chosen.data, sizes, seeds, chosen.methods, chosen.resamples)
            with atomic_write(chosen.out, "w") as stream:
                stream.write(re.sub(r"\n {5,}", " ", json.dumps(found, indent=1, allow_nan=False)) + "\n")
        if chosen.figure is not None:
            with atomic_write(chosen.figure, "w") as stream:
                stream.write(chart(read(chosen.out)))
    except ValidationError as error:
        problem = error.errors()[0]
        print(f"--{problem['loc'][0]} {problem['input']}: {problem['msg']}", file=sys.stderr)
        return 1
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def measured(
    work: Path,
    names: Sequence[str],
    sizes: Sizes,
    seeds: Sequence[int],
    methods: Sequence[str],
    resamples: int,
) -> dict[str, Any]:
    """The curves of the pools ``names`` with the folder ``work``, which has or gets the trainings."""
    work.mkdir(parents=True, exist_ok=True)
    methods = [RANDOM, *(method for method in methods if method != RANDOM)]
    found: dict[str, Any] = {"date": dt.datetime.now(dt.UTC).date().isoformat()}
    found |= {name: metadata.version(name) for name in ("sticker_uq", "torch")}
    found |= {"sizes": sizes.model_dump(mode="json"), "seeds": list(seeds)}
    with JsonStore(work / "trainings.sqlite") as kept:
        bench = Bench(work, sizes, kept)
        pools = [_pool(name, work, sizes) for name in names]
        for seed in seeds:
            for pool in pools:
                bench.run(pool, seed, methods)
        found["sets"] = [curves(bench, pool, seeds, methods, resamples) for pool in pools]
        for pool, one in zip(pools, found["sets"], strict=True):
            if pool.rare is not None:
                fresh = rendered(work / "fresh", sizes.model_copy(update={"test": 1}), True, FRESH)
                one["rare_found"] = bench.rare_found(fresh, range(POOLS_DRAWN), COUNTS)
    return found


def _pool(name: str, work: Path, sizes: Sizes) -> Pool:
    if name in ("rare", "alike"):
        return rendered(work / "rendered", sizes, name == "rare")
    return photographs(name, work / name)


if __name__ == "__main__":
    sys.exit(main())

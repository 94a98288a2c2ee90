# SPDX-License-Identifier: Apache-2.0
"""Public sets of labelled photographs through the whole way: import, qualify, and what the uncertainty is worth on them.

    python -m benchmarks.public_photographs --work FOLDER --out benchmarks/results/public_photographs.json

``public_photographs.yaml`` lists the sets and what their classes stand for. FOLDER, outside of the repository, keeps what was
downloaded and made: an interrupted run resumes there. --figure FILE.svg draws the result, without --work that of an earlier run.
"""

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.public_photographs_measure import ALPHAS, labelled_sets, measured
from benchmarks.result_files import argument_parser, result_file
from sticker_uq.evaluation.reporting.document import COLOURS, INK, Table, as_markdown, legend_below, svg
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import InvalidInput


def read(file: Path) -> dict[str, Any]:
    """What a run wrote to ``file``."""
    return dict(json.loads(file.read_text(encoding="utf-8")))


def write(file: Path, sets: Sequence[dict[str, Any]]) -> None:
    """Write what was measured of ``sets`` to ``file``, with the date, the versions and the number of processors."""
    found = {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processors": os.cpu_count(),
        **{name: metadata.version(name) for name in ("sticker_uq", "torch")},
        "sets": sets,
    }
    with atomic_write(file, "w") as stream:
        stream.write(re.sub(r"\n {4,}", " ", json.dumps(found, indent=1, allow_nan=False)) + "\n")


def table(found: dict[str, Any], name: str) -> str:
    """The table ``name`` of docs/results/public_photographs.md in Markdown, one of TABLES."""
    return as_markdown([TABLES[name](found["sets"])]).strip()


def sources_table(sets: Sequence[dict[str, Any]]) -> Table:
    """Where every set comes from, what its classes stand for, and how many pictures and objects it has."""
    rows = []
    for one in sets:
        meaning = {
            kind: [name for name, own in one["classes"].items() if own == kind]
            for kind in ("sticker", "logo", "ignore")
        }
        link = f"[{one['repository']}](https://github.com/{one['repository']}) at `{one['commit'][:12]}`"
        counts = (
            str(sum(part[key] for part in one["parts"].values())) for key in ("pictures", "stickers", "logos")
        )
        rows.append(
            (
                one["title"],
                link,
                one["licence"],
                *(", ".join(names) or "-" for names in meaning.values()),
                *counts,
            )
        )
    return Table(
        ("set", "source", "licence", "remove", "keep", "ignored", "pictures", "to be removed", "to be kept"),
        rows,
    )


def accuracy_table(sets: Sequence[dict[str, Any]]) -> Table:
    """How accurate the detector and the novelty network of every set are."""
    rows = []
    for one in sets:
        parts, network = one["parts"], one["novelty"]
        sharp, clusters = (one["accuracy"][key] for key in ("one pass", "clusters"))
        by_class = (
            f"{way['classes'][c]['average_precision']:.3f}"
            for c in ("logo", "sticker")
            for way in (sharp, clusters)
        )
        held = parts["calibrate"]["pictures"] + parts["test"]["pictures"]
        areas = (_interval(network[key]) for key in ("objects", "scenes"))
        rows.append((one["title"], f"{parts['learn']['pictures']} and {held}", f"{sharp['map50']:.3f}",
                     f"{clusters['map50']:.3f}", *by_class, *areas, "no" if network["weakness"] else "yes"))  # fmt: skip
    return Table(
        ("set", "pictures learned from and held out", "mAP@0.5, one pass", "clusters of 20", "keep: one pass", "clusters",
         "remove: one pass", "clusters", "novelty network: AUROC of unknown objects", "of foreign scenes", "used"), rows,
    )  # fmt: skip


def verdict_table(sets: Sequence[dict[str, Any]]) -> Table:
    """What `sticker-uq qualify` said of every set."""
    return Table(
        ("set", "`qualify`"), [(one["title"], one["verdict"].partition(" What to do")[0]) for one in sets]
    )


def auroc_table(sets: Sequence[dict[str, Any]]) -> Table:
    """How well each doubt tells wrong objects from right ones; + and -: the interval of the difference to one pass excludes 0."""
    columns = [(one, kind, number) for one in sets for number, kind in enumerate(("all", "removals"))]
    kinds = ("all objects", "called to be removed")
    head = [
        f"{one['title']}, {kinds[n]}, {one['objects'][n][0]} wrong of {one['objects'][n][1]}"
        for one, _, n in columns
    ]
    rows = []
    for number, row in enumerate(sets[0]["auroc"]["all"]):
        cells = [one["auroc"][kind][number] for one, kind, _ in columns]
        rows.append((row["doubt"], *(_interval(c["auroc"]) + _sign(c["minus_score"]) for c in cells)))
    return Table(("doubt", *head), rows)


def _sign(difference: Sequence[float | None]) -> str:
    _, low, high = difference
    if low is None or high is None:
        return ""
    return " +" if low > 0 else " -" if high < 0 else ""


def _interval(values: Sequence[float | None]) -> str:
    value, low, high = values
    return "-" if value is None else f"{value:.2f} ({low:.2f} to {high:.2f})"


def promise_table(sets: Sequence[dict[str, Any]]) -> Table:
    """Of every set and level, what the limits of the splits did on the halves that they were not made from."""
    rows = []
    for one in sets:
        for alpha in ALPHAS:
            own = [row for row in one["splits"] if row["alpha"] == alpha]
            ways = {
                "policy of `calibrate`": [row for row in own if not row["refused"]],
                "limit on the mean score": [row["score"] for row in own if row.get("score")],
            }
            for name, made in ways.items():
                title = (one["title"], f"{100 * alpha:g} %", name, f"{len(made)} of {len(own)}")
                rows.append((*title, *_promise_cells(made, alpha)))
    head = (
        "set",
        "alpha",
        "limits",
        "proved",
        "pictures with a wrongful removal, mean",
        "worst",
        "splits above alpha",
    )
    chance = ("expected by chance if every rate were alpha", "the mean")
    return Table((*head, *chance, "to be removed: released", "pictures asked about"), rows)


def _promise_cells(made: Sequence[dict[str, Any]], alpha: float) -> tuple[str, ...]:
    if not made:
        return ("-",) * 7
    counts = [row["wrongful"] for row in made]
    worst = max(events / of for events, of in counts)
    above = sum(events > alpha * of + 1e-9 for events, of in counts)
    chance = (f"{above_by_chance(counts, alpha, rate):.1f}" for rate in (alpha, _mean(counts)))
    others = (
        _percent([row[key] for row in made]) if key in made[0] else "-" for key in ("released", "asked")
    )
    return (_percent(counts), f"{100 * worst:.1f} %", str(above), *chance, *others)


def _mean(counts: Sequence[Sequence[int]]) -> float:
    return float(np.mean([events / max(of, 1) for events, of in counts]))


def _percent(counts: Sequence[Sequence[int]]) -> str:
    return f"{100 * _mean(counts):.1f} %"


def above_by_chance(counts: Sequence[Sequence[int]], alpha: float, rate: float) -> float:
    """How many of the halves in ``counts`` (bad, pictures) are expected above ``alpha`` where every policy has this ``rate``."""
    return sum(float(stats.binom.sf(int(alpha * of + 1e-9), of, rate)) for _, of in counts)


def packaged_table(sets: Sequence[dict[str, Any]]) -> Table:
    """What config/limits.yaml decides about all pictures held out."""
    rows = []
    for one in sets:
        for name, found in one["packaged"].items():
            cells = (
                f"{found[key][0]} of {found[key][1]}" for key in ("wrongful", "released", "asked", "missed")
            )
            rows.append((one["title"], name, *cells))
    head = (
        "pictures with a wrongful removal",
        "to be removed: released",
        "pictures asked about",
        "finished alone with a sticker left",
    )
    return Table(("set", "`config/limits.yaml`", *head), rows)


def blocked_table(sets: Sequence[dict[str, Any]]) -> Table:
    """Which limits of config/limits.yaml, without those of novelty where none is measured, held back how many."""
    rows = []
    for one in sets:
        found = list(one["packaged"].values())[-1]
        rows += [
            (one["title"], row["about"], row["name"], str(row["blocked"]), str(row["alone"]))
            for row in found["blocked"]
        ]
    return Table(("set", "held back", "by", "number", "by nothing else"), rows)


TABLES = {
    "sources": sources_table,
    "accuracy": accuracy_table,
    "verdict": verdict_table,
    "auroc": auroc_table,
    "promise": promise_table,
    "packaged": packaged_table,
    "blocked": blocked_table,
}
"""The tables of docs/results/public_photographs.md."""


def chart(found: dict[str, Any]) -> str:
    """The areas of :func:`auroc_table` of the objects called stickers, a row per doubt and a colour per set, as SVG."""
    sets = found["sets"]
    names = [row["doubt"] for row in sets[0]["auroc"]["removals"]]

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.axvline(0.5, color=INK, linewidth=0.8)
        for number, one in enumerate(sets):
            for place, row in enumerate(one["auroc"]["removals"]):
                if row["auroc"][0] is not None:
                    value, low, high = row["auroc"]
                    y = place + 0.25 * (number - (len(sets) - 1) / 2)
                    axes.plot([low, high], [y, y], color=COLOURS[number])
                    axes.plot(value, y, "o", color=COLOURS[number], label="" if place else one["title"])
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("AUROC of objects wrongly called to be removed, 95 % interval")
        legend_below(figure, axes)

    return str(
        svg(draw, 7.5, 3.8, "How well each doubt finds the wrongful removals of two sets of photographs")
    )


def main() -> int:
    """Measure every set and write the result."""
    parser = argument_parser(__doc__)
    parser.add_argument("--work", type=Path, help="folder for photographs, weights and assessments")
    parser.add_argument("--out", type=result_file, required=True, help="file of the result")
    parser.add_argument("--figure", type=result_file, help="SVG file to draw the result to")
    chosen = parser.parse_args()
    try:
        if chosen.work is not None:
            write(chosen.out, [measured(source, chosen.work / source.name) for source in labelled_sets()])
        if chosen.figure is not None:
            with atomic_write(chosen.figure, "w") as stream:
                stream.write(chart(read(chosen.out)))
    except (InvalidInput, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

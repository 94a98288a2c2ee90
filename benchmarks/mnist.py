# SPDX-License-Identifier: Apache-2.0
"""Tables I and II of Weiss et al. 2022 on MNIST itself, beside the paper's.

    sticker-uq monitors study --data mnist=MNIST --invalid FMNIST ... --out STUDY
    python -m benchmarks.mnist --study STUDY --out benchmarks/results/mnist.json

The first command trains and measures; the second takes the finished seeds from its folder, so that an unfinished study can be
shown too.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import papers
from benchmarks.papers import SETS
from benchmarks.result_files import result_file
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.studies.monitors.classifier_study import PUBLISHED
from sticker_uq.scene import InvalidInput

TABLES = ("ambiguity", "supervisors", "reasons")
_SEED = re.compile(r"(?:(\w+)_)?seed_(\d+)_[0-9a-f]{16}\.json")
_COLUMNS = {"top_1": "Top-1", "top_2": "Top-2", "top_pair": "Top-Pair", "entropy": "entropy, bits"}
_ROWS = {PUBLISHED: "ambiguous, delta_max 0.25", "nominal": "nominal"}
Found = dict[str, Any]
"""``seeds``: results by kind of classifier; ``reasons`` of large differences."""


def collected(study: Path) -> dict[str, list[dict[str, Any]]]:
    """What the finished seeds of the study in the folder ``study`` found, by kind of classifier, in order of the seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for file in sorted(study.glob("*seed_*.json")):
        name = _SEED.fullmatch(file.name)
        if name is None:
            continue
        one = json.loads(file.read_text(encoding="utf-8"))
        kept = {key: one[key] for key in ("accuracy", "table_1", "auc", "counts")}
        seeds = found.setdefault(name[1] or "convolutional", {})
        if int(name[2]) in seeds:
            raise InvalidInput(f"{study}: results of two studies, expected those of one: {file.name}")
        seeds[int(name[2])] = kept
    if not found:
        raise InvalidInput(
            f"{study}: no result of a seed, expected seed_0_*.json of `sticker-uq monitors study`"
        )
    return {kind: [seeds[number] for number in sorted(seeds)] for kind, seeds in found.items()}


def read(file: Path) -> Found:
    """The results in ``file``."""
    found: Found = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(found: Found, name: str) -> str:
    """The table ``name`` in Markdown: one of TABLES."""
    printed = papers.read(papers.ROOT / "benchmarks/results/papers.json")["weiss"]
    made = {"ambiguity": _ambiguity, "supervisors": _supervisors, "reasons": _reasons}
    return made[name](found, printed)


def _ambiguity(found: Found, printed: dict[str, Any]) -> str:
    """Table I: the paper's, and ours by kind of classifier."""
    rows = []
    for key, title in _ROWS.items():
        cells = dict(zip(_COLUMNS, printed["table_1"][title], strict=True))
        rows.append((title, "paper", *(papers.number(value) for value in cells.values())))
        for kind, seeds in found["seeds"].items():
            ours = [_mean([one["table_1"][key][column] for one in seeds]) for column in _COLUMNS]
            rows.append((title, kind, *ours))
    return papers.markdown(("crops", "of", *_COLUMNS.values()), rows)


def _supervisors(found: Found, printed: dict[str, Any]) -> str:
    """Table II: the paper's, ours over all classifiers, and the difference."""
    rows = []
    for monitor, cells in printed["table_2"].items():
        row = [monitor]
        for one, paper in zip(SETS, cells, strict=True):
            here = _ours(found, monitor, one)
            known = paper is not None and here is not None
            row.append(
                f"{papers.number(paper)} / {papers.number(here)}"
                + (f" ({here - paper:+.2f})" if known else "")
            )
        rows.append(row)
    return papers.markdown(("monitor", *(f"{one}: paper / here (difference)" for one in SETS)), rows)


def _reasons(found: Found, printed: dict[str, Any]) -> str:
    """Every difference above papers.LARGE with what scikit-learn's digits gave, and its reason.

    Raises LookupError for a difference without a reason, and for a reason without a difference.
    """
    given = dict(found["reasons"])
    small = {
        row["monitor"]: row for row in papers.rows_of("monitors", "Results on handwritten digits", "monitor")
    }
    rows = []
    for monitor, cells in printed["table_2"].items():
        for one, paper in zip(SETS, cells, strict=True):
            here = _ours(found, monitor, one)
            if paper is None or here is None or round(abs(here - paper), 3) <= papers.LARGE:
                continue
            reason = given.pop(f"{monitor} {one}", None)
            if reason is None:
                raise LookupError(
                    f"mnist.json: no reason for {monitor} on {one}, {paper} in the paper, {here:.3f} here"
                )
            rows.append((monitor, one, f"{paper:.2f}", f"{here:.2f}", small[monitor][one].split()[0], reason))
    if given:
        raise LookupError(f"mnist.json: reasons without a difference: {', '.join(given)}")
    return papers.markdown(("monitor", "set", "paper", "MNIST", "digits of scikit-learn", "reason"), rows)


def _ours(found: Found, monitor: str, one: str) -> float | None:
    values = [seed["auc"][monitor][one] for seeds in found["seeds"].values() for seed in seeds]
    return None if values[0] is None else float(np.mean(values))


def _mean(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "n/a"
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def main() -> None:
    """Collect the finished seeds, print the tables and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--study", required=True, type=Path, help="folder of the study")
    parser.add_argument("--out", required=True, type=result_file, help="JSON file of the results")
    given = parser.parse_args()
    found: Found = {"seeds": {}, "reasons": {}}
    if given.out.exists():
        found |= read(given.out)
    found["seeds"] = collected(given.study)
    with atomic_write(given.out, "w") as stream:
        json.dump(found, stream, indent=1)
        stream.write("\n")
    for name in TABLES[:2]:
        print(f"{table(found, name)}\n")


if __name__ == "__main__":
    main()

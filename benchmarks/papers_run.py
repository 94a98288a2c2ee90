# SPDX-License-Identifier: Apache-2.0
"""What computing the "here" of a paper's tables anew takes; for ``python -m benchmarks.papers PAPER --run``.

Every command is a user's. Its tables are kept in ``results/papers_PAPER.csv``: a line "# NAME: TITLE", a header, rows, and an
empty line each; the first table says when and with what it was made.
"""

import csv
import hashlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sticker_uq.detection.weights import packaged_weights
from sticker_uq.io.files import write_file
from sticker_uq.io.share import versions

ROOT = Path(__file__).parents[1]
DEFAULT = "ssdlite320_mobilenet_v3_large"


@dataclass(frozen=True)
class Study:
    """``commands`` of ``sticker-uq`` with {out} for their folder; ``page``: the Markdown file with the tables; ``minutes`` of one
    core.
    """

    name: str
    commands: tuple[str, ...]
    page: str
    minutes: int


_MEMBERS = range(1, 3)
"""Of the ensemble of three, beside the packaged weights."""
STUDIES: dict[str, tuple[Study, ...]] = {
    "S000": (
        Study(
            "study",
            (
                "dataset render --profile large --out {out}/scenes --count 6 --seed 60000 --size 320x240 --format png",
                "study --data rendered={out}/scenes --out {out}/study --rates 0,0.1,0.3,0.5 --passes 10 --adversarial 1",
            ),
            "study/summary.md",
            10,
        ),
    ),
    "S001": tuple(
        Study(
            name,
            (f"monitors study --data digits --seeds 5 --members 2 {option} --out {{out}}/{name}",),
            f"{name}/monitors.md",
            10,
        )
        for name, option in (("digits", "--swapped"), ("digits-paper", "--no-swapped"))
    ),
    "S002": (
        Study(
            "cases",
            (
                *(
                    command
                    for n in _MEMBERS
                    for command in (
                        f"dataset render --profile large --out {{out}}/train{n} --count 40 --seed 71{n}0000 --stickers 1-8",
                        f"train --data {{out}}/train{n} --out {{out}}/member{n} --epochs 2 --batch-size 8 --start packaged "
                        f"--seed {n} --threads 1 --device cpu",
                    )
                ),
                "dataset render --profile large --out {out}/source --count 14 --seed 7000000 --stickers 1-8",
                "dataset abnormal --data {out}/source --out {out}/cases",
                "dil study --data {out}/cases --out {out}/study --ensemble '' "
                + " ".join(f"--ensemble {{out}}/member{n}/best.safetensors" for n in _MEMBERS),
            ),
            "study/study.md",
            25,
        ),
    ),
    "S003": (
        Study(
            "quality",
            (
                "dataset render --profile large --out {out}/scenes --count 100 --seed 700000",
                "quality --data {out}/scenes --out {out}/quality",
            ),
            "quality/quality.md",
            5,
        ),
    ),
    "S004": (
        Study(
            "cell",
            (
                "dataset render --profile large --out {out}/scenes --count 60 --seed 3000000 --size 640x480",
                "robustness init {out}/cell.yaml",
                "robustness run {out}/cell.yaml --data {out}/scenes --out {out}/cell --images 24 --target 48",
            ),
            "cell/summary.md",
            30,
        ),
    ),
}
"""S000's is small: that of ten rates takes hours, and weights that are not in the repository."""


def run(paper: str, out: Path) -> Path:
    """Run the commands of ``paper`` into ``out``, those that are not done, and keep their tables; returns the file of these."""
    minutes = sum(study.minutes for study in STUDIES[paper])
    commands = sum(len(study.commands) for study in STUDIES[paper])
    print(f"{paper}: {commands} commands, some {minutes} minutes of one core, in {out}")
    done = out / "done.txt"
    out.mkdir(parents=True, exist_ok=True)
    finished = done.read_text(encoding="utf-8").splitlines() if done.is_file() else []
    for study in STUDIES[paper]:
        for command in study.commands:
            if command in finished:
                continue
            words = [word.replace("{out}", os.fspath(out)) for word in shlex.split(command)]
            print(f"sticker-uq {shlex.join(words)}", flush=True)
            try:
                subprocess.run([sys.executable, "-m", "sticker_uq.cli", *words], check=True)
            except subprocess.CalledProcessError as error:
                raise SystemExit(
                    f"it ended with {error.returncode}; the same command goes on from there"
                ) from None
            finished.append(command)
            write_file(done, "".join(f"{line}\n" for line in finished))
    return keep(paper, out)


def keep(paper: str, out: Path) -> Path:
    """Write the tables of a run in ``out`` to the result file of ``paper``, which is returned."""
    weights, text = packaged_weights(DEFAULT), io.StringIO()
    facts = {"date": f"{datetime.now(UTC):%Y-%m-%d}", **versions("torch")}
    if weights is not None:
        facts["weights"] = hashlib.sha256(weights.read_bytes()).hexdigest()[:8]
    text.write("# made\n")
    csv.writer(text, lineterminator="\n").writerows([facts.keys(), facts.values()])
    for study in STUDIES[paper]:
        for title, rows in tables_of((out / study.page).read_text(encoding="utf-8")):
            text.write(f"\n# {study.name}: {title}\n")
            csv.writer(text, lineterminator="\n").writerows(rows)
    file = ROOT / "benchmarks" / "results" / f"papers_{paper}.csv"
    write_file(file, text.getvalue())
    return file


def tables_of(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables of a page in Markdown, each with the heading above it."""
    title, rows = "", []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            if set("".join(cells)) - set("-: "):
                rows.append(cells)
            continue
        if rows:
            yield title, rows
            rows = []
        if line.startswith("#"):
            title = line.lstrip("# ")


OLDER = {
    "S000": "computed from the published values",
    "S001": "of version 0.2",
    **dict.fromkeys(("S002", "S003"), "of version 0.2 and its weights"),
    "S004": "computed from the published values",
}
"""What the values of a paper "here" are without a kept run."""


def made(paper: str) -> str:
    """When, and with which weights, the values of ``paper`` "here" were computed."""
    file = ROOT / "benchmarks" / "results" / f"papers_{paper}.csv"
    if not file.is_file():
        return f', "here" {OLDER[paper]}'
    _, names, values, *_ = csv.reader(file.read_text(encoding="utf-8").splitlines())
    facts = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
    if "published" in OLDER[paper]:  # its tables are; what the run measured on our models stands in its file
        return f', "here" {OLDER[paper]}; of our models see {file.name}: {facts}'
    return f', "here" {facts}'

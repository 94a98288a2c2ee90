# SPDX-License-Identifier: Apache-2.0
"""Eight weeks of a cell that starts with packaged weights in a world it does not know, with and without `sticker-uq improve`.

    python -m benchmarks.weeks --work out/weeks --out benchmarks/results/weeks.json --figure docs/images/weeks.svg
    python -m benchmarks.weeks --work out/weeks-tiny --out out/weeks-tiny.json --tiny

Every week 60 laptops of the profile "study" (small stickers; seeds of their own), each with one of ``WORLD``, of which the
packaged weights have met only residue, are judged by the active bundle; a scripted operator answers and errs in 2 % of the
objects. At the end of a week with ``improve`` a candidate is made of all weeks so far and promoted unless it is worse. The
hostile operator says "peel it" to everything. What happened without a person's answer is counted against the truth. An
interrupted run goes on; a training takes most of the time.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.hard_scenes import BARE, NO_MATERIAL, NONE, Case, HardScene
from benchmarks.result_files import result_file, result_folder
from benchmarks.shifts import SECOND, Operator, run_shift
from sticker_uq.cell.bundle import Bundle, create_bundle
from sticker_uq.cli.train import EXPOSURE, render_exposure
from sticker_uq.evaluation.executors import mapped
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.evaluation.reporting.charts import legend_below, svg
from sticker_uq.evaluation.reporting.document import Table, as_markdown
from sticker_uq.gate import Policy
from sticker_uq.gate.operator.answers import Answer
from sticker_uq.io.files import atomic_write
from sticker_uq.io.share import share_folder
from sticker_uq.lab.kept_pieces import StepResult, Steps
from sticker_uq.perception import PerceptionSettings
from sticker_uq.perception.factory import load_perception

ARMS = {
    "without": Operator(),
    "improve": Operator(),
    "hostile": Operator("Mallory", always=Answer.REMOVE, errs=0.0),
}
WORLD = (
    ("unknown make", "medium"),
    ("residue", "medium"),
    ("printed lid", "weak"),
    ("sticker on logo", "weak"),
    (BARE, NONE),
)
"""Circumstances of the laptops and their strengths, as benchmarks.hard has them. Without laptops that have no
sticker nothing could be proved about those called clean.
"""
FIRST_SEED, WEEK_NS, START_NS = 9_000_000, 7 * 86_400 * SECOND, 1_767_571_200 * SECOND
SPOT_CHECKS = 0.1, 0.3
"""Shares of the released laptops that are checked: usually, and in the first week of a bundle, as the supervisor does it."""
LEVELS = ("--alpha", "0.1", "--beta", "0.2")
PROMOTED = ("better", "cannot tell yet")
COUNTS = {
    "questions": "laptops asked about",
    "objects": "objects asked about",
    "wrongful": "laptops with a wrongful release",
}
"""What is drawn, and its words; the table also has laptops called clean with a sticker."""


class Week(StepResult):
    """Counts of a week as :class:`ShiftCounts` has them, and what became of the candidate made at its end."""

    laptops: int
    questions: int
    objects: int
    checks: int
    wrongful: int
    dirty: int
    verdict: str = ""
    guarantee: str = ""
    minutes: float = 0.0

    def __str__(self) -> str:
        asked = f"{self.questions} of {self.laptops} asked about {self.objects} objects"
        counts = f"{asked}, {self.wrongful} wrongful, {self.dirty} dirty"
        return f"{counts}; {self.verdict or 'no candidate'}"


class Campaign:
    """One arm with one seed: its weeks in their order, each kept in ``steps``.

    The first week of a bundle makes no candidate, for the newest week judges and there would be none to prove with; nor does the
    last, after which no cell would run it.
    """

    def __init__(
        self, steps: Steps, arm: str, seed: int, weeks: int, laptops: int, options: Sequence[str]
    ) -> None:
        self._steps, self._arm, self._seed, self._weeks = steps, arm, seed, weeks
        self._laptops, self._options = laptops, options
        self._active, self._since = steps.work / "active", 0

    def week(self, number: int) -> Week:
        """The week ``number``, from 0 on, with the bundle that is active by then."""
        name = f"{self._arm}-{self._seed}-{number}"
        folder = self._steps.work / name
        inputs = {
            "active": Bundle.load(self._active).hash,
            "laptops": self._laptops,
            "options": list(self._options),
            "spot checks": SPOT_CHECKS[number == self._since],
        }
        found = self._steps.run(name, inputs, Week, lambda _: self._worked(folder, number))
        if found.verdict in PROMOTED and (folder / "candidate").is_dir():
            self._active, self._since = folder / "candidate", number + 1
        return found

    def _worked(self, folder: Path, number: int) -> Week:
        started = time.monotonic()
        bundle = Bundle.load(self._active)
        settings = bundle.settings(PerceptionSettings(device="cpu"))
        first = FIRST_SEED + 100_000 * self._seed + 1000 * number
        laptops = ((f"{seed}", laptop(seed)) for seed in range(first, first + self._laptops))
        shift = folder / "shift"
        counts_file = folder / "counts.json"
        if not counts_file.exists():
            counts = run_shift(
                _empty(shift),
                laptops,
                load_perception(settings),
                Policy.load(bundle.policy),
                lambda _: ARMS[self._arm],
                SPOT_CHECKS[number == self._since],
                START_NS + number * WEEK_NS,
                WEEK_NS // self._laptops,
                seed=first,
            )
            counts_file.write_text(json.dumps(asdict(counts)))
        made = self._arm != "without" and self._since < number < self._weeks - 1
        verdict, promise = self._improved(folder, number) if made else ("", "")
        minutes = (time.monotonic() - started) / 60
        return Week(
            **json.loads(counts_file.read_text()), verdict=verdict, guarantee=promise, minutes=minutes
        )

    def _improved(self, folder: Path, number: int) -> tuple[str, str]:
        out = folder / "candidate"
        if not out.is_dir():
            command = [
                sys.executable,
                "-m",
                "sticker_uq.cli",
                "improve",
                "--bundle",
                str(self._active),
                "--out",
                str(out),
            ]
            for week in range(number + 1):
                shift = folder.with_name(f"{self._arm}-{self._seed}-{week}") / "shift"
                command += ["--audit", str(shift / "audit"), "--recordings", str(shift / "bag")]
            done = subprocess.run(
                [*command, *LEVELS, "--allow-uncalibrated", *self._options],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 2:  # such as: of no person answers are used
                return done.stderr.strip().splitlines()[-1], ""
            done.check_returncode()
        candidate = Bundle.load(out)
        assert candidate.comparison is not None
        return candidate.comparison.verdict, candidate.manifest.guarantee


def laptop(seed: int) -> HardScene:
    """The laptop of ``seed`` in a circumstance that its number chooses."""
    return Case("shift", *WORLD[seed % len(WORLD)], "study").scene(seed, NO_MATERIAL)


def _empty(folder: Path) -> Path:
    """``folder`` without what an interrupted week left."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a result file: arm, seed and week, and the fields of :class:`Week`."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["weeks"]
    return rows


def _share(rows: Sequence[dict[str, Any]], arm: str, week: int, name: str) -> float:
    own = [row for row in rows if row["arm"] == arm and row["week"] == week]
    return sum(row[name] for row in own) / max(sum(row["laptops"] for row in own), 1)


PROMISE = re.compile(r"wrongful removal <= ([0-9.]+)")


def promised(rows: Sequence[dict[str, Any]], arm: str) -> tuple[int, int]:
    """How many weeks of an arm began with a bundle that guarantees a rate of wrongful releases, and how many broke it."""
    weeks = broken = 0
    for seed in {row["seed"] for row in rows}:
        level = None
        for row in sorted(
            (r for r in rows if r["arm"] == arm and r["seed"] == seed), key=lambda r: r["week"]
        ):
            if level is not None:
                weeks += 1
                broken += row["wrongful"] > level * row["laptops"]
            if row["verdict"] in PROMOTED:
                found = PROMISE.search(row["guarantee"])
                level = float(found[1]) if found else None
    return weeks, broken


def table(rows: Sequence[dict[str, Any]], name: str = "") -> str:
    """Laptops and objects asked about, wrongful releases and dirty laptops, of a hundred laptops by week, and broken promises.

    ``name`` "second_half": of the second half of the weeks, by seed, with intervals (95 %, Clopper and Pearson).
    """
    if name == "second_half":
        return as_markdown([_second_half(rows)]).strip()
    weeks = sorted({row["week"] for row in rows})
    lines = []
    for arm in (arm for arm in ARMS if any(row["arm"] == arm for row in rows)):
        shares = (
            [" / ".join(f"{100 * _share(rows, arm, week, name):.0f}" for name in (*COUNTS, "dirty"))]
            for week in weeks
        )
        given, broken = promised(rows, arm)
        minutes = [row["minutes"] for row in rows if row["arm"] == arm and row["verdict"]]
        spent = f"{median(minutes):.0f}" if minutes else ""
        lines.append((arm, *(cell for row in shares for cell in row), f"{broken} of {given}", spent))
    head = (f"week {week + 1}" for week in weeks)
    columns = ("operator and cell", *head, "guarantee broken in", "minutes for a candidate, median")
    return as_markdown([Table(columns, lines)]).strip()


def _second_half(rows: Sequence[dict[str, Any]]) -> Table:
    late = [row for row in rows if 2 * row["week"] > max(one["week"] for one in rows)]
    lines = []
    for arm, seed in sorted(
        {(row["arm"], row["seed"]) for row in late}, key=lambda of: (of[1], [*ARMS].index(of[0]))
    ):
        own = [row for row in late if (row["arm"], row["seed"]) == (arm, seed)]
        laptops = sum(row["laptops"] for row in own)
        cells = []
        for name in (*COUNTS, "dirty"):
            count = sum(row[name] for row in own)
            low, high = (100 * end for end in clopper_pearson(min(count, laptops), laptops, 0.95))
            interval = "" if name == "objects" else f" ({low:.0f} to {high:.0f})"
            cells.append(f"{100 * count / laptops:.0f}{interval}")
        lines.append((str(seed), arm, *cells))
    return Table(
        ("seed", "operator and cell", *COUNTS.values(), "laptops called clean with a sticker"), lines
    )


def figure(rows: Sequence[dict[str, Any]]) -> str:
    weeks = sorted({row["week"] for row in rows})

    def draw(canvas: Any) -> None:
        axes = canvas.subplots(1, 3)
        for one, (name, words) in zip(axes, COUNTS.items(), strict=True):
            for arm in ARMS:
                one.plot(
                    [week + 1 for week in weeks],
                    [100 * _share(rows, arm, week, name) for week in weeks],
                    label=arm,
                )
            one.set(xlabel="week", ylabel=words, ylim=(0, None))
        legend_below(canvas, axes[0], columns=3)

    return f"{svg(draw, 7.5, 3.0, 'questions and wrongful releases of 100 laptops by week')}\n"


def measure(work: Path, seeds: int, weeks: int, laptops: int, tiny: bool, jobs: int) -> list[dict[str, Any]]:
    """The weeks of every arm and seed; what is kept in ``work`` is not done again."""
    Steps(work)
    passes = 5 if tiny else 20
    policy = work / "policy.yaml"
    packaged = (share_folder() / "config" / "policy.yaml").read_text(encoding="utf-8")
    policy.write_text(packaged, encoding="utf-8")
    if not (work / "active").is_dir():
        create_bundle(work / "active", PerceptionSettings(passes=passes, device="cpu"), policy)
    render_exposure(work / EXPOSURE, print)  # once: every `improve` would render the same pictures
    options = ["--exposure", str(work / EXPOSURE)]
    options += (
        ["--epochs", "1", "--novelty-epochs", "0"]
        if tiny
        else ["--epochs", "4", "--batch-size", "8", "--learning-rate", "5e-4"]
    )
    plans = [(seed, arm) for seed in range(seeds) for arm in ARMS]
    worked = mapped(partial(_worked, work, weeks, laptops, options), plans, jobs)
    return [row for rows in worked for row in rows]


def _worked(
    work: Path, weeks: int, laptops: int, options: Sequence[str], plan: tuple[int, str]
) -> list[dict[str, Any]]:
    seed, arm = plan
    steps = Steps(work, lambda name, line: print(f"{name}: {line}", flush=True))
    campaign = Campaign(steps, arm, seed, weeks, laptops, options)
    return [{"arm": arm, "seed": seed, "week": n, **campaign.week(n).model_dump()} for n in range(weeks)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=result_folder, required=True, help="folder of what is kept between calls"
    )
    parser.add_argument("--out", type=result_file, required=True, help="JSON file of the counts")
    parser.add_argument(
        "--figure", type=result_file, help="SVG file to draw questions and wrongful releases to"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="one seed, three weeks of 12 laptops, one epoch: that it runs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells that are simulated at once")
    options = parser.parse_args()
    seeds, weeks, laptops = (1, 3, 12) if options.tiny else (3, 8, 60)
    rows = measure(options.work, seeds, weeks, laptops, options.tiny, options.jobs)
    with atomic_write(options.out, "w") as stream:
        json.dump({"weeks": rows}, stream, indent=1)
    if options.figure is not None:
        with atomic_write(options.figure, "w") as stream:
            stream.write(figure(rows))
    print(table(rows))


if __name__ == "__main__":
    main()

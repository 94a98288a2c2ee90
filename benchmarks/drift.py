# SPDX-License-Identifier: Apache-2.0
"""How soon the watch over a policy's assumption notices that the scenes have changed, and how often it is wrong.

    python -m benchmarks.drift --out FOLDER

plays laptops to the test of ``sticker_uq.gate.assumptions.drift``: unseen ones like those of the reference, and laptops in
circumstances that no policy was made for. Their assessments are kept in the file of ``benchmarks.gate``, so that a
second run takes a minute. Writes drift.md and drift.svg.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.progress import track

from benchmarks.rendered import Recipe, records
from benchmarks.result_files import checked_folder
from benchmarks.shift import CIRCUMSTANCES, recipes
from sticker_uq.evaluation.reporting.chart_style import COLOURS, INK, legend_below, svg
from sticker_uq.gate.assumptions.drift import SIGNALS, DriftTest, Reference, signal_value
from sticker_uq.io.files import atomic_write
from sticker_uq.io.json_store import JsonStore
from sticker_uq.perception import PerceptionSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REFERENCE_SEED, STREAM_SEED, SHIFTED_SEED = 20_000_000, 7_000_000, 30_000_000
FALSE_ALARM = 0.01
ORDERS = 40
REDRAWN = 200


@dataclass(frozen=True)
class Seen:
    """What the test needs of one assessed laptop."""

    digest: str
    signals: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """Laptops until the alarm in ``ORDERS`` random orders of the shifted ones; None: no alarm. ``course``: median evidence."""

    needed: tuple[int | None, ...]
    course: tuple[float, ...]


class Laptops:
    """Assessed laptops by seed and circumstance; those once assessed are kept in the file of ``benchmarks.gate``."""

    def __init__(self, cache: Path, jobs: int) -> None:
        self._cache, self._jobs = cache, jobs
        self._settings = PerceptionSettings(device="cpu", threads=1)

    def look(self, wanted: Sequence[Recipe]) -> list[Seen]:
        """What the test needs of each."""
        with JsonStore(self._cache) as cache:
            found = [record.assessment for record in records(wanted, self._settings, cache, self._jobs)]
        return [Seen(one.image_digest, {name: signal_value(name, one) for name in SIGNALS}) for one in found]


def reference_of(laptops: Sequence[Seen]) -> Reference:
    """The reference that a policy made from these would hold."""
    return Reference(signals={name: tuple(one.signals[name] for one in laptops) for name in SIGNALS})


def play(reference: Reference, stream: Sequence[Seen]) -> tuple[list[float], str]:
    """Evidence after each laptop, 1 raises the alarm, and the signal with the most at the end."""
    test = DriftTest(reference)
    alarm_at = math.log(len(test) / FALSE_ALARM)
    course = []
    for one in stream:
        test.observe_signals(one.signals, one.digest)
        course.append(max(0.0, test.strongest[1]) / alarm_at)
    return course, test.strongest[0]


def alarmed_after(course: Sequence[float]) -> int | None:
    """Laptops until the first alarm."""
    return next((number for number, value in enumerate(course, 1) if value >= 1.0), None)


def shifted_outcome(reference: Reference, calm: Sequence[Seen], shifted: Sequence[Seen]) -> Outcome:
    """What happens when ``shifted`` laptops follow ``calm`` ones, in many orders."""
    needed, courses = [], []
    for order in range(ORDERS):
        rng = np.random.default_rng(order)
        before = [calm[i] for i in rng.permutation(len(calm))]
        after = [shifted[i] for i in rng.permutation(len(shifted))]
        course = play(reference, [*before, *after])[0]
        found = alarmed_after(course)
        needed.append(None if found is None else found - len(before))
        courses.append(course[len(before) :])
    return Outcome(tuple(needed), tuple(np.median(np.array(courses), axis=0).tolist()))


def main(
    out: Annotated[
        Path, typer.Option(help="Folder for drift.md and drift.svg.", callback=checked_folder)
    ] = Path("out/drift"),
    cache: Annotated[Path, typer.Option(help="File that keeps what was assessed.")] = Path(
        "out/benchmarks/gate.sqlite"
    ),
    jobs: Annotated[int, typer.Option(min=1, help="Processes that render and assess.")] = 1,
    reference_count: Annotated[int, typer.Option(help="Laptops of the reference.")] = 300,
    stream_count: Annotated[int, typer.Option(help="Unseen laptops like them.")] = 500,
    shifted_count: Annotated[int, typer.Option(help="Laptops in each circumstance.")] = 15,
    calm_count: Annotated[int, typer.Option(help="Unseen laptops before the circumstance begins.")] = 100,
) -> None:
    """Measure, and write the table and the chart that the documentation shows."""
    laptops = Laptops(cache, jobs)
    known = laptops.look([Recipe(REFERENCE_SEED + n) for n in range(reference_count)])
    stream = laptops.look([Recipe(STREAM_SEED + n) for n in range(stream_count)])
    reference = reference_of(known)
    course, strongest = play(reference, stream)
    found = alarmed_after(course)
    alarms = _false_alarms([*known, *stream], reference_count)
    outcomes = {}
    for name in CIRCUMSTANCES:
        for step in (2, 3):
            wanted = recipes(name, step, SHIFTED_SEED, shifted_count)
            shifted = laptops.look(wanted)
            outcomes[f"{name.replace('_', ' ')} {wanted[0].strength:g}"] = tuple(
                shifted_outcome(reference, calm, shifted) for calm in ((), stream[:calm_count])
            )
    said = "no alarm" if found is None else f"an alarm after {found}"
    lines = [
        f"Reference: {reference_count} laptops. {stream_count} unseen laptops like them: {said}, highest evidence "
        f"{max(course):.2f} ({strongest.replace('_', ' ')}; 1 is the alarm). Reference and stream drawn anew from these "
        f"{reference_count + stream_count}: {alarms} of {REDRAWN} streams with an alarm, promised at most "
        f"{100 * FALSE_ALARM:g} % on average.",
        "",
        f"| circumstance | laptops until the alarm, from the start | after {calm_count} unchanged ones |",
        "|---|---:|---:|",
        *(f"| {name} | {_needed(start)} | {_needed(later)} |" for name, (start, later) in outcomes.items()),
        "",
        f"Median (5 % to 95 %) of {ORDERS} random orders.",
        "",
    ]
    text = "\n".join(lines)
    out.mkdir(parents=True, exist_ok=True)
    with atomic_write(out / "drift.md", "w") as file:
        file.write(text)
    with atomic_write(out / "drift.svg", "w") as file:
        file.write(_chart(course, {name: later.course for name, (_, later) in outcomes.items()}))
    typer.echo(text)


def _false_alarms(laptops: Sequence[Seen], reference_count: int) -> int:
    alarms = 0
    for number in track(range(REDRAWN), "false alarms"):
        order = np.random.default_rng(1000 + number).permutation(len(laptops))
        drawn = [laptops[i] for i in order]
        reference = reference_of(drawn[:reference_count])
        alarms += alarmed_after(play(reference, drawn[reference_count:])[0]) is not None
    return alarms


def _needed(outcome: Outcome) -> str:
    most = len(outcome.course)
    known = [most + 1 if n is None else n for n in outcome.needed]
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95], method="nearest")
    texts = [f"> {most}" if n > most else f"{n:g}" for n in (middle, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def _chart(calm: Sequence[float], shifted: dict[str, Sequence[float]]) -> str:
    """Evidence over laptops: the unchanged stream and the median of each circumstance."""
    longest = max(len(course) for course in shifted.values())
    colours = (*COLOURS, *COLOURS)  # a circumstance that is drawn in the colour of another has dots

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.axhline(1.0, color=INK, ls="--", lw=1)
        axes.plot([0.0, *calm[:longest]], color=INK, label="unchanged")
        for number, (name, course) in enumerate(shifted.items()):
            style = ":" if number >= len(COLOURS) else "-"
            axes.plot([0.0, *course], style, color=colours[number], label=name)
        axes.set(xlim=(0, longest), ylim=(0, 1.6), xlabel="laptops", ylabel="evidence, alarm at 1")
        legend_below(figure, axes, columns=4)

    return svg(draw, 7.5, 3.6, "Evidence against the assumption over laptops")


if __name__ == "__main__":
    typer.run(main)

# SPDX-License-Identifier: Apache-2.0
"""What the gate and a plain score threshold do, by their proved limits, in circumstances that the policy was not made for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

from benchmarks.rendered import Recipe
from sticker_uq.calibration.measuring import PLAIN, measure, scores
from sticker_uq.calibration.outcomes import outcomes_of
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.metrics.decisions import Count
from sticker_uq.evaluation.reporting.charts import COLOURS, svg
from sticker_uq.evaluation.reporting.document import Table
from sticker_uq.gate import Policy, judge
from sticker_uq.lab.corruptions import TRANSFORMATIONS
from sticker_uq.scene import Outcome, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CIRCUMSTANCES = ("glare", "motion_blur", "sensor_noise", "occlusion", "unknown_make", "sticker_residue")
STEPS = (1, 3, 5)
"""Mild, middling and severe: these of the strengths that each transformation names."""
NAMES = ("as calibrated", "mild", "middling", "severe")


@dataclass(frozen=True)
class Rule:
    """What one rule did with some images: those with a wrongful removal, those with a question, and the stickers removed."""

    wrongful: Count
    asked: Count
    removed: Count


@dataclass(frozen=True)
class Shifted:
    """Both rules on the images of one circumstance. ``novel``: images that the gate asks about as a whole."""

    circumstance: str
    step: int
    strength: float
    gate: Rule
    plain: Rule
    novel: Count


def recipes(circumstance: str, step: int, first_seed: int, count: int) -> list[Recipe]:
    """The laptops of ``count`` seeds in a circumstance; ``step`` 1 to 3 from mild to severe."""
    strength = float(TRANSFORMATIONS[circumstance].ladder[STEPS[step - 1]])
    return [Recipe(seed, circumstance, strength) for seed in range(first_seed, first_seed + count)]


def shifted(
    circumstance: str,
    step: int,
    shown: Sequence[Record],
    policy: Policy,
    draft: Policy,
    plain_limit: float | None,
) -> Shifted:
    """What ``policy`` and the plain score threshold ``plain_limit`` (None: removes nothing) do with ``shown``."""
    strength = 0.0 if step == 0 else float(TRANSFORMATIONS[circumstance].ladder[STEPS[step - 1]])
    measured = measure(shown, policy)
    decisions = [judge(r.assessment, policy.model_copy(update={"validity": None})) for r in shown]
    asked = [d.outcome is Outcome.ASK or any(v.verdict is Verdict.ASK for v in d.verdicts) for d in decisions]
    novel = [any(reason.code == "unfamiliar_scene" for reason in d.reasons) for d in decisions]
    outcomes = outcomes_of(shown, draft)
    limit = -1.0 if plain_limit is None else plain_limit
    plain = next((score for score in scores(outcomes) if score.name == PLAIN), None)
    if plain is None:  # nothing was taken for a sticker
        nothing = Rule(Count(0, len(shown)), Count(0, len(shown)), Count(0, outcomes.stickers))
    else:
        doubtful = np.unique(plain.objects.image[plain.doubt > limit])
        nothing = Rule(plain.wrongful(limit), Count(len(doubtful), len(shown)), plain.removed(limit))
    gate = Rule(measured.wrongful, Count(sum(asked), len(shown)), measured.removed)
    return Shifted(circumstance, step, strength, gate, nothing, Count(sum(novel), len(shown)))


def pooled(rows: Iterable[Shifted], step: int) -> Shifted:
    """All circumstances of one step together."""
    chosen = [row for row in rows if row.step == step]

    def total(counts: Iterable[Count]) -> Count:
        listed = list(counts)
        return Count(sum(c.events for c in listed), sum(c.of for c in listed))

    def rule(rules: Sequence[Rule]) -> Rule:
        return Rule(
            total(r.wrongful for r in rules), total(r.asked for r in rules), total(r.removed for r in rules)
        )

    gate, plain = rule([row.gate for row in chosen]), rule([row.plain for row in chosen])
    return Shifted("all", step, 0.0, gate, plain, total(row.novel for row in chosen))


def shift_table(rows: Sequence[Shifted]) -> Table:
    """Both rules in every circumstance, and over all of them."""

    def cells(rule: Rule) -> tuple[str, ...]:
        return (
            f"{rule.wrongful.events} of {rule.wrongful.of}",
            f"{100 * rule.asked.rate:.0f} %",
            f"{100 * rule.removed.rate:.0f} %",
        )

    steps = sorted({row.step for row in rows if row.step})
    shown = [row for row in rows if row.step] + [pooled(rows, step) for step in steps]
    head = ["circumstance", "gate: bad images", "with a question", "stickers removed"]
    head += ["score: bad images", "with a question", "stickers removed", "unfamiliar to the gate"]
    return Table(
        tuple(head),
        tuple(
            (
                f"{row.circumstance.replace('_', ' ')} {NAMES[row.step] if row.circumstance == 'all' else f'{row.strength:g}'}",
                *cells(row.gate),
                *cells(row.plain),
                f"{100 * row.novel.rate:.0f} %",
            )
            for row in shown
        ),
    )


def shift_drawing(rows: Sequence[Shifted]) -> str:
    """Shares of images with a question and with a wrongful removal over the strength of each circumstance, as SVG."""
    names = [*dict.fromkeys(row.circumstance for row in rows if row.step)]
    names = [*names, "all"] if len(names) > 1 else names
    known = [*rows, *(pooled(rows, step) for step in sorted({row.step for row in rows if row.step}))]
    start = [row for row in rows if not row.step]

    def draw(figure: Figure) -> None:
        grid = figure.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for column, name in enumerate(names):
            line = [
                *start,
                *sorted((r for r in known if r.circumstance == name and r.step), key=lambda r: r.step),
            ]
            for axes, part in zip(grid[:, column], ("asked", "wrongful"), strict=True):
                for rule, label, colour in (
                    ("gate", "gate", COLOURS[0]),
                    ("plain", "score threshold", COLOURS[1]),
                ):
                    counts: list[Count] = [getattr(getattr(row, rule), part) for row in line]
                    steps = [row.step for row in line]
                    axes.plot(steps, [c.rate for c in counts], marker="o", ms=3, color=colour, label=label)
                    low, high = beta.interval(
                        0.8, [c.events + 0.5 for c in counts], [c.of - c.events + 0.5 for c in counts]
                    )
                    axes.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)
            grid[0, column].set_title(name.replace("_", " "), fontsize="small")
            grid[1, column].set_xticks(range(len(NAMES)), NAMES, rotation=60, fontsize="x-small")
        grid[0, 0].set_ylabel("images with a question")
        grid[1, 0].set_ylabel("with a wrongful removal")
        grid[0, 0].set_ylim(0, 1)
        grid[1, 0].set_ylim(0, None)
        grid[0, 0].legend(fontsize="x-small")

    return svg(
        draw, 2.1 * len(names), 4.6, "questions and wrongful removals over the strength of each circumstance"
    )

# SPDX-License-Identifier: Apache-2.0
"""The charts of a robustness assessment's report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from sticker_uq.evaluation.reporting.chart_style import COLOURS, INK, svg
from sticker_uq.lab.robustness.result import SweepResult
from sticker_uq.lab.robustness.verdicts import Finding, RelationCheck

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOUR_OF = {Finding.HOLDS: COLOURS[2], Finding.VIOLATED: COLOURS[5], Finding.UNDECIDED: COLOURS[1]}


def forest_plot(checks: Sequence[RelationCheck]) -> Markup:
    """Change of a metric in each circumstance, with its interval, over the band that epsilon allows."""
    drawn = [v for c in checks for v in (c.change, c.low, c.high, c.epsilon) if math.isfinite(v)]
    reach = 1.05 * min(max([0.05, *map(abs, drawn)]), 1.0)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, check in enumerate(checks):
            colour = _COLOUR_OF[check.finding]
            if math.isfinite(check.epsilon):
                axes.barh(row, 2 * check.epsilon, 0.7, -check.epsilon, color=INK, alpha=0.25)
            axes.plot([check.low, check.high], [row, row], color=colour, lw=2.4)
            axes.plot(check.change, row, "o", color=colour)
        axes.axvline(0, color=INK, lw=1)
        axes.set_yticks(range(len(checks)), [check.circumstance for check in checks])
        axes.set(xlim=(-reach, reach), ylim=(len(checks) - 0.5, -0.5))
        axes.grid(False, axis="y")

    metric = checks[0].metric
    return svg(draw, 8.0, 0.5 + 0.28 * len(checks), f"change of {metric} by circumstance")


def sweep_plot(sweep: SweepResult) -> Markup:
    """Performance over the strength of a circumstance, with interval, allowed band, and where it breaks."""
    points = sweep.points
    places = np.arange(len(points))
    strengths, values, low, high, epsilon = (
        np.array([getattr(p, name) for p in points], float)
        for name in ("strength", "value", "low", "high", "epsilon")
    )

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        if np.isfinite(epsilon).all():
            axes.fill_between(
                places, sweep.source - epsilon, sweep.source + epsilon, color=INK, alpha=0.25, lw=0
            )
        axes.fill_between(places, low, high, color=COLOURS[0], alpha=0.25, lw=0)
        axes.plot(places, values, "o-", ms=4)
        if math.isfinite(sweep.breaks_at):
            order = np.argsort(strengths)  # strengths may fall as a circumstance gets worse
            place = np.interp(sweep.breaks_at, strengths[order], places[order])
            axes.axvline(place, color=COLOURS[5], ls="--", lw=1.6)
        axes.set_xticks(places, [f"{strength:g}" for strength in strengths])
        axes.set(xlabel=sweep.unit, ylim=(-0.02, 1.02), yticks=(0, 0.5, 1))

    return svg(draw, 3.4, 1.9, f"{sweep.metric} over {sweep.circumstance}")

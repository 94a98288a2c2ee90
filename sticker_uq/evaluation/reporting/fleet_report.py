# SPDX-License-Identifier: Apache-2.0
"""The report of a fleet: which cell asks most and why, whose scenes are far away or drift, which cells differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from sticker_uq.evaluation.fleet.figures import CellFigures, Fleet, per_100
from sticker_uq.evaluation.metrics.statistics import Interval
from sticker_uq.evaluation.reporting.chart_style import COLOURS, INK, legend_below, svg
from sticker_uq.evaluation.reporting.document import Block, Table, as_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LIMITS, _MOST_NAMED = 8, 2
_MOST_COURSES = 12
_COLOUR = {"": COLOURS[0], "asks more": COLOURS[1], "asks less": COLOURS[2]}


def fleet_report(fleet: Fleet) -> str:
    """The report of ``fleet`` as one HTML page."""
    whole = fleet.whole
    parts: list[Block] = [
        "# Fleet",
        f"{len(fleet.cells)} cells, {whole.recordings} recordings, {whole.images} images of {whole.laptops} laptops, judged by "
        f"policy {fleet.policy.hash[:12]}. {_lead(fleet)}",
        *_questions(fleet),
        *_limits(fleet),
        *_distances(fleet),
        *_drift(fleet),
        *_recorded(fleet),
    ]
    for column, title in (("error", "Recordings that are left out"), ("note", "Recordings without a gate")):
        told = fleet.index[fleet.index[column] != ""]
        rows = [tuple(row) for row in told[["cell", "recording", column]].itertuples(index=False)]
        parts += [f"## {title}", Table(("cell", "recording", "why"), rows)] if rows else []
    return as_html("Fleet", parts)


def _lead(fleet: Fleet) -> str:
    differing = [
        f"{cell.cell} asks {'more' if fleet.asks_more(cell) else 'less'}" for cell in fleet.differing()
    ]
    drifted = [cell.cell for cell in fleet.cells if cell.drift.alarm_at]
    return (
        f"{'; '.join(differing) or 'No cell is found to ask more or less'} than the rest of the fleet. "
        f"Drift alarm: {', '.join(drifted) or 'none' if fleet.policy.reference else 'not watched, the policy has no reference'}."
    )


def _by_questions(fleet: Fleet) -> list[CellFigures]:
    return sorted(fleet.cells, key=lambda cell: -cell.per_100.value if cell.laptops else math.inf)


def _questions(fleet: Fleet) -> list[Block]:
    cells = _by_questions(fleet)
    rows = [
        (
            cell.cell or "fleet",
            str(cell.recordings),
            str(cell.laptops),
            str(cell.images) + (f" ({cell.failed} failed)" if cell.failed else ""),
            _interval(cell.per_100),
            _of(cell.released, cell.laptops),
            "–" if cell.cell == "" else f"{cell.adjusted:.3g}",
            _verdict(fleet, cell),
        )
        for cell in (fleet.whole, *cells)
    ]
    head = (
        "cell",
        "recordings",
        "laptops",
        "images",
        "asked about, per 100 laptops",
        "with a release",
        "p",
        "differs",
    )
    return [
        "## Which cell asks most?",
        "A laptop counts as asked about where the policy would ask a person about at least one of its images, as released from "
        "where at least one has the outcome “work”: every image is judged by itself, without gate, waiting and answers. "
        "Where a recording does not say which laptop is in the cell, each image counts as one, and the intervals are too narrow. "
        "Interval: exact, 95 % (Clopper-Pearson). p: Fisher's exact test of a cell against all others, corrected for "
        f"{len(cells)} cells (Benjamini-Yekutieli): of the cells that are said to differ, a share of at most {fleet.level:g} is "
        "expected not to.",
        _interval_chart(fleet, cells),
        Table(head, rows),
    ]


def _verdict(fleet: Fleet, cell: CellFigures) -> str:
    if not cell.cell or not cell.adjusted <= fleet.level:
        return "–"
    return "asks more" if fleet.asks_more(cell) else "asks less"


def _of(count: int, whole: int) -> str:
    return f"{count} ({count / whole:.0%})" if whole else "–"


def _interval(found: Interval) -> str:
    return f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"


def _interval_chart(fleet: Fleet, cells: Sequence[CellFigures]) -> Markup:
    differing = {cell.cell: _verdict(fleet, cell) for cell in fleet.differing()}

    def draw(figure: Figure) -> None:
        axes = _rows(figure, cells)
        for place, cell in enumerate(cells):
            colour = _COLOUR[differing.get(cell.cell, "")]
            axes.hlines(place, cell.per_100.low, cell.per_100.high, color=colour, lw=2.5)
            axes.plot(cell.per_100.value, place, "o", color=colour, clip_on=False)
        axes.axvline(fleet.whole.per_100.value, color=INK, ls="--", lw=1, label="fleet")
        for verdict in sorted(set(differing.values()), reverse=True):
            axes.plot([], [], "o-", color=_COLOUR[verdict], label=f"{verdict} than the others")
        axes.set_xlim(0, 100)
        axes.set_xlabel("laptops asked about, of 100")
        legend_below(figure, axes, 3)

    return svg(draw, 7.5, _height(cells), "Laptops asked about, per 100, by cell")


def _limits(fleet: Fleet) -> list[Block]:
    cells = _by_questions(fleet)
    names = list(fleet.whole.blocked)
    if not names:
        return ["## Which limit blocks?", "None: no limit kept anything from being released."]
    shown = names[:_MOST_LIMITS]
    rest = len(names) - len(shown)
    shares = np.array([[cell.blocked.get(n, 0) / max(cell.laptops, 1) for n in shown] for cell in cells])

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        image = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=max(shares.max(), 0.01))
        axes.set_yticks(range(len(cells)), [cell.cell for cell in cells])
        axes.set_xticks(range(len(shown)), shown, rotation=30, ha="right")
        axes.grid(False)
        figure.colorbar(image, label="share of laptops")

    rows = []
    for cell in (fleet.whole, *cells):
        most = [
            f"{name}: {_of(count, cell.laptops)}" for name, count in list(cell.blocked.items())[:_MOST_NAMED]
        ]
        rows.append((cell.cell or "fleet", *most, *["–"] * (_MOST_NAMED - len(most))))
    return [
        "## Which limit blocks?",
        "Laptops with an image in which this kept the scene, or an object in it, from being released; several may have done so."
        + (f" The chart lacks the {rest} that blocked least." if rest else ""),
        svg(draw, 7.5, _height(cells) + 1.0, "Share of laptops that each limit blocked, by cell"),
        Table(("cell", "limit that blocks most", "next"), rows),
    ]


def _distances(fleet: Fleet) -> list[Block]:
    limit = fleet.policy.max_scene_distance
    cells = sorted(
        (cell for cell in fleet.cells if not math.isnan(cell.distance[0])), key=lambda cell: -cell.distance[1]
    )
    title = "## Whose scenes are far from the training pictures?"
    if not cells:
        return [title, "The scene distance was not measured: there is no novelty network for these weights."]

    def draw(figure: Figure) -> None:
        axes = _rows(figure, cells)
        for place, cell in enumerate(cells):
            axes.hlines(place, *cell.distance[:2], color=COLOURS[0], lw=2.5)
        places = range(len(cells))
        axes.plot([cell.distance[0] for cell in cells], places, "o", color=COLOURS[0], label="median")
        axes.plot(
            [cell.distance[1] for cell in cells], places, "D", color=COLOURS[4], label="95th percentile"
        )
        axes.axvline(limit, color=COLOURS[1], ls="--", lw=1.2, label="limit of the policy")
        axes.set_xlim(0, None)
        axes.set_xlabel("scene distance")
        legend_below(figure, axes, 3)

    rows = [
        (cell.cell, f"{cell.distance[0]:.3f}", f"{cell.distance[1]:.3f}", f"{cell.distance[2]:.1%}")
        for cell in cells
    ]
    return [
        title,
        f"1 is as far as an unusual training picture; above {limit:g} nothing is released.",
        svg(draw, 7.5, _height(cells), "Scene distance by cell: median and 95th percentile"),
        Table(("cell", "median", "95th percentile", "images above the limit"), rows),
    ]


def _drift(fleet: Fleet) -> list[Block]:
    title = "## Whose scenes drift?"
    if fleet.policy.reference is None:
        return [title, "Not watched: the policy has no reference; sticker-uq calibrate writes one."]

    shown = sorted(fleet.cells, key=lambda cell: -max(cell.drift.evidence, default=0.0))[:_MOST_COURSES]

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for number, cell in enumerate(shown):
            colour, line = COLOURS[number % len(COLOURS)], ("-", ":", "-.")[number // len(COLOURS) % 3]
            axes.plot(
                range(1, len(cell.drift.evidence) + 1),
                cell.drift.evidence,
                line,
                color=colour,
                label=cell.cell,
            )
        axes.axhline(1, color=INK, ls="--", lw=1)
        axes.set_xlabel("laptops")
        axes.set_ylabel("evidence of drift")
        legend_below(figure, axes, 4)

    rows = []
    for cell in fleet.cells:
        found = cell.drift
        last = found.evidence[-1] if found.evidence else math.nan
        alarm = (str(found.alarm_at), _utc(found.stamp_ns), found.recording, found.reason)
        rows.append(
            (cell.cell, str(len(found.evidence)), "–" if math.isnan(last) else f"{last:.2f}")
            + (alarm if found.alarm_at else ("none", "–", "–", "–"))
        )
    head = (
        "cell",
        "laptops seen",
        "evidence",
        "alarm at laptop",
        "stamp of its image",
        "recording",
        "signal",
    )
    return [
        title,
        "The assumption monitor of the cell, from the first judged image of each laptop, in the order of the recordings' first "
        "stamps, until its first alarm, at an evidence of 1. While nothing changes, the probability that a cell ever has one is "
        f"at most {fleet.false_alarm:g}. The chart shows the {len(shown)} cells with most evidence.",
        svg(
            draw,
            7.5,
            2.6 + 0.2 * math.ceil(len(shown) / 4),
            "Evidence of drift by cell, laptop by laptop",
        ),
        Table(head, rows),
    ]


def _recorded(fleet: Fleet) -> list[Block]:
    cells = [cell for cell in _by_questions(fleet) if cell.recorded["laptops"]]
    title = "## What did the recorded gates do?"
    if not cells:
        return [title, "No recording has the states of a gate."]

    def draw(figure: Figure) -> None:
        axes = _rows(figure, cells)
        places = np.arange(len(cells))
        for shift, name, colour in ((-0.2, "questions", COLOURS[1]), (0.2, "releases", COLOURS[2])):
            height = [100 * cell.recorded[name] / cell.recorded["laptops"] for cell in cells]
            axes.barh(places + shift, height, 0.38, color=colour, label=name)
        axes.set_xlabel("per 100 laptops")
        legend_below(figure, axes)

    total = Counter[str]()
    for cell in cells:
        total.update(cell.recorded)
    rows = [
        (
            name,
            *(str(found[what]) for what in ("laptops", "questions", "releases")),
            _interval(per_100(found["asked"], found["laptops"])),
        )
        for name, found in [("fleet", total), *((cell.cell, cell.recorded) for cell in cells)]
    ]
    return [
        title,
        "As recorded, by the policy that the cell had then: questions to a person, and objects that the arm was let to; laptops "
        "with a question, per 100, with the exact 95 % interval.",
        svg(draw, 7.5, _height(cells), "Recorded questions and releases per 100 laptops, by cell"),
        Table(("cell", "laptops", "questions", "releases", "asked about, per 100 laptops"), rows),
    ]


def _utc(stamp_ns: int) -> str:
    return f"{datetime.fromtimestamp(stamp_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}Z"


def _rows(figure: Figure, cells: Sequence[CellFigures]) -> Axes:
    """Axes with one row per cell, the first on top."""
    axes = figure.add_subplot()
    axes.set_yticks(range(len(cells)), [cell.cell for cell in cells])
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.grid(False, axis="y")
    return axes


def _height(cells: Sequence[CellFigures]) -> float:
    return 1.2 + 0.25 * len(cells)

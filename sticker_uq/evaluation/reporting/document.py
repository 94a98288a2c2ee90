# SPDX-License-Identifier: Apache-2.0
"""Documents of headings, paragraphs, tables and charts, as Markdown or as one HTML page, the templates of larger pages, and
charts as SVG in one style: no script, no file beside them, readable on light and dark pages, the same byte for byte.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from sticker_uq.evaluation.report_model import Course
from sticker_uq.io.files import atomic_write, write_file
from sticker_uq.scene import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | Table | Markup
"""A heading ("# ..."), a paragraph, a table, or a chart (left out of Markdown)."""


def as_markdown(blocks: Sequence[Block]) -> str:
    parts = []
    for block in blocks:
        if isinstance(block, Table):
            lines = [block.head, ("---",) * len(block.head), *block.rows]
            parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        elif not isinstance(block, Markup):
            parts.append(block)
    return "\n\n".join(parts) + "\n"


def as_html(title: str, blocks: Sequence[Block]) -> str:
    return templates().get_template("document.html").render(title=title, blocks=[_element(b) for b in blocks])


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write every table that has rows to ``folder``/NAME.csv with all its digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        if not table.empty:
            with atomic_write(folder / f"{name}.csv", "w") as stream:
                table.to_csv(stream, index=False, lineterminator="\n")


REPORT, SUMMARY, TABLES = "report.html", "summary.md", "tables"


def write_pages(
    folder: Path,
    title: str,
    page: Sequence[Block],
    summary: Sequence[Block],
    tables: Mapping[str, pd.DataFrame],
) -> str:
    """Write report.html, which needs nothing outside, summary.md (returned) and tables/*.csv into ``folder``."""
    write_tables(tables, folder / TABLES)
    text = as_markdown(summary)
    for name, content in ((REPORT, as_html(title, page)), (SUMMARY, text)):
        write_file(folder / name, content)
    return text


def templates() -> Environment:
    """What the templates are given is escaped."""
    return Environment(
        loader=PackageLoader("sticker_uq.evaluation.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _element(block: Block) -> tuple[str, Table | str]:
    if isinstance(block, Table):
        return "table", block
    if isinstance(block, Markup):
        return "svg", block
    level = len(block) - len(block.lstrip("#"))
    return (f"h{level}", block[level + 1 :]) if level else ("p", block)


COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's palette (Color Universal Design, 2008): told apart with any kind of colour vision."""
MARKERS = ("o", "s", "^", "D", "v", "P")
INK = "#7b8594"
"""Of lines and letters: a grey with contrast on white and on black."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "sticker_uq",  # the same chart has the same identifiers
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "text.color": INK,
    "axes.titlesize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "axes.grid": True,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "grid.color": INK,
    "grid.alpha": 0.25,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


def svg(draw: Callable[[Figure], object], width: float, height: float, label: str) -> Markup:
    """The SVG element of a figure of ``width`` x ``height`` inches that ``draw`` fills; ``label`` for screen readers."""
    import matplotlib as mpl  # takes half a second to load
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    with mpl.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        stream = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", metadata=nothing)
    text = stream.getvalue()
    return Markup(f'<svg role="img" aria-label="{escape(label)}"') + Markup(text[text.index("<svg") + 4 :])


def legend_below(figure: Figure, axes: Axes, columns: int = 2) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


_MOST_POINTS = 250
"""Of each class and detector; the mean is that of all."""
_Column = Callable[["Axes", float, float, int, int], None]
"""Draws the column from ``left`` on, ``width`` wide, of the detector and of the class with these numbers."""


def course_chart(course: Course) -> Markup:
    """The values of ``course`` image by image, with gaps where there is none, and its limit as a dashed line."""
    values = np.asarray(course.values, float)
    known = np.isfinite(values)
    alone = known & ~np.append(False, known[:-1]) & ~np.append(known[1:], False)
    highest = values[known].max(initial=0.0)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot(values, marker=".", markevery=np.flatnonzero(alone).tolist(), clip_on=False)
        if math.isfinite(course.limit):
            axes.axhline(course.limit, color=COLOURS[1], ls="--", lw=1.2)
        axes.set_ylim(0, max(highest, 0.0 if math.isnan(course.limit) else course.limit * 1.2) or 1.0)
        axes.set_xticks([])

    return svg(draw, 4.0, 1.1, f"{course.label}, highest {highest:.3g}")


def draw_blocked_bars(names: Sequence[str], blocked: Sequence[int], alone: Sequence[int]) -> Markup:
    """How many objects each limit blocked, in the order of ``names``; ``alone``: nothing else blocked them."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        places = np.arange(len(names))[::-1]
        axes.barh(places, blocked, color=COLOURS[1], alpha=0.45, label="together with another limit")
        axes.barh(places, alone, color=COLOURS[1], label="alone")
        axes.set_yticks(places, names)
        axes.grid(False, axis="y")
        legend_below(figure, axes)

    return svg(draw, 7.5, 0.9 + 0.28 * len(names), "Objects that each limit kept from being released")


def error_scatter(classes: Sequence[str], series: Sequence[tuple[str, FloatArray]], unit: str) -> Markup:
    """ACE by class, points per detector, mean as a line (Ullah et al., figures 2a, 3a). ``series``: name, errors (m, K)."""

    def column(axes: Axes, left: float, width: float, number: int, group: int) -> None:
        values = series[number][1][:, group]
        shown = values[:: max(1, len(values) // _MOST_POINTS)][:_MOST_POINTS]
        # a fixed scatter, so that the same figures give the same chart
        x = left + width * (0.1 + 0.8 * (np.arange(len(shown)) * 0.618034 % 1.0))
        axes.plot(x, shown, ".", ms=2.5, mew=0, alpha=0.45, color=_colour(number))
        axes.hlines(values.mean(), left, left + width, color=_colour(number), lw=2.5)

    title = f"Absolute class error of random subsets, {unit}; the line is EACE"
    return _by_class(classes, series, column, title)


def variance_bars(classes: Sequence[str], series: Sequence[tuple[str, FloatArray]], unit: str) -> Markup:
    """VACE by class, a bar per detector (Ullah et al., figures 2b, 3b). ``series``: name, variances (K,)."""

    def bar(axes: Axes, left: float, width: float, number: int, group: int) -> None:
        axes.bar(left, series[number][1][group], width, align="edge", color=_colour(number))

    return _by_class(classes, series, bar, f"Variance of the absolute class error (VACE), {unit} squared")


def _by_class(
    classes: Sequence[str], series: Sequence[tuple[str, FloatArray]], column: _Column, label: str
) -> Markup:
    width = 0.84 / max(len(series), 1)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for group in range(len(classes)):
            for number in range(len(series)):
                column(axes, group - 0.42 + (number + 0.1) * width, 0.8 * width, number, group)
        for number, (name, _) in enumerate(series):
            axes.plot([], [], "s", color=_colour(number), label=name)
        axes.set_xticks(range(len(classes)), classes)
        axes.set_ylim(0, None)
        axes.set_title(label, loc="left")
        axes.grid(False, axis="x")
        legend_below(figure, axes, columns=4)

    return svg(draw, 7.5, 3.2, label)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]

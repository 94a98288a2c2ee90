# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG in one style: no script, no file beside them, readable on light and dark pages, reproducible byte for byte."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """The SVG element of a report's chart of ``width`` x ``height`` inches that ``draw`` fills; ``label`` for screen readers."""
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
    """The legend of a report's chart ``axes``, below the whole figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)

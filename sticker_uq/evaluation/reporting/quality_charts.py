"""Charts of probability quality as SVG that stands alone: no script, no style sheet, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from markupsafe import Markup, escape

from sticker_uq.evaluation.metrics.reliability import Bin
from sticker_uq.scene import FloatArray

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_INK = "#7b8594"
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 34, 40
_MOST_POINTS = 250
"""Of each class and detector; the mean is that of all."""


def error_scatter(classes: Sequence[str], series: Sequence[tuple[str, FloatArray]], unit: str) -> Markup:
    """ACE of the subsets by class, one column of points per detector, its mean as a line (Ullah et al., figures 2a and 3a).

    ``series``: name and errors (m, K) of each detector; ``unit`` of the errors.
    """
    top = max((float(errors.max()) for _, errors in series), default=0.0) or 1.0
    parts = []
    for group, place, number, (_, errors) in _places(classes, series):
        column = errors[:, group]
        # a fixed scatter, so that the same figures give the same picture
        step = max(1, len(column) // _MOST_POINTS)
        for index, value in enumerate(column[::step][:_MOST_POINTS]):
            x = place(0.2 + 0.6 * (index * 0.618034 % 1.0))
            parts.append(
                f'<circle cx="{x:.1f}" cy="{_y(value, top):.1f}" r="1.4" fill="{COLOURS[number % 6]}" opacity=".45"/>'
            )
        mean = _y(float(column.mean()), top)
        parts.append(
            f'<line x1="{place(0.1):.1f}" x2="{place(0.9):.1f}" y1="{mean:.1f}" y2="{mean:.1f}" '
            f'stroke="{COLOURS[number % 6]}" stroke-width="3"/>'
        )
    label = f"Absolute class error of random subsets, {unit}; the line is EACE"
    return _framed("".join(parts), label, classes, [name for name, _ in series], top)


def variance_bars(classes: Sequence[str], series: Sequence[tuple[str, FloatArray]], unit: str) -> Markup:
    """VACE by class, one bar per detector (Ullah et al., figures 2b and 3b). ``series``: name and variances (K,)."""
    top = max((float(values.max()) for _, values in series), default=0.0) or 1.0
    parts = []
    for group, place, number, (name, values) in _places(classes, series):
        y = _y(float(values[group]), top)
        title = f"{escape(name)}, {escape(classes[group])}: {values[group]:.4g}"
        parts.append(
            f'<rect x="{place(0.12):.1f}" y="{y:.1f}" width="{place(0.88) - place(0.12):.1f}" '
            f'height="{_y(0, top) - y:.1f}" fill="{COLOURS[number % 6]}"><title>{title}</title></rect>'
        )
    label = f"Variance of the absolute class error (VACE), {unit} squared"
    return _framed("".join(parts), label, classes, [name for name, _ in series], top)


def reliability_diagram(title: str, bins: Sequence[Bin], colour: str = COLOURS[0]) -> Markup:
    """Share that is right over confidence, with its interval; on the diagonal confidence keeps its word.

    The bars below say how many objects lie in each bin.
    """
    size, left, top, strip = 200, 40, 26, 34
    most = max((b.count for b in bins), default=0) or 1
    parts = [
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="{_INK}" stroke-width=".6"/>',
        f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="{_INK}" stroke-dasharray="4 3"/>',
        _text(left + size / 2, 16, title, "middle", 13),
    ]
    for share in (0.0, 0.5, 1.0):
        parts.append(_text(left - 5, top + size * (1 - share) + 4, f"{share:g}", "end"))
        parts.append(_text(left + size * share, top + size + strip + 14, f"{share:g}", "middle"))
    for b in bins:
        x0, width = left + size * b.low, size * (b.high - b.low)
        tall = (strip - 4) * math.sqrt(b.count / most)
        parts.append(
            f'<rect x="{x0 + 1:.1f}" y="{top + size + strip - tall:.1f}" width="{width - 2:.1f}" height="{tall:.1f}" '
            f'fill="{_INK}" opacity=".5"><title>{b.count} objects</title></rect>'
        )
        if b.count:
            x = left + size * b.confidence
            low, high, y = (
                top + size * (1 - min(max(v, 0.0), 1.0)) for v in (b.right_low, b.right_high, b.right)
            )
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}" stroke-width="2" '
                f'opacity=".55"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
            )
    return _svg("".join(parts), left + size + 12, top + size + strip + 20, f"Reliability diagram: {title}")


Place = Callable[[float], float]


def _places(
    classes: Sequence[str], series: Sequence[tuple[str, FloatArray]]
) -> list[tuple[int, Place, int, tuple[str, FloatArray]]]:
    """For each class and detector: its number, a map from [0, 1] to its column of the picture, the detector."""
    wide = (_WIDTH - _LEFT - _RIGHT) / len(classes)
    column = 0.84 * wide / max(len(series), 1)
    found: list[tuple[int, Place, int, tuple[str, FloatArray]]] = []
    for group in range(len(classes)):
        for number, one in enumerate(series):
            start = _LEFT + group * wide + 0.08 * wide + number * column
            found.append((group, partial(_within, start, column), number, one))
    return found


def _within(start: float, width: float, part: float) -> float:
    return start + part * width


def _y(value: float, top: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / (1.05 * top))


def _framed(drawing: str, label: str, classes: Sequence[str], names: Sequence[str], top: float) -> Markup:
    wide = (_WIDTH - _LEFT - _RIGHT) / len(classes)
    parts = [_text(_LEFT, 14, label, "start", 12)]
    for value in np.linspace(0, top, 5):
        y = _y(float(value), top)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_INK}" stroke-width=".4"/>'
        )
        parts.append(_text(_LEFT - 6, y + 4, f"{value:.3g}", "end"))
    for group, name in enumerate(classes):
        parts.append(_text(_LEFT + (group + 0.5) * wide, _HEIGHT - _BOTTOM + 16, name, "middle"))
    x = float(_LEFT)
    for number, name in enumerate(names):
        parts.append(
            f'<rect x="{x}" y="{_HEIGHT - 16}" width="10" height="10" fill="{COLOURS[number % 6]}"/>'
        )
        parts.append(_text(x + 14, _HEIGHT - 7, name, "start"))
        x += 28 + 6.3 * len(name)
    return _svg("".join(parts) + drawing, _WIDTH, _HEIGHT, label)


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{_INK}" '
        f'font-family="sans-serif">{escape(text)}</text>'
    )


def _svg(drawing: str, width: float, height: float, label: str) -> Markup:
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}">{drawing}</svg>'
    )

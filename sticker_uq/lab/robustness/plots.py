"""The plots of a robustness report as SVG: no script, nothing beside the report, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from sticker_uq.lab.robustness.result import SweepResult
from sticker_uq.lab.robustness.verdicts import RelationCheck

_ROW, _LABEL, _WIDTH = 26, 170, 760
_PLOT_WIDTH, _PLOT_HEIGHT, _LEFT, _TOP, _BOTTOM = 340, 190, 40, 10, 34


def forest_plot(checks: Sequence[RelationCheck]) -> Markup:
    """The change of one metric in each circumstance, with its interval, over the band that epsilon allows."""
    reach = max(
        [0.05] + [abs(v) for c in checks for v in (c.change, c.low, c.high, c.epsilon) if math.isfinite(v)]
    )
    reach = min(reach, 1.0) * 1.05
    middle, half = _LABEL + (_WIDTH - _LABEL) / 2, (_WIDTH - _LABEL) / 2 - 10

    def x(value: float) -> float:
        return middle + half * min(max(value / reach, -1.0), 1.0)

    parts = []
    for number, check in enumerate(checks):
        y = number * _ROW + _ROW / 2
        parts.append(
            f'<text class="name" x="{_LABEL - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(check.circumstance)}</text>'
        )
        if math.isfinite(check.epsilon):
            left, right = x(-check.epsilon), x(check.epsilon)
            parts.append(
                f'<rect class="allowed" x="{left:.1f}" y="{y - 9:.1f}" width="{right - left:.1f}" height="18" rx="3"/>'
            )
        title = (
            f"{check.circumstance}: change {check.change:+.3f} [{check.low:+.3f}, {check.high:+.3f}], "
            f"allowed {check.epsilon:.3f} at d = {check.distance:.3f}: {check.finding}"
        )
        drawing = ""
        if math.isfinite(check.low) and math.isfinite(check.high):
            drawing += (
                f'<line class="interval" x1="{x(check.low):.1f}" x2="{x(check.high):.1f}" y1="{y}" y2="{y}"/>'
            )
        if math.isfinite(check.change):
            drawing += f'<circle cx="{x(check.change):.1f}" cy="{y}" r="5"/>'
        parts.append(f'<g class="{check.finding}"><title>{escape(title)}</title>{drawing}</g>')
    high = len(checks) * _ROW
    ticks = "".join(
        f'<line class="grid" x1="{x(v):.1f}" x2="{x(v):.1f}" y1="0" y2="{high}"/>'
        f'<text class="tick" x="{x(v):.1f}" y="{high + 16}" text-anchor="middle">{v:+.2g}</text>'
        for v in _ticks(reach)
    )
    zero = f'<line class="zero" x1="{middle}" x2="{middle}" y1="0" y2="{high}"/>'
    return Markup(
        f'<svg class="forest" viewBox="0 0 {_WIDTH} {high + 22}" role="img">{ticks}{zero}{"".join(parts)}</svg>'
    )


def sweep_plot(sweep: SweepResult) -> Markup:
    """Performance over the strength of a circumstance, with its interval, the band that epsilon allows, and where it breaks."""
    points = sweep.points
    right = _LEFT + _PLOT_WIDTH - 50

    def x(place: float) -> float:
        return _LEFT + (right - _LEFT) * place / max(len(points) - 1, 1)

    def y(value: float) -> float:
        return _TOP + (_PLOT_HEIGHT - _TOP - _BOTTOM) * (1 - min(max(value, 0.0), 1.0))

    def line(values: Sequence[tuple[int, float]]) -> str:
        return " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in values if math.isfinite(v))

    upper = [(i, sweep.source + p.epsilon) for i, p in enumerate(points)]
    lower = [(i, sweep.source - p.epsilon) for i, p in enumerate(points)]
    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
        for v in (0.0, 0.5, 1.0)
    ]
    if all(math.isfinite(v) for _, v in (*upper, *lower)):
        parts.append(f'<polygon class="allowed" points="{line(upper)} {line(lower[::-1])}"/>')
    known = [(i, p) for i, p in enumerate(points) if math.isfinite(p.low) and math.isfinite(p.high)]
    if known:
        outline = line([(i, p.high) for i, p in known] + [(i, p.low) for i, p in known[::-1]])
        parts.append(f'<polygon class="band" points="{outline}"/>')
    parts.append(f'<polyline class="curve" points="{line([(i, p.value) for i, p in enumerate(points)])}"/>')
    for index, point in enumerate(points):
        if math.isfinite(point.value):
            title = f"{point.strength:g} {sweep.unit}, d = {point.distance:.3f}: {point.value:.3f}"
            parts.append(
                f'<circle cx="{x(index):.1f}" cy="{y(point.value):.1f}" r="3.5"><title>{escape(title)}</title></circle>'
            )
        parts.append(
            f'<text class="tick" x="{x(index):.1f}" y="{_PLOT_HEIGHT - 18}" text-anchor="middle">{point.strength:g}</text>'
        )
    if math.isfinite(sweep.breaks_at):
        at = x(_place(sweep.breaks_at, [p.strength for p in points]))
        parts.append(
            f'<line class="break" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_PLOT_HEIGHT - _BOTTOM}"/>'
        )
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="tick" x="{middle:.1f}" y="{_PLOT_HEIGHT - 3}" text-anchor="middle">{escape(sweep.unit)}</text>'
    )
    label = f"{sweep.metric} over {sweep.circumstance}"
    return Markup(
        f'<svg class="sweep" viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _place(strength: float, strengths: Sequence[float]) -> float:
    """Where a strength lies among the steps, which may rise or fall."""
    for index in range(len(strengths) - 1):
        one, other = strengths[index], strengths[index + 1]
        if min(one, other) <= strength <= max(one, other) and one != other:
            return index + (strength - one) / (other - one)
    return 0.0


def _ticks(reach: float) -> list[float]:
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if reach / s <= 5)
    count = int(reach / step)
    return [step * number for number in range(-count, count + 1)]

"""Small charts as SVG: no script, no file beside the report, readable in light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from sticker_uq.evaluation.reporting.report_model import Course

WIDTH, HEIGHT = 300, 80
_MOST_POINTS = 600


def course_chart(course: Course) -> Markup:
    """The values of `course` as a line with gaps where there is none, and its limit as a dashed line."""
    values = _thinned(course.values)
    finite = [v for v in values if math.isfinite(v)]
    top = max([*finite, 0.0 if math.isnan(course.limit) else course.limit * 1.2]) or 1.0
    step = WIDTH / max(len(values) - 1, 1)
    parts = []
    run: list[str] = []
    for index, value in enumerate([*values, math.nan]):
        if math.isfinite(value):
            run.append(f"{index * step:.1f},{_height(value, top):.1f}")
        elif run:
            parts.append(_stroke(run))
            run = []
    limit = ""
    if math.isfinite(course.limit):
        y = _height(course.limit, top)
        limit = f'<line class="limit" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
    drawing = f'<line class="axis" x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}"/>{limit}{"".join(parts)}'
    return _svg(
        drawing, WIDTH, HEIGHT, f"{course.label}, highest {max(finite, default=math.nan):.3g}", "course"
    )


def stage_chart(timings: Mapping[str, float]) -> Markup:
    """The stages of one image side by side, each as wide as its milliseconds; a stage called total is left out."""
    stages = {name: ms for name, ms in timings.items() if name != "total" and ms > 0}
    total = sum(stages.values())
    if not total:
        return Markup("")
    x, parts = 0.0, []
    for index, (name, ms) in enumerate(stages.items()):
        width = 1000 * ms / total
        title = f"{escape(name)} {ms:.1f} ms"
        parts.append(
            f'<rect class="stage{index % 6}" x="{x:.1f}" y="0" width="{max(width - 2, 1):.1f}" height="26" rx="3">'
            f"<title>{title}</title></rect>"
        )
        x += width
    return _svg("".join(parts), 1000, 26, "time per stage", "stages")


def _stroke(points: Sequence[str]) -> str:
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle class="line" cx="{x}" cy="{y}" r="1.5"/>'
    return f'<polyline class="line" points="{" ".join(points)}"/>'


def _height(value: float, top: float) -> float:
    return 2 + (HEIGHT - 4) * (1 - min(value / top, 1.0))


def _thinned(values: Sequence[float]) -> list[float]:
    """At most 600 values; of each stretch the largest stays, because peaks are what a reader looks for."""
    size = math.ceil(len(values) / _MOST_POINTS) or 1
    stretches = [values[i : i + size] for i in range(0, len(values), size)]
    return [max((v for v in stretch if math.isfinite(v)), default=math.nan) for stretch in stretches]


def _svg(drawing: str, width: int, height: int, label: str, kind: str) -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(label)}">{drawing}</svg>'
    )

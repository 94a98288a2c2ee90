# SPDX-License-Identifier: Apache-2.0
"""What the site has and the pages in the repository have not (``hooks`` in mkdocs.yml): a line ``<!-- site: NAME -->`` is
replaced by what :data:`ONLY_HERE` has of this name, long tables have all rows, and the states of the gate are drawn.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.reference import messages  # noqa: E402
from benchmarks.tables import filled  # noqa: E402


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page as the site shows it."""
    markdown = re.sub(r"```mermaid\nstateDiagram-v2\n(.*?)```", _state_diagram, markdown, flags=re.S)
    return re.sub(r"^<!-- site: (\w+) -->$", lambda mark: ONLY_HERE[mark[1]](), filled(markdown), flags=re.M)


_AT = {
    "BLOCKED": (100, 110),
    "MONITORING": (430, 110),
    "PERMITTED": (760, 110),
    "REMOVING": (890, 310),
    "VERIFYING": (420, 400),
    "INTERVENTION": (700, 570),
    "FAULT": (100, 400),
}
"""Where the states of the gate are drawn, px."""
_WIDE, _HIGH, _BEND, _ALONG = 150, 48, 26, 0.4


def _state_diagram(block: re.Match[str]) -> str:
    """An SVG of a mermaid state diagram: code hosts draw the block itself, the site has no JavaScript for it."""
    edges = re.findall(r"^ *(\w+) --> (\w+): (.+)$", block[1], re.M)
    notes = dict(re.findall(r"^ *note right of (\w+): (.+)$", block[1], re.M))
    states = dict.fromkeys(state for edge in edges for state in edge[:2])
    drawn = [_arrow(_AT[a], _AT[b], label, (b, a) in {edge[:2] for edge in edges}) for a, b, label in edges]
    x, y = _AT[re.findall(r"\[\*\] --> (\w+)", block[1])[0]]
    top = y - _HIGH / 2
    drawn.append(
        f'<circle cx="{x}" cy="{top - 40}" r="7"/><path class="edge" d="M{x} {top - 33}V{top - 6}"/>'
    )
    for state in states:
        x, y = _AT[state]
        drawn.append(
            f'<rect x="{x - _WIDE / 2}" y="{y - _HIGH / 2}" width="{_WIDE}" height="{_HIGH}" rx="8"/>'
            f'<text class="state" x="{x}" y="{y + 5}">{state}</text>'
        )
        for row, words in enumerate(textwrap.wrap(notes.get(state, ""), 22)):
            drawn.append(f'<text class="note" x="{x}" y="{y + _HIGH / 2 + 18 + 16 * row}">{words}</text>')
    told = "; ".join(f"{a} to {b} by {label}" for a, b, label in edges)
    return (
        f'<figure class="states"><svg viewBox="0 0 990 610" role="img" aria-label="{told}">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z"/></marker></defs>{"".join(drawn)}</svg></figure>'
    )


def _arrow(start: tuple[float, float], end: tuple[float, float], label: str, both: bool) -> str:
    """From the edge of one state to that of another; bent to the left where there is one back."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy)
    across = dy / length, -dx / length
    share = min(abs((_WIDE / 2 + 6) / dx) if dx else 1.0, abs((_HIGH / 2 + 6) / dy) if dy else 1.0)
    bend = _BEND if both else 0.0
    (x1, y1), (x2, y2) = (
        (
            place[0] + sign * share * dx + across[0] * bend / 2,
            place[1] + sign * share * dy + across[1] * bend / 2,
        )
        for place, sign in ((start, 1), (end, -1))
    )
    mx, my = (x1 + x2) / 2 + across[0] * bend, (y1 + y2) / 2 + across[1] * bend
    weights = ((1 - _ALONG) ** 2, 2 * _ALONG * (1 - _ALONG), _ALONG**2)  # of the curve's points
    x = sum(w * v for w, v in zip(weights, (x1, mx, x2), strict=True))
    y = sum(w * v for w, v in zip(weights, (y1, my, y2), strict=True))
    rows = textwrap.wrap(label, 18)
    first = y - 7 * (len(rows) - 1) + 5 - (12 * len(rows) if abs(dy) < _HIGH else 0)
    words = "".join(
        f'<tspan x="{x:.0f}" y="{first + 15 * row:.0f}">{one}</tspan>' for row, one in enumerate(rows)
    )
    return (
        f'<path class="edge" d="M{x1:.0f} {y1:.0f}Q{mx:.0f} {my:.0f} {x2:.0f} {y2:.0f}"/>'
        f'<text class="by" text-anchor="middle">{words}</text>'
    )


def functions() -> str:
    """The functions that the pages of the papers link to, for mkdocstrings."""
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "papers").glob("*.md"))
    options = "    options: {show_source: true, show_root_full_path: true, members: false, heading_level: 2}"
    names = sorted(set(re.findall(r"functions\.md#([\w.]+)", text)))
    return "\n\n".join(f"::: {name}\n{options}" for name in names)


ONLY_HERE: dict[str, Callable[[], str]] = {"functions": functions, "messages": messages}
"""What repeats files of the repository: docstrings and definitions of messages."""

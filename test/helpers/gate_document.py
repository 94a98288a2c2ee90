# SPDX-License-Identifier: Apache-2.0
"""Writes the states and transitions of the gate into its document, as the code has them.

    python -m test.helpers.gate_document docs/gate.md [--depth 2]

Explores every order of the abstracted events (:mod:`test.helpers.exploration`) with the real ``step`` and notes which phase each
event led to from which: the drawing and the table between the two marks of the document are replaced by what was found.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from sticker_uq.gate import Phase
from sticker_uq.gate.state import BlockReason
from sticker_uq.io.files import atomic_write
from sticker_uq.messages import BLOCK_REASONS
from test.helpers.exploration import ALPHABET, explore

BEGIN, END = "<!-- transitions: begin -->", "<!-- transitions: end -->"
DEPTH = 2

_FAMILIES = {
    "scene": "scenes",
    "image": "images",
    "detectors": "detectors",
    "tick": "time",
    "pause": "time",
    "clock": "clock",
    "arm": "arm",
    "accepted": "arm",
    "rejected": "arm",
    "peeled": "arm",
    "failed": "arm",
    "cannot": "arm",
    "stopped": "arm",
    "older": "arm",
    "person": "people",
    "hold": "people",
    "release": "people",
    "reset": "people",
    "workpiece": "workpiece",
    "fault": "fault",
    "deactivated": "activation",
    "activated": "activation",
}

Transitions = dict[tuple[Phase, Phase], set[str]]


def transitions(depth: int) -> tuple[Transitions, int]:
    """Which events led from one phase to another, and how many states were looked at."""
    found: Transitions = defaultdict(set)
    states = 0
    for ring in explore(depth):
        states += len(ring)
        for node in ring:
            for name, (make, duration) in ALPHABET.items():
                after = node.follow(make, duration)
                if after is not None and after.state.phase is not node.state.phase:
                    found[node.state.phase, after.state.phase].add(name)
    return dict(found), states


def drawing(found: Transitions) -> str:
    """A mermaid state diagram; an edge names kinds of events. What is reached from everywhere is told once."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> BLOCKED"]
    everywhere = [
        target
        for target in (Phase.FAULT, Phase.BLOCKED)
        if all((p, target) in found for p in Phase if p not in (target, Phase.UNKNOWN))
    ]
    for (source, target), names in sorted(found.items()):
        if target in everywhere:
            continue
        kinds = sorted({_FAMILIES[name.split(":")[0].split()[0]] for name in names})
        lines.append(f"    {source.name} --> {target.name}: {', '.join(kinds)}")
    for target in everywhere:
        lines.append(f"    note right of {target.name}: reached from every state in one step")
    return "\n".join([*lines, "```"])


def table(found: Transitions) -> str:
    """Every transition with every event that made it."""
    rows = ["| from | to | events |", "|---|---|---|"]
    for (source, target), names in sorted(found.items()):
        ordered = [name for name in ALPHABET if name in names]
        rows.append(f"| {source.name} | {target.name} | {', '.join(ordered)} |")
    return "\n".join(rows)


def reasons() -> str:
    """Every reason with its bit and its words."""
    rows = ["| bit | reason | in words |", "|---|---|---|"]
    rows += [f"| {int(bit)} | {bit.name} | {BLOCK_REASONS[str(bit.name).lower()]} |" for bit in BlockReason]
    return "\n".join(rows)


def rendered(depth: int) -> str:
    """What belongs between the marks."""
    found, states = transitions(depth)
    say = f"Found in {states:,} states, all that {depth} events reach from the middle of each phase."
    return "\n\n".join(
        [
            BEGIN,
            drawing(found),
            say,
            table(found),
            "### Reasons",
            reasons(),
            END,
        ]
    )


def inserted(document: str, text: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """``document`` with ``text`` in the place of what lies between the marks. Raises ``ValueError`` without the marks."""
    before, begin, rest = document.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"the document has no {begin_mark} ... {end_mark}")
    return before + text + after


def rewrite(about: str | None, changed: Callable[[str], str]) -> None:
    """Entry point: write the page that the command line names as ``changed`` makes it; ``about``: the module's own words."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("document", type=Path)
    page = parser.parse_args().document
    text = changed(page.read_text(encoding="utf-8"))
    with atomic_write(page, "w") as file:
        file.write(text)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("document", type=Path)
    parser.add_argument("--depth", type=int, default=DEPTH)
    options = parser.parse_args()
    document = options.document.read_text(encoding="utf-8")
    options.document.write_text(inserted(document, rendered(options.depth)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

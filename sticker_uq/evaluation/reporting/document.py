# SPDX-License-Identifier: Apache-2.0
"""Documents of headings, paragraphs, tables and charts, as Markdown or as one HTML page, and the templates of larger pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


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


def templates() -> Environment:
    """The HTML templates of reports. What they are given is escaped."""
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

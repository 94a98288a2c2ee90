#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints CHANGELOG.md as bloom and catkin_pkg read it, at a release: scripts/changelog_rst.py > CHANGELOG.rst

A version without a date is not released: it is called Forthcoming, as catkin_prepare_release wants it.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "CHANGELOG.md"
_VERSION = re.compile(r"## \[?(\d+\.\d+\.\d+)\]?(?: - (\d{4}-\d\d-\d\d))?$")
_TITLE = "Changelog for package sticker_uq"


def changelog(text: str) -> str:
    """The changelog ``text``, Markdown, in reStructuredText; the introduction before the first version is left out."""
    _, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    rule = "^" * len(_TITLE)
    return "\n".join([rule, _TITLE, rule, "", *map(_section, sections)])


def _section(text: str) -> str:
    heading, _, body = text.partition("\n")
    found = _VERSION.match(heading)
    if found is None:
        raise SystemExit(f"{heading}: expected ## [VERSION] or ## [VERSION] - YYYY-MM-DD")
    title = f"{found[1]} ({found[2]})" if found[2] else "Forthcoming"
    blocks = re.split(r"\n(?=- )|\n\n+", body.strip())
    return "\n".join([title, "-" * len(title), "", *map(_block, blocks), ""])


def _block(text: str) -> str:
    """A paragraph, a heading or an item of a list, in lines of at most 100 characters."""
    words = " ".join(text.split())
    words = re.sub(r"\[([^\]]*)\]\((https?:[^)]*)\)", r"`\1 <\2>`_", words)
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)  # a page of the repository
    words = re.sub(r"(?<![`_])`([^`<]+)`(?![`_])", r"``\1``", words)
    if words.startswith("### "):
        words = f"**{words[4:]}**"
    item = words.startswith("- ")
    lines = textwrap.fill(
        words[2:] if item else words, 100, initial_indent="* " if item else "", subsequent_indent="  " if item else "",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines if item else f"\n{lines}\n"


if __name__ == "__main__":
    print(changelog(SOURCE.read_text(encoding="utf-8")), end="")

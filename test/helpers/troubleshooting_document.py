# SPDX-License-Identifier: Apache-2.0
"""Writes what to do about each block reason into its document, from the catalogue of messages.

    python -m test.helpers.troubleshooting_document docs/howto/troubleshooting.md

The table between the two marks of the document is replaced.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sticker_uq.io.files import atomic_write
from sticker_uq.messages import BLOCK_ADVICE, BLOCK_REASONS
from test.helpers.gate_document import inserted

BEGIN, END = "<!-- block reasons: begin -->", "<!-- block reasons: end -->"


def table() -> str:
    """A row for every block reason: code, words, and what to do."""
    rows = ["| reason | what the cell says | what to do |", "|---|---|---|"]
    rows += [f"| `{code}` | {words} | {BLOCK_ADVICE[code]} |" for code, words in BLOCK_REASONS.items()]
    return "\n".join(rows)


def with_table(document: str) -> str:
    """``document`` with the present table between its marks. Raises ``ValueError`` without the marks."""
    return inserted(document, f"{BEGIN}\n\n{table()}\n\n{END}", BEGIN, END)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("document", type=Path)
    page = parser.parse_args().document
    text = with_table(page.read_text(encoding="utf-8"))
    with atomic_write(page, "w") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

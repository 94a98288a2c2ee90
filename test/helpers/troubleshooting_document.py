# SPDX-License-Identifier: Apache-2.0
"""Writes what to do about each block reason into its document, from the catalogue of messages.

    python -m test.helpers.troubleshooting_document docs/howto/troubleshooting.md

The table between the two marks of the document is replaced.
"""

from __future__ import annotations

from sticker_uq.messages import BLOCK_ADVICE, BLOCK_REASONS
from test.helpers.gate_document import inserted, rewrite

BEGIN, END = "<!-- block reasons: begin -->", "<!-- block reasons: end -->"


def table() -> str:
    """A row for every block reason: code, words, and what to do."""
    rows = ["| reason | what the cell says | what to do |", "|---|---|---|"]
    rows += [f"| `{code}` | {words} | {BLOCK_ADVICE[code]} |" for code, words in BLOCK_REASONS.items()]
    return "\n".join(rows)


def with_table(document: str) -> str:
    """``document`` with the present table between its marks. Raises ``ValueError`` without the marks."""
    return inserted(document, f"{BEGIN}\n\n{table()}\n\n{END}", BEGIN, END)


if __name__ == "__main__":
    rewrite(__doc__, with_table)

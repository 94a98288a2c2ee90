# SPDX-License-Identifier: Apache-2.0
"""Every row of the fault table names a test that exists, and every test of a fault stands in the table."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
TABLE = FOLDER.parents[1] / "docs" / "faults.md"


def rows() -> list[list[str]]:
    """The cells of the rows of the fault table."""
    text = TABLE.read_text(encoding="utf-8").partition("## The table")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def written_tests() -> set[str]:
    """The names of all tests of this folder but these."""
    found = set()
    for path in FOLDER.glob("test_*.py"):
        if path != Path(__file__):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
            found |= {function.name for function in functions if function.name.startswith("test_")}
    return found


def test_every_row_is_complete_and_names_an_existing_test() -> None:
    assert len(rows()) >= 30
    for row in rows():
        assert len(row) == 6, row
        assert all(row), row
        name = re.fullmatch(r"`(test_\w+)`", row[5])
        assert name, row
        assert name[1] in written_tests(), row


def test_every_test_stands_in_the_table() -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert [name for name in sorted(written_tests()) if f"`{name}`" not in text] == []

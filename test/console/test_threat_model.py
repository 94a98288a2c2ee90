# SPDX-License-Identifier: Apache-2.0
"""Every promise of the threat model names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
MODEL = TESTS.parent / "docs" / "security.md"


def rows() -> list[list[str]]:
    """The cells of the rows of the threat model."""
    text = (
        MODEL.read_text(encoding="utf-8")
        .partition("## Threat model")[2]
        .partition("\n**What stays open**")[0]
    )
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def written_tests() -> set[str]:
    """The names of all tests."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_its_tests() -> None:
    assert len(rows()) >= 15
    written = written_tests()
    for who, may, may_not, tests in rows():
        assert who
        assert may or may_not
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, who
        assert {*named} <= written, ({*named} - written, who)

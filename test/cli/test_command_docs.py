# SPDX-License-Identifier: Apache-2.0
"""docs/reference/commands.md is what the commands say."""

import re
from pathlib import Path

from sticker_uq.cli import COMMANDS
from sticker_uq.cli.command_docs import command_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def test_the_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == command_reference(), (
        "run: python -m sticker_uq.cli.command_docs docs/reference/commands.md"
    )


def test_every_command_has_a_row_that_says_what_it_does() -> None:
    found = re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    rows = [row for row in found if row[0] != "sticker-uq"]
    assert {words.split()[0] for words, _ in rows} == set(COMMANDS)
    assert all(len(text) > 20 for _, text in rows)
    assert len(rows) > len(COMMANDS)  # those with subcommands have several
    assert "audit verify FOLDER" in [words for words, _ in rows]

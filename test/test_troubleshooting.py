# SPDX-License-Identifier: Apache-2.0
"""docs/howto/troubleshooting.md has every block reason with what to do, and quotes messages that exist."""

import re
from pathlib import Path

from sticker_uq.messages import BLOCK_ADVICE, BLOCK_REASONS, BlockReason
from test.helpers.troubleshooting_document import with_table

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "howto" / "troubleshooting.md").read_text(encoding="utf-8")
SOURCES = [*(ROOT / "sticker_uq").rglob("*.py"), *(ROOT / "launch").glob("*.py")]


def test_the_table_is_that_of_the_catalogue() -> None:
    command = "python -m test.helpers.troubleshooting_document docs/howto/troubleshooting.md"
    assert with_table(PAGE) == PAGE, f"run: {command}"
    assert command in PAGE


def test_every_reason_has_advice_of_its_own() -> None:
    assert list(BLOCK_ADVICE) == list(BLOCK_REASONS)
    assert len(set(BLOCK_ADVICE.values())) == len(BLOCK_ADVICE)
    codes = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert {str(bit.name).lower() for bit in BlockReason if bit} <= set(codes)


def test_parameters_that_the_advice_names_exist() -> None:
    parameters = (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8")
    topics = {
        "camera_info",
        "lid_pose",
        "remove_sticker",
        "last_error",
        "gate",
        "operate",
        "reset",
        "scene",
    }
    for code, advice in BLOCK_ADVICE.items():
        named = {name.partition(":")[0] for name in re.findall(r"`([a-z_]+(?:: ?\d+|:=\w+)?)`", advice)}
        missing = {name for name in named - topics if f"`{name}`" not in parameters}
        assert not missing, f"{code}: {missing}"


def test_what_the_cell_says_at_the_start_is_in_the_code() -> None:
    text = " ".join(source.read_text(encoding="utf-8") for source in SOURCES)
    rows = PAGE.split("## The cell does not start")[1].split("## The operator page")[0]
    quotes = re.findall(r"^\| `([^`]*)`", rows, re.M)
    assert len(quotes) >= 7
    for quote in quotes:
        for piece in (part.strip(" ,?") for part in quote.split("...")):
            assert piece in text, quote

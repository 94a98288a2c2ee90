"""The tables of the documentation are those of the result files in benchmarks/results."""

from pathlib import Path

import pytest

from benchmarks.tables import ROOT, filled, pages

PAGES = [page for page in pages() if "<!-- benchmarks/results/" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_result_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert filled(text) == text, "run: python -m benchmarks.tables"


def test_every_result_file_has_a_table() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    files = [file.name for file in (ROOT / "benchmarks" / "results").glob("*.json*")]
    assert files
    assert [name for name in files if f"<!-- benchmarks/results/{name} " not in text] == []


def test_a_table_is_replaced_whole() -> None:
    mark = "<!-- benchmarks/results/kills.json -->\n"
    assert filled(f"before\n\n{mark}\n| old | table |\n\nafter\n") == filled(f"before\n\n{mark}\nafter\n")

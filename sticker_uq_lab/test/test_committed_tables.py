# SPDX-License-Identifier: Apache-2.0
"""The generated parts of pages, between their two comments."""

import re

import pytest

from benchmarks import tables


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder of result files; pages lie beside it."""
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", folder)
    return folder


def page(folder, text):
    file = folder / "page.md"
    file.write_text(text)
    return file


@pytest.mark.parametrize("count", [0, 25, 26])
def test_a_long_table_has_its_first_rows_in_the_page_and_all_on_the_site(count, results, tmp_path):
    (results / "one.csv").write_text(
        "# commit 01234567: it\na,b\n" + "".join(f"{k},x\n" for k in range(count))
    )
    (tmp_path / "docs").mkdir()
    file = page(tmp_path / "docs", "A\n\n<!-- table: benchmarks/results/one.csv -->\nold\n<!-- end -->\nB\n")
    file.write_text(written := tables.renewed(file))
    assert written.startswith("A\n\n<!-- table: benchmarks/results/one.csv -->\n\n| a | b |\n| --- | --- |\n")
    assert written.endswith("\n\n<!-- end -->\nB\n")
    assert written.count(" | x |") == (10 if count > 25 else count)
    assert ("(../benchmarks/results/one.csv)" in written) == (count > 25)
    assert tables.renewed(file) == written
    assert tables.filled(written).count(" | x |") == count
    assert "benchmarks/results/one.csv)" not in tables.filled(written)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- table: benchmarks/results/one.csv -->\n",
        "<!-- end -->\n",
        "<!-- reference: parameters -->\n<!-- table: benchmarks/results/one.csv -->\n<!-- end -->\n",
    ],
)
def test_half_a_pair_of_comments_is_refused_and_nothing_is_written(
    text, results, tmp_path, monkeypatch, capsys
):
    (results / "one.csv").write_text("a\n1\n")
    good = page(results, before := "<!-- table: benchmarks/results/one.csv -->\n<!-- end -->\n")
    monkeypatch.setattr("sys.argv", ["tables", "--write", str(good), str(page(tmp_path, text))])
    with pytest.raises(SystemExit):
        tables.main()
    assert "<!-- end -->" in capsys.readouterr().err
    assert good.read_text() == before


@pytest.mark.parametrize("named", ["benchmarks/results/one.csv", "benchmarks/results/it.json", "nowhere"])
def test_a_table_that_is_not_there_is_named(named, results, tmp_path, monkeypatch, capsys):
    kind = "table" if "/" in named else "reference"
    file = page(tmp_path, f"<!-- {kind}: {named} -->\n<!-- end -->\n")
    monkeypatch.setattr("sys.argv", ["tables", "--write", str(file)])
    with pytest.raises(SystemExit):
        tables.main()
    assert named.rpartition("/")[2] in capsys.readouterr().err


def test_no_page_has_a_mark_that_nothing_fills():
    """A line of words in brackets alone is no link: it stands where something was to be put."""
    marks = {
        file.name: re.findall(r"^\[[^\]]+ [^\]]+\]$", file.read_text(), re.MULTILINE)
        for file in tables.pages()
    }
    assert not {name: found for name, found in marks.items() if found}

# SPDX-License-Identifier: Apache-2.0
"""The tables of the documentation are those of the result files in benchmarks/results."""

from pathlib import Path

import pytest

from benchmarks import papers, unfamiliar
from benchmarks.tables import ROOT, filled, pages
from sticker_uq.evaluation.metrics.statistics import clopper_pearson

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


def test_readme_says_what_was_measured_on_unfamiliar_pictures() -> None:
    rows = unfamiliar.read(ROOT / "benchmarks/results/unfamiliar.json")
    policy = unfamiliar.POLICIES[0]
    photographs = [row for row in rows if row.kind != unfamiliar.FAMILIAR]
    laptops = [row for row in rows if row.kind == unfamiliar.FAMILIAR]
    before, after = (
        sum(getattr(row, field)[policy] > 0 for row in photographs)
        for field in ("released_without", "released")
    )
    asked = sum(row.asked[policy] for row in laptops)
    low, high = clopper_pearson(asked, len(laptops))
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    most = clopper_pearson(after, len(photographs))[1]
    assert f"on {len(photographs)} public photographs" in text
    assert f"from {before} photographs to {after} (at most {most:.1%}".replace("%", " %") in text
    assert (
        f"about {asked} of {len(laptops)} rendered laptops ({low:.1%} to {high:.1%};".replace("%", " %")
        in text
    )


def test_the_tables_of_the_papers_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    papers.main(["medical", "source_coverage"])
    shown = capsys.readouterr().out
    assert "| precision | 0.564 | 0.498 | 0.066 | 0.066 | 0.01 | violated |" in shown
    assert "| missing circumstances | 63 % | 62.5 % |" in shown
    with pytest.raises(SystemExit):
        papers.main(["box"])
    assert "box: expected statistics, " in capsys.readouterr().err


def test_every_large_difference_from_a_paper_has_a_reason() -> None:
    printed = papers.read(ROOT / "benchmarks/results/papers.json")
    assert papers.reasons(printed).count("\n| ") == len(printed["weiss"]["reasons"]) + 1
    reason = printed["weiss"]["reasons"].pop("autoencoder ambiguous")
    with pytest.raises(LookupError, match=r"no reason for autoencoder on ambiguous, 0\.62 in the paper"):
        papers.reasons(printed)
    printed["weiss"]["reasons"] |= {"autoencoder ambiguous": reason, "lsa ambiguous": "none"}
    with pytest.raises(LookupError, match="reasons without a difference: lsa ambiguous"):
        papers.reasons(printed)


def test_a_table_of_another_page_is_found_by_its_heading() -> None:
    rows = papers.rows_of("monitors.md", "## Results on handwritten digits", "monitor")
    assert len(rows) == 20
    assert set(rows[0]) == {"monitor", *papers.SETS, "AUGRC", "FNR"}
    with pytest.raises(LookupError, match="no table of 'monitor' below '## Nowhere'"):
        papers.rows_of("monitors.md", "## Nowhere", "monitor")


def test_the_statistics_of_the_first_paper_are_reproduced() -> None:
    printed = papers.read(ROOT / "benchmarks/results/papers.json")
    assert papers.statistics(printed).count("< 1e-12 | < 1e-12") == 6
    assert ", here" not in papers.best(printed)
    assert papers.medical(printed).count("| violated |") == 5

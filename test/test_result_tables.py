# SPDX-License-Identifier: Apache-2.0
"""The tables of the five papers, from the result files in benchmarks/results."""

import pytest

from benchmarks import papers

ROOT = papers.ROOT


def test_the_tables_of_the_papers_are_printed(capsys):
    papers.main(["medical", "source_coverage"])
    shown = capsys.readouterr().out
    assert "| precision | 0.564 | 0.498 | 0.066 | 0.066 | 0.01 | violated |" in shown
    assert "| missing circumstances | 63 % | 62.5 % |" in shown
    with pytest.raises(SystemExit):
        papers.main(["box"])
    assert "box: expected statistics, " in capsys.readouterr().err


def test_every_large_difference_from_a_paper_has_a_reason():
    printed = papers.read(ROOT / "benchmarks/results/papers.json")
    assert papers.reasons(printed).count("\n| ") == len(printed["weiss"]["reasons"]) + 1
    reason = printed["weiss"]["reasons"].pop("autoencoder ambiguous")
    with pytest.raises(LookupError, match=r"no reason for autoencoder on ambiguous, 0\.62 in the paper"):
        papers.reasons(printed)
    printed["weiss"]["reasons"] |= {"autoencoder ambiguous": reason, "lsa ambiguous": "none"}
    with pytest.raises(LookupError, match="reasons without a difference: lsa ambiguous"):
        papers.reasons(printed)


def test_a_table_of_a_study_is_found_by_its_section():
    rows = papers.rows_of("monitors", "Results on handwritten digits", "monitor")
    assert len(rows) == 20
    assert set(rows[0]) == {"monitor", *papers.SETS, "AUGRC", "FNR"}
    with pytest.raises(LookupError, match="no table of"):
        papers.rows_of("monitors", "Nowhere", "monitor")


def test_the_statistics_of_the_first_paper_are_reproduced():
    printed = papers.read(ROOT / "benchmarks/results/papers.json")
    assert papers.statistics(printed).count("< 1e-12 | < 1e-12") == 6
    assert ", here" not in papers.best(printed)
    assert papers.medical(printed).count("| violated |") == 5

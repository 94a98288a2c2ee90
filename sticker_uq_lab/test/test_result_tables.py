# SPDX-License-Identifier: Apache-2.0
"""The tables of the five papers, from the result files in benchmarks/results."""

import subprocess
from xml.etree import ElementTree

import pytest

from benchmarks import papers, papers_plots

ROOT = papers.ROOT


def test_the_tables_of_the_papers_are_printed(capsys):
    papers.main(["S004"])
    shown = capsys.readouterr().out
    assert "| precision | 0.564 | 0.498 | 0.066 | 0.066 | 0.01 | violated |" in shown
    assert "| missing circumstances | 63 % | 62.5 % |" in shown
    with pytest.raises(SystemExit):
        papers.main(["box"])
    assert "box: expected S000, " in capsys.readouterr().err


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


def test_every_paper_has_tables_and_a_run():
    tables = [name for names in papers.PAPERS.values() for name in names]
    assert sorted(tables) == sorted(papers.TABLES)
    assert set(papers.papers_run.STUDIES) == set(papers.PAPERS)
    with pytest.raises(SystemExit):
        papers.main(["medical", "--run"])


def test_a_paper_is_plotted(tmp_path):
    printed = papers.read(ROOT / "benchmarks/results/papers.json")
    assert papers_plots.plot(printed, "S003", tmp_path) is None
    file = papers_plots.plot(printed, "S001", tmp_path)
    drawn = ElementTree.parse(file).getroot()
    assert len(drawn.findall(".//{*}g[@id='legend_1']")) == 1
    assert len(drawn.findall(".//{*}g[@id='axes_4']")) == 1  # a panel for each kind of unusual input


def test_a_run_keeps_its_tables_and_goes_on_where_it_was(tmp_path, monkeypatch):
    run = papers.papers_run
    out = tmp_path / "out"
    page = "# A\n\n## Table I\n\n| crops | a, b |\n| --- | --- |\n| x | 1 |\n| y | n/a |\n\nwords\n"
    study = run.Study("digits", ("doctor --out {out}/one", "status {out}/two"), "page.md", 1)
    monkeypatch.setattr(run, "STUDIES", {"S001": (study,)})
    monkeypatch.setattr(run, "ROOT", tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    asked = []

    def done(words: list[str], check: bool) -> None:
        asked.append(words[3:])
        if len(asked) == 2:
            raise KeyboardInterrupt
        (out / "page.md").write_text(page)

    def fail(words: list[str], check: bool) -> None:
        raise subprocess.CalledProcessError(2, words)

    monkeypatch.setattr(run.subprocess, "run", done)
    with pytest.raises(KeyboardInterrupt):
        run.run("S001", out)
    with monkeypatch.context() as broken:
        broken.setattr(run, "STUDIES", {"S001": (run.Study("none", ("nothing",), "page.md", 1),)})
        broken.setattr(run.subprocess, "run", fail)
        with pytest.raises(SystemExit, match="it ended with 2"):
            run.run("S001", out)
    file = run.run("S001", out)
    assert asked == [["doctor", "--out", f"{out}/one"], *[["status", f"{out}/two"]] * 2]
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    assert papers.rows_of("papers_S001", "digits", "crops") == [
        {"crops": "x", "a, b": "1"},
        {"crops": "y", "a, b": "n/a"},
    ]
    assert run.made("S001").startswith(', "here" date 20')
    assert file.parent == tmp_path / "benchmarks" / "results"

# SPDX-License-Identifier: Apache-2.0
"""The report of an assessment: self-contained, complete, in plain words; its figures as CSV."""

import csv
import math
import re
from html import unescape
from pathlib import Path

import pytest

from lab_helpers.robustness import specification_of
from sticker_uq_lab.robustness.assessment import Assessment, SetResult
from sticker_uq_lab.robustness.frequencies import CoverageRow
from sticker_uq_lab.robustness.robustness_report import figure_text, write_report
from sticker_uq_lab.robustness.verdicts import Finding, RelationCheck

NAN = math.nan
FIGURES = {
    "images": 40.0, "true_positives": 90.0, "false_positives": 3.0, "false_negatives": 5.0, "precision": 0.97, "recall": 0.95,
    "ap": 0.71, "ap50": 0.96, "ap75": 0.8, "wrongly_removed": 0.025, "left_to_person": 0.3, "missed_called_clean": 0.0,
    "ungated_wrongly_removed": 0.1, "ungated_missed_called_clean": 0.05, "failures": 0.0,
}  # fmt: skip


COVERAGE = {
    "circumstance": "defocus", "significance": 5, "target": 0.2, "source": 0.0, "low": 0.0, "high": 0.12, "status": "missing"
}  # fmt: skip


def check(circumstance: str, finding: Finding, change: float, reason: str = "") -> RelationCheck:
    values = (40, 0.96, 0.96 + change, change, change - 0.03, change + 0.03, 0.12, 0.05)
    return RelationCheck(circumstance, "ap50", *values, finding, reason)


def a_set(kind: str, circumstance: str = "", **figures: float) -> SetResult:
    distances = {} if kind == "source" else {"mse": 90.0, "ssim": 0.9, "cw_ssim": 0.88}
    given = {"kind": kind, "circumstance": circumstance, "figures": FIGURES | figures, "distances": distances}
    return SetResult.model_validate(given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the report of an assessment."""
    spec = specification_of(
        {"name": "defocus", "transformation": "defocus", "strength": [1, 9], "probability": 0.2, "severity": 5},
        {"name": "glare", "probability": 0.1, "exposure": 5, "likelihood": 5, "severity": 5,
         "views": {"operator": "the lamp <script>alert(1)</script> & more"}},
        {"name": "tilt", "transformation": "tilt", "strength": [1, 9], "probability": 0.2},
        relations={"ap50": {"points": [[0, 0.05]]}},
    )  # fmt: skip
    assessment = Assessment(
        specification=spec,
        system="a detector",
        identity="x",
        sets=(
            a_set("source"),
            a_set("target"),
            a_set("circumstance", "defocus", ap50=0.7, wrongly_removed=0.05),
            a_set("circumstance", "tilt", ap_large=NAN),
        ),
        checks=(
            check("all", Finding.UNDECIDED, -0.04),
            check("defocus", Finding.VIOLATED, -0.26),
            check("tilt", Finding.HOLDS, NAN, "there is nothing to measure it on"),
        ),
        coverage=(CoverageRow.model_validate(COVERAGE),),
        finding=Finding.VIOLATED,
        significance_shares={Finding.HOLDS: 0.25, Finding.VIOLATED: 0.75, Finding.UNDECIDED: 0.0},
        by_circumstance={"all": Finding.UNDECIDED, "defocus": Finding.VIOLATED, "tilt": Finding.HOLDS},
        environment={"Python": "3.x"},
    )
    write_report(assessment, tmp_path)
    return tmp_path


def test_the_report_is_one_file_that_says_everything(folder):
    html = (folder / "report.html").read_text()
    assert not re.search(r'<script|src=|href="(?!#)', html)
    text = unescape(re.sub(r"<[^>]+>", "", html))
    for words in (
        "Robustness of cell: violated", "not robust with respect to its metamorphic relation", "75%", "-0.260", "±0.050",
        "missing", "there is nothing to measure it on", "& more",
        "glare 125", "something else removed", "0.050",
    ):  # fmt: skip
        assert words in text, words
    assert html.count("<svg") == 1


def test_every_figure_is_in_a_csv_file(folder):
    names = {path.stem for path in (folder / "tables").iterdir()}
    assert names == {"significance", "coverage", "performance", "distances", "checks"}
    with open(folder / "tables" / "checks.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [r["finding"] for r in rows] == ["undecided", "violated", "holds"]
    assert float(rows[1]["change"]) == -0.26
    assert rows[2]["change"] == ""
    with open(folder / "tables" / "performance.csv", newline="") as stream:
        kinds = [r["kind"] for r in csv.DictReader(stream)]
    assert kinds == ["source", "target", "circumstance", "circumstance"]


def test_the_summary_is_a_table_of_markdown(folder):
    text = (folder / "summary.md").read_text()
    assert text.startswith("# Robustness of cell: violated")
    assert "| defocus | 5 | 0.120 | -0.260 [-0.290, -0.230] (±0.050) | violated |" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_figures():
    said = ["–", "0.123", "1.000", "90", "inf"]
    assert [figure_text(v) for v in (NAN, 0.12345, 1.0, 90.0, math.inf)] == said

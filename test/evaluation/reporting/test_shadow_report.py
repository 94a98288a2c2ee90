# SPDX-License-Identifier: Apache-2.0
"""The report of a shadow: it counts laptops, not images, and says what it left out."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.evaluation.reporting.shadow_report import shadow_report
from sticker_uq.evaluation.shadow.record import FILE, Block, Example, ShadowRecord

SIDES = {"active": {"model_hash": "a" * 64}, "candidate": {"bundle": "b" * 64}}
SAME = {"images": 10, "outcome work>work": 10, "objects both": 10, "released both": 10}
OTHER = {
    "images": 4, "outcome ask>work": 3, "outcome ask>ask": 1, "released candidate": 3, "label sticker>logo": 2,
    "skipped answered": 7,
}  # fmt: skip


def write(folder: Path, *blocks: tuple[str, dict[str, int]], **changes: dict[str, str]) -> None:
    record = ShadowRecord(folder)
    for number, (workpiece, counts) in enumerate(blocks):
        example = Example(stamp_ns=5, active="ASK", candidate="WORK") if counts is OTHER else None
        time = f"2026-01-01T00:0{number}:00.000000000Z"
        sides = {**SIDES, **changes}
        record.append(
            Block(since=time, until=time, workpiece=workpiece, counts=counts, example=example, **sides)
        )
    record.close()


def test_laptops_are_counted_with_exact_intervals(tmp_path: Path) -> None:
    write(tmp_path, ("laptop-1", SAME), ("laptop-2", OTHER), ("laptop-2", OTHER), ("laptop-3", SAME))
    page = shadow_report(tmp_path)
    low, high = clopper_pearson(1, 3)
    assert "28 images compared, 3 laptops announced" in page
    assert f"<td>6</td><td>1 of 3</td><td>0.333 [{low:.3f}, {high:.3f}]</td>" in page
    # the images that ask: 1 and 0.25 of laptop-2, none of the others
    assert "<td>0.333</td>" in page
    assert "<td>0.083</td>" in page
    assert "<td>sticker</td><td>logo</td><td>4</td>" in page
    assert "a person&#39;s answer or a spot check had decided</td><td>14</td>" in page


def test_what_lies_between_two_laptops_is_no_laptop(tmp_path: Path) -> None:
    write(tmp_path, ("laptop-1", SAME), ("", OTHER), ("laptop-2", SAME))
    page = shadow_report(tmp_path)
    assert "24 images compared, 2 laptops announced" in page
    assert "<td>3</td><td>0 of 2</td>" in page


def test_other_bundles_have_a_part_of_their_own_and_unreadable_lines_are_told(tmp_path: Path) -> None:
    write(tmp_path, ("laptop-1", SAME))
    write(tmp_path, ("", OTHER), candidate={"bundle": "<script>"})
    with (tmp_path / FILE).open("a") as file:
        file.write('{"format": 9}\nnonsense\n')
    page = shadow_report(tmp_path)
    assert "Comparison 2" in page
    assert "2 lines could not be read" in page
    assert "No laptop was announced" in page
    assert "<script>" not in page


def test_the_command_writes_all_or_nothing(tmp_path: Path) -> None:
    run, out = CliRunner().invoke, tmp_path / "report.html"
    missing = run(app, ["shadow", "report", str(tmp_path), "--out", str(out)])
    assert (missing.exit_code, "shadow.jsonl: no such file" in missing.output) == (2, True)
    write(tmp_path)
    refused = run(app, ["shadow", "report", str(tmp_path), "--out", str(out)])
    assert refused.exit_code == 2
    assert "no counts in it yet" in refused.output
    assert not out.exists()
    write(tmp_path, ("laptop-1", OTHER))
    done = run(app, ["shadow", "report", str(tmp_path), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert out.read_text().startswith("<!doctype html>")

# SPDX-License-Identifier: Apache-2.0
"""Many recordings of many cells: resumed, judged anew, spread, reported; what cannot be read stops nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.evaluation.fleet import recordings as fleet_recordings
from sticker_uq.evaluation.fleet.cells import recordings_of
from sticker_uq.scene import InvalidInput
from test.evaluation.fleet.conftest import record

OPTIONS = ("--passes", "3", "--device", "cpu")


def run(*arguments):
    result = CliRunner().invoke(app, ["fleet", *map(str, arguments)], env={"COLUMNS": "150"})
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def finished(recordings, tmp_path_factory):
    """The folder of a finished replay of both recordings, in two processes."""
    out = tmp_path_factory.mktemp("out") / "fleet"
    result = run("replay", *recordings, "--out", out, "--jobs", "2", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "2 recordings, 12 images; made in this call: 2 assessments, 2 judgements, 2 gates" in result.output
    return out


def tables(out, kind):
    """The tables of one kind in the order of the index, without what another run does not repeat."""
    names = pq.read_table(out / "recordings.parquet").to_pandas()[kind]
    return [pd.read_parquet(out / kind / name).drop(columns="timings_ms", errors="ignore") for name in names]


def test_images_know_their_cell_and_laptop_and_the_gate_its_events(finished, recordings):
    left, right = tables(finished, "judgements")
    assert set(left["cell"]) == {"left"}
    assert set(right["recording"]) == {str(recordings[1])}
    assert left["laptop"].fillna("").tolist() == ["", *["1 (laptop-1)"] * 2, *["2 (laptop-2)"] * 2]
    assert left["scene_distance"].gt(0).all()
    assert left["outcome"].isin(["ASK", "WORK", "CLEAN", "BLOCKED"]).all()
    asked = left[left["outcome"] == "ASK"]
    assert all(len(limits) for limits in asked["blocked_by"])
    gate = tables(finished, "gates")[0]
    assert gate[["event", "state", "laptop"]].fillna("").values.tolist() == [
        ["laptop", "", "1 (laptop-1)"],
        ["gate", "removing", "1 (laptop-1)"],
        ["laptop", "", "2 (laptop-2)"],
        ["gate", "intervention", "2 (laptop-2)"],
        ["question", "", "2 (laptop-2)"],
    ]


def test_a_recording_says_what_replay_says_of_it(finished, recordings, tmp_path):
    options = ("--out", str(tmp_path / "out"), "--pictures", "none", *OPTIONS)
    done = CliRunner().invoke(app, ["replay", str(recordings[0]), *options])
    assert done.exit_code == 0, done.output
    alone = pd.read_parquet(tmp_path / "out/images.parquet").drop(columns="timings_ms")
    pd.testing.assert_frame_equal(tables(finished, "judgements")[0][alone.columns], alone)


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the finished folder."""
    out = tmp_path / "copy"
    subprocess.run(["cp", "-r", finished, out], check=True)
    return out


def test_another_policy_or_cell_makes_only_judgements_anew(copied, finished, recordings, tmp_path):
    strict = tmp_path / "policy.yaml"
    strict.write_text("min_probability: 0.999\nmax_shannon_entropy: 0.0\n")
    result = run("replay", *recordings, "--out", copied, "--jobs", "1", "--policy", strict, *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "made in this call: 0 assessments, 2 judgements, 0 gates" in result.output
    before, after = (pd.concat(tables(out, "judgements")) for out in (finished, copied))
    assert before["assessment_digest"].tolist() == after["assessment_digest"].tolist()
    assert (after["outcome"] == "ASK").sum() > (before["outcome"] == "ASK").sum()
    cells = tmp_path / "cells.yaml"
    cells.write_text(f"line 1: [{recordings[0].parent}]\nline 2: '{recordings[1].parents[1]}/*ght/*'\n")
    result = run("replay", *recordings, "--out", copied, "--jobs", "1", "--cells", cells, *OPTIONS)
    assert "made in this call: 0 assessments, 2 judgements, 2 gates" in result.output
    assert {cell for table in tables(copied, "judgements") for cell in table["cell"]} == {"line 1", "line 2"}


def test_a_missing_file_is_made_again_as_it_was(copied, finished, recordings):
    index = pq.read_table(copied / "recordings.parquet").to_pylist()
    (copied / "assessments" / index[0]["assessments"]).unlink()
    (copied / "judgements" / index[0]["judgements"]).unlink()
    result = run("replay", *recordings, "--out", copied, "--jobs", "1", *OPTIONS)
    assert "made in this call: 1 assessments, 1 judgements, 0 gates" in result.output
    for kind in ("assessments", "judgements"):
        for made, known in zip(tables(copied, kind), tables(finished, kind), strict=True):
            pd.testing.assert_frame_equal(made, known)


def test_a_killed_call_resumes(finished, recordings, tmp_path):
    """The processes are killed after the first file of assessments; what they left is kept, and no half file counts."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "sticker_uq.cli", "fleet", "replay", *map(str, recordings)]
    call = subprocess.Popen(
        [*command, "--out", str(out), "--jobs", "1", *OPTIONS], stderr=subprocess.PIPE, start_new_session=True
    )
    while not list(out.glob("assessments/*.parquet")):
        assert call.poll() is None, call.stderr.read()
        time.sleep(0.02)
    os.killpg(call.pid, signal.SIGKILL)
    call.communicate()
    kept = len(list(out.glob("assessments/*.parquet")))
    assert not (out / "recordings.parquet").exists()
    assert run("report", out, "--out", tmp_path / "report.html").exit_code == 2
    result = run("replay", *recordings, "--out", out, "--jobs", "1", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert f"made in this call: {2 - kept} assessments" in result.output
    for made, known in zip(tables(out, "judgements"), tables(finished, "judgements"), strict=True):
        pd.testing.assert_frame_equal(made, known)


def test_recordings_that_cannot_be_used_are_listed_and_stop_nothing(copied, recordings, tmp_path):
    broken, dark, twin = (tmp_path / "bad" / name for name in ("broken", "dark", "twin"))
    for folder in (broken, dark):
        folder.mkdir(parents=True)
    (broken / "data.mcap").write_bytes(b"no recording at all")
    (dark / "a.png").write_bytes(b"no picture at all")
    subprocess.run(["cp", "-r", recordings[0], twin], check=True)
    gone = tmp_path / "bad" / "gone"
    result = run("replay", broken, recordings[0], dark, gone, twin, "--out", copied, "--jobs", "1", *OPTIONS)
    assert result.exit_code == 1
    said = result.stderr
    assert re.search(rf"failed: {broken} of bad: .*not a readable recording", said)
    assert re.search(rf"failed: {dark} of bad: .*none of the 1 images could be assessed: .*a\.png", said)
    assert f"failed: {gone} of bad: {gone}: no such file or folder" in said
    assert f"has the same bytes as {recordings[0]}" in said
    assert run("report", copied, "--out", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "1 cells, 1 recordings, 5 images of 2 laptops" in page
    assert "Recordings that are left out" in page


def test_where_the_gate_cannot_be_read_the_images_count_and_a_note_says_why(tmp_path):
    bag = record(tmp_path / "cell" / "bag", 1, without="intervention/request")
    out = tmp_path / "out"
    result = run("replay", bag, "--out", out, "--jobs", "1", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert re.search(r"without gate: .*InterventionRequest, found none", result.stderr)
    (row,) = pq.read_table(out / "recordings.parquet").to_pylist()
    assert (row["images"], row["failed"], row["gates"], row["error"]) == (3, 0, "", "")
    assert run("report", out, "--out", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "Recordings without a gate" in page
    assert "No recording has the states of a gate" in page


def test_the_python_of_the_page_runs(finished, monkeypatch, capsys):
    page = Path(__file__).parents[3] / "docs/howto/fleet.md"
    (block,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    monkeypatch.chdir(finished.parent)
    exec(compile(block, page.name, "exec"), {})
    counted = pd.concat(tables(finished, "judgements")).groupby("cell")["outcome"].value_counts()
    assert capsys.readouterr().out.strip() == str(counted)


def test_a_cluster_is_asked_for_before_any_work(recordings, tmp_path):
    pytest.importorskip("ray", reason="Ray is an optional dependency: pip install ray")
    result = run("replay", recordings[0], "--out", tmp_path / "out", "--ray-address", "127.0.0.1:1", *OPTIONS)
    assert result.exit_code == 2
    assert "127.0.0.1:1: expected the address of a Ray cluster" in result.stderr


def test_another_machine_with_other_weights_is_refused(recordings, tmp_path, monkeypatch):
    monkeypatch.setattr("sticker_uq.cli.fleet.identity_of", lambda _: "of other weights")
    result = run("replay", recordings[0], "--out", tmp_path / "out", "--jobs", "1", *OPTIONS)
    assert result.exit_code == 1
    assert "weights, device or code differ" in result.stderr


def test_the_report_reads_only_parquet_and_counts_by_cell(finished, tmp_path):
    result = run("report", finished, "--out", tmp_path / "report.html", "--json", tmp_path / "figures.json")
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [cell["cell"] for cell in figures["cells"]] == ["left", "right"]
    assert (figures["fleet"]["laptops"], figures["fleet"]["images"]) == (5, 12)
    assert figures["fleet"]["recorded"] == {"laptops": 5, "questions": 2, "asked": 2, "releases": 3}
    left = pd.read_parquet(finished / "judgements").query("cell == 'left'").dropna(subset="laptop")
    asked = left[left["outcome"] == "ASK"]["laptop"].nunique()
    assert figures["cells"][0]["asked"] == asked
    assert figures["cells"][0]["per_100"]["value"] == pytest.approx(100 * asked / 2)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") >= 4
    assert "<td>40.0 [5.3, 85.3]</td>" in page  # 2 of 5 laptops, Clopper-Pearson
    assert not re.search(r"""(src|href)=["']?http""", page)
    assert "Not watched: the policy has no reference" in page


def test_a_folder_without_a_fleet_is_refused(tmp_path):
    result = run("report", tmp_path, "--out", tmp_path / "report.html")
    assert result.exit_code == 2
    assert "expected the folder of a finished `sticker-uq fleet replay`" in result.stderr
    assert not (tmp_path / "report.html").exists()


def test_cells_by_folder_or_map(tmp_path):
    paths = [tmp_path / "a" / "1", tmp_path / "b" / "2"]
    assert [one.cell for one in recordings_of(paths)] == ["a", "b"]
    cells = tmp_path / "cells.yaml"
    cells.write_text("left: [a]\nright: ['b/*', c]\n")
    assert [one.cell for one in recordings_of(paths, cells)] == ["left", "right"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("left: [a]\n", "b/2 is from no cell, expected one"),
        ("left: [a, b]\nright: [b]\n", "b/2 is from left, right, expected one"),
        ("left: 3\n", "'left': expected a list of patterns, got 3"),
        ("[a, b]\n", "expected lines of the form CELL"),
    ],
)
def test_a_map_that_cannot_be_meant_is_refused(tmp_path, text, said):
    cells = tmp_path / "cells.yaml"
    cells.write_text(text)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        recordings_of([tmp_path / "a" / "1", tmp_path / "b" / "2"], cells)


def test_a_recording_is_given_once(tmp_path):
    with pytest.raises(InvalidInput, match="given 2 times"):
        recordings_of([tmp_path / "a", tmp_path / "a"])


def test_bytes_and_names_decide_the_digest(tmp_path):
    digest = fleet_recordings.content_digest
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"1")
    first = digest(tmp_path / "a")
    (tmp_path / "a" / "annotations.json").write_text("{}")
    assert digest(tmp_path / "a") == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert digest(tmp_path / "b") == first
    (tmp_path / "b" / "x.png").rename(tmp_path / "b" / "y.png")
    assert digest(tmp_path / "b") != first

# SPDX-License-Identifier: Apache-2.0
"""Recordings of several cells in one replay: resumed, spread, counted by cell; what cannot be read stops nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.evaluation.replay.tables import cell_rows, read_images
from test.helpers.recordings import declare_more, record

OPTIONS = ("--passes", "3", "--device", "cpu", "--pictures", "none")


def run(*arguments):
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)], env={"COLUMNS": "150"})
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> list[Path]:
    """A recording of each of two cells with the same name, the second with a laptop more."""
    root = tmp_path_factory.mktemp("cells")
    return [record(root / "left" / "a", 2), record(root / "right" / "a", 3, seed=1)]


@pytest.fixture(scope="module")
def finished(recordings, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "all"
    result = run(*recordings, "--out", out, "--jobs", "2", *OPTIONS)
    assert result.exit_code == 0, result.output
    assert "left: 1 recordings, 2 laptops, asked about" in result.output
    assert result.output.count("model busy") == 2
    for name, source in zip(("left", "right"), recordings, strict=True):
        summary = json.loads((out / name / "a" / "summary.json").read_text())
        assert (summary["source"], summary["processes"]) == (str(source), 1)
    return out


def test_images_know_their_cell_and_laptop_and_cells_are_counted(finished):
    left = read_images(finished / "left/a/images.parquet")
    assert set(left["cell"]) == {"left"}
    assert left["laptop"].tolist() == ["", *["1 (laptop-1)"] * 2, *["2 (laptop-2)"] * 2]
    cells = pd.read_parquet(finished / "cells.parquet").set_index("cell")
    assert cells["laptops"].to_dict() == {"left": 2, "right": 3}
    assert cells["images"].to_dict() == {"left": 5, "right": 7}
    assert (cells["asked_low"] <= cells["asked_per_100"]).all()


def test_a_recording_beside_others_says_what_it_says_alone(recordings, finished, tmp_path):
    assert run(recordings[0], "--out", tmp_path / "alone", *OPTIONS).exit_code == 0
    columns = ["image", "assessment_digest", "outcome"]
    alone, beside = (
        pd.read_parquet(f / "images.parquet")[columns] for f in (tmp_path / "alone", finished / "left/a")
    )
    assert alone.equals(beside)


def test_what_asks_and_what_releases_is_counted_by_laptop():
    def images(cell, laptops, outcomes):
        columns = {"cell": cell, "laptop": laptops, "image": [f"{i}.png" for i in range(len(outcomes))]}
        return pd.DataFrame({**columns, "status": "OK", "outcome": outcomes})

    rows = cell_rows(
        [
            images("a", ["", "1", "1", "2"], ["ASK", "ASK", "WORK", "CLEAN"]),
            images("a", ["1"], ["ASK"]),
            images("b", ["", ""], ["WORK", "BLOCKED"]),
        ]
    )
    counted = [[row[name] for name in ("cell", "recordings", "laptops", "asked", "released")] for row in rows]
    assert counted == [["a", 2, 3, 2, 1], ["b", 1, 2, 0, 1]], "without names each image is a laptop"


def test_a_broken_recording_stops_no_other_and_is_assessed_once_it_is_whole(recordings, finished, tmp_path):
    cell = tmp_path / "third"
    broken = cell / "b"
    broken.mkdir(parents=True)
    (broken / "metadata.yaml").write_text("broken: [")
    options = ("--out", tmp_path / "out", "--format", "csv", *OPTIONS)
    result = run(recordings[0], broken, "--jobs", "1", *options)
    assert result.exit_code == 1
    assert f"failed: {broken}" in result.stderr
    whole = finished / "left/a/images.parquet"
    digests = pd.read_csv(tmp_path / "out/a/images.csv")["assessment_digest"]
    assert digests.tolist() == pd.read_parquet(whole)["assessment_digest"].tolist()

    (broken / "metadata.yaml").unlink()
    broken.rmdir()
    declare_more(record(broken, 1, seed=2))
    (tmp_path / "out/b").mkdir(exist_ok=True)
    (tmp_path / "out/b/objects.csv").write_text("of a killed call")
    before = (tmp_path / "out/a/summary.json").stat().st_mtime_ns
    for finished_before in (1, 2):  # what the earlier call lost is said once more
        again = run(recordings[0], broken, "--resume", "--jobs", "1", *options)
        assert again.exit_code == 1, again.output
        assert f"{finished_before} sources were finished before" in again.output
        assert f"{broken}: images are lost: 3 of 5 messages" in again.stderr
    assert (tmp_path / "out/a/summary.json").stat().st_mtime_ns == before
    assert pd.read_csv(tmp_path / "out/cells.csv")["cell"].tolist() == ["left", "third"]

    other = run(recordings[0], broken, "--resume", *options, "--passes", "4")
    assert other.exit_code == 2
    assert "of another policy or other settings" in other.stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_ray_cluster_says_the_same(recordings, finished, tmp_path):
    result = run(*recordings, "--out", tmp_path / "out", "--ray-address", "local", "--jobs", "1", *OPTIONS)
    assert result.exit_code == 0, result.output
    for cell in ("left", "right"):
        folders = (finished / cell / "a", tmp_path / "out" / cell / "a")
        one, other = (pd.read_parquet(folder / "images.parquet")["assessment_digest"] for folder in folders)
        assert one.tolist() == other.tolist()
        assert json.loads((folders[1] / "summary.json").read_text())["processes"] == 1

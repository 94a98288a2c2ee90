# SPDX-License-Identifier: Apache-2.0
"""Recordings of several cells in one replay: spread; what cannot be read stops nothing else."""

import importlib.util
import json
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from test.helpers.models import small_weights
from test.helpers.recordings import record

OPTIONS = ("--passes", "2", "--device", "cpu", "--pictures", "none", "--no-dil", "--no-novelty")


def run(weights, *arguments):
    given = [*map(str, arguments), "--weights", str(weights), *OPTIONS]
    result = CliRunner().invoke(app, ["replay", *given], env={"COLUMNS": "150"})
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    return small_weights(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> list[Path]:
    """A recording of each of two cells with the same name, the first with a laptop more."""
    root = tmp_path_factory.mktemp("cells")
    return [record(root / "left" / "a", 2), record(root / "right" / "a", 1, seed=1)]


@pytest.fixture(scope="module")
def finished(weights, recordings, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "all"
    result = run(weights, *recordings, "--out", out, "--jobs", "2")
    assert result.exit_code == 0, result.output
    assert result.output.count("model busy") == 2
    for name, source in zip(("left", "right"), recordings, strict=True):
        summary = json.loads((out / name / "a" / "summary.json").read_text())
        assert (summary["source"], summary["processes"]) == (str(source), 1)
    return out


def test_images_know_their_cell_and_laptop(finished):
    left = pd.read_parquet(finished / "left/a/images.parquet")
    assert set(left["cell"]) == {"left"}
    assert left["laptop"].tolist() == ["", *["1 (laptop-1)"] * 2, *["2 (laptop-2)"] * 2]


def test_a_recording_beside_others_says_what_it_says_alone(weights, recordings, finished, tmp_path):
    assert run(weights, recordings[0], "--out", tmp_path / "alone").exit_code == 0
    columns = ["image", "assessment_digest", "outcome"]
    alone, beside = (
        pd.read_parquet(f / "images.parquet")[columns] for f in (tmp_path / "alone", finished / "left/a")
    )
    assert alone.equals(beside)


def test_an_interruption_leaves_what_is_finished_and_nothing_of_the_rest(
    weights, recordings, tmp_path, monkeypatch
):
    @contextmanager
    def interrupted(*_):
        def execute(function, work):
            first, (_, job) = work
            yield function(first)
            job.out.mkdir(parents=True)
            (job.out / "summary.json").touch()
            raise KeyboardInterrupt

        yield execute

    monkeypatch.setattr(importlib.import_module("sticker_uq.cli.replay"), "executor", interrupted)
    result = run(weights, *recordings, "--out", tmp_path / "out")
    assert result.exit_code == 130, result.output
    assert {file.parent for file in tmp_path.rglob("summary.json")} == {tmp_path / "out/left/a"}


def test_a_broken_recording_stops_no_other(weights, recordings, finished, tmp_path):
    cell = tmp_path / "third"
    broken = cell / "b"
    broken.mkdir(parents=True)
    (broken / "metadata.yaml").write_text("broken: [")
    result = run(weights, recordings[0], broken, "--jobs", "1", "--out", tmp_path / "out", "--format", "csv")
    assert result.exit_code == 1
    assert f"failed: {broken}" in result.stderr
    whole = finished / "left/a/images.parquet"
    digests = pd.read_csv(tmp_path / "out/a/images.csv")["assessment_digest"]
    assert digests.tolist() == pd.read_parquet(whole)["assessment_digest"].tolist()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_ray_cluster_says_the_same(weights, recordings, finished, tmp_path):
    result = run(weights, *recordings, "--out", tmp_path / "out", "--ray-address", "local", "--jobs", "1")
    assert result.exit_code == 0, result.output
    for cell in ("left", "right"):
        folders = (finished / cell / "a", tmp_path / "out" / cell / "a")
        one, other = (pd.read_parquet(folder / "images.parquet")["assessment_digest"] for folder in folders)
        assert one.tolist() == other.tolist()
        assert json.loads((folders[1] / "summary.json").read_text())["processes"] == 1

# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness run``: bad options are named, and detections made elsewhere go the whole way to a report."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import write_coco
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.robustness.result import Assessment
from test.lab.robustness.conftest import specification_of


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """The arguments of a small assessment in tmp_path/out."""
    write_coco(
        tmp_path / "data", (encode_scene(s, render(sample_scene(s), (320, 240))) for s in (7001, 7003))
    )
    spec = specification_of(
        {
            "name": "defocus",
            "transformation": "defocus",
            "strength": [1, 4],
            "probability": 0.5,
            "sweep": [2],
        },
        resamples=100,
    )
    spec.save(tmp_path / "spec.yaml")
    paths = [str(tmp_path / "spec.yaml"), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    return ["robustness", "run", *paths, "--images", "2", "--target", "2", "--sweep", "1"]


def perfect(folder: Path) -> Path:
    """COCO results that find every object of a COCO folder."""
    annotations = json.loads((folder / "annotations.json").read_text())["annotations"]
    keys = ("image_id", "category_id", "bbox")
    path = folder / "results.json"
    path.write_text(json.dumps([{k: a[k] for k in keys} | {"score": 0.9} for a in annotations]))
    return path


def test_detections_made_elsewhere_go_all_the_way(inputs: list[str], tmp_path: Path) -> None:
    made = CliRunner().invoke(app, [*inputs, "--system", "results", "--cases-only"])
    assert made.exit_code == 0, made.output
    assert not (tmp_path / "out" / "report.html").exists()
    source, cases = perfect(tmp_path / "data"), perfect(tmp_path / "out" / "cases")
    files = ["--source-results", str(source), "--case-results", str(cases)]
    done = CliRunner().invoke(app, [*inputs, "--system", "results", *files])
    assert done.exit_code == 0, done.output
    found = Assessment.load(tmp_path / "out")
    assert not found.gated
    assert all(one.figures["ap50"] == pytest.approx(1) for one in found.sets)
    assert all(check.change == pytest.approx(0, abs=1e-9) for check in found.checks)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "specification.yaml").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--system", "guess"], "--system guess: expected one of cell, detector, results"),
        (["--images", "0"], "--images 0: expected 1 or more"),
        (["--system", "results"], "--system results needs --source-results and --case-results"),
        (["--passes", "0"], "passes"),
    ],
)
def test_bad_options_are_named(inputs: list[str], tmp_path: Path, options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, [*inputs, *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()

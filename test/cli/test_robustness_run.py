# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness run``: bad options are named, and a detector goes the whole way to a report."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import write_coco
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.robustness.assessment import Assessment
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
        },
        resamples=100,
    )
    (tmp_path / "spec.yaml").write_text(spec.model_dump_json(exclude_none=True))
    paths = [str(tmp_path / "spec.yaml"), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    return ["robustness", "run", *paths, "--images", "2", "--target", "2"]


def test_a_detector_goes_all_the_way(inputs: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*inputs, "--system", "detector", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    found = Assessment.model_validate_json((tmp_path / "out" / "assessment.json").read_text())
    assert [one.circumstance for one in found.sets] == ["", "", "defocus"]
    assert found.environment["setting device"] == "cpu"
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "specification.yaml").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--passes", "0"], "passes"),
    ],
)
def test_bad_options_are_named(inputs: list[str], tmp_path: Path, options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, [*inputs, *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()

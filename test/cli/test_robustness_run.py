# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness run``: a detector goes the whole way to a report."""

from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.lab.robustness.assessment import Assessment
from test.helpers.scenes import rendered
from test.lab.robustness.conftest import specification_of


def test_a_detector_goes_all_the_way(tmp_path):
    rendered(tmp_path / "data", (7001, 7003), (320, 240))
    defocus = {"name": "defocus", "transformation": "defocus", "strength": [1, 4], "probability": 0.5}
    spec = specification_of(defocus, resamples=100)
    (tmp_path / "spec.yaml").write_text(spec.model_dump_json(exclude_none=True))
    paths = [str(tmp_path / "spec.yaml"), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    options = ["--images", "2", "--target", "2", "--system", "detector", "--device", "cpu"]
    done = CliRunner().invoke(app, ["robustness", "run", *paths, *options])
    assert done.exit_code == 0, done.output
    found = Assessment.model_validate_json((tmp_path / "out" / "assessment.json").read_text())
    assert [one.circumstance for one in found.sets] == ["", "", "defocus"]
    assert found.environment["setting device"] == "cpu"
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "specification.yaml").exists()

# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness``: a detector goes the whole way to a report and the sheet, a black box by its results."""

import json
from pathlib import Path

import pandas as pd
from typer.testing import CliRunner

from lab_helpers.robustness import specification_of
from lab_helpers.scenes import rendered
from sticker_uq.cli import app
from sticker_uq_lab.robustness.assessment import Assessment


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
    sheet = CliRunner().invoke(app, ["robustness", "sheet", str(tmp_path / "out")])
    assert sheet.exit_code == 0, sheet.output
    tabs = {file.stem: pd.read_csv(file) for file in (tmp_path / "out" / "sheet").glob("*.csv")}
    assert set(tabs) == {"specification", "test_cases", "evaluation"}
    assert tabs["specification"].loc[0, ["circumstance", "significance"]].tolist() == ["defocus", 1]
    assert tabs["test_cases"].loc[0, "to be generated"] == "not tagged"
    assert {"d (cw_ssim)", "epsilon(d)", "finding"} <= set(tabs["evaluation"].columns)


def coco_results(folder: Path, score: float, dropped: int = 0) -> list[dict[str, object]]:
    """Every box of ``folder`` found, but for the first ``dropped``."""
    labelled = json.loads((folder / "annotations.json").read_text())["annotations"][dropped:]
    return [{k: a[k] for k in ("image_id", "category_id", "bbox")} | {"score": score} for a in labelled]


def test_a_black_box_is_assessed_by_its_results(tmp_path):
    rendered(tmp_path / "data", (7001, 7003), (320, 240))
    dark = {"name": "dark", "transformation": "low_light", "strength": [1, 2], "probability": 0.5}
    spec, out = specification_of(dark, resamples=100), tmp_path / "out"
    (tmp_path / "spec.yaml").write_text(spec.model_dump_json(exclude_none=True))
    paths = [str(tmp_path / "spec.yaml"), "--data", str(tmp_path / "data"), "--out", str(out)]
    done = CliRunner().invoke(app, ["robustness", "pictures", *paths, "--images", "2", "--target", "2"])
    assert done.exit_code == 0, done.output
    source, cases = tmp_path / "source.json", tmp_path / "cases.json"
    source.write_text(json.dumps(coco_results(tmp_path / "data", 0.9)))
    found = coco_results(out / "cases", 0.9, dropped=1)
    given = ["robustness", "results", str(cases), "--source-results", str(source), "--out", str(out)]
    for wrong, words in (
        ({"image_id": 99}, "entry 0: image_id 99 is not in"),
        ({"category_id": 7}, "entry 0: category_id 7"),
        ({"bbox": [1, 2, 3]}, "entry 0: bbox"),
        ({"score": 1.5}, "entry 0: score 1.5: expected 0 to 1"),
    ):
        cases.write_text(json.dumps([found[0] | wrong]))
        refused = CliRunner().invoke(app, given)
        assert words in " ".join(refused.output.split()), refused.output
        assert not (out / "assessment.json").exists()
    cases.write_text(json.dumps(found))
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    result = Assessment.model_validate_json((out / "assessment.json").read_text())
    assert result.system == "results in source.json, cases.json"
    assert (result.sets[0].figures["recall"], result.sets[0].figures["precision"]) == (1, 1)
    assert sum(one.figures["false_negatives"] for one in result.sets) >= 1
    assert "cw_ssim" in result.sets[1].distances
    assert "fid" not in result.sets[1].distances

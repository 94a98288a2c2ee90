# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from sticker_uq.cli.options import combine
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.io.parameter_files import read_parameters
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli.select import command as select
from sticker_uq_lab.studies.detectors.model_selection import advice, parameters, rank
from sticker_uq_lab.studies.detectors.study_plan import ModelChoice, StudyData, StudySettings
from sticker_uq_lab.studies.detectors.study_run import ATTACKS, IMAGES, OBJECTS, PLAN, Study

SSDLITE = "ssdlite320_mobilenet_v3_large"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """a: accurate and slow; b: as accurate and quick; c: quick, inaccurate, sure of it. All have the packaged weights."""
    rng = np.random.default_rng(0)
    rows = []
    for model, accuracy, entropy, drop, ms in (
        ("a", 0.9, 0.5, 0.1, 90),
        ("b", 0.9, 0.5, 0.5, 30),
        ("c", 0.5, 0.1, 0.3, 31),
    ):
        for image in range(30):
            for variant in ("clean", "adv-00"):
                value = accuracy - (drop if variant != "clean" else 0) + rng.normal(0, 0.02)
                rows.append(
                    {
                        "dataset": "d",
                        "model": model,
                        "variant": variant,
                        "dropout_rate": 0.2,
                        "image": f"{image}",
                        "map": value,
                    }
                    | {
                        "shannon_entropy": entropy + rng.normal(0, 0.02),
                        "encode_ms": ms / 3,
                        "decode_ms": ms * 2 / 3,
                    }
                    | dict.fromkeys(("variation_ratio", "mutual_information"), 0.0)
                    | dict.fromkeys(("relative_total_variance", "relative_predictive_surface"), 0.0)
                )
    packaged = resources.files("sticker_uq.detection") / "weights" / f"{SSDLITE}.safetensors"
    for name in "abc":
        (tmp_path / f"{name}.safetensors").symlink_to(str(packaged))
    models = tuple(
        ModelChoice(label=m, name=SSDLITE, weights=str(tmp_path / f"{m}.safetensors")) for m in "abc"
    )
    settings = StudySettings(
        models=models, datasets=(StudyData(name="d", folder=Path("d")),), rates=(0.2,), adversarial=1
    )
    return Study(settings, pd.DataFrame(rows), pd.DataFrame(), pd.DataFrame(), {})


def test_a_tie_is_named_and_the_quicker_comes_first(study):
    ranking = rank(study, {"accuracy": 1.0}, 0.2)
    found = ranking.candidates
    assert [one.model for one in found] == ["b", "a", "c"]
    assert found[0].tied == ("a",)
    assert found[0].score == found[1].score == 1
    assert found[2].score == 2
    assert "a is statistically as good" in advice(ranking)


def test_each_requirement_has_its_own_winner(study):
    assert rank(study, {"label-uncertainty": 1.0}, 0.2).candidates[0].model == "c"
    assert rank(study, {"robustness": 1.0}, 0.2).candidates[0].model == "a"
    latency = rank(study, {"latency": 1.0}, 0.2).candidates
    assert [one.tiers["latency"] for one in latency] == [1, 1, 2]  # 31 ms are as quick as 30
    assert "no other model" in advice(rank(study, {"robustness": 1.0}, 0.2))


def test_a_model_that_sees_nothing_is_not_called_robust(study):
    """mAP 0.04 clean, 0 attacked: nothing to lose, so nothing lost."""
    images = study.images.copy()
    weak = images["model"] == "c"
    images.loc[weak, "map"] = np.where(images.loc[weak, "variant"] == "clean", 0.04, 0.0)
    blind = replace(study, images=images)
    assert rank(blind, {"robustness": 1.0}, 0.2, accuracy_floor=0.0).candidates[0].model == "a"
    ranking = rank(blind, {"label-uncertainty": 1.0, "robustness": 1.0}, 0.2)
    assert {one.model for one in ranking.candidates} == {"a", "b"}
    assert ranking.too_weak == {"c": pytest.approx(0.04)}
    assert "Not ranked, because they see too little: c (mAP 0.04)." in advice(ranking)
    best = ranking.candidates[0]
    assert (best.clean, best.attacked) == (pytest.approx(0.9, abs=0.01), pytest.approx(0.8, abs=0.01))
    with pytest.raises(InvalidInput, match=r"no model reaches a mean mAP of 0\.95 .* the best has 0\.90"):
        rank(study, {"robustness": 1.0}, 0.2, accuracy_floor=0.95)


def test_weights_decide_a_mix(study):
    assert rank(study, {"accuracy": 5.0, "label-uncertainty": 1.0}, 0.2).candidates[0].model == "b"
    assert rank(study, {"accuracy": 1.0, "label-uncertainty": 20.0}, 0.2).candidates[0].model == "c"


def test_bad_requests_are_named(study):
    for weights, rate, said in (
        ({"beauty": 1.0}, 0.2, "requirement 'beauty'"),
        ({"accuracy": 0.0}, 0.2, "weight 0 of accuracy"),
        ({}, 0.2, "no requirement"),
        ({"accuracy": 1.0}, 0.4, "dropout rate 0.4: expected one that was studied: 0.2"),
    ):
        with pytest.raises(InvalidInput, match=said):
            rank(study, weights, rate)
    bare = replace(study, images=study.images[study.images["variant"] == "clean"])
    with pytest.raises(InvalidInput, match="no attacked pictures"):
        rank(bare, {"robustness": 1.0}, 0.2)


def test_the_file_is_what_the_detector_loads(study, tmp_path):
    for name, table in ((IMAGES, study.images), (OBJECTS, study.objects), (ATTACKS, study.attacks)):
        table.to_parquet(tmp_path / name)
    plan = {"settings": study.settings.model_dump(mode="json"), "weights": {}}
    (tmp_path / PLAN).write_text(json.dumps(plan))
    app = typer.Typer()
    app.command()(select)
    file = tmp_path / "detector.yaml"
    done = CliRunner().invoke(
        app, [str(tmp_path), "--require", "accuracy", "--require", "robustness=0.5", "--out", str(file)]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    settings = combine(DetectorSettings, read_parameters(file, "detector"), {}, file)
    assert settings.weights == str(tmp_path / "a.safetensors")
    assert settings.dropout_rate == 0.2
    assert load_detector(settings).weights_hash == load_detector(DetectorSettings(model=SSDLITE)).weights_hash
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(
        InvalidInput, match=r"a\.safetensors: expected the weights of a that the study looked with"
    ):
        parameters(study, "a", 0.2)
    refused = CliRunner().invoke(app, [str(tmp_path), "--require", "accuracy=much"])
    assert "--require 'accuracy=much'" in str(refused.exception)

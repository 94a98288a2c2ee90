# SPDX-License-Identifier: Apache-2.0
"""The detector of a bundle in a study: measured as its own weights and settings say, or refused."""

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from sticker_uq.cell.bundle import Bundle, create_bundle
from sticker_uq.cli.study import app
from sticker_uq.io.coco import write_coco
from sticker_uq.io.share import share_folder
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.studies.detectors.study_run import Study
from sticker_uq.perception import PerceptionSettings

MODEL = "ssdlite320_mobilenet_v3_large"
OWN = {"passes": 3, "seed": 7, "dropout_rate": 0.25, "score_floor": 0.3}


def made(out: Path, **values: object) -> Bundle:
    settings = PerceptionSettings.model_validate({**OWN, "device": "cpu", **values})
    return create_bundle(out, settings, share_folder() / "config" / "policy.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles, and a COCO folder of one rendered laptop."""
    found = tmp_path_factory.mktemp("bundles")
    made(found / "first")
    made(found / "other", passes=4)
    made(found / "nms", nms_threshold=0.45)
    made(found / "two words")
    write_coco(found / "lids", [encode_scene(1, render(sample_scene(1, stickers=2), (240, 180)), "png")])
    return found


def study(folder: Path, out: Path, *options: str) -> object:
    given = ["--data", str(folder / "lids"), "--adversarial", "0", "--resamples", "20", "--device", "cpu"]
    return CliRunner().invoke(app, [*given, "--out", str(out), *options])


def test_the_detector_of_a_bundle_stands_beside_the_models(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bundle = Bundle.load(folder / "first")
    done = study(folder, out, "--bundle", f"cell={folder / 'first'}", "--model", MODEL, "--rates", "0.1")
    assert done.exit_code == 0, (done.output, done.exception)
    found = Study.load(out)
    assert {model.label: model.weights for model in found.settings.models} == {
        MODEL: "",
        "cell": str(bundle.folder / "weights.safetensors"),
    }
    assert found.weights["cell"] == bundle.manifest.model_hash
    assert {name: getattr(found.settings, name) for name in ("passes", "seed", "score_floor")} == {
        name: OWN[name] for name in ("passes", "seed", "score_floor")
    }
    # the dropout rate of the bundle is measured though nobody named it
    assert found.settings.rates == (0.1, OWN["dropout_rate"])
    rows = pd.read_parquet(out / "images.parquet").set_index(["model", "dropout_rate"])
    assert len(rows) == 4
    # the bundle holds the packaged weights: whatever differs would be a setting that got lost
    for rate in found.settings.rates:
        assert rows.loc[("cell", rate), "map"] == rows.loc[(MODEL, rate), "map"]
        assert rows.loc[("cell", rate), "shannon_entropy"] == rows.loc[(MODEL, rate), "shannon_entropy"]


def test_without_a_named_model_the_bundle_is_studied_alone(folder: Path, tmp_path: Path) -> None:
    done = study(folder, tmp_path / "out", "--bundle", str(folder / "first"), "--rates", "0.25")
    assert done.exit_code == 0, (done.output, done.exception)
    found = Study.load(tmp_path / "out")
    assert [model.label for model in found.settings.models] == ["first"]
    assert found.settings.rates == (0.25,)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["first", "--passes", "5"], "--bundle and --passes: expected one of them, a bundle has its own"),
        (["nms"], "nms_threshold = 0.45: expected 0.5, with which every study measures"),
        (["first", "--bundle", "other"], "passes = 4: expected 3 as in the bundle before it"),
        (["first", "--bundle", "first"], "two models are called 'first'"),
        (["two words"], "two words': expected [LABEL=]FOLDER, LABEL of letters"),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    names = ("nowhere", "first", "other", "nms", "two words")
    given = [str(folder / part) if part in names else part for part in options]
    done = study(folder, tmp_path / "out", "--bundle", *given)
    assert done.exit_code != 0
    assert said in str(done.exception)
    assert not (tmp_path / "out").exists()

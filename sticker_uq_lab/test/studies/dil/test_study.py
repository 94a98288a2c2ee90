# SPDX-License-Identifier: Apache-2.0
"""The figures of the DiL paper's Table 3 on hand-made detections."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.detection.detector import load_detector
from sticker_uq.detection.settings import DetectorSettings
from sticker_uq.evaluation.metrics.statistics import bootstrap
from sticker_uq.io.coco import LabelledImage, read_coco, write_coco
from sticker_uq.perception.novelty.network import read_network, save_network
from sticker_uq.scene import Detections, Localization, UnexplainedRegion
from sticker_uq_lab.cli.dil import app
from sticker_uq_lab.datasets.abnormal import AbnormalImage, abnormal_scenes
from sticker_uq_lab.studies.dil.dil_report import (
    PAPER_DIL,
    case_effects,
    case_separation,
    detection_rates,
    missed_sticker_separation,
    threshold_gains,
    threshold_table,
)
from sticker_uq_lab.studies.dil.scene_records import (
    BAYES_OD_SIGNALS,
    DIL_SIGNALS,
    MC_SIGNALS,
    MISSED_STICKER_PROBABILITY,
    NOVELTY,
    SceneRecord,
)

pytestmark = pytest.mark.usefixtures("small_packaged")


@pytest.fixture(scope="module", autouse=True)
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "__defaults__", (100, 0))  # of 1000 resamples
        yield


MODEL = "ssdlite320_mobilenet_v3_large"
NAMES = (*DIL_SIGNALS, *MC_SIGNALS)


def record(case, dil, boxes=(), scores=(), missed=0, regions=()):
    signals = dict.fromkeys(NAMES, 0.0) | {
        PAPER_DIL: dil,
        "dil_gradcam++": dil,
        "background_localization": dil * 100,
    }
    probabilities = [[1 - s, 0.0, s] for s in scores]
    return SceneRecord(case, "a.png", 1, missed, signals, list(boxes), probabilities, list(regions))


def image(case):
    box = np.array([[10, 10, 30, 30]], np.float32)
    return AbnormalImage(LabelledImage(Path("a.png"), 1, 10, 10, box, np.array([2])), case, "a.png", box)


SEEN, BELOW, NOTHING = ([[10, 10, 30, 30]], (0.9,)), ([[10, 10, 30, 30]], (0.45,)), ((), ())


@pytest.fixture
def study():
    """Clean scenes in which all is seen, hidden ones with a sticker at 0.45 or unseen, DiL rising from 0.1 to 0.8."""
    records = {
        "clean": [record("clean", 0.1 + 0.01 * i, *SEEN) for i in range(10)],
        "hidden": [
            record("hidden", 0.6, *BELOW, missed=1, regions=[[5, 5, 35, 35]]),
            record("hidden", 0.8, *NOTHING, missed=1),
        ],
    }
    return records, {case: [image(case) for _ in found] for case, found in records.items()}


def test_effects_of_each_case(study):
    table = case_effects(*study, 0.5).set_index("case")
    assert table.loc["clean", "misclassified"] == 0
    assert table.loc["hidden", "misclassified"] == 1
    assert table.loc["hidden", "scenes with a missed sticker"] == 1
    assert table.loc["clean", "mAP@0.5"] == pytest.approx(1)
    assert table.loc["hidden", "mAP@0.5"] == pytest.approx(0.5, abs=0.01)
    assert table.loc["hidden", "DiL"].startswith("0.700 [0.600, 0.800]")
    assert table.loc["hidden", "BL"] == pytest.approx(0.7)  # per pixel of a picture of 10 x 10


def test_novelty_counts_where_there_is_a_head(study):
    records, images = study
    assert "novelty" not in case_separation(records)["signal"].tolist()
    for found in records.values():
        for one in found:
            one.signals["novelty"] = 0.2 if one.case == "clean" else 0.9
    assert case_separation(records).set_index("signal").loc["novelty", "hidden"].startswith("1.000")
    assert case_effects(records, images, 0.5).set_index("case").loc["hidden", "novelty"].startswith("0.900")


def test_what_separates_and_what_does_not(study):
    records, _ = study
    table = case_separation(records).set_index("signal")
    assert table.loc[PAPER_DIL, "hidden"].startswith("1.000")
    assert table.loc["variation_ratio", "hidden"].startswith("0.500")
    missed = missed_sticker_separation(records).set_index("signal")
    assert missed.loc[PAPER_DIL, "all cases"].startswith("1.000")
    assert missed.loc[PAPER_DIL, "clean"] == "-"  # nothing was missed there


def test_rates_at_percentiles_of_clean_scenes(study):
    table = detection_rates(study[0], PAPER_DIL).set_index("percentile")
    assert (table["TPR hidden"] == 1).all()
    assert table.loc[50, "TNR"] < table.loc[90, "TNR"]
    np.testing.assert_allclose(table["TNR"] + table["FPR"], 1)


def test_a_lower_threshold_finds_the_hidden_sticker(study):
    table = threshold_table(*study, 0.5, 0.2).set_index(["case", "rule"])
    assert table.loc[("hidden", "fixed"), "recall"] == 0
    assert table.loc[("hidden", "paper"), "recall"] == 0.5  # 0.5 - 0.2 * 0.6 is below 0.45
    assert table.loc[("hidden", "regional"), "recall"] == 0.5  # it lies in what no box explains
    assert table.loc[("hidden", "paper"), "precision"] == 1
    assert table.loc[("clean", "fixed"), "f1"] == pytest.approx(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    items = read_coco(rendered(root / "source", [3], (320, 240), "png", stickers=3))
    for case in ("clean", "occlusion"):
        write_coco(root / "cases" / case, abnormal_scenes(items, case, 1, None, "png"))
    return root / "cases"


def run(data, out, *more):
    return CliRunner().invoke(app, ["study", "--data", str(data), "--out", str(out), "--passes", "2", *more])


def test_the_command_measures_once(data, packaged, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(packaged, out)
    cache, (found,) = kept(out)
    assert set(found["signals"]) == {*NAMES, *BAYES_OD_SIGNALS, NOVELTY, MISSED_STICKER_PROBABILITY}
    assert 0 <= found["signals"][PAPER_DIL] <= 1
    assert found["stickers"] >= 1
    # what is kept is read, not measured again
    cache.write_text(json.dumps([found | {"missed": found["stickers"]}]))
    assert run(data, out).exit_code == 0
    table = pd.read_csv(out / f"{MODEL}_effect-of-each-case.csv").set_index("case")
    assert table.loc["occlusion", "scenes with a missed sticker"] == 1


def kept(out):
    """The file with what was measured on the scenes of a case, and its content."""
    (file,) = out.glob(f"{MODEL}_occlusion_*.json")
    return file, json.loads(file.read_text())


@pytest.fixture(scope="module")
def packaged(data, small_packaged, tmp_path_factory):
    """The folder of a study with what is packaged."""
    out = tmp_path_factory.mktemp("packaged")
    done = run(data, out)
    assert done.exit_code == 0, done.output
    return out


def test_a_network_of_ones_own_is_what_the_study_measures_with(data, packaged, small_packaged, tmp_path):
    network = tmp_path / "network.safetensors"
    own = read_network(small_packaged[1])
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.mul_(0.9)
    save_network(own, load_detector(DetectorSettings()), network)
    assert run(data, tmp_path / "own", "--network", str(network)).exit_code == 0
    signals = [kept(folder)[1][0]["signals"] for folder in (packaged, tmp_path / "own")]
    assert signals[0]["novelty"] != signals[1]["novelty"]
    assert (tmp_path / "own" / f"{MODEL}_rates-of-novelty.csv").is_file()


def test_a_deep_ensemble_is_compared_as_passes_are(data, small_packaged, tmp_path):
    alone = run(data, tmp_path / "alone", "--ensemble", str(small_packaged[0]))
    assert "1 --ensemble for 1 --model: expected two members" in str(alone.exception)
    assert not (tmp_path / "alone").exists()
    same = ["--ensemble", str(small_packaged[0])] * 2
    assert run(data, tmp_path / "out", *same).exit_code == 0
    signals = kept(tmp_path / "out")[1][0]["signals"]
    assert signals["ensemble variation_ratio"] == signals["ensemble total_variance"] == 0  # two that agree
    assert 0 < signals["ensemble least_confidence"] < 1
    table = pd.read_csv(tmp_path / "out" / f"{MODEL}_missed-stickers.csv")
    assert {"ensemble shannon_entropy", "shannon_entropy", "dil_eigencam"} <= set(table["signal"])
    assert "<svg" in (tmp_path / "out" / "study.html").read_text()


BOXES = np.float32([[0, 0, 40, 40], [100, 100, 140, 140], [200, 0, 240, 40]])
TRUTH = LabelledImage(Path("a.png"), 1, 320, 240, BOXES[:2], np.array([2, 2]))
REGION = UnexplainedRegion(np.float32([95, 95, 145, 145]), objectness=0.4, share=0.7)
FOUND = Localization(10.0, 10.0, 1.0, 0.3, None, 0.4, (REGION,))


def seen(*scores: float) -> Detections:
    return Detections(BOXES, np.array([[1 - s, 0.0, s] for s in scores], np.float32))


def test_gains_are_relative_to_the_fixed_threshold():
    # an object at 0.9, one at 0.4 in a region, and a false alarm at 0.35
    fixed, paper, regional = threshold_gains([seen(0.9, 0.4, 0.35)], [FOUND], [TRUTH])
    assert (fixed["rule"], fixed["recall"], fixed["precision"], fixed["tpr"]) == ("fixed", 0.5, 1.0, 0.5)
    assert fixed["f1"] == pytest.approx(2 / 3)
    gains = (fixed["recall_gain"], fixed["precision_gain"], fixed["f1_gain"], fixed["tpr_gain"])
    assert gains == (0, 0, 0, 0)
    assert (paper["recall"], paper["recall_gain"], paper["precision"]) == (1.0, 1.0, pytest.approx(2 / 3))
    assert paper["precision_gain"] == pytest.approx(-1 / 3)
    whole = (regional["recall"], regional["precision"], regional["f1"], regional["tpr_gain"])
    assert whole == (1.0, 1.0, 1.0, 1.0)
    assert regional["f1_gain"] == pytest.approx(0.5)


def test_a_second_detection_of_an_object_is_wrong():
    twice = Detections(BOXES[[0, 0]], np.float32([[0.1, 0, 0.9], [0.2, 0, 0.8]]))
    fixed = threshold_gains([twice], [None], [TRUTH])[0]
    assert (fixed["recall"], fixed["precision"]) == (0.5, 0.5)


def test_nothing_to_measure_on_is_nan():
    empty = LabelledImage(Path("b.png"), 2, 320, 240, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    fixed = threshold_gains([seen(0.1, 0.1, 0.1)], [None], [empty])[0]
    assert all(
        np.isnan(v)
        for v in (fixed["recall"], fixed["precision"], fixed["f1"], fixed["tpr"], fixed["recall_gain"])
    )

# SPDX-License-Identifier: Apache-2.0
"""The published test results come out of the published per-image results (profile simula_rp)."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli.study import app
from sticker_uq_lab.studies.detectors.analysis import Analysis, analyse, best_models
from sticker_uq_lab.studies.detectors.measures import BY_NAME, COLUMNS, UNCERTAINTY, read_results

PUBLISHED = Path(__file__).parent / "published"
MODELS = (
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_resnet50_fpn_v2",
    "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2",
    "ssd300_vgg16",
    "ssdlite320_mobilenet_v3_large",
)


def published(name: str) -> pd.DataFrame:
    table = pd.read_csv(PUBLISHED / name)
    return table.assign(measure=table["metric"].map(lambda short: COLUMNS[short.lower()]))


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse(read_results(PUBLISHED / "dalleimg_0.2.csv"), "simula_rp", resamples=0)


def test_friedman(analysis):
    both = published("friedman_dalleimg_0.2.csv").merge(analysis.friedman, on="measure")
    assert len(both) == 6
    assert (both["images"] == 143).all()
    assert (both["models"] == 6).all()
    np.testing.assert_allclose(both["statistic"], both["Friedman_statistic"], rtol=1e-12)


def test_wilcoxon_and_effect_sizes(analysis):
    expected = published("wilcoxon_dalleimg_0.2.csv").rename(
        columns={"Model_1": "first", "Model_2": "second"}
    )
    both = expected.merge(analysis.pairs, on=["measure", "first", "second"], suffixes=("_published", ""))
    assert len(both) == 90
    np.testing.assert_allclose(both["p_holm"], both["p_value"], atol=1e-12, rtol=1e-9)
    np.testing.assert_allclose(both["rbc"], both["rbc_value"], atol=1e-12)
    np.testing.assert_allclose(both["effect_r"], both["r_value"], atol=1e-12)
    np.testing.assert_allclose(both["md"], both["MD_value"], atol=1e-12, rtol=1e-9)
    assert both["band"].tolist() == both["rbc_published"].tolist()


def test_spearman(analysis):
    expected = published("spearman_dalleimg_0.2.csv").rename(columns={"Model": "model"})
    both = expected.merge(analysis.correlations, on=["measure", "model"])
    assert len(both) == 30
    np.testing.assert_allclose(both["rho"], both["spearman_statistic_value"], atol=1e-12)
    np.testing.assert_allclose(both["p_holm"], both["spearman_p_value"], atol=1e-12, rtol=1e-9)
    np.testing.assert_allclose(both["pearson"], both["pearson_statistic"], atol=1e-12)
    np.testing.assert_allclose(both["pearson_p_holm"], both["pearson_p_value"], atol=1e-12, rtol=1e-9)
    assert both["rho"].isna().sum() == 4


def test_best_models_of_one_condition(analysis):
    sets = pd.read_csv(PUBLISHED / "best_sets.csv")
    row = sets[(sets["dataset"] == "dalleimg") & (sets["dropout_rate"] == 0.2)].iloc[0]
    ours = analysis.best.set_index("dataset").loc["all"]
    shorts = ["mAP", *(m.short for m in UNCERTAINTY)]
    assert {s: ours[COLUMNS[s.lower()]] for s in shorts} == {s: row[s] for s in shorts}


@pytest.mark.parametrize(
    ("file", "dataset", "rate", "images"),
    [("sdimg_0.2.csv", "sdimg", 0.2, 148), ("rs_origimg_0.3.csv", "origimg", 0.3, 137)],
)
def test_the_best_models_of_other_conditions_and_of_robustness_scores(file, dataset, rate, images):
    found = analyse(read_results(PUBLISHED / file), "simula_rp", resamples=0)
    assert (found.friedman["images"] == images).all()
    sets = pd.read_csv(PUBLISHED / "best_sets.csv")
    row = sets[(sets["dataset"] == dataset) & (sets["dropout_rate"] == rate)].iloc[0]
    ours = found.best.set_index("dataset").loc["all"]
    shorts = [name for name in row.index[2:] if COLUMNS[name.lower()] in ours.index]
    assert len(shorts) == (6 if dataset == "sdimg" else 2)
    assert {short: ours[COLUMNS[short.lower()]] for short in shorts} == {s: row[s] for s in shorts}
    if (
        dataset == "sdimg"
    ):  # the p value that the package names, of a test whose pairs it compares all the same
        p = found.friedman.set_index("measure")["p"]["variation_ratio"]
        assert p == pytest.approx(0.549, abs=5e-4)


def test_a_folder_of_the_replication_package_is_read_and_pooled(tmp_path):
    names = {"mAP": "MAP", "VR": "UQ[VR]", "SE": "UQ[IE]", "MI": "UQ[MI]", "TV": "UQ[TR]", "PS": "UQ[PS]"}
    both = []
    for dataset in ("dalleimg", "sdimg"):
        table = pd.read_csv(PUBLISHED / f"{dataset}_0.2.csv")
        both.append(table.assign(dataset=dataset, dropout=0.2))
        for model, rows in table.groupby("model"):
            (tmp_path / model).mkdir(exist_ok=True)
            log = rows.drop(columns="model").rename(columns=names).assign(image=range(len(rows)))
            log["image_name"] = f"dataset/{dataset}/org/" + log["image_name"]
            log.loc[len(table)] = {"image_name": "mean"}
            log.to_csv(tmp_path / model / f"logs_0.2_{dataset}-org.csv", index=False)
            attacked = log.assign(MAP=0.0)
            attacked.to_csv(tmp_path / model / f"logs_0.2_{dataset}-adv_run_10.csv", index=False)
    pd.concat(both).to_csv(tmp_path / "both.csv", index=False)
    expected = analyse(read_results(tmp_path / "both.csv"), "simula_rp", resamples=0)
    logs = read_results(tmp_path)
    assert set(logs["variant"]) == {"clean", "adv-09"}
    found = analyse(logs, "simula_rp", resamples=0)
    assert len(expected.pooled) == 30
    for name, table in expected.tables().items():
        pd.testing.assert_frame_equal(found.tables()[name], table)
    with pytest.raises(InvalidInput, match="expected MODEL/logs_RATE_DATASET-org"):
        read_results(tmp_path / "ssd300_vgg16")


def test_table_3():
    sets = pd.read_csv(PUBLISHED / "best_sets.csv")
    rows = [
        {
            "dataset": r["dataset"],
            "dropout_rate": r["dropout_rate"],
            "measure": COLUMNS[short.lower()],
            "model": m,
            "tier": 1,
        }
        for _, r in sets.iterrows()
        for short in sets.columns[2:]
        for m in (MODELS[int(name[1]) - 1] for name in r[short].split("/"))
    ]
    table = best_models(pd.DataFrame(rows)).set_index("dataset")
    table.columns = [BY_NAME[name].short for name in table.columns]
    every = "/".join(f"M{n}" for n in range(1, 7))
    assert table.loc["origimg"].tolist() == [
        "M1/M2/M4",
        "M1/M2/M5/M6",
        "M1/M4",
        "M4",
        "M4",
        "M4",
        "M1/M4",
        "M4",
    ]
    assert table.loc["dalleimg"].tolist() == ["M2", every, "M4", "M4", "M4", "M4", "M2", "M4"]
    assert table.loc["sdimg"].tolist() == ["M2", every, "M4", "M4", "M4", "M4", "M2", "M4"]
    assert table.loc["recommended"].tolist() == ["M2", "M1/M2/M5/M6", "M4", "M4", "M4", "M4", "M2", "M4"]


def test_command_writes_the_tables(tmp_path):
    options = ["--results", str(PUBLISHED / "dalleimg_0.2.csv"), "--profile", "simula_rp", "--resamples", "0"]
    done = CliRunner().invoke(app, ["statistics", *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    pairs = pd.read_csv(tmp_path / "out" / "pairs.csv")
    assert len(pairs) == 90
    pair = pairs[(pairs["measure"] == "map") & (pairs["second"] == "ssdlite320_mobilenet_v3_large")].iloc[0]
    assert pair["p_holm"] == pytest.approx(2.0506973440544096e-17, rel=1e-9)
    assert not (tmp_path / "out" / "robustness.csv").exists()
    assert "M2" in done.output


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("image,model,mAP\na,x,1\n", ["--profile", "best"], "'best' is not one of 'paper'"),
        ("image,mAP\na,1\n", [], "has no column 'model'"),
        ("image,model\na,x\n", [], "has none of the columns"),
        ("image,model,mAP\na,x,good\n", [], "map 'good': expected a number"),
        ("image,model,mAP\na,x,1\na,x,0\n", [], "image 'a' of model 'x' occurs more than once"),
    ],
)
def test_bad_input_is_named(tmp_path, content, options, said):
    (tmp_path / "r.csv").write_text(content)
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["statistics", "--results", str(tmp_path / "r.csv"), "--out", str(out), *options]
    )
    assert done.exit_code != 0
    assert said in f"{done.exception} {done.output}"
    assert not out.exists()

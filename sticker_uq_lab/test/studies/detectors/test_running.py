# SPDX-License-Identifier: Apache-2.0
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.evaluation import executors
from sticker_uq.io.json_store import JsonStore
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.attacks.white_box import DagSettings
from sticker_uq_lab.cli.study import app
from sticker_uq_lab.studies.detectors.study_plan import ModelChoice, StudyData, StudySettings
from sticker_uq_lab.studies.detectors.study_report import write_report
from sticker_uq_lab.studies.detectors.study_run import CELLS, Study, run_study

TIMINGS = ("encode_ms", "look_ms", "decode_ms")
"""Columns of the results that another run does not repeat."""

MODEL = "ssdlite320_mobilenet_v3_large"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Two small scenes with stickers."""
    root = tmp_path_factory.mktemp("data") / "scenes"
    return rendered(root, (1, 2), (240, 180), "png", stickers=lambda seed: 3 - seed)


def settings(data: Path, **values) -> StudySettings:
    plain = {
        "models": (ModelChoice.parse(MODEL), ModelChoice.parse(f"other:{MODEL}")),
        "datasets": (StudyData.parse(f"lids={data}"),),
        "rates": (0.1, 0.3),
        "passes": 3,
        "adversarial": 1,
        "attack": DagSettings(iterations=2, gamma=8.0),
        "device": "cpu",
    }
    return StudySettings.model_validate(plain | values)


class Spy:
    """Executes here, in the reverse order, and notes every task; stops as a killed process would after ``most``."""

    def __init__(self, most: int = 10_000) -> None:
        self.tasks: list = []
        self._most = most

    def __call__(self, perform, tasks):
        for task in reversed(tasks):
            if len(self.tasks) >= self._most:
                raise KeyboardInterrupt
            self.tasks.append(task)
            yield perform(task)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> tuple[Study, Path]:
    """The study of the command, in two processes, which only says that it needs them: the second would only cost its start."""
    pools, folder = [], tmp_path_factory.mktemp("study") / "out"

    class Pool(executors.WorkerPool):
        def __init__(self, processes, *arguments) -> None:
            pools.append(processes)
            super().__init__(1, *arguments)

    options = (
        f"--data lids={data} --model {MODEL} --model other:{MODEL} --rates 0.1,0.3 --passes 3 --adversarial 1"
    )
    options += " --iterations 2 --gamma 8 --jobs 2 --resamples 50 --device cpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "WorkerPool", Pool)
        done = CliRunner().invoke(app, [*options.split(), "--out", str(folder)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert pools == [2], "attacks and cells share their processes"
    return Study.load(folder), folder


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    timings = [name for name in TIMINGS if name in one]
    pd.testing.assert_frame_equal(one.drop(columns=timings), other.drop(columns=timings), check_exact=True)


def test_every_cell_has_its_row(finished):
    study, folder = finished
    images = study.images
    assert len(images) == 2 * 2 * (2 + 2)
    assert set(images["variant"]) == {"clean", "adv-00"}
    assert images["map"].between(0, 1).all()
    assert len(study.attacks) == 4
    assert (study.attacks["rms"] > 0).all()
    assert len(list(folder.glob("adversarial/*/lids/adv-00/*.png"))) == 4
    assert (images.loc[images["clusters"] == 0, "shannon_entropy"].isna()).all()
    for _, rows in images[images["variant"] == "clean"].groupby(["model", "image"]):
        assert rows["encode_ms"].nunique() == 1, "one encode serves all rates"
        assert rows["dropout_rate"].tolist() == [0.1, 0.3]


def test_attacks_are_shown_to_the_other_models_from_the_same_pictures(finished, data, tmp_path):
    shutil.copytree(finished[1], tmp_path / "s")
    weak = f"weak:{MODEL}@96"
    models = f"--model {MODEL} --model other:{MODEL} --model {weak} --transfer"
    options = (
        f"--data lids={data} {models} --rates 0.1,0.3 --passes 3 --adversarial 1 --iterations 2 --gamma 8"
    )
    done = CliRunner().invoke(
        app, [*options.split(), "--resamples", "0", "--device", "cpu", "--out", str(tmp_path / "s")]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    found = Study.load(tmp_path / "s")
    names = [MODEL, "other", "weak"]
    variants = {"clean", "adv-00", *(f"from {name}" for name in names)}
    assert set(found.images["variant"]) == variants
    table = pd.read_csv(tmp_path / "s" / "tables" / "transfer.csv").set_index("attacked")
    assert table.index.tolist() == ["none", *names]
    images = found.images[found.images["dropout_rate"] == 0.1].set_index(["variant", "model"])["map"]
    assert table.loc["none", "weak"] == images["clean", "weak"].mean()
    assert table.loc["weak", "weak"] == images["adv-00", "weak"].mean()
    assert table.loc["weak", MODEL] == images["from weak", MODEL].mean()
    # one architecture with one set of weights under two names is attacked alike, and sees alike
    assert table.loc[MODEL, "other"] == table.loc[MODEL, MODEL]
    assert "Whose attack breaks whom" in (tmp_path / "s" / "summary.md").read_text()
    kept = found.images[found.images["variant"].isin(["clean", "adv-00"]) & (found.images["model"] != "weak")]
    same(kept.reset_index(drop=True), finished[0].images)
    with pytest.raises(ValueError, match="--transfer: expected attacks"):
        settings(data, transfer=True, adversarial=0)


def test_a_killed_run_goes_on_and_order_does_not_matter(finished, data, tmp_path):
    alone = settings(data, models=(ModelChoice.parse(MODEL),))
    first = Spy(most=3)
    with pytest.raises(KeyboardInterrupt):
        run_study(alone, tmp_path / "s", first)
    second = Spy()
    study = run_study(alone, tmp_path / "s", second)
    assert len(first.tasks) == 3
    assert len(second.tasks) == 2 + 4 - 3
    for found, whole in ((study.images, finished[0].images), (study.objects, finished[0].objects)):
        same(found.reset_index(drop=True), whole[whole["model"] == MODEL].reset_index(drop=True))
    third = Spy()
    other = settings(data, models=alone.models, rates=(0.1, 0.2, 0.3))
    grown = run_study(other, tmp_path / "s", third)
    assert {task.rates for task in third.tasks} == {(0.2,)}, "another rate computes only that"
    assert sorted(grown.images["dropout_rate"].unique()) == [0.1, 0.2, 0.3]
    fourth = Spy()
    run_study(other, tmp_path / "s", fourth)
    assert fourth.tasks == []


def test_a_study_is_reported_and_selected_from_in_any_folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(data.parent)
    assert StudyData.parse(f"lids={data.name}").folder == data
    choice = ModelChoice.parse(f"{MODEL}=weights/best.safetensors@128")
    assert (choice.weights, choice.min_size) == (str(data.parent / "weights" / "best.safetensors"), 128)


def test_the_report_needs_nothing_else(finished):
    out = finished[1]
    html = (out / "report.html").read_text()
    assert len(html) < 10_000_000
    assert not re.search(r"""(src|href)=["']?http""", html)
    assert "<svg" in html
    summary = (out / "summary.md").read_text()
    assert "lids" in summary
    assert "| mAP ↑ | SE, bit ↓ |" in summary
    means = pd.read_csv(out / "tables" / "means.csv")
    images = pd.read_parquet(out / "images.parquet")
    clean = images[
        (images["variant"] == "clean") & (images["dropout_rate"] == 0.3) & (images["model"] == MODEL)
    ]
    told = means[
        (means["measure"] == "map") & (means["dropout_rate"] == 0.3) & (means["model"] == MODEL)
    ].iloc[0]
    assert told["mean"] == pytest.approx(clean["map"].mean())
    assert not pd.read_csv(out / "tables" / "robustness_scores.csv").empty


def test_a_report_of_no_object_and_of_a_name_that_cannot_leave_its_place(finished, tmp_path):
    found = finished[0]
    evil = "</h3><script>document.title='owned'</script>"
    models = (found.settings.models[0], found.settings.models[1].model_copy(update={"label": evil}))
    named = {name: getattr(found, name).replace({"other": evil}) for name in ("images", "objects", "attacks")}
    settings = found.settings.model_copy(update={"models": models})
    write_report(replace(found, settings=settings, **named), tmp_path, resamples=0)
    assert "<script" not in (tmp_path / "report.html").read_text()
    assert "| other |" in write_report(replace(found, objects=found.objects[:0]), tmp_path, resamples=0)


def test_two_images_of_one_name_are_refused(data, tmp_path):
    document = (data / "annotations.json").read_text()
    twice = tmp_path / "twice"
    (twice / "a").mkdir(parents=True)
    for name in ("images/00000001.png", "images/00000002.png"):
        target = twice / ("a/00000001.png" if name.endswith("2.png") else "00000001.png")
        target.write_bytes((data / name).read_bytes())
    changed = document.replace("images/00000001.png", "00000001.png").replace(
        "images/00000002.png", "a/00000001.png"
    )
    (twice / "annotations.json").write_text(changed)
    with pytest.raises(InvalidInput, match=r"two images are called 00000001\.png"):
        run_study(settings(twice), tmp_path / "s", Spy())


def test_a_store_is_a_store(tmp_path):
    (tmp_path / CELLS).write_bytes(b"not a database at all, but long enough to look like a file" * 40)
    with pytest.raises(InvalidInput, match="expected a file of stored results"):
        JsonStore(tmp_path / CELLS)
    with pytest.raises(InvalidInput, match=r"cells.*: .*File exists.*; expected a file of stored results"):
        JsonStore(tmp_path / CELLS / "below")
    with JsonStore(tmp_path / "new") as store:
        store.put({"a": {"x": float("nan")}})
        assert "a" in store
        assert np.isnan(store.get("a")["x"])
        assert "b" not in store
        store._file.execute("INSERT INTO kept VALUES ('c', 'damaged')")
        store._file.execute("PRAGMA query_only = 1")  # as a file on a read-only disk
        for use in (partial(store.get, "c"), partial(store.put, {"b": 1})):
            with pytest.raises(InvalidInput, match=r"new: .*; expected a file of stored results"):
                use()

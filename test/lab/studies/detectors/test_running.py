# SPDX-License-Identifier: Apache-2.0
import json
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from builtin_interfaces.msg import Time
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header
from typer.testing import CliRunner

from sticker_uq.cli.study import app
from sticker_uq.dil import saliency
from sticker_uq.evaluation import executors
from sticker_uq.evaluation.executors import executor
from sticker_uq.io.bag_writer import BagWriter
from sticker_uq.io.coco import read_coco, read_picture, write_coco
from sticker_uq.io.json_store import JsonStore
from sticker_uq.lab.attacks.dag import DagSettings
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.lab.studies.detectors import study_tasks
from sticker_uq.lab.studies.detectors.study_plan import (
    ModelChoice,
    StudyCircumstance,
    StudyData,
    StudySettings,
)
from sticker_uq.lab.studies.detectors.study_run import CELLS, Study, labelled_images, run_study, with_topics
from sticker_uq.lab.studies.detectors.summaries import attack_table, circumstance_table
from sticker_uq.scene import InvalidInput, ObjectClass
from test.helpers.simulated_gpu import simulated_gpu

TIMINGS = ("encode_ms", "look_ms", "decode_ms")
"""Columns of the results that another run does not repeat."""

MODEL = "ssdlite320_mobilenet_v3_large"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Two small scenes with stickers and a picture of nothing but lid."""
    root = tmp_path_factory.mktemp("data") / "scenes"
    made = [
        (seed, render(sample_scene(seed, stickers=count), (240, 180))) for seed, count in ((1, 2), (2, 1))
    ]
    write_coco(root, (encode_scene(seed, scene, "png") for seed, scene in made))
    return root


def settings(data: Path, **values) -> StudySettings:
    plain = {
        "models": (ModelChoice.parse(MODEL), ModelChoice.parse(f"other:{MODEL}")),
        "datasets": (StudyData.parse(str(data)),),
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
    folder = tmp_path_factory.mktemp("study")
    with executor(1) as execute:
        return run_study(settings(data), folder, execute), folder


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    timings = [name for name in TIMINGS if name in one]
    pd.testing.assert_frame_equal(one.drop(columns=timings), other.drop(columns=timings), check_exact=True)


def test_every_cell_has_its_row(finished) -> None:
    study, folder = finished
    images = study.images
    # clean, adv-00 and the attack on the other model, at the first rate only
    assert len(images) == 2 * 2 * (2 + 2 + 1)
    assert set(images["variant"]) == {"clean", "adv-00", f"from {MODEL}", "from other"}
    assert images["map"].between(0, 1).all()
    assert len(study.attacks) == 4
    assert (study.attacks["rms"] > 0).all()
    assert len(list(folder.glob("adversarial/*/scenes/adv-00/*.png"))) == 4
    assert (images.loc[images["clusters"] == 0, "shannon_entropy"].isna()).all()
    same(Study.load(folder).images, images)


def test_one_encode_serves_all_rates(finished, data) -> None:
    images = finished[0].images
    for _, rows in images[images["variant"] == "clean"].groupby(["model", "image"]):
        assert rows["encode_ms"].nunique() == 1
        assert rows["dropout_rate"].tolist() == [0.1, 0.3]


def test_a_killed_run_goes_on_and_order_does_not_matter(finished, data, tmp_path) -> None:
    first = Spy(most=7)
    with pytest.raises(KeyboardInterrupt):
        run_study(settings(data), tmp_path / "s", first)
    second = Spy()
    study = run_study(settings(data), tmp_path / "s", second)
    assert len(first.tasks) == 7
    assert len(second.tasks) == 4 + 12 - 7
    same(study.images, finished[0].images)
    same(study.objects, finished[0].objects)
    third = Spy()
    run_study(settings(data), tmp_path / "s", third)
    assert third.tasks == []


def test_a_gpu_has_the_results_of_the_processor(data, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(saliency, "objectness_gradients", lambda d: [torch.ones_like(m) for m in d.maps])
    values = {"models": (ModelChoice.parse(MODEL),), "adversarial": 0}
    processor = run_study(settings(data, **values), tmp_path / "processor", Spy())
    study_tasks._detectors.cache_clear()
    with simulated_gpu():
        found = run_study(settings(data, **values | {"device": "cuda"}), tmp_path / "gpu", Spy())
    study_tasks._detectors.cache_clear()
    assert found.images["image"].tolist() == processor.images["image"].tolist()
    np.testing.assert_allclose(found.images["map"], processor.images["map"], atol=0.02)


def test_another_rate_computes_only_that(finished, data, tmp_path) -> None:
    alone = (ModelChoice.parse(MODEL),)
    run_study(settings(data, models=alone, adversarial=0), tmp_path / "s", Spy())
    spy = Spy()
    study = run_study(settings(data, models=alone, adversarial=0, rates=(0.1, 0.2, 0.3)), tmp_path / "s", spy)
    assert [task.rates for task in spy.tasks] == [(0.2,), (0.2,)]
    assert sorted(study.images["dropout_rate"].unique()) == [0.1, 0.2, 0.3]


def test_a_circumstance_changes_the_picture_and_its_labels(data, tmp_path) -> None:
    plan = settings(
        data,
        models=(ModelChoice.parse(MODEL),),
        adversarial=0,
        rates=(0.1,),
        circumstances=(StudyCircumstance.parse("defocus=4"),),
    )
    images = run_study(plan, tmp_path / "s", Spy()).images.set_index(["variant", "image"])
    assert set(images.index.get_level_values(0)) == {"clean", "defocus=4"}
    assert (images.loc["clean", "dil"] != images.loc["defocus=4", "dil"]).all()


def test_patches_lie_on_stickers_and_are_counted(data, tmp_path) -> None:
    alone = (ModelChoice.parse(MODEL),)
    plan = settings(data, models=alone, adversarial=0, rates=(0.1,), patches=2, patch_steps=2)
    study = run_study(plan, tmp_path / "s", Spy())
    assert set(study.images["variant"]) == {"clean", "patch-00", "patch-01"}
    assert study.attacks["targets"].between(1, 2).all()
    assert (study.attacks["fooled"] <= study.attacks["targets"]).all()
    for item in read_coco(data):
        clean = read_picture(item)
        stickers = np.zeros(clean.shape[:2], bool)
        for x1, y1, x2, y2 in item.boxes[item.labels == ObjectClass.STICKER].astype(int):
            stickers[max(y1 - 3, 0) : y2 + 4, max(x1 - 3, 0) : x2 + 4] = True
        places = [
            next((tmp_path / "s").glob(f"adversarial/*/*/patch-0{n}/{item.path.stem}-*.png")) for n in (0, 1)
        ]
        changed = [(cv2.imread(str(place)) != clean).any(axis=2) for place in places]
        assert all(one.any() and not one[~stickers].any() for one in changed)
        assert (cv2.imread(str(places[0])) != cv2.imread(str(places[1]))).any(), "another seed, another patch"
    shown = circumstance_table(study)
    assert set(shown["variant"]) == {"clean", "patch"}
    assert attack_table(study)["attack"].tolist() == ["patch"]
    spy = Spy()
    run_study(plan, tmp_path / "s", spy)
    assert spy.tasks == []


def record(bag: Path, data: Path, topic: str = "/image/compressed", other: str = "") -> dict:
    """A recording of the pictures of ``data`` with their labels, which are returned; ``other``: a topic of black pictures."""
    topics = [topic, *([other] if other else [])]
    black = cv2.imencode(".png", np.zeros((180, 240, 3), np.uint8))[1].tobytes()
    with BagWriter(bag) as writer:
        for name in topics:
            writer.add_topic(name, "sensor_msgs/msg/CompressedImage")
        for number, item in enumerate(read_coco(data)):
            for name in topics:
                picture = item.path.read_bytes() if name == topic else black
                message = CompressedImage(
                    header=Header(stamp=Time(sec=number + 1)), format="png", data=picture
                )
                writer.write(name, 10**9 * (number + 1), serialize_message(message))
    document = json.loads((data / "annotations.json").read_text())
    for number, entry in enumerate(document["images"]):
        entry["file_name"] = f"{number:06d}.jpg"
    (bag / "annotations.json").write_text(json.dumps(document))
    return document


def test_a_labelled_recording_is_a_data_set(data, tmp_path) -> None:
    """The same pictures give the same results, whether they lie in a folder or in a recording."""
    bag = tmp_path / "bag"
    document = record(bag, data)
    both = (StudyData.parse(f"lids={data}"), StudyData.parse(f"recorded={bag}"))
    plan = settings(data, datasets=both, models=(ModelChoice.parse(MODEL),), adversarial=0, rates=(0.1,))
    images = run_study(plan, tmp_path / "s", Spy()).images.drop(columns=["image", *TIMINGS])
    lids, recorded = (
        images[images["dataset"] == name].drop(columns="dataset") for name in ("lids", "recorded")
    )
    pd.testing.assert_frame_equal(lids.reset_index(drop=True), recorded.reset_index(drop=True))
    document["images"][0]["width"] += 1
    (bag / "annotations.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="000000 is labelled as 241x180, but recorded as 240x180"):
        run_study(plan, tmp_path / "s", Spy())


def test_a_study_is_reported_and_selected_from_in_any_folder(data, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(data.parent)
    assert StudyData.parse(f"lids={data.name}").folder == data
    choice = ModelChoice.parse(f"{MODEL}=weights/best.safetensors@128")
    assert (choice.weights, choice.min_size) == (str(data.parent / "weights" / "best.safetensors"), 128)


def test_the_topic_of_a_recording_is_named(data, tmp_path) -> None:
    record(tmp_path / "two", data, "/left/compressed", "/right/compressed")
    record(tmp_path / "one", data)
    sets = tuple(StudyData.parse(f"{name}={tmp_path / name}") for name in ("two", "one"))
    lids = StudyData.parse(f"lids={data}")
    with pytest.raises(
        InvalidInput, match=r"choose one image topic with --topic; .* /left/compressed, /right"
    ):
        labelled_images(sets[0], tmp_path / "s")
    found = with_topics((*sets, lids), ("two=left/compressed", "image/compressed"))
    assert [one.topic for one in found] == ["left/compressed", "image/compressed", ""]
    seen = {one.name: [read_picture(item) for item in labelled_images(one, tmp_path / "s")] for one in found}
    for left, only, clean in zip(seen["two"], seen["one"], seen["lids"], strict=True):
        assert (left == clean).all()
        assert (only == clean).all()
    (black, _) = labelled_images(*with_topics(sets[:1], ["/right/compressed"]), tmp_path / "s")
    assert not read_picture(black).any()


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (["lids=/image"], r"--topic 'lids=/image': expected \[NAME=\]TOPIC, NAME a recording .* \(bag\)"),
        (["bag="], r"--topic 'bag=': expected"),
        (["bag=/a", "bag=/b"], "--topic 'bag=/b': expected one topic, /a is given already"),
        (["/a", "/b"], "--topic '/b': expected one topic, /a is given already"),
    ],
)
def test_a_topic_that_cannot_be_meant_is_refused(data, tmp_path, topics, said) -> None:
    (tmp_path / "bag").mkdir()
    (tmp_path / "bag" / "metadata.yaml").touch()
    sets = (StudyData.parse(f"lids={data}"), StudyData.parse(f"bag={tmp_path / 'bag'}"))
    with pytest.raises(InvalidInput, match=said):
        with_topics(sets, topics)
    with pytest.raises(InvalidInput, match=r"\(none\)"):
        with_topics(sets[:1], topics)


def test_the_command_writes_a_report_that_needs_nothing_else(data, tmp_path, monkeypatch) -> None:
    pools = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, processes, *arguments) -> None:
            pools.append(processes)
            super().__init__(1, *arguments)  # the second process would only cost its start

    monkeypatch.setattr(executors, "ProcessPoolExecutor", Pool)
    out = tmp_path / "out"
    options = [
        "--data",
        f"lids={data}",
        "--model",
        MODEL,
        "--rates",
        "0.1,0.3",
        "--passes",
        "3",
        "--adversarial",
        "1",
    ]
    options += ["--iterations", "2", "--gamma", "8", "--jobs", "2", "--resamples", "50", "--device", "cpu"]
    done = CliRunner().invoke(app, [*options, "--out", str(out)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert pools == [2], "attacks and cells share their processes"
    html = (out / "report.html").read_text()
    assert len(html) < 10_000_000
    assert not re.search(r"""(src|href)=["']?http""", html)
    assert "<svg" in html
    assert "lids" in (out / "summary.md").read_text()
    means = pd.read_csv(out / "tables" / "means.csv")
    images = pd.read_parquet(out / "images.parquet")
    clean = images[(images["variant"] == "clean") & (images["dropout_rate"] == 0.3)]
    told = means[(means["measure"] == "map") & (means["dropout_rate"] == 0.3)].iloc[0]
    assert told["mean"] == pytest.approx(clean["map"].mean())
    assert not pd.read_csv(out / "tables" / "robustness_scores.csv").empty


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--data is missing"),
        (["--data", "DATA", "--model", "yolo"], "model 'yolo': expected [LABEL:]MODEL"),
        (["--data", "DATA", "--rates", "a"], "--rates 'a': expected numbers"),
        (["--data", "DATA", "--rates", "0.1,0.1"], "two rates are called '0.1'"),
        (["--data", "DATA", "--rates", "1.5"], "dropout rate 1.5: expected 0 to 0.9"),
        (["--data", "DATA", "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["--data", "DATA", "--circumstance", "fog=1"], "transformation 'fog'"),
        (["--data", "DATA", "--passes", "1"], "--passes 1"),
        (["--data", "DATA", "--topic", "/image"], "--topic '/image': expected [NAME=]TOPIC"),
        (["--data", "DATA", "--model", "ssd300_vgg16"], "no packaged weights of model 'ssd300_vgg16'"),
    ],
)
def test_bad_options_are_named(data, tmp_path, options, said) -> None:
    given = [str(data) if part == "DATA" else part for part in options]
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert said in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_two_images_of_one_name_are_refused(data, tmp_path) -> None:
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


def test_a_store_is_a_store(tmp_path) -> None:
    (tmp_path / CELLS).write_bytes(b"not a database at all, but long enough to look like a file" * 40)
    with pytest.raises(InvalidInput, match="expected a file of stored results"):
        JsonStore(tmp_path / CELLS)
    with JsonStore(tmp_path / "new") as store:
        store.put({"a": {"x": float("nan")}})
        assert "a" in store
        assert np.isnan(store.get("a")["x"])
        assert "b" not in store

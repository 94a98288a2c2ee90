# SPDX-License-Identifier: Apache-2.0
"""What to label next: uncertain, novel and different pictures first; and boxes to be corrected."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.cell.bundle import create_bundle
from sticker_uq.cli import app
from sticker_uq.evaluation.metrics.matching import overlapping
from sticker_uq.io.coco import EncodedScene, encode_picture, read_coco, read_picture, write_coco
from sticker_uq.io.share import share_folder
from sticker_uq.lab.datasets.suggesting import PoolPicture, scores_of, signals_of, suggested
from sticker_uq.lab.rendering import encode_scene, render, sample_scene
from sticker_uq.perception import PerceptionSettings
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.scenes import assessment, observed
from test.helpers.recordings import declare_more, record

pytestmark = pytest.mark.usefixtures("one_thread")


def pictures(*values: tuple[float, tuple[float, ...]]) -> list[PoolPicture]:
    return [
        PoolPicture(str(number), {"shannon_entropy": doubt, "novelty": math.nan}, np.array(features))
        for number, (doubt, features) in enumerate(values)
    ]


def test_the_most_uncertain_comes_first_and_its_like_late() -> None:
    twins = [(0.9, (0.0, 0.0)), (0.8, (0.0, 0.1)), (0.7, (5.0, 0.0)), (0.6, (5.0, 5.0)), (0.1, (1.0, 1.0))]
    chosen = suggested(pictures(*twins), 5)
    assert [one.picture.name for one in chosen] == ["0", "2", "3", "1", "4"]
    assert math.isnan(chosen[0].distance)
    assert chosen[2].distance > chosen[3].distance > 0
    assert chosen[0].score == 1.0


def test_sure_pictures_come_last_however_far_they_are() -> None:
    pool = pictures((0.0, (100.0, 100.0)), *((0.5 + 0.01 * n, (n, 0.0)) for n in range(10)))
    assert "0" not in {one.picture.name for one in suggested(pool, 10)}
    assert "0" in {one.picture.name for one in suggested(pool, 11)}


def test_what_is_like_a_labelled_picture_comes_last() -> None:
    pool = pictures((0.9, (0.0, 0.0)), (0.8, (3.0, 0.0)), (0.7, (3.0, 9.0)), (0.1, (3.0, 3.0)))
    chosen = suggested(pool, 4, [np.array([0.0, 0.0])])
    assert [one.picture.name for one in chosen] == ["1", "2", "3", "0"]
    assert chosen[3].distance == 0.0


def test_pictures_of_a_rare_kind_are_found_though_they_are_alike() -> None:
    rng = np.random.default_rng(0)
    many = [(float(rng.uniform(0, 0.7)), tuple(rng.normal(0, 1, 16))) for _ in range(170)]
    few = [(float(rng.uniform(0.5, 1)), tuple(rng.normal(0, 0.7, 16))) for _ in range(30)]
    rare = {str(number) for number in range(170, 200)}
    for count in (10, 20, 40):
        names = [one.picture.name for one in suggested(pictures(*many, *few), count)]
        # by chance 15 %, and the farthest pictures are the others
        assert len(rare & set(names)) >= 0.3 * count


def test_without_signals_the_farthest_pictures_are_chosen() -> None:
    pool = [PoolPicture(str(n), {}, np.array([at])) for n, at in enumerate((0.0, 1.0, 10.0, 4.0))]
    chosen = suggested(pool, 3, [np.array([0.0])])
    assert [one.picture.name for one in chosen] == ["2", "3", "1"]


def test_a_signal_that_was_not_measured_everywhere_says_nothing() -> None:
    pool = pictures((0.1, (0.0, 0.0)), (0.2, (0.0, 0.0)), (0.3, (0.0, 0.0)))
    pool[0].signals["novelty"] = 1.0
    assert scores_of(pool).tolist() == [0.0, 0.5, 1.0]
    for one, distance in zip(pool, (9.0, 0.2, 0.1), strict=True):
        one.signals["scene_distance"] = distance
    assert scores_of(pool).tolist() == [1.0, 0.5, 1.0]
    with pytest.raises(InvalidInput, match="no picture of the pool can be assessed"):
        suggested([], 3)


def test_the_signals_are_those_of_the_most_doubtful_object() -> None:
    box = (0.0, 0.0, 40.0, 40.0)
    sure, unsure = (observed(box, shannon_entropy=e, mutual_information=e / 2) for e in (0.1, 0.9))
    signals = signals_of(assessment(sure, unsure))
    assert (signals["shannon_entropy"], signals["mutual_information"]) == (0.9, 0.45)
    assert signals_of(assessment())["shannon_entropy"] == 0.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rendered laptops, a copy of the first, a picture of noise, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("pool")
    for seed in range(4):
        (folder / f"lid_{seed}.png").write_bytes(
            encode_scene(seed, render(sample_scene(seed, stickers=2), (480, 360)), "png").data
        )
    (folder / "copy.png").write_bytes((folder / "lid_0.png").read_bytes())
    noise = np.random.default_rng(0).integers(0, 255, (360, 480, 3), np.uint8)
    (folder / "noise.png").write_bytes(encode_picture(noise, "png"))
    (folder / "text.png").write_text("no picture")
    return folder


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["dataset", *map(str, arguments)])


def test_suggestions_are_novel_and_different(pool: Path, tmp_path: Path) -> None:
    out = tmp_path / "next.csv"
    result = run(
        "suggest", pool, "--count", 5, "--out", out, "--passes", 4, "--device", "cpu", "--threads", 1
    )
    assert result.exit_code == 0, result.output
    assert "left out text.png" in result.output
    with out.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 5
    names = [row["picture"] for row in rows]
    assert "noise.png" in names[:2]
    # of the picture and its copy, one adds nothing
    assert len({"lid_0.png", "copy.png"} & set(names)) == 1
    assert all(0 <= float(row["score"]) <= 1 for row in rows)
    assert float(next(row for row in rows if row["picture"] == "noise.png")["scene_distance"]) > 1


def test_boxes_to_be_corrected_fit_the_stickers(pool: Path, tmp_path: Path) -> None:
    result = run("prelabel", pool, "--out", tmp_path / "pre", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "6 pictures in" in result.output
    items = {item.path.stem: item for item in read_coco(tmp_path / "pre")}
    assert set(items) == {"lid_0", "lid_1", "lid_2", "lid_3", "copy", "noise"}
    found = there = 0
    for seed in range(4):
        scene, item = render(sample_scene(seed, stickers=2), (480, 360)), items[f"lid_{seed}"]
        np.testing.assert_array_equal(read_picture(item), scene.image)
        stickers = scene.boxes[scene.labels == 2]
        there += len(stickers)
        found += int(overlapping(stickers, item.boxes[item.labels == 2], 0.5).sum())
    assert found >= there - 1
    document = json.loads((tmp_path / "pre" / "annotations.json").read_text())
    assert "not labels yet" in document["info"]["description"]
    assert all(0.3 <= one["score"] <= 1 for one in document["annotations"])
    none = run("prelabel", pool / "text.png", "--out", tmp_path / "none")
    assert none.exit_code == 2
    assert not (tmp_path / "none").exists()
    strict = run("prelabel", pool, "--out", tmp_path / "strict", "--min-score", 0.99, "--device", "cpu")
    assert strict.exit_code == 0
    fewer = sum(len(item.boxes) for item in read_coco(tmp_path / "strict"))
    assert fewer < sum(len(item.boxes) for item in items.values())


def test_what_a_recording_has_lost_is_said_after_what_was_read(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole")
    assert run("prelabel", whole, "--out", tmp_path / "pre", "--device", "cpu").exit_code == 0
    declare_more(whole)
    (whole / "other.mcap").touch()
    for command, options in (
        ("frames", ()),
        ("prelabel", ("--device", "cpu")),
        ("suggest", ("--passes", 2, "--device", "cpu", "--threads", 1)),
    ):
        out = tmp_path / f"{command}_short"
        short = run(command, whole, "--out", out, *options)
        assert short.exit_code == 1, short.output
        assert "images are lost: 5 of 7 messages of /image/compressed can be read" in short.stderr
        assert f"{whole}: other.mcap is empty" in short.stderr
        assert out.exists()


def data_set(folder: Path, pool: Path) -> Path:
    """A COCO folder with lid_1 under its name, with other pixels, and noise under another name."""
    light = cv2.convertScaleAbs(cv2.imread(str(pool / "lid_1.png")), alpha=0.9)
    entries = ((light, "photos/lid_1.jpg"), (cv2.imread(str(pool / "noise.png")), "photos/other.png"))
    scenes = (
        EncodedScene(
            seed=number,
            format="png",
            data=encode_picture(image, "png"),
            width=480,
            height=360,
            boxes=np.zeros((0, 4), np.float32),
            labels=np.zeros(0, np.int64),
            image_fields={"source_name": name},
        )
        for number, (image, name) in enumerate(entries)
    )
    write_coco(folder, scenes)
    return folder


def test_what_is_labelled_already_is_left_out_by_its_name_or_its_pixels(pool: Path, tmp_path: Path) -> None:
    known, out = data_set(tmp_path / "known", pool), tmp_path / "next.csv"
    options = ["--labelled", known, "--device", "cpu"]
    suggestions = run("suggest", pool, "--out", out, "--passes", 2, "--threads", 1, *options)
    assert suggestions.exit_code == 0, suggestions.output
    assert "4 of 4 pictures in" in suggestions.output
    assert "2 were left out, they are labelled already" in suggestions.output
    with out.open() as stream:
        assert {row["picture"] for row in csv.DictReader(stream)} == {
            "lid_0.png",
            "lid_2.png",
            "lid_3.png",
            "copy.png",
        }
    boxes = run("prelabel", pool, "--out", tmp_path / "pre", *options)
    assert boxes.exit_code == 0, boxes.output
    assert {item.path.name for item in read_coco(tmp_path / "pre")} == {
        "lid_0.png",
        "lid_2.png",
        "lid_3.png",
        "copy.png",
    }
    for command, name in (("suggest", "none.csv"), ("prelabel", "none")):
        none = run(command, pool / "noise.png", "--out", tmp_path / name, *options)
        assert none.exit_code == 2
        assert "all its 1 pictures are labelled already" in none.output
        assert not (tmp_path / name).exists()


def test_pictures_keep_their_files_so_that_corrected_labels_fit_the_originals(
    pool: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    image = cv2.imread(str(pool / "lid_0.png"))
    (photos / "IMG_1.JPG").write_bytes(encode_picture(image, "jpg"))
    cv2.imwrite(str(photos / "IMG_2.bmp"), image)
    result = run("prelabel", photos, "--out", tmp_path / "pre", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "packaged weights are used" in result.output
    written = {item.path.name: item for item in read_coco(tmp_path / "pre")}
    assert {name: item.path.read_bytes() for name, item in written.items()} == {
        path.name: path.read_bytes() for path in photos.iterdir()
    }
    # its labels can be imported with the original pictures
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.json").write_text((tmp_path / "pre" / "annotations.json").read_text())
    given = ["--images", photos, "--class", "sticker=sticker", "--ignore", "rest"]
    back = run("import", tmp_path / "labels", *given, "--out", tmp_path / "back")
    assert back.exit_code == 0, back.output
    assert {item.source_name for item in read_coco(tmp_path / "back")} == {"IMG_1.JPG", "IMG_2.bmp"}
    other = run("prelabel", photos, "--out", tmp_path / "png", "--device", "cpu", "--format", "png")
    assert other.exit_code == 0, other.output
    assert {item.path.name for item in read_coco(tmp_path / "png")} == {"IMG_1.png", "IMG_2.png"}


def test_weights_and_settings_may_be_those_of_a_bundle(pool: Path, tmp_path: Path) -> None:
    settings = PerceptionSettings(passes=2, device="cpu", score_floor=0.6)
    create_bundle(tmp_path / "bundle", settings, share_folder() / "config" / "policy.yaml")
    options = ["--bundle", tmp_path / "bundle", "--device", "cpu"]
    boxes = run("prelabel", pool / "lid_0.png", "--out", tmp_path / "pre", *options)
    assert boxes.exit_code == 0, boxes.output
    assert "packaged weights are used" not in boxes.output
    out = tmp_path / "next.csv"
    suggestions = run("suggest", pool / "lid_0.png", "--out", out, *options)
    assert suggestions.exit_code == 0, suggestions.output
    for command in ("prelabel", "suggest"):
        both = run(command, pool, "--out", tmp_path / "both", *options, "--model", "ssd300_vgg16")
        assert both.exit_code == 2
        assert "--bundle and --model: expected one of them" in both.output


def test_two_pictures_of_one_name_are_refused(pool: Path, tmp_path: Path) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    for suffix in (".png", ".jpg"):
        cv2.imwrite(str(folder / f"a{suffix}"), np.zeros((60, 80, 3), np.uint8))
    result = run("prelabel", folder, "--out", tmp_path / "pre", "--device", "cpu")
    assert result.exit_code == 2
    assert "two pictures are named 'a'" in result.output
    assert not (tmp_path / "pre").exists()

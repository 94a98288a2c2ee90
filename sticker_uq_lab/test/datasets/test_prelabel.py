# SPDX-License-Identifier: Apache-2.0
"""The boxes of a detector as a data set that a person corrects."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.evaluation.metrics.matching import find_overlapping
from sticker_uq.io.coco import EncodedScene, encode_picture, read_coco, read_picture, write_coco
from sticker_uq_lab.rendering import encode_scene, render, sample_scene
from test.helpers.recordings import declare_more, record

pytestmark = pytest.mark.usefixtures("one_thread", "small_packaged")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rendered laptops, a copy of the first, a picture of noise, and a file that is no picture."""
    folder = tmp_path_factory.mktemp("pool")
    for seed in range(3):
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


def test_boxes_to_be_corrected_fit_the_stickers(pool, tmp_path):
    result = run("prelabel", pool, "--out", tmp_path / "pre", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "5 pictures in" in result.output
    items = {item.path.stem: item for item in read_coco(tmp_path / "pre")}
    assert set(items) == {"lid_0", "lid_1", "lid_2", "copy", "noise"}
    found = there = 0
    for seed in range(3):
        scene, item = render(sample_scene(seed, stickers=2), (480, 360)), items[f"lid_{seed}"]
        np.testing.assert_array_equal(read_picture(item), scene.image)
        stickers = scene.boxes[scene.labels == 2]
        there += len(stickers)
        found += int(find_overlapping(stickers, item.boxes[item.labels == 2], 0.5).sum())
    assert found >= there - 1
    document = json.loads((tmp_path / "pre" / "annotations.json").read_text())
    assert "not labels yet" in document["info"]["description"]
    assert all(0.3 <= one["score"] <= 1 for one in document["annotations"])
    assert run("prelabel", pool / "text.png", "--out", tmp_path / "none").exit_code == 2
    assert not (tmp_path / "none").exists()
    strict = run("prelabel", pool, "--out", tmp_path / "strict", "--min-score", 0.99, "--device", "cpu")
    assert strict.exit_code == 0
    fewer = sum(len(item.boxes) for item in read_coco(tmp_path / "strict"))
    assert fewer < sum(len(item.boxes) for item in items.values())


def test_what_a_recording_has_lost_is_said_after_what_was_read(tmp_path):
    whole = declare_more(record(tmp_path / "whole"))
    (whole / "other.mcap").touch()
    for command, options in (("frames", ()), ("prelabel", ("--device", "cpu"))):
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


def test_what_is_labelled_already_is_left_out_by_its_name_or_its_pixels(pool, tmp_path):
    options = ["--labelled", data_set(tmp_path / "known", pool), "--device", "cpu"]
    boxes = run("prelabel", pool, "--out", tmp_path / "pre", *options)
    assert boxes.exit_code == 0, boxes.output
    assert "2 pictures were left out, they are labelled already" in boxes.output
    assert {item.path.name for item in read_coco(tmp_path / "pre")} == {"lid_0.png", "lid_2.png", "copy.png"}
    none = run("prelabel", pool / "noise.png", "--out", tmp_path / "none", *options)
    assert none.exit_code == 2
    assert "all its 1 pictures are labelled already" in none.output
    assert not (tmp_path / "none").exists()


def test_pictures_keep_their_files_so_that_corrected_labels_fit_the_originals(pool, tmp_path):
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


def test_two_pictures_of_one_name_are_refused(pool, tmp_path):
    folder = tmp_path / "two"
    folder.mkdir()
    for suffix in (".png", ".jpg"):
        cv2.imwrite(str(folder / f"a{suffix}"), np.zeros((60, 80, 3), np.uint8))
    result = run("prelabel", folder, "--out", tmp_path / "pre", "--device", "cpu")
    assert result.exit_code == 2
    assert "two pictures are named 'a'" in result.output
    assert not (tmp_path / "pre").exists()

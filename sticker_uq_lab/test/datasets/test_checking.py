# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torchvision.models.detection.image_list import ImageList
from typer.testing import CliRunner

from lab_helpers.scenes import rendered
from sticker_uq.detection.catalogue import build_model
from sticker_uq.detection.weights import network_settings, packaged_weights
from sticker_uq.io.coco import read_coco, write_coco
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.cli.dataset import app
from sticker_uq_lab.datasets import default_boxes
from sticker_uq_lab.datasets.checking import (
    class_balance,
    drift,
    duplicates,
    label_findings,
    picture_statistics,
)
from sticker_uq_lab.datasets.default_boxes import (
    covered_share,
    default_box_advice,
    fit_scales,
    sides_in_view,
)
from sticker_uq_lab.datasets.frames import close_frames, consecutive_pairs, video_name
from sticker_uq_lab.rendering import encode_scene, render, sample_scene


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> tuple[Path, Path]:
    """Twelve scenes, and twelve others of which one is among the first and one a lighter copy of one of those."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("a", "b"))
    made = {seed: render(sample_scene(seed), (160, 120)) for seed in range(24)}
    write_coco(first, (encode_scene(seed, made[seed], "png") for seed in range(12)))
    light = replace(made[3], image=cv2.convertScaleAbs(made[3].image, alpha=0.9, beta=20))
    others = [made[2], light, *(made[seed] for seed in range(14, 24))]
    write_coco(second, (encode_scene(100 + n, scene, "png") for n, scene in enumerate(others)))
    return first, second


def test_shared_and_nearly_shared_pictures_are_found(scenes):
    ours, theirs = (picture_statistics(read_coco(folder)) for folder in scenes)
    assert duplicates(ours, near=0) == []
    found = duplicates(ours, theirs, near=3)
    kinds = {(one.kind, *(path.name for path in one.pictures)) for one in found}
    assert ("duplicate", "00000002.png", "00000100.png") in kinds
    assert ("near duplicate", "00000003.png", "00000101.png") in kinds
    assert len([one for one in found if one.kind == "duplicate"]) == 1


def test_unlikely_labels_are_named(scenes):
    item = read_coco(scenes[0])[0]
    boxes = np.array([[10, 10, 12, 40], [0, 0, 160, 118], [50, 50, 90, 90], [50, 50, 90, 91]], np.float32)
    texts = [one.text for one in label_findings([replace(item, boxes=boxes, labels=np.array([1, 2, 2, 1]))])]
    assert texts == [
        "logo of 2.0 x 30.0 px, smaller than 4 px",
        "sticker covers more than 90% of the picture",
        "sticker and logo in the same place (IoU above 0.9)",
    ]
    assert class_balance([replace(item, boxes=boxes[:0], labels=item.labels[:0])]) == {
        "logo": 0,
        "sticker": 0,
        "empty": 1,
    }


def test_drift_is_in_what_changed(scenes):
    seen = picture_statistics(read_coco(scenes[0]))
    dark = [replace(one, brightness=one.brightness / 5) for one in seen]
    assert [row.name for row in drift(seen, dark) if row.has_drifted] == ["brightness, grey levels"]
    assert not any(row.has_drifted for row in drift(seen, seen))


def test_the_command_tells_and_fails_when_pictures_are_shared(scenes, tmp_path):
    first, second = map(str, scenes)
    alone = CliRunner().invoke(app, ["check", first])
    assert alone.exit_code == 0, alone.output
    assert "12 pictures" in alone.output
    both = CliRunner().invoke(app, ["check", first, "--against", second])
    assert both.exit_code == 1
    assert "duplicate: 00000002.png, 00000100.png: the same pixels" in both.output
    assert isinstance(CliRunner().invoke(app, ["check", first, "--near", "60"]).exception, InvalidInput)


def test_the_command_counts_what_is_declared_and_read(tmp_path):
    annotations = rendered(tmp_path / "a", [1], (160, 120), "png", stickers=2) / "annotations.json"
    document = json.loads(annotations.read_text())
    document["annotations"][0]["iscrowd"] = 1
    annotations.write_text(json.dumps(document))
    (tmp_path / "a" / "images" / "forgotten.heic").write_bytes(b"")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "a"), "--json", str(tmp_path / "counts.json")])
    assert result.exit_code == 0, result.output
    declared = len(document["annotations"])
    assert f"{declared} labels declared, {declared - 1} read, 1 crowd" in result.output
    counts = json.loads((tmp_path / "counts.json").read_text())["labels"]
    assert (counts["objects"], counts["read"], counts["crowd"]) == (declared, declared - 1, 1)
    assert counts["passed_over"] == {"pictures that the annotations do not name": 1}


def test_near_duplicates_of_one_laptop_are_expected_and_pictures_have_their_own_names(scenes, tmp_path):
    made = {seed: render(sample_scene(seed), (160, 120)) for seed in range(2)}
    light = replace(made[0], image=cv2.convertScaleAbs(made[0].image, alpha=0.95, beta=5))
    for folder, laptops in (("one", ("pc1", "pc1", "pc2")), ("two", ("pc1", "pc3", "pc2"))):
        pictures = (
            replace(encode_scene(n, scene, "png"), image_fields={"workpiece_id": laptop, "source_name": name})
            for n, (scene, laptop, name) in enumerate(
                zip((made[0], light, made[1]), laptops, ("a.jpg", "b.jpg", "c.jpg"), strict=True)
            )
        )
        write_coco(tmp_path / folder, pictures)
    expected = CliRunner().invoke(app, ["check", str(tmp_path / "one")]).output
    assert "Duplicates: 0\n1 pairs of near duplicates show one laptop each, as expected" in expected
    different = CliRunner().invoke(app, ["check", str(tmp_path / "two")]).output
    assert "Duplicates: 1\n  near duplicate: 00000000.png (a.jpg), 00000001.png (b.jpg): " in different
    assert "near duplicates count as different laptops" in different
    assert "as expected" not in different


def test_frames_are_found_by_their_number_whatever_tools_add():
    names = [
        "train/v_006_jpg.rf.a1b2.jpg",
        "v_012_jpg.rf.0099.jpg",
        "v_030_jpg.rf.77.jpg",
        "w_013_jpg.rf.1.jpg",
        "lid.jpg",
    ]
    assert consecutive_pairs(names, 6) == [(0, 1)]
    assert consecutive_pairs(names, 18) == [(0, 1), (1, 2)]
    assert consecutive_pairs(names, 0) == []
    assert consecutive_pairs(["a/1.png", "b/2.png", "1f2e3d4c-x9.png", "00aa11bb-x8.jpg"], 3) == [(3, 2)]
    assert consecutive_pairs([f"{'9' * 40}.png", "8.png"], 10**9) == []
    assert close_frames(["f100.png", "f7.png", "g7.png"], ["f12.png", "f90.png", "f104.png"], 5) == [
        (0, 2, 4),
        (1, 0, 5),
    ]
    # where the number is that of the laptop it numbers no frames
    assert [video_name("pc07.jpg", laptop) for laptop in ("", "like pc07.jpg", "pc07", "07", "pc08")] == [
        "pc07.jpg",
        "pc07.jpg",
        "",
        "",
        "pc07.jpg",
    ]


@pytest.mark.parametrize(
    "model", ["ssd300_vgg16", "ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"]
)
def test_objects_are_measured_as_a_model_sees_them(scenes, model):
    item = read_coco(scenes[0])[0]
    boxes = np.array([[0, 0, 20, 40], [0, 0, 400, 400]], np.float32)
    placed = replace(item, width=1000, height=800, boxes=boxes, labels=np.array([2, 1]))
    packaged = packaged_weights("ssdlite320_mobilenet_v3_large")
    side = {
        "ssd300_vgg16": 300,
        "ssdlite320_mobilenet_v3_large": network_settings(packaged)["input_size"],
    }.get(model)
    expected = [20 * side / 1000, 400 * side / 1000] if side else [20 * 480 / 800, 400 * 480 / 800]
    np.testing.assert_allclose(sides_in_view([placed], model, 480), expected, rtol=0.01)


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_resnet50_fpn"])
def test_default_boxes_are_those_of_the_network_on_a_picture_and_no_weight_is_drawn_for_them(name):
    model, drawn = build_model(name, min_size=128).eval(), torch.get_rng_state()
    generator = model.anchor_generator if name.startswith("ssd") else model.rpn.anchor_generator
    found = default_boxes._anchors(default_boxes._shapes(name, min_size=128), generator, (128, 128))
    assert torch.equal(torch.get_rng_state(), drawn)
    images = ImageList(torch.zeros(1, 3, 128, 128), [(128, 128)])
    with torch.no_grad():
        maps = list(model.backbone(images.tensors).values())
    assert torch.equal(found, generator(images, maps)[0])


def test_default_boxes_that_fit_are_found(scenes):
    items = read_coco(scenes[0])
    small = [
        replace(
            item,
            width=1000,
            height=1000,
            boxes=np.array([[510, 510, 550, 550]], np.float32),
            labels=np.array([2]),
        )
        for item in items[:3]
    ]
    model = "ssdlite320_mobilenet_v3_large"
    assert covered_share(small, model) == 0.0
    scales = fit_scales(small, model, 640)
    assert scales[0] < 0.06
    assert covered_share(small, model, input_size=640, anchor_scales=scales) == 1.0
    assert default_box_advice(small, model, 480) == "", (
        "the packaged weights have smaller ones than torchvision's"
    )
    tiny = [
        replace(item, boxes=np.array([[500, 500, 525, 525]], np.float32), labels=np.array([2]))
        for item in small
    ]
    assert "train --start torchvision" in default_box_advice(tiny, model, 480)
    assert "`train` takes smaller default boxes" in default_box_advice(small, "ssd300_vgg16", 480)
    large = [
        replace(item, boxes=np.array([[200, 200, 500, 500]], np.float32), labels=np.array([2]))
        for item in small
    ]
    assert default_box_advice(large, model, 480) == ""
    assert fit_scales(large, model, 0) == ()
    assert np.isnan(
        covered_share([replace(small[0], boxes=np.zeros((0, 4), np.float32), labels=np.zeros(0, int))], model)
    )

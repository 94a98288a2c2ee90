# SPDX-License-Identifier: Apache-2.0
"""Shapes of other tools: turned ones, masks and crowds give the box around them, or are refused; none is nothing."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from lab_helpers.imports import (
    EXPECTED,
    HEIGHT,
    MEANING,
    STICKER,
    WIDTH,
    boxes_of,
    edit,
    imported,
    picture,
    refusal,
    source,
    taken,
)
from sticker_uq.io.coco import read_coco


def cvat(root: Path, shapes: str) -> Path:
    (root / "in").mkdir(exist_ok=True)
    cv2.imwrite(str(root / "in" / "a.png"), picture(0))
    image = f'<image name="a.png" width="{WIDTH}" height="{HEIGHT}">'
    (root / "in" / "a.xml").write_text(f"<annotations>{image}{shapes}</image></annotations>")
    return root / "in"


def label_studio(root: Path, results: list[dict[str, Any]], **task: Any) -> Path:
    """A folder with a picture and its task: ``results``, or the lists of JSON-MIN in ``task``."""
    (root / "in").mkdir(exist_ok=True)
    cv2.imwrite(str(root / "in" / "a.png"), picture(0))
    whole = {"id": 7, "image": "a.png", **task} if task else {"id": 7, "data": {"image": "s3://lids/a.png"}}
    content = whole if task else {**whole, "annotations": [{"result": results}]}
    (root / "in" / "a.json").write_text(json.dumps([content]))
    return root / "in"


def region(kind: str, label: str | None = "s", **value: Any) -> dict[str, Any]:
    labels = {} if label is None else {kind: [label]}
    size = {"original_width": WIDTH, "original_height": HEIGHT}
    return {"type": kind, **size, "value": {**value, **labels}}


BOX = {"x": 25.0, "y": 50.0, "width": 25.0, "height": 20.0, "rotation": 0}
PIXELS = [20.0, 30.0, 40.0, 42.0]


def test_turned_shapes_give_the_box_around_them(tmp_path):
    shapes = (
        '<box label="s" xtl="20" ytl="20" xbr="40" ybr="30" rotation="90"/>'
        '<ellipse label="s" cx="50" cy="30" rx="8" ry="4" rotation="90"/>'
        '<ellipse label="s" cx="50" cy="30" rx="8" ry="4"/>'
    )
    root = cvat(tmp_path, shapes)
    _, (item,) = taken(root, *STICKER)
    np.testing.assert_allclose(item.boxes, [[25, 15, 35, 35], [46, 22, 54, 38], [42, 26, 58, 34]], atol=1e-4)
    (root / "a.xml").unlink()
    turned = region("rectanglelabels", x=50, y=50, width=25, height=10, rotation=90)
    _, (item,) = taken(label_studio(tmp_path, [turned]), *STICKER, out="two")
    # 20 x 6 px turned clockwise around its upper left corner (40, 30)
    np.testing.assert_allclose(item.boxes, [[34, 30, 40, 50]], atol=1e-4)
    (tmp_path / "coco").mkdir()
    root = source(tmp_path / "coco", "coco")
    # as CVAT writes it
    turned = {"bbox": [10, 20, 20, 10], "attributes": {"rotation": 90.0, "occluded": False}}
    edit(root / "instances.json", lambda d: d["annotations"][0].update(turned))
    np.testing.assert_allclose(taken(root)[1][0].boxes[0], [15, 15, 25, 35], atol=1e-5)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([region("brushlabels", format="rle", rle=[1, 2])], "1: 'brushlabels': the box of such a region is not read"),
        ([region("rectanglelabels", **BOX), region("keypointlabels", x=1, y=2, width=0.3)], "2: 'keypointlabels'"),
        ([region("rectanglelabels", None, **BOX)], "1: 'rectanglelabels' with labels []: expected a single one"),
        ([region("rectangle", None, **BOX)], "1: 'rectangle' with labels []: expected a single one"),
        ([region("vectorlabels", vertices=[{"x": 1, "y": 2}])], "1: 'vectorlabels'"),
    ],
)  # fmt: skip
def test_a_shape_that_cannot_be_read_is_never_nothing(results, message, tmp_path):
    assert f"task 7: region {message}" in refusal(label_studio(tmp_path, results), *STICKER)


def test_what_is_no_shape_is_passed_over_and_counted(tmp_path):
    results = [
        {**region("rectangle", None, **BOX), "id": "a"},
        {**region("labels", "s", **BOX), "id": "a"},
        {**region("choices", "dirty", **BOX), "id": "a"},
        {"type": "relation", "from_id": "a", "to_id": "b"},
        {"type": "textarea", "value": {"text": ["x"]}},
        region("brushlabels", "junk", format="rle", rle=[1]),
    ]
    told = tmp_path / "counts.json"
    output, (item,) = taken(label_studio(tmp_path, results), *STICKER, "--ignore", "junk", "--json", told)
    assert "2 labels declared, 1 read, 1 ignored" in output
    np.testing.assert_allclose(item.boxes, [PIXELS])
    counts = json.loads(told.read_text())["labels"]
    assert counts["passed_over"] == {"choices, texts and relations": 3}
    assert counts["ignored"] == {"junk": 1}
    assert (counts["objects"], counts["read"]) == (2, 1)


def test_all_lists_of_a_short_export_are_read(tmp_path):
    size = {"original_width": WIDTH, "original_height": HEIGHT}
    dirt = [{"x": 1, "y": 1, "width": 2, "height": 2, "rectanglelabels": ["dirt"], **size}]
    label = [{**BOX, "rectanglelabels": ["s"], **size}]
    root = label_studio(tmp_path, [], dirt=dirt, label=label, note="x")
    np.testing.assert_allclose(taken(root, *STICKER, "--ignore", "rest")[1][0].boxes, [PIXELS])
    brush = [{"format": "rle", "rle": [1, 2], "brushlabels": ["s"], **size}]
    said = refusal(label_studio(tmp_path, [], brush=brush), *STICKER, out="two")
    assert "task 7: region 1: 'brushlabels'" in said


def test_shapes_of_ignored_classes_cannot_stop_an_import(tmp_path):
    root = cvat(
        tmp_path,
        '<box label="s" xtl="20" ytl="30" xbr="40" ybr="42"/><points label="junk" points="1,2"/><box label="junk" xtl="x"/>'
        '<mask label="s" rle="1" left="4" top="5" width="6" height="7"/><tag label="dirty"/>',
    )
    output, (item,) = taken(root, *STICKER, "--ignore", "rest")
    np.testing.assert_allclose(item.boxes, [PIXELS, [4, 5, 10, 12]])
    assert "4 labels declared, 2 read, 2 ignored" in output
    assert "not read: 1 tags of whole pictures" in output
    said = refusal(root, *STICKER, "--class", "junk=logo", out="two")
    assert "object 2: <points> of class 'junk': expected one of box, polygon, ellipse, mask" in said


def test_crowds_stay_crowds_unless_each_is_one_object(tmp_path):
    root = source(tmp_path, "coco")

    def crowded(document: Any) -> None:
        document["annotations"][0]["iscrowd"] = 1
        for entry in (*document["images"], *document["annotations"], *document["categories"]):
            entry["id"] = float(entry["id"])

    edit(root / "instances.json", crowded)
    kept = imported(root, out="kept")
    assert kept.exit_code == 0, kept.output
    assert "4 labels declared, 2 read, 1 ignored, 1 crowd" in kept.output
    first = read_coco(tmp_path / "kept", crowd=True)[0]
    assert first.crowd.tolist() == [EXPECTED["lid_01.png"][0][0]]
    assert first.boxes.tolist() == [EXPECTED["lid_01.png"][1][0]]
    assert boxes_of(taken(root, *MEANING, "--crowd", "object")[1]) == EXPECTED


def test_without_boxes_masks_and_ids_of_text_are_refused(tmp_path):
    root = source(tmp_path, "coco")

    def masked(document: Any) -> None:
        document["annotations"][0].pop("bbox")
        document["annotations"][0]["segmentation"] = {"counts": [0, 9], "size": [HEIGHT, WIDTH]}
        document["annotations"][1]["category_id"] = "1"

    edit(root / "instances.json", masked)
    said = refusal(root)
    assert "annotation 0: bbox None: expected four numbers" in said
    assert "category_id '1' (text)" in said

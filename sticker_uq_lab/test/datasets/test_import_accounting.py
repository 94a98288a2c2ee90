# SPDX-License-Identifier: Apache-2.0
"""Imports account for every key, picture and number: contradictions and what nobody knows stop them; shapes are turned right."""

import copy
import json
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import LabelledImage, read_coco
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.formats import FORMATS, read_source
from sticker_uq_lab.datasets.importing.importing import Reader, class_mapping, complete_mapping
from sticker_uq_lab.datasets.importing.named_picture import turned
from sticker_uq_lab.datasets.importing.nets import SHEET, agreement, contact_sheet, oddest

WIDTH, HEIGHT = 320, 240
BOX = [10, 20, 20, 25]


def pictures(root: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 255, (6, 8, 3), np.uint8)
        cv2.imwrite(str(root / name), cv2.resize(noise, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC))


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def coco(labels: Mapping[str, Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A document with one sticker on each picture: name to fields of the annotation."""
    size = {"width": WIDTH, "height": HEIGHT}
    images = [{"id": n, "file_name": name, **size} for n, name in enumerate(labels)]
    annotations = [
        {"id": n, "image_id": n, "category_id": 1, "bbox": BOX, **one}
        for n, one in enumerate(labels.values())
    ]
    categories = [{"id": 1, "name": "sticker"}]
    return {"images": images, "annotations": annotations, "categories": categories, **more}


def voc(
    name: str, inner: str = "", box: tuple[float, ...] = (10, 20, 30, 45), head: str = "", space: str = ""
) -> str:
    corners = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
    one = f"<object><name>sticker</name><bndbox>{corners}</bndbox>{inner}</object>"
    return f"<annotation{space}><filename>{name}</filename>{head}{size}{one}</annotation>"


def region(kind: str, to: str = "image", **value: Any) -> dict[str, Any]:
    size = {"original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0}
    return {"type": kind, "to_name": to, **size, "value": {**value, kind: ["sticker"]}}


def task(*regions: Mapping[str, Any], **data: str) -> dict[str, Any]:
    return {
        "id": 1,
        "data": data or {"image": "/data/upload/1/a.png"},
        "annotations": [{"id": 1, "result": regions}],
    }


RECTANGLE = {"x": 10, "y": 10, "width": 20, "height": 20, "rotation": 0}


def imported(root: Path, *options: object, out: str = "out") -> tuple[int, str]:
    arguments = (
        "dataset",
        "import",
        root,
        "--out",
        root.parent / out,
        "--near",
        "-1",
        "--no-compare",
        *options,
    )
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert "Traceback" not in result.output
    return result.exit_code, " ".join(result.output.split())


def refused(root: Path, *options: object) -> str:
    code, said = imported(root, *options)
    assert code == 2, said
    assert not (root.parent / "out").exists()
    return said


def taken(root: Path, *options: object, out: str = "out") -> tuple[str, list[LabelledImage]]:
    code, said = imported(root, *options, out=out)
    assert code == 0, said
    return said, read_coco(root.parent / out)


def sizes(item: LabelledImage) -> list[list[float]]:
    boxes = item.boxes.astype(float)
    return np.round(np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]]), 1).tolist()


@pytest.mark.parametrize(("degrees", "box"), [(90, [148, 40, 24, 160]), (30, [90.5, 78.7, 139.0, 82.6])])
def test_a_turned_ellipse_of_label_studio_gives_the_box_around_it(degrees, box, tmp_path):
    pictures(tmp_path / "in", "a.png")
    one = region("ellipselabels", x=50, y=50, radiusX=25, radiusY=5, rotation=degrees)
    write(tmp_path / "in" / "a.json", [task(one)])
    np.testing.assert_allclose(sizes(taken(tmp_path / "in")[1][0]), [box], atol=0.1)


def test_a_turned_box_of_voc_gives_the_box_around_it(tmp_path):
    pictures(tmp_path / "in", "a.png")
    attribute = "<attribute><name>{}</name><value>{}</value></attribute>"
    inner = f"<attributes>{attribute.format('rotation', 90.0)}{attribute.format('track_id', 3)}</attributes>"
    write(tmp_path / "in" / "a.xml", voc("a.png", inner, (100, 100, 140, 120)))
    assert sizes(taken(tmp_path / "in")[1][0]) == [[110, 90, 20, 40]]


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0, 360), st.floats(20, 120), st.floats(20, 120), st.booleans(), st.booleans(),
)  # fmt: skip
def test_turned_shapes_have_the_box_of_their_pixels(degrees, width, height, ellipse, corner):
    """Every pixel is asked whether it is in the shape, by turning it back."""
    x1, y1 = 200.0, 210.0
    box = turned((x1, y1, x1 + width, y1 + height), degrees, ellipse, corner)
    pivot = (x1, y1) if corner else (x1 + width / 2, y1 + height / 2)
    y, x = np.mgrid[20:400, 20:400] + 0.5
    turn = np.exp(-1j * np.radians(degrees)) * (x - pivot[0] + 1j * (y - pivot[1]))
    u, v = turn.real + pivot[0] - x1 - width / 2, turn.imag + pivot[1] - y1 - height / 2
    inside = (
        (u / width) ** 2 + (v / height) ** 2 <= 0.25
        if ellipse
        else (abs(u) <= width / 2) & (abs(v) <= height / 2)
    )
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    # a corner may end in a pixel whose middle it does not reach
    expected = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) + 20
    np.testing.assert_allclose(box, expected, atol=3)


def test_a_task_of_two_pictures_is_not_guessed(tmp_path):
    root = tmp_path / "in"
    pictures(root, "ref.png", "a.png")
    one = region("rectanglelabels", **RECTANGLE)
    write(root / "e.json", [task(one, reference="/data/upload/1/ref.png", image="/data/upload/1/a.png")])
    assert "task 1: has 2 pictures (reference, image)" in refused(root)
    _, (item,) = taken(root, "--ignore-key", "reference")
    assert item.source_name == "a.png"
    two = region("rectanglelabels", "right_view", **{**RECTANGLE, "x": 50})
    write(root / "e.json", [task(one, two, left="/data/upload/1/ref.png", right="/data/upload/1/a.png")])
    assert "and labels of image, right_view" in " ".join(refused_again(root, "--ignore-key", "left"))


def refused_again(root: Path, *options: object) -> list[str]:
    code, said = imported(root, *options, out="again")
    assert code == 2, said
    return [said]


CREATE_ML = [
    {
        "imagefilename": "a.png",
        "annotation": [{"label": "sticker", "coordinates": {"x": 4, "y": 4, "width": 6, "height": 6}}],
    }
]
MANIFEST = (
    '{"source-ref": "s3://x/b.png", "labels": {"annotations": [{"class_id": 0, "left": 10, "top": 10}]}}\n'
)


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("b/createml.json", CREATE_ML, "CreateML"),
        ("b/list.json", [{"file": "b.png", "objects": [{"category": "sticker", "bbox": BOX}]}], "another kind (.json)"),
        ("b/a.json", {k: v for k, v in coco({"b.png": {}}).items() if k != "categories"}, "COCO without categories"),
        ("b.xml", voc("b.png", space=' xmlns="urn:example:voc"'), "<{urn:example:voc}annotation>"),
        ("output.manifest", MANIFEST, "(.manifest)"),
        ("bounding_boxes.labels", '{"boundingBoxes": {"b.png": [{"label": "s", "x": 1}]}}', "(.labels)"),
        ("train.jsonl", '{"image": "b.png", "objects": {"bbox": [[1, 2, 3, 4]]}}', "(.jsonl)"),
        ("labels/b.txt", "0 0.5 0.5 0.1 0.1\n", "YOLO without a list of the names"),
        ("list.txt", "images/b.png 10,10,60,60,0\n", "lines of pictures and numbers"),
        ("b.csv", "b.png,10,10,60,60,sticker\n", "labels in CSV"),
        ("voc.tsv", "filename\txmin\tymin\n", "labels in CSV"),
        ("a.tfrecord", "\0\0", "(.tfrecord)"),
        ("via.json", {"metadata": {}, "file": {}, "view": {}}, "VGG Image Annotator 3"),
        ("vott.json", {"asset": {}, "regions": [], "version": ""}, "VoTT"),
        ("samples.json", {"samples": [{"filepath": "data/b.png", "ground_truth": {"detections": []}}]}, "FiftyOne"),
        ("dm.json", {"items": [], "categories": {}, "info": {}}, "Datumaro"),
    ],
)  # fmt: skip
def test_files_with_labels_that_are_not_read_stop_an_import(file, content, named, tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png", "b.png")
    write(root / "annotations.json", coco({"a.png": {}}))
    write(root / file, content)
    said = refused(root)
    assert named in said
    assert "label-studio" not in said
    taken(root, "--format", "coco")


def test_labels_in_a_folder_of_another_name_are_named(tmp_path):
    root = tmp_path / "in"
    pictures(root, "val/images/a.png", "train_images/b.png")
    for folder, name in (("val/labels", "a"), ("train_labels", "b")):
        write(root / folder / f"{name}.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / "data.yaml", "names: [sticker]\n")
    assert "train_labels/b.txt: has 1 labels, but there is no picture for it" in refused(root)


def test_texts_without_labels_do_not_stop_an_import(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "annotations.json", coco({"a.png": {}}))
    write(root / "README.md", 'Each has a "bbox": [1, 2, 3, 4].')
    write(root / "README.roboflow.txt", "Resized to 640 x 640 px, 3 versions, 12 pictures\n")
    write(root / "poses.txt", "1 0 0 0 1 0 0 0 1\n")
    write(root / "notes.json", {"categories": [{"id": 0, "name": "sticker"}], "info": {"year": 2026}})
    write(root / "list.txt", "a.png\n")
    taken(root)


def test_pictures_of_another_folder_are_not_taken(tmp_path):
    root = tmp_path / "in"
    pictures(root, "cam_b/1.png", "cam_b/2.png")
    write(root / "a.json", coco({"cam_a/1.png": {}}))
    assert "'cam_a/1.png' is not there: " in refused(root)
    write(root / "a.json", coco({"cam_a/1.png": {}, "cam_b/2.png": {}}))
    assert "lies in another folder, as does" in refused(root)
    write(root / "a.json", coco({"/home/me/cam_a/1.png": {}, "/home/me/cam_b/2.png": {}}))
    assert "'/home/me/cam_a/1.png' is not there" in refused(root)
    write(root / "a.json", coco({"cam_a/1.png": {}, "cam_c/2.png": {}}))
    assert "'cam_c/2.png' is not there" in refused(root)
    # another machine's folder before a common end is said once
    write(root / "a.json", coco({"/home/me/cam_b/1.png": {}, "/home/me/cam_b/2.png": {}}))
    said, _ = taken(root)
    assert "pictures found under another folder: /home/me/cam_b/1.png -> " in said
    assert "and 1 more" in said


def test_names_that_contradict_each_other_are_refused_with_both(tmp_path):
    root = tmp_path / "in"
    pictures(root, "001.png", "002.png")
    write(root / "001.xml", voc("002.png"))
    write(root / "002.xml", voc("001.png", box=(200, 100, 260, 160)))
    said = refused(root)
    assert "<filename> names" in said
    assert said.count("--ignore-key filename") == 2
    by_file = taken(root, "--ignore-key", "filename", out="file")[1]
    assert {item.source_name: sizes(item) for item in by_file}["001.png"] == [[10, 20, 20, 25]]
    by_name = taken(root, "--ignore-key", "xml-name", out="name")[1]
    assert {item.source_name: sizes(item) for item in by_name}["001.png"] == [[200, 100, 60, 60]]
    write(root / "001.xml", voc("001.png", head="<path>C:\\x\\002.png</path>"))
    write(root / "002.xml", voc("002.png"))
    assert "name two pictures that are there" in refused(root)


OUTLINE = [[50, 40, 100, 40, 100, 90, 50, 90]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bbox": [50, 40, 100, 90], "bbox_mode": 0}, "bbox_mode 0: expected 1"),
        ({"bbox": [50, 40, 100, 90], "segmentation": OUTLINE}, "as corners they would agree"),
        ({"bbox": [200, 150, 40, 40], "segmentation": OUTLINE}, "they lie apart"),
        ({"bbox": [50, 40, 100, 90], "area": 2500}, "contradicts area 2500: as corners they would agree"),
        ({"bbox": [0.1, 0.2, 0.3, 0.4]}, "lies within 0..1"),
        ({"bbox": [200, 100, 260, 160]}, "as corners x1, y1, x2, y2 all would"),
        ({"category_name": "logo"}, "category_name 'logo', but its category_id is that of 'sticker'"),
        ({"angle": 30}, "key 'angle' (1 times in labels) is not known"),
        ({"attributes": {"theta": 0.5}}, "key 'theta'"),
    ],
)  # fmt: skip
def test_numbers_that_contradict_each_other_are_refused(fields, message, tmp_path):
    pictures(tmp_path / "in", "a.png")
    write(tmp_path / "in" / "a.json", coco({"a.png": fields}))
    assert message in refused(tmp_path / "in")
    assert message in refused(tmp_path / "in", "--repair")


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ("<bndbox><xmin>1</xmin></bndbox>", "2 <bndbox>: expected a <bndbox>"),
        ("<polygon><x1>100</x1><y1>100</y1><x2>150</x2><y2>150</y2></polygon>", "contradicts <polygon>"),
        ("<type>robndbox</type>", "<type> 'robndbox': expected bndbox"),
        ("<robndbox><cx>3</cx></robndbox>", "key 'robndbox'"),
    ],
)
def test_objects_of_voc_with_several_shapes_are_refused(inner, message, tmp_path):
    pictures(tmp_path / "in", "a.png")
    write(tmp_path / "in" / "a.xml", voc("a.png", inner))
    assert message in refused(tmp_path / "in")


def test_what_sizes_prove_of_the_orientation_holds_for_the_source(tmp_path):
    root = tmp_path / "in"
    for name, orientation in (("a", 6), ("b", 3), ("c", 2)):
        pictures(root, f"{name}.png")
        exif = Image.Exif()
        exif[0x0112] = orientation
        noise = np.random.default_rng(orientation).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        Image.fromarray(noise).save(root / f"{name}.jpg", exif=exif)
        (root / f"{name}.png").unlink()
        write(root / f"{name}.xml", voc(f"{name}.jpg", box=(10, 20, 30, 45)))
    found = {item.source_name: sizes(item) for item in taken(root)[1]}
    assert found == {
        "a.jpg": [[195, 10, 25, 20]],
        "b.jpg": [[290, 195, 20, 25]],
        "c.jpg": [[290, 20, 20, 25]],
    }
    (root / "a.xml").unlink()  # the one that proves it
    assert "2 pictures have an EXIF orientation" in " ".join(refused_again(root))
    taken(root, "--orientation", "shown", out="shown")


def test_a_turned_tiff_is_imported_upright(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    Image.open(root / "a.png").save(root / "a.tif", tiffinfo={274: 6})
    (root / "a.png").unlink()
    content = coco({"a.tif": {}})
    content["images"][0] |= {"width": HEIGHT, "height": WIDTH}
    write(root / "a.json", content)
    assert sizes(taken(root)[1][0]) == [BOX]


def test_a_finished_task_of_json_min_without_a_region_shows_nothing(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png", "b.png")
    label = {**RECTANGLE, "rectanglelabels": ["sticker"], "original_width": WIDTH, "original_height": HEIGHT}
    about = {"annotator": 1, "annotation_id": 1, "lead_time": 3.2}
    write(root / "e.json", [
        {"id": 1, "image": "/data/upload/1/a.png", "label": [label], **about},
        {"id": 2, "image": "/data/upload/1/b.png", **about},
    ])  # fmt: skip
    assert [len(item.boxes) for item in taken(root)[1]] == [1, 0]


def test_uploads_of_label_studio_are_found_in_every_format(tmp_path):
    """Beside JSON it writes COCO, VOC and YOLO, with the names of its uploads: here the photographs lie where they always did."""
    photographs, root = tmp_path / "photographs", tmp_path / "in"
    pictures(photographs, "a.png")
    document = coco({"/data/upload/1/1f2e3d4c-a.png": {}})
    fraction = "0 0.0625 0.135416667 0.0625 0.104166667"
    for format_, name, content in (
        ("coco", "result.json", document),
        ("voc", "1f2e3d4c-a.xml", voc("1f2e3d4c-a.png", head="<folder>images</folder>")),
        ("yolo", "labels/1f2e3d4c-a.txt", fraction),
    ):
        write(root / format_ / name, content)
    write(root / "yolo" / "classes.txt", "sticker\n")
    for format_ in ("coco", "voc", "yolo"):
        _, (item,) = taken(root / format_, "--images", photographs, out=f"../{format_}")
        assert (item.source_name, sizes(item)) == ("a.png", [BOX])
    write(root / "yolo" / "labels" / "aaaaaaaa-a.txt", fraction)  # of another picture of this name
    assert "there is no picture for it" in refused_again(root / "yolo", "--images", photographs)[0]


def test_label_files_lie_as_their_pictures_do_below_images(tmp_path):
    root, photographs = tmp_path / "in", tmp_path / "photographs"
    pictures(photographs, "x/a.png", "y/a.png")
    write(root / "classes.txt", "sticker\n")
    write(root / "labels" / "x" / "a.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / "labels" / "y" / "a.txt", "0 0.5 0.5 0.1 0.2\n")
    _, items = taken(root, "--images", photographs)
    assert [sizes(item) for item in items] == [[[144, 108, 32, 24]], [[144, 96, 32, 48]]]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("data.yaml", "path: .\nnames:\n0: sticker\n1: logo\n", "data.yaml: names is empty"),
        ("data.yaml", "nc: 1\nnames: sticker\n", "names 'sticker': expected a list"),
        ("data.yaml", "nc: 1\nnames: [logo, sticker]\n", "nc 1: contradicts names, which has 2"),
        ("data.yaml", "names: [no, yes]\n", 'give --class "no=sticker"'),
        ("data.yaml", "names: [sticker]\nbox_format: xyxy\n", "key 'box_format'"),
        ("classes.txt", "\nlogo\nsticker\n", "line 1 is empty"),
    ],
)
def test_lists_of_names_are_read_as_they_are_written(file, text, message, tmp_path):
    root = tmp_path / "in"
    pictures(root, "images/a.png")
    write(root / "labels" / "a.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / file, text)
    assert message in refused(root)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 160 120 32 24", "value 160: expected fractions"),
        ("0 0.7 0.7 0.1 0.1 0.66 0.66 0.72 0.74", "the first four values are a box that holds the rest"),
        (
            "0 0.5 0.5 0.2 0.2 0.4 0.4 0.6 0.4 0.6 0.6 0.4 0.6",
            "the first four values are a box that holds the rest",
        ),
    ],
)
def test_numbers_of_yolo_that_are_no_fractions_or_polygons_are_refused(line, message, tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "classes.txt", "sticker\n")
    write(root / "a.txt", line)
    assert message in refused(root)
    write(root / "a.txt", "0 0.5 0.5 0.55 0.5 0.56 0.55 0.5 0.55\n")  # a polygon in the middle
    taken(root)


def test_labelled_pictures_that_are_in_no_list_are_said(tmp_path):
    root = tmp_path / "in"
    pictures(root, "images/a.png", "images/b.png")
    for name in "ab":
        write(root / "labels" / f"{name}.txt", "0 0.5 0.5 0.1 0.1\n")
    write(root / "data.yaml", "path: .\ntrain: train.txt\nnames: [sticker]\n")
    write(root / "train.txt", "./images/a.png\n")
    assert "1 labelled picture is not in train.txt" in taken(root)[0]


def test_class_names_are_compared_as_composed(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    name = unicodedata.normalize("NFD", "Prüfmarke")
    write(root / "a.json", coco({"a.png": {}}, categories=[{"id": 1, "name": name}]))
    taken(root, "--class", "Prüfmarke=sticker")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            [
                {
                    "ID": "x",
                    "Labeled Data": "a.png",
                    "Label": {"objects": [{"value": "s", "bbox": {"top": 1}}]},
                }
            ],
            "Labelbox",
        ),
        ([{"task_id": "x", "params": {}, "response": {"annotations": [{"label": "s", "left": 1}]}}], "Scale"),
        (
            coco({"a.png": {"segments_info": [{"id": 5}]}}),
            "COCO panoptic (segments_info): export object detection",
        ),
    ],
)
def test_exports_of_further_tools_are_named(content, message, tmp_path):
    pictures(tmp_path / "in", "a.png")
    write(tmp_path / "in" / "a.json", content)
    said = refused(tmp_path / "in")
    assert message in said
    assert "abel Studio" not in said


def test_an_ignored_key_is_passed_over_and_must_be_there(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "a.json", coco({"a.png": {"angle": 30}}))
    assert "--ignore-key 'angel': no label, shape, task or header has this key" in refused(
        root, "--ignore-key", "angel"
    )
    taken(root, "--ignore-key", "angle")
    assert yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["ignored_keys"] == ["angle"]


def test_a_key_that_stands_twice_is_counted(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "a.json", json.dumps(coco({"a.png": {}})).replace('"bbox"', '"bbox": [1, 2, 3, 4], "bbox"'))
    assert "has 2 shapes (" in refused(root)


ORDINARY = coco(
    {"a.png": {
        "segmentation": [[10, 20, 30, 20, 30, 45, 10, 45]], "area": 500.0, "iscrowd": 0,
        "attributes": {"occluded": False, "id": 3},
        "keypoints": [1, 2, 2], "num_keypoints": 1, "score": 0.9, "caption": "x", "track_id": 4,
    }},
    info={"year": 2026, "contributor": ""},
    licenses=[{"id": 1, "name": "", "url": ""}],
)  # fmt: skip
ORDINARY["images"][0] |= {
    "license": 1,
    "coco_url": "http://x/9.jpg",
    "flickr_url": "",
    "date_captured": 0,
    "extra": {"name": "9.jpg"},
}
ORDINARY["categories"][0] |= {
    "supercategory": "none",
    "keypoints": ["a"],
    "skeleton": [[1, 1]],
    "color": "#fff",
}


def label_studio_task() -> dict[str, Any]:
    whole = task(
        {
            **region("rectanglelabels", **RECTANGLE),
            "id": "x",
            "from_name": "label",
            "origin": "manual",
            "score": 0.9,
        }
    )
    whole["annotations"][0] |= {
        "completed_by": {"id": 1}, "was_cancelled": False, "ground_truth": False, "created_at": "", "updated_at": "x",
        "draft_created_at": None, "lead_time": 2.5, "prediction": {}, "result_count": 1, "unique_id": "u", "import_id": None,
        "last_action": None, "bulk_created": False, "task": 1, "project": 1, "updated_by": 1, "parent_prediction": None,
    }  # fmt: skip
    whole |= {
        "file_upload": "1f2e3d4c-a.png", "drafts": [], "meta": {}, "created_at": "x", "updated_at": "x", "allow_skip": True,
        "inner_id": 1, "total_annotations": 1, "cancelled_annotations": 0, "total_predictions": 1, "comment_count": 0,
        "unresolved_comment_count": 0, "last_comment_updated_at": None, "project": 1, "updated_by": 1, "comment_authors": [],
        "predictions": [{"id": 2, "result": [region("rectanglelabels", **RECTANGLE)], "score": 0.4}],
    }  # fmt: skip
    return whole


LABEL_IMG = "<folder>x</folder><path>/home/me/x/a.png</path><source><database>Unknown</database></source><segmented>0</segmented>"
CVAT = (
    f'<annotations><version>1.1</version><meta><task><id>1</id></task></meta><image id="0" name="a.png" subset="train" '
    f'width="{WIDTH}" height="{HEIGHT}">'
    '<box label="sticker" source="manual" occluded="0" xtl="10" ytl="20" xbr="30" ybr="45" z_order="0" rotation="40">'
    '<attribute name="colour">red</attribute></box><polygon label="sticker" points="60,60;90,60;90,100" z_order="0"/>'
    '<ellipse label="sticker" cx="200" cy="100" rx="20" ry="9" rotation="20"/></image></annotations>'
)
DATA_YAML = {
    "path": ".", "train": "images", "val": "images", "nc": 2, "names": ["sticker", "logo"],
    "roboflow": {"workspace": "x", "version": 1}, "download": "http://x",
}  # fmt: skip
SOURCES: dict[str, tuple[str, Any]] = {
    "coco": ("a.json", ORDINARY),
    "label-studio": ("a.json", [label_studio_task()]),
    "voc": (
        "a.xml",
        voc(
            "a.png",
            "<pose>Unspecified</pose><truncated>0</truncated><difficult>0</difficult>",
            head=LABEL_IMG,
        ),
    ),
    "cvat": ("a.xml", CVAT),
    "yolo": ("data.yaml", DATA_YAML),
}


def lay_out(root: Path, kind: str, content: Any = None) -> Path:
    if not (root / "images").is_dir():
        (root / "images").mkdir(parents=True)
        (root / "images" / "a.png").write_bytes(picture())
    file, ordinary = SOURCES[kind]
    content = ordinary if content is None else content
    if kind == "yolo":
        write(root / "labels" / "a.txt", "\n".join(YOLO_LINES))
        content = yaml.safe_dump(content)
    write(root / file, content)
    return root


def picture() -> bytes:
    return cv2.imencode(".png", np.full((HEIGHT, WIDTH, 3), 90, np.uint8))[1].tobytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_what_tools_write_beside_labels_stops_nothing(kind, tmp_path):
    said, (item,) = taken(lay_out(tmp_path / "in", kind))
    assert len(item.boxes)
    if kind == "label-studio":
        assert "not read: 1 predictions with regions" in said


def labels_of(root: Path) -> list[Any]:
    """What an import would write: names of pictures and boxes of classes."""
    faults, counts = Faults(str(root)), LabelCounts()
    _, found = read_source(root, "auto", None, faults, counts)
    try:
        named = complete_mapping(found, class_mapping([], []))
    except InvalidInput:
        faults.refuse()
        raise
    read = Reader(root, named, faults, counts).read(found)
    counts.read = sum(len(one.labelled.boxes) for one in read)
    counts.crowd = sum(len(one.labelled.crowd) for one in read)
    counts.check(str(root))
    return [
        (
            one.name,
            np.round(one.labelled.boxes, 3).tolist(),
            one.labelled.labels.tolist(),
            one.labelled.crowd.tolist(),
        )
        for one in read
    ]


DEFAULTED = {"rotation", "iscrowd", "was_cancelled", "ground_truth"}
"""Keys that tools leave out where their value is the usual one: without one the file says so, and another value says another."""


def places(document: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield document, key
            yield from places(value)
    for value in document if isinstance(document, list) else ():
        yield from places(value)


ODD = (None, True, "x", "12", [], {}, 0.5, -7, [1, 2], ["sticker"], {"x": 3})
CHANGES = st.tuples(
    st.sampled_from(("drop", "add", "rename", "retype")), st.integers(0, 10**6), st.integers(0, 10**6)
)


def changed(document: Any, kind: str, where: int, what: int) -> Any:
    """A copy with one key dropped, added, renamed or of another type."""
    whole = copy.deepcopy(document)
    found = [
        (holder, key)
        for holder, key in places(whole)
        if not (kind in ("drop", "retype") and key in DEFAULTED)
    ]
    holder, key = found[where % len(found)]
    if kind == "drop":
        del holder[key]
    elif kind == "add":
        name = ("angle", "bbox2", "theta", "image2", "label2", "points_2", "crop", key + "_")[what % 8]
        holder[name] = (30, [1, 2, 3, 4], "b.png", "logo")[what % 4]
    elif kind == "rename":
        holder[("_" + key, key + "2", key.upper() + "_")[what % 3]] = holder.pop(key)
    else:
        holder[key] = ODD[what % len(ODD)]
    return whole


def changed_xml(text: str, kind: str, where: int, what: int) -> str:
    root = ElementTree.fromstring(text)
    labels = (
        ("object", "image", "box", "polygon", "ellipse") if kind == "drop" else ()
    )  # without one it says less
    found: list[tuple[Any, Any]] = [
        (parent, child) for parent in root.iter() for child in parent if child.tag not in labels
    ]
    found += [(one, key) for one in root.iter() for key in one.attrib if key not in DEFAULTED]
    parent, one = found[where % len(found)]
    if isinstance(one, str):
        value = parent.attrib.pop(one)
        if kind == "rename":
            parent.attrib[one + "2"] = value
        elif kind == "add":
            parent.attrib |= {one: value, ("angle", "theta", "x2")[what % 3]: "30"}
        elif kind == "retype":
            parent.attrib[one] = ("x", "", "1;2", "nan")[what % 4]
    elif kind == "rename":
        one.tag += "2"
    elif kind == "add":
        ElementTree.SubElement(parent, ("angle", "bndbox2", "robndbox", "shape")[what % 4]).text = "30"
    elif kind == "drop":
        parent.remove(one)
    else:
        one.text = ("x", "", "nan")[what % 3]
    return ElementTree.tostring(root, "unicode")


@pytest.fixture(scope="module", params=FORMATS)
def ordinary(request, tmp_path_factory):
    """A format, a folder that every change is written over, and its labels without one."""
    root = tmp_path_factory.mktemp("fuzz") / "in"
    return request.param, root, labels_of(lay_out(root, request.param))


@settings(max_examples=120, deadline=None)
@example(("rename", 0, 0))
@given(CHANGES)
def test_a_changed_key_never_gives_other_labels(ordinary, change):
    kind, root, expected = ordinary
    source = SOURCES[kind][1]
    made = changed_xml(source, *change) if isinstance(source, str) else changed(source, *change)
    try:
        found = labels_of(lay_out(root, kind, made))
    except InvalidInput:
        return
    assert found == expected, made


YOLO_LINES = ("0 0.3 0.4 0.1 0.2", "1 0.6 0.6 0.2 0.1")
SECOND = "<object><name>logo</name><bndbox><xmin>60</xmin><ymin>60</ymin><xmax>90</xmax><ymax>99</ymax></bndbox></object>"


@pytest.mark.parametrize("kind", ["voc", "cvat", "yolo"])
@pytest.mark.parametrize("number", range(2))
def test_a_label_that_is_taken_out_takes_no_other_with_it(kind, number, tmp_path):
    """Nothing in these formats says how many there were: the others have to be what they were."""
    root, content = lay_out(tmp_path / "in", kind), SOURCES[kind][1]
    if kind == "voc":
        content = content.replace("</annotation>", SECOND + "</annotation>")
        lay_out(root, kind, content)
    ((name, boxes, classes, crowd),) = labels_of(root)
    if kind == "yolo":
        write(root / "labels" / "a.txt", YOLO_LINES[1 - number])
    else:
        tree = ElementTree.fromstring(content)
        holder = tree if kind == "voc" else tree.find("image")
        one = [child for child in holder if child.tag in ("object", "box", "polygon", "ellipse")][number]
        holder.remove(one)
        lay_out(root, kind, ElementTree.tostring(tree, "unicode"))
    del boxes[number], classes[number]
    assert labels_of(root) == [(name, boxes, classes, crowd)]


@pytest.mark.parametrize("word", ["x", "nan", "", "0,5", "0.5.5", "7", "-0.2", "1e9", "0.3 0.3"])
@pytest.mark.parametrize("place", range(5))
def test_a_word_of_a_yolo_line_that_is_none_is_refused(place, word, tmp_path):
    root = lay_out(tmp_path / "in", "yolo")
    words = YOLO_LINES[0].split()
    words[place] = word
    write(root / "labels" / "a.txt", f"{' '.join(words)}\n{YOLO_LINES[1]}\n")
    with pytest.raises(InvalidInput):
        labels_of(root)


@pytest.mark.parametrize("kind", ["voc", "cvat"])
def test_a_label_of_another_tag_is_counted(kind, tmp_path):
    text = SOURCES[kind][1]
    tag = "object" if kind == "voc" else "box"
    changed = text.replace(f"<{tag}", "<thing").replace(f"</{tag}>", "</thing>")
    with pytest.raises(InvalidInput):
        labels_of(lay_out(tmp_path / "in", kind, changed))


def test_pictures_of_a_project_of_cvat_are_those_of_their_subset(tmp_path):
    root = tmp_path / "in"
    pictures(root, "images/Train/a.png", "images/Test/a.png")
    image = f'<image id="0" name="a.png" subset="{{}}" width="{WIDTH}" height="{HEIGHT}">{{}}</image>'
    box = '<box label="sticker" xtl="{}" ytl="20" xbr="90" ybr="45"/>'
    train, test = image.format("Train", box.format(10)), image.format("Test", box.format(50))
    write(root / "a.xml", f"<annotations>{train}{test}</annotations>")
    found = {item.source_name: sizes(item) for item in taken(root)[1]}
    assert found == {"images/Train/a.png": [[10, 20, 80, 25]], "images/Test/a.png": [[50, 20, 40, 25]]}
    (root / "images" / "Train" / "a.png").unlink()
    assert "'Train/a.png' is not there" in " ".join(refused_again(root))


@pytest.mark.parametrize(
    ("rle", "fits"), [("0, 3000000", True), ("0, 2999999", False), ("x, 3000000", False)]
)
def test_a_mask_of_cvat_has_as_many_pixels_as_its_box(rle, fits, tmp_path):
    """Large masks have runs that are longer than any side of a picture."""
    root = tmp_path / "in"
    root.mkdir()
    cv2.imwrite(str(root / "a.png"), np.full((1600, 2000, 3), 90, np.uint8))
    mask = f'<mask label="sticker" left="0" top="0" width="2000" height="1500" rle="{rle}"/>'
    image = f'<image id="0" name="a.png" width="2000" height="1600">{mask}</image>'
    write(root / "a.xml", f"<annotations>{image}</annotations>")
    assert taken(root) if fits else "2000 x 1500 of its box" in refused(root)


def test_a_region_without_a_size_matters_only_where_its_class_does(tmp_path):
    root = tmp_path / "in"
    pictures(root, "a.png")
    point = {"type": "keypointlabels", "value": {"x": 1, "y": 2, "width": 1, "keypointlabels": ["tip"]}}
    write(root / "a.json", [task(region("rectanglelabels", **RECTANGLE), point)])
    assert sizes(taken(root, "--ignore", "tip")[1][0]) == [[32, 24, 64, 48]]
    lone = region("rectanglelabels", **{**RECTANGLE, "x": 50})
    del lone["original_width"], lone["original_height"]
    write(root / "a.json", [task(lone)])
    assert "original_width None: expected a number" in " ".join(refused_again(root))


def labelled(root: Path, count: int) -> list[LabelledImage]:
    """Pictures with a bright square, which is labelled, somewhere."""
    root.mkdir(exist_ok=True)
    rng, items = np.random.default_rng(3), []
    for number in range(count):
        x, y = rng.integers(10, 240), rng.integers(10, 160)
        image = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
        image[y : y + 40, x : x + 40] = 250
        path = root / f"{number}.png"
        cv2.imwrite(str(path), image)
        box = np.array([[x, y, x + 40, y + 40]], np.float32)
        items.append(LabelledImage(path, number, WIDTH, HEIGHT, box, np.array([2])))
    return items


def bright(image: np.ndarray) -> np.ndarray:
    rows, columns = np.nonzero(image[..., 0] > 128)
    return np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], np.float32)


def test_labels_on_the_wrong_pictures_agree_with_no_detector(tmp_path):
    items = labelled(tmp_path, 24)
    count, p = agreement(items, bright)
    assert count == 20
    assert p <= 0.01
    wrong = [
        LabelledImage(a.path, a.image_id, WIDTH, HEIGHT, b.boxes, b.labels)
        for a, b in zip(items, items[1:] + items[:1], strict=True)
    ]
    assert agreement(wrong, bright)[1] > 0.05
    assert agreement(items, lambda image: np.zeros((0, 4), np.float32))[1] == 1


def test_the_contact_sheet_shows_the_oddest_pictures_first(tmp_path):
    items = labelled(tmp_path / "p", 20)
    items[7] = LabelledImage(
        items[7].path, 7, WIDTH, HEIGHT, np.array([[5, 5, 315, 235]], np.float32), np.array([2])
    )
    assert oddest(items)[0] == 7
    assert contact_sheet(items).shape == (1600, 1600, 3)
    root = tmp_path / "in"
    pictures(root, "a.png")
    write(root / "a.json", coco({"a.png": {}}))
    said, items = taken(root)
    assert SHEET in said
    assert (tmp_path / "out" / SHEET).is_file()
    assert [item.source_name for item in items] == ["a.png"]  # the sheet is none of the pictures

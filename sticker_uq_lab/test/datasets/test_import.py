# SPDX-License-Identifier: Apache-2.0
"""Photographs labelled with other tools: the same boxes from every format, upright, and no laptop in two parts."""

import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image

from lab_helpers.imports import (
    CLASSES,
    EXPECTED,
    HEIGHT,
    MEANING,
    STICKER,
    WIDTH,
    annotated,
    boxes_of,
    edit,
    imported,
    picture,
    refusal,
    source,
    taken,
    write_cvat,
)
from sticker_uq.io.coco import parse_annotations, read_picture
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.formats import FORMATS
from sticker_uq_lab.datasets.importing.importing import shown_box, shown_size


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_boxes(kind, tmp_path):
    root = source(tmp_path, kind)
    output, items = taken(root)
    assert f"3 pictures of format {kind}" in output
    assert boxes_of(items) == EXPECTED
    assert [read_picture(item).tolist() for item in items] == [picture(seed).tolist() for seed in range(3)]
    record = yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())
    assert record["classes"] == {"Aufkleber": "sticker", "logo": "logo", "screw": "ignore"}
    assert record["format"] == kind
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
    # named explicitly, and with byte order marks, the result is the same
    for path in root.rglob("*"):
        if path.suffix in (".txt", ".json", ".xml", ".yaml"):
            path.write_text(path.read_text(), encoding="utf-8-sig")
    assert boxes_of(taken(root, "--format", kind, *MEANING, out="again")[1]) == EXPECTED


def voc_size(text: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for path in (root / "Annotations").iterdir():
            top = ElementTree.parse(path).getroot()
            for child in top.findall("size"):
                top.remove(child)
            for one in top.findall("object"):
                ElementTree.SubElement(one, "difficult").text = "1"
            path.write_text(
                ElementTree.tostring(top, "unicode").replace("</annotation>", f"{text}</annotation>")
            )

    return write


def voc_name(written: str, stored: str = "lid_02.png") -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / "images" / "lid_02.png").rename(root / "images" / stored)
        path = root / "Annotations" / "lid_02.xml"
        path.write_text(path.read_text().replace("lid_02.png", written), encoding="utf-8")

    return write


def coco_document(change: Callable[[Any], object]) -> Callable[[Path], None]:
    return lambda root: edit(root / "instances.json", change)


def polygon(document: Any) -> None:
    x, y, w, h = document["annotations"][0].pop("bbox")
    document["annotations"][0]["segmentation"] = [[x, y, x + w, y, x + 1, y + h], [x, y, x + 1, y, x, y + 1]]


def key_points(root: Path) -> None:
    (root / "data.yaml").write_text(yaml.safe_dump({"names": CLASSES, "kpt_shape": [2, 2]}))
    for path in (root / "labels").iterdir():
        path.write_text("".join(f"{line} 0.01 0.01 0.99 0.99\n" for line in path.read_text().splitlines()))


def task_address(address: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / "images" / "lid_01.png").rename(root / "images" / "lid+01.png")
        text = (root / "export.json").read_text()
        named = re.sub(r'"[^"]*lid_01\.png"', json.dumps(f"{address}lid+01.png"), text)
        (root / "export.json").write_text(named)

    return write


def encoded_names(root: Path) -> None:
    for folder, name in (("images", "d\u00e9 1.png"), ("labels", "d%C3%A9%201.TXT")):
        (root / folder / f"lid_01{name[-4:].lower()}").rename(root / folder / name)


def no_sizes(document: Any) -> None:
    document["images"] = [{**image, "width": None, "height": None} for image in document["images"]]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("voc", voc_name("")),
        ("voc", voc_name("lid_02")),
        ("voc", voc_name("D:\\photos\\lid_02.png")),
        ("voc", voc_name("LID_\u00fc.png", "lid_u\u0308.PNG")),
        ("voc", voc_size("")),
        ("voc", voc_size("<size><width>0</width><height>0</height></size>")),
        ("voc", voc_size("<size/>")),
        ("coco", coco_document(no_sizes)),
        ("coco", coco_document(polygon)),
        ("yolo", key_points),
        ("yolo", encoded_names),
        ("label-studio", task_address("/storage-data/uploaded/?filepath=upload/3/")),
        ("label-studio", task_address("/data/local-files/?d=lids%5C")),
    ],
)
def test_what_tools_write_in_another_way_gives_the_same_boxes(kind, change, tmp_path):
    root = source(tmp_path, kind)
    change(root)
    output, items = taken(root)
    assert sorted(boxes_of(items).values()) == sorted(EXPECTED.values())
    assert ("3 objects are marked as difficult: they count as any other" in output) == (
        "<difficult>" in "".join(path.read_text() for path in root.rglob("*.xml"))
    )


def test_a_class_without_a_meaning_is_refused_with_its_number_of_objects(tmp_path):
    root = source(tmp_path, "cvat")
    for options, message in (
        (["--near", "6"], "2 of 3 classes have no meaning: 'Aufkleber' (2 objects), 'screw' (1 objects)"),
        (["--class", "Aufkleber=badge"], "expected NAME=one of logo, sticker, ignore"),
        ([*MEANING, "--class", "vent=logo"], "class 'vent' does not occur; classes there: Aufkleber, logo, screw"),
        ([*MEANING, "--class", "LOGO=sticker"], "'LOGO' is given as logo too"),
        (["--ignore", "rest", "--ignore", "logo"], "no picture shows a logo or sticker"),
    ):  # fmt: skip
        assert message in refusal(root, *options)


def with_exif(image: np.ndarray, orientation: int) -> bytes:
    exif, stream = Image.Exif(), BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(image[..., ::-1]).save(stream, "PNG", exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("labelled_as", ["shown", "stored"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_and_boxes_are_turned_upright(orientation, labelled_as, tmp_path):
    image = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    image[5:15, 10:50] = (10, 20, 250)
    root = tmp_path / "in"
    root.mkdir()
    (root / "a.png").write_bytes(with_exif(image, orientation))
    box, size = (10.0, 5.0, 50.0, 15.0), (WIDTH, HEIGHT)
    if labelled_as == "shown":
        box, size = shown_box(orientation, size, box), shown_size(orientation, size)
    x1, y1, x2, y2 = box
    annotated(root, ["a.png"], {0: (x1, y1, x2 - x1, y2 - y1)}, size)
    _, (item,) = taken(root, *STICKER, "--orientation", labelled_as)
    marked = (read_picture(item) == (10, 20, 250)).all(axis=2)
    rows, columns = np.flatnonzero(marked.any(axis=1)), np.flatnonzero(marked.any(axis=0))
    assert item.boxes[0].tolist() == [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert int(marked.sum()) == 400
    assert Image.open(item.path).getexif().get(0x0112, 1) == 1


def test_a_picture_without_a_label_file_was_not_labelled_and_empty_ones_are_named(tmp_path):
    root = source(tmp_path, "yolo")
    (root / "labels" / "lid_03.txt").unlink()
    assert len(taken(root)[1]) == 2
    for file in (root / "labels").glob("*.txt"):
        file.write_text("")
    assert "none of 2 pictures has a label; CVAT leaves polygons" in refusal(root, out="two")


def test_all_faults_are_named_and_boxes_outside_can_be_repaired(tmp_path):
    root = source(tmp_path, "yolo")
    label = root / "labels" / "lid_02.txt"
    label.write_text("0 0.9 0.5 0.4 0.5\n0 0.5 0.5 0 0.1\n")
    said = refusal(root)
    for words in (f"{label}: line 1: bbox", f"{label}: line 2: bbox", "--repair clips"):
        assert words in said
    _, items = taken(root, *MEANING, "--repair")
    assert boxes_of(items)["lid_02.png"] == [([56, 15, 80, 45], 2)]
    assert len(yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["repaired"]) == 2


def test_pictures_that_cannot_be_read_are_named_together_and_can_be_left_out(tmp_path):
    root = source(tmp_path, "yolo")
    whole = (root / "images" / "lid_02.png").read_bytes()
    (root / "images" / "lid_02.png").write_bytes(whole[: len(whole) // 2])
    (root / "images" / "lid_03.png").write_bytes(b"no picture")
    (root / "labels" / "lid_01.txt").write_text("0 0.9 0.5 0.4 0.5\n1 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1\n")
    said = refusal(root)
    for words in (
        "3 faults", "images/lid_02.png: ", "images/lid_03.png: ", "labels/lid_01.txt: line 1: bbox",
        "leaves out pictures that cannot be read",
    ):  # fmt: skip
        assert words in said
    output, items = taken(root, *MEANING, "--repair")
    assert "picture left out, with its labels" in output
    assert [item.source_name for item in items] == ["images/lid_01.png"]
    repaired = yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["repaired"]
    assert [line.endswith("picture left out, with its labels") for line in repaired] == [False, True, True]
    # where none is left nothing is written
    (root / "images" / "lid_01.png").write_bytes(b"")
    assert "none of 3 pictures can be read" in refusal(root, *MEANING, "--repair", out="none")


@pytest.mark.parametrize(
    ("kind", "file", "text", "message"),
    [
        ("voc", "Annotations/lid_01.xml", "<annotation>", "not an XML file"),
        ("voc", "Annotations/lid_01.xml", '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
         "has a document type or entities"),
        ("voc", "Annotations/lid_01.xml",
         "<annotation><filename>lid_01.png</filename><object><name>logo</name><polygon><x1>3</x1></polygon></object></annotation>",
         "object 1: <polygon>: expected a <bndbox>"),
        ("voc", "broken.json", '[{"a": 1', "it may hold labels: repair it, or take it out of the folder"),
        ("coco", "data.yml", "names: [", "it may hold labels"),
        ("yolo", "labels/classes.txt", "logo\nAufkleber\nscrew\n", "labels/classes.txt both name classes"),
        ("yolo", "labels/other.txt", "0 0.5 0.5 0.1 0.1", "has 1 labels, but there is no picture for it"),
        ("yolo", "labels/lid_01.txt", "0 0.5 0.5 0.1 0.1 0.9", "a prediction with its confidence is no label"),
        ("yolo", "data.yaml", "names: [Aufkleber, logo, screw]\nkpt_shape: 3", "kpt_shape 3: expected two integers"),
        ("cvat", "annotations.xml", "<annotations><track/></annotations>", "export the task as CVAT for images 1.1"),
        ("cvat", "annotations.xml", '<annotations><image name="../../secret.png" width="80" height="60"/></annotations>',
         "is not below"),
        ("yolo", "labels/lid_01.txt", "7 0.5 0.5 0.1 0.1", "class '7': expected one of 0 to 2"),
        ("yolo", "labels/lid_01.txt", "0 0.5 0.5 0.1", "line 1: 4 values"),
        ("yolo", "labels/lid_01.txt", "0 0.5 nan 0.1 0.1", "value 'nan': expected a number"),
        ("label-studio", "export.json", '[{"id": 1, "annotations": 3, "data": {}}]', "annotations 3: expected a list"),
        ("label-studio", "export.json", "[]", "no annotations found"),
        ("coco", "instances.json", '{"images": 3, "annotations": [], "categories": []}', "'images' to be a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(kind, file, text, message, tmp_path):
    root = source(tmp_path, kind)
    (root / file).write_text(text)
    assert message in refusal(root)


def test_a_picture_that_is_labelled_twice_is_named_with_both_places(tmp_path):
    root = source(tmp_path, "coco")
    edit(root / "instances.json", lambda d: d["images"].append(d["images"][0] | {"id": 99}))
    assert f"image 10 and in {root / 'instances.json'}: image 99" in refusal(root)
    document = json.loads((root / "instances.json").read_text())
    with pytest.raises(InvalidInput, match="is that of image 10 too; expected one entry for each picture"):
        parse_annotations(root / "annotations.json", document)


def test_two_formats_in_one_folder_are_not_guessed(tmp_path):
    root = source(tmp_path, "yolo")
    write_cvat(root, root / "images")
    assert "has annotations of cvat and yolo; choose one with --format" in refusal(root)
    taken(root, "--format", "cvat", *MEANING)


def test_nothing_is_left_of_an_import_that_fails_while_writing(tmp_path, monkeypatch):
    root = source(tmp_path, "coco")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sticker_uq.io.coco.write_annotations", full)
    assert imported(root).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_files_that_hold_no_labels_of_the_format_are_said(tmp_path):
    root = source(tmp_path, "yolo")
    (root / "labels" / "gone.txt").write_text("")
    (root / "labels" / "classes.txt").write_text("\n".join(CLASSES))  # says what data.yaml says
    (root / "images" / "new.PNG").write_bytes((root / "images" / "lid_01.png").read_bytes())
    (root / "b.csv").write_text("filename,class\n")
    for name, content in {
        "a.json": json.dumps({"shapes": [], "imagePath": "lid_01.png"}),
        "labelTxt/lid_01.txt": "1 1 9 1 9 9 1 9 logo 0",
        "c.csv": "filename,width,height,class,xmin,ymin,xmax,ymax\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content)
        assert f"first {root / name}; " in refusal(root)
    output, _ = taken(root, "--format", "yolo", *MEANING)
    for kind in (
        "files of oriented boxes (labelTxt of DOTA)", "text files that belong to no picture",
        "pictures without a label file", "files of labelme", "another kind (.csv)",
    ):  # fmt: skip
        assert kind in output


@pytest.mark.parametrize(
    ("content", "tool"),
    [
        ({"shapes": [], "imagePath": "a.png"}, "labelme"),
        ({"_via_img_metadata": {}}, "VGG Image Annotator"),
        ({"a.png123": {"filename": "a.png", "regions": []}}, "VGG Image Annotator"),
        ({"description": "", "objects": [], "size": {"height": 3, "width": 4}}, "Supervisely"),
        ([{"image": "a.png", "annotations": []}], "CreateML"),
        ([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}], "detections in COCO's format of results"),
    ],
)  # fmt: skip
def test_exports_of_tools_that_are_not_read_are_named(content, tool, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(json.dumps(content))
    said = refusal(tmp_path / "in", *STICKER)
    assert f"a.json is of {tool}; export or convert it, for example to COCO" in said

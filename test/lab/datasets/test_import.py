# SPDX-License-Identifier: Apache-2.0
"""Photographs labelled with other tools: the same boxes from every format, upright, and no laptop in two parts."""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import LabelledImage, parse_annotations, read_coco, read_picture
from sticker_uq.io.labelled_images import LabelledSource
from sticker_uq.lab.datasets.importing.formats import FORMATS
from sticker_uq.lab.datasets.importing.grouping import split_groups
from sticker_uq.lab.datasets.importing.importing import shown_box, shown_size
from sticker_uq.scene import InvalidInput

WIDTH, HEIGHT = 80, 60
OBJECTS = {
    "lid_01.png": [
        ("Aufkleber", (4.0, 6.0, 24.0, 36.0)),
        ("logo", (40.0, 30.0, 56.0, 45.0)),
        ("screw", (70.0, 3.0, 74.0, 6.0)),
    ],
    "lid_02.png": [("Aufkleber", (10.0, 12.0, 30.0, 27.0))],
    "lid_03.png": [],
}
CLASSES = ["Aufkleber", "logo", "screw"]
MEANING = ["--class", "Aufkleber=sticker", "--class", "logo=logo", "--ignore", "rest"]
EXPECTED = {
    "lid_01.png": [([4, 6, 24, 36], 2), ([40, 30, 56, 45], 1)],
    "lid_02.png": [([10, 12, 30, 27], 2)],
    "lid_03.png": [],
}


def picture(seed: int, size: tuple[int, int] = (WIDTH, HEIGHT)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return cv2.resize(rng.integers(0, 255, (6, 8, 3), np.uint8), size, interpolation=cv2.INTER_CUBIC)


def write_voc(root: Path, images: Path) -> None:
    (root / "Annotations").mkdir()
    for name, objects in OBJECTS.items():
        top = ElementTree.Element("annotation")
        ElementTree.SubElement(top, "filename").text = name
        size = ElementTree.SubElement(top, "size")
        for key, value in (("width", WIDTH), ("height", HEIGHT), ("depth", 3)):
            ElementTree.SubElement(size, key).text = str(value)
        for label, box in objects:
            one = ElementTree.SubElement(top, "object")
            ElementTree.SubElement(one, "name").text = label
            inner = ElementTree.SubElement(one, "bndbox")
            for key, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
                ElementTree.SubElement(inner, key).text = f"{value:g}"
        ElementTree.ElementTree(top).write(root / "Annotations" / f"{Path(name).stem}.xml")


def write_yolo(root: Path, images: Path) -> None:
    (root / "labels").mkdir()
    (root / "data.yaml").write_text(yaml.safe_dump({"names": CLASSES, "nc": 3, "train": "images"}))
    for name, objects in OBJECTS.items():
        lines = []
        for label, (x1, y1, x2, y2) in objects:
            values = ((x1 + x2) / 2 / WIDTH, (y1 + y2) / 2 / HEIGHT, (x2 - x1) / WIDTH, (y2 - y1) / HEIGHT)
            lines.append(f"{CLASSES.index(label)} " + " ".join(f"{value:.9f}" for value in values))
        (root / "labels" / f"{Path(name).stem}.txt").write_text("\n".join(lines))


def write_cvat(root: Path, images: Path) -> None:
    top = ElementTree.Element("annotations")
    ElementTree.SubElement(top, "version").text = "1.1"
    for number, (name, objects) in enumerate(OBJECTS.items()):
        size = {"width": str(WIDTH), "height": str(HEIGHT)}
        image = ElementTree.SubElement(top, "image", {"id": str(number), "name": f"batch/{name}", **size})
        for label, (x1, y1, x2, y2) in objects:
            if label == "logo":
                points = f"{x1},{y1};{x2},{y1};{x2},{y2};{x1},{y2}"
                ElementTree.SubElement(image, "polygon", {"label": label, "points": points})
            else:
                corners = {"xtl": str(x1), "ytl": str(y1), "xbr": str(x2), "ybr": str(y2)}
                ElementTree.SubElement(image, "box", {"label": label, **corners})
    ElementTree.ElementTree(top).write(root / "annotations.xml")


def write_label_studio(root: Path, images: Path) -> None:
    tasks: list[dict[str, Any]] = []
    for number, (name, objects) in enumerate(OBJECTS.items(), 1):
        regions = [
            {
                "type": "rectanglelabels",
                "original_width": WIDTH,
                "original_height": HEIGHT,
                "image_rotation": 0,
                "value": {
                    "x": 100 * x1 / WIDTH, "y": 100 * y1 / HEIGHT, "width": 100 * (x2 - x1) / WIDTH,
                    "height": 100 * (y2 - y1) / HEIGHT, "rotation": 0, "rectanglelabels": [label],
                },
            }
            for label, (x1, y1, x2, y2) in objects
        ]  # fmt: skip
        old = {"was_cancelled": True, "result": [{"broken": 1}]}
        address = f"/data/upload/4/1f2e3d4c-{name}"
        tasks.append({"id": number, "data": {"image": address}, "annotations": [{"result": regions}, old]})
    tasks.append({"id": 9, "data": {"image": "/data/upload/4/missing.png"}, "annotations": []})
    (root / "export.json").write_text(json.dumps(tasks))


def write_coco(root: Path, images: Path) -> None:
    entries = [
        {"id": 10 + n, "file_name": name, "width": WIDTH, "height": HEIGHT} for n, name in enumerate(OBJECTS)
    ]
    annotations = [
        {"image_id": 10 + n, "category_id": CLASSES.index(label), "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for n, objects in enumerate(OBJECTS.values())
        for label, (x1, y1, x2, y2) in objects
    ]
    document = {
        "categories": [{"id": n, "name": name} for n, name in enumerate(CLASSES)],
        "images": entries,
        "annotations": [{"id": n, **one} for n, one in enumerate(annotations)],
    }
    (root / "instances.json").write_text(json.dumps(document))


WRITERS = {
    "coco": write_coco,
    "voc": write_voc,
    "yolo": write_yolo,
    "cvat": write_cvat,
    "label-studio": write_label_studio,
}


def source(root: Path, kind: str) -> Path:
    images = root / "source" / "images"
    images.mkdir(parents=True)
    for seed, name in enumerate(OBJECTS):
        cv2.imwrite(str(images / name), picture(seed))
    WRITERS[kind](root / "source", images)
    return root / "source"


def imported(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["dataset", "import", *map(str, arguments)])


def boxes_of(items: list[LabelledImage], folder: Path) -> dict[str, list[tuple[list[float], int]]]:
    document = json.loads((folder / "annotations.json").read_text())
    names = {image["id"]: Path(image["source_name"]).name for image in document["images"]}
    return {
        names[item.image_id]: [
            (np.round(box, 3).tolist(), int(label))
            for box, label in zip(item.boxes, item.labels, strict=True)
        ]
        for item in items
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_boxes(kind: str, tmp_path: Path) -> None:
    root, out = source(tmp_path, kind), tmp_path / "out"
    result = imported(root, "--out", out, *MEANING)
    assert result.exit_code == 0, result.output
    assert f"3 pictures of format {kind}" in result.output
    items = read_coco(out)
    assert boxes_of(items, out) == EXPECTED
    assert [read_picture(item).tolist() for item in items] == [picture(seed).tolist() for seed in range(3)]
    record = yaml.safe_load((out / "import.yaml").read_text())
    assert record["classes"] == {"Aufkleber": "sticker", "logo": "logo", "screw": "ignore"}
    assert record["format"] == kind
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
    # named explicitly, and by the file itself, the result is the same
    again = imported(root, "--format", kind, "--out", tmp_path / "again", *MEANING)
    assert again.exit_code == 0, again.output
    assert boxes_of(read_coco(tmp_path / "again"), tmp_path / "again") == EXPECTED


def test_a_class_without_a_meaning_is_refused_with_its_number_of_objects(tmp_path: Path) -> None:
    root = source(tmp_path, "cvat")
    for options, message in (
        (
            ["--class", "logo=logo"],
            "2 of 3 classes have no meaning: 'Aufkleber' (2 objects), 'screw' (1 objects)",
        ),
        (["--class", "Aufkleber=badge"], "expected NAME=one of logo, sticker, ignore"),
        (
            [*MEANING, "--class", "vent=logo"],
            "class 'vent' does not occur; classes there: Aufkleber, logo, screw",
        ),
        ([*MEANING, "--class", "LOGO=sticker"], "'LOGO' is given as logo too"),
        (["--ignore", "rest"], "no picture shows a logo or sticker"),
    ):
        result = imported(root, "--out", tmp_path / "out", *options)
        assert result.exit_code == 2
        assert message in result.output
        assert not (tmp_path / "out").exists()


def with_exif(image: np.ndarray, orientation: int) -> bytes:
    exif, stream = Image.Exif(), BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(image[..., ::-1]).save(stream, "PNG", exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("labelled_as", ["shown", "stored"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_and_boxes_are_turned_upright(orientation: int, labelled_as: str, tmp_path: Path) -> None:
    image = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    image[5:15, 10:50] = (10, 20, 250)
    (tmp_path / "in").mkdir()
    data = with_exif(image, orientation)
    (tmp_path / "in" / "a.png").write_bytes(data)
    box, size = (10.0, 5.0, 50.0, 15.0), (WIDTH, HEIGHT)
    if labelled_as == "shown":
        box, size = shown_box(orientation, size, box), shown_size(orientation, size)
    x1, y1, x2, y2 = box
    (tmp_path / "in" / "a.json").write_text(
        json.dumps(
            {
                "images": [{"id": 1, "file_name": "a.png", "width": size[0], "height": size[1]}],
                "categories": [{"id": 1, "name": "s"}],
                "annotations": [
                    {"id": 1, "image_id": 1, "category_id": 1, "bbox": [x1, y1, x2 - x1, y2 - y1]}
                ],
            }
        )
    )
    result = imported(
        tmp_path / "in", "--out", tmp_path / "out", "--class", "s=sticker", "--orientation", labelled_as
    )
    assert result.exit_code == 0, result.output
    (item,) = read_coco(tmp_path / "out")
    pixels = read_picture(item)
    marked = (pixels == (10, 20, 250)).all(axis=2)
    rows, columns = np.flatnonzero(marked.any(axis=1)), np.flatnonzero(marked.any(axis=0))
    seen = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert item.boxes[0].tolist() == seen
    assert int(marked.sum()) == 400
    assert Image.open(item.path).getexif().get(0x0112, 1) == 1


def many(root: Path, laptops: int, each: int) -> Path:
    """Pictures of laptops, some frames of each: nearly the same."""
    (root / "in").mkdir()
    images = []
    for laptop in range(laptops):
        base = picture(100 + laptop).astype(np.int16)
        for frame in range(each):
            noise = np.random.default_rng(laptop * each + frame).integers(-2, 3, base.shape)
            name = f"pc{laptop:02d}_{frame}.png"
            cv2.imwrite(str(root / "in" / name), np.clip(base + noise, 0, 255).astype(np.uint8))
            images.append({"id": len(images), "file_name": name, "width": WIDTH, "height": HEIGHT})
    document = {
        "images": images,
        "categories": [{"id": 1, "name": "s"}],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 30, 40]}
            for n in range(0, len(images), 2)
        ],
    }
    (root / "in" / "a.json").write_text(json.dumps(document))
    return root / "in"


@pytest.mark.parametrize("grouping", [["--group", r"pc(\d+)", "--near", "-1"], []])
def test_no_laptop_is_in_two_parts(grouping: list[str], tmp_path: Path) -> None:
    root = many(tmp_path, 12, 4)
    options = [root, "--class", "s=sticker", "--split", "0.5,0.25,0.25", *grouping]
    result = imported(*options, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    laptops: dict[str, set[str]] = {}
    for part, count in (("learn", 24), ("calibrate", 12), ("test", 12)):
        document = json.loads((tmp_path / "out" / part / "annotations.json").read_text())
        assert len(document["images"]) == count
        laptops[part] = {image["source_name"][:4] for image in document["images"]}
        workpieces = {item.workpiece_id for item in read_coco(tmp_path / "out" / part)}
        assert len(workpieces) == len(laptops[part]) == count // 4
        labelled = LabelledSource(tmp_path / "out" / part)
        assert len({labelled.workpiece_of(item, 0) for item in labelled.items.values()}) == count // 4
    assert not laptops["learn"] & laptops["calibrate"]
    assert not (laptops["learn"] | laptops["calibrate"]) & laptops["test"]
    # the same seed gives the same parts, another one others
    for name, seed in (("same", "0"), ("other", "1")):
        assert imported(*options, "--out", tmp_path / name, "--seed", seed).exit_code == 0
    learn = [
        (tmp_path / name / "learn" / "annotations.json").read_text() for name in ("out", "same", "other")
    ]
    assert learn[0] == learn[1]
    assert learn[0] != learn[2]


def test_parts_that_stay_empty_and_wrong_shares_are_refused(tmp_path: Path) -> None:
    root = many(tmp_path, 2, 2)
    for options, message in (
        (["--split", "0.7,0.15,0.15"], "4 pictures of 2 laptops: nothing is left for"),
        (["--split", "0.7,0.2"], "expected the shares of learn, calibrate, test"),
        (["--split", "0.7,0.2,0.2"], "which sum to 1"),
        (["--group", "("], "not a regular expression"),
        (["--group", "x"], "finds nothing in 4 of 4 names, first 'pc00_0.png'"),
    ):
        result = imported(root, "--out", tmp_path / "out", "--class", "s=sticker", *options)
        assert result.exit_code == 2, result.output
        assert message in result.output
        assert not (tmp_path / "out").exists()


def test_the_split_comes_near_its_shares_whatever_the_groups() -> None:
    groups = np.repeat(np.arange(40), np.random.default_rng(1).integers(1, 9, 40)).tolist()
    parts = split_groups(groups, (0.7, 0.0, 0.3), seed=3)
    assert abs(parts.count(0) / len(parts) - 0.7) < 0.05
    assert parts.count(1) == 0
    assert all(
        len({p for p, g in zip(parts, groups, strict=True) if g == group}) == 1 for group in set(groups)
    )


def test_laptops_without_stickers_are_divided_by_the_same_shares() -> None:
    groups, clean = list(range(100)), [number % 5 == 0 for number in range(100)]
    parts = split_groups(groups, (0.5, 0.35, 0.15), seed=0, clean=clean)
    assert [parts.count(part) for part in range(3)] == [50, 35, 15]
    assert [sum(c for c, p in zip(clean, parts, strict=True) if p == part) for part in range(3)] == [10, 7, 3]


def test_copies_are_left_out_and_copies_with_other_objects_refused(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    copy = root / "images" / "lid_09.png"
    copy.write_bytes((root / "images" / "lid_02.png").read_bytes())
    labels = root / "labels" / "lid_09.txt"
    labels.write_text("0 0.5 0.5 0.1 0.1\n")
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert refused.exit_code == 2
    assert "lid_09.png and images/lid_02.png have other objects" in refused.output
    repaired = imported(root, "--out", tmp_path / "repaired", "--repair", *MEANING)
    assert repaired.exit_code == 0, repaired.output
    assert "lid_09.png and images/lid_02.png have other objects: both left out" in repaired.output
    assert len(read_coco(tmp_path / "repaired")) == 2
    labels.write_text((root / "labels" / "lid_02.txt").read_text())
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert "images/lid_09.png has the pixels of images/lid_02.png" in result.output
    assert len(read_coco(tmp_path / "out")) == 3


def test_a_picture_without_a_label_file_was_not_labelled(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    (root / "labels" / "lid_03.txt").unlink()
    assert imported(root, "--out", tmp_path / "out", *MEANING).exit_code == 0
    assert len(read_coco(tmp_path / "out")) == 2


def test_all_faults_are_named_and_boxes_outside_can_be_repaired(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    label = root / "labels" / "lid_02.txt"
    label.write_text("0 0.9 0.5 0.4 0.5\n0 0.5 0.5 0 0.1\n")
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert refused.exit_code == 2
    assert f"{label}: line 1: bbox" in refused.output
    assert f"{label}: line 2: bbox" in refused.output
    assert "--repair clips" in refused.output
    result = imported(root, "--out", tmp_path / "out", *MEANING, "--repair")
    assert result.exit_code == 0, result.output
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out")["lid_02.png"] == [([56, 15, 80, 45], 2)]
    assert len(yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["repaired"]) == 2


def test_pictures_that_cannot_be_read_are_named_together_and_can_be_left_out(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    whole = (root / "images" / "lid_02.png").read_bytes()
    (root / "images" / "lid_02.png").write_bytes(whole[: len(whole) // 2])
    (root / "images" / "lid_03.png").write_bytes(b"no picture")
    (root / "labels" / "lid_01.txt").write_text("0 0.9 0.5 0.4 0.5\n1 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1\n")
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert refused.exit_code == 2
    assert "3 faults" in refused.output
    for name in ("images/lid_02.png: ", "images/lid_03.png: ", "labels/lid_01.txt: line 1: bbox"):
        assert name in refused.output
    assert "leaves out pictures that cannot be read" in refused.output
    result = imported(root, "--out", tmp_path / "out", *MEANING, "--repair")
    assert result.exit_code == 0, result.output
    assert "picture left out, with its labels" in result.output
    document = json.loads((tmp_path / "out" / "annotations.json").read_text())
    assert [image["source_name"] for image in document["images"]] == ["images/lid_01.png"]
    repaired = yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["repaired"]
    assert [line.endswith("picture left out, with its labels") for line in repaired] == [False, True, True]
    # a picture that is not there is named with them; where none is left nothing is written
    (root / "images" / "lid_01.png").write_bytes(b"")
    none = imported(root, "--out", tmp_path / "none", *MEANING, "--repair")
    assert none.exit_code == 2
    assert "none of 3 pictures can be read" in none.output
    assert not (tmp_path / "none").exists()


def test_faults_of_annotations_and_of_pictures_are_named_together(tmp_path: Path) -> None:
    root = source(tmp_path, "voc")
    (root / "images" / "lid_02.png").write_bytes(b"no picture")
    (root / "images" / "lid_03.png").unlink()
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert refused.exit_code == 2
    assert "2 faults" in refused.output
    assert "lid_02.png: " in refused.output
    assert "picture lid_03.png is not below" in refused.output.replace("'", "")


def video(root: Path, numbers: list[int]) -> Path:
    """Pictures that differ, numbered like frames of a video; a sticker on every second one."""
    (root / "in").mkdir()
    for number in numbers:
        cv2.imwrite(str(root / "in" / f"video{number:04d}.png"), picture(number))
    document = {
        "images": [
            {"id": n, "file_name": f"video{n:04d}.png", "width": WIDTH, "height": HEIGHT} for n in numbers
        ],
        "categories": [{"id": 1, "name": "s"}],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 30, 40]} for n in numbers[::2]
        ],
    }
    (root / "in" / "a.json").write_text(json.dumps(document))
    return root / "in"


def test_frames_of_a_video_are_one_laptop_and_told_when_they_are_not(tmp_path: Path) -> None:
    scenes = [start + 6 * step for start in range(0, 12000, 1000) for step in range(4)]
    root = video(tmp_path, scenes)
    options = [root, "--class", "s=sticker", "--split", "0.5,0.25,0.25"]
    apart = imported(*options, "--out", tmp_path / "apart")
    assert apart.exit_code == 0, apart.output
    assert "test: 12 of 12 pictures have a name that differs by at most 30 in its number" in apart.output
    assert "import again with --consecutive N" in apart.output
    joined = imported(*options, "--consecutive", "6", "--out", tmp_path / "joined")
    assert joined.exit_code == 0, joined.output
    assert "in its number" not in joined.output
    scenes_of = {}
    for part in ("learn", "calibrate", "test"):
        items = read_coco(tmp_path / "joined" / part)
        scenes_of[part] = {int(Path(item.source_name).stem[5:]) // 1000 for item in items}
        assert len({item.workpiece_id for item in items}) == len(scenes_of[part]) == len(items) // 4
    assert sum(map(len, scenes_of.values())) == len(set().union(*scenes_of.values())) == 12
    assert yaml.safe_load((tmp_path / "joined" / "import.yaml").read_text())["consecutive"] == 6
    # numbers that --group says are those of laptops number no frames
    grouped = imported(*options, "--group", r"video(\d+)", "--out", tmp_path / "grouped")
    assert "in its number" not in grouped.output
    # without parts nothing can be in another one
    assert "in its number" not in imported(*options[:3], "--out", tmp_path / "whole").output


def test_the_parts_say_what_they_can_prove_and_whether_they_are_alike(tmp_path: Path) -> None:
    root = many(tmp_path, 24, 1)
    options = ["--class", "s=sticker", "--split", "0.5,0.25,0.25", "--near", "-1", "--group", r"pc(\d\d)"]
    result = imported(root, "--out", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    assert "calibrate: 6 labelled images; in the proof 4 laptops" in result.output
    assert "--alpha 0.01 takes 230 or more laptops in the proof, there are 4" in result.output
    assert "would be its share" not in result.output
    # one laptop has all pictures without a sticker, so that they are in one part
    (tmp_path / "other").mkdir()
    root = many(tmp_path / "other", 60, 1)
    document = json.loads((root / "a.json").read_text())
    for image in document["images"][:24]:
        name = f"clean_{image['id']}.png"
        (root / image["file_name"]).rename(root / name)
        image["file_name"] = name
    document["annotations"] = [{**document["annotations"][0], "id": n, "image_id": n} for n in range(24, 60)]
    (root / "a.json").write_text(json.dumps(document))
    uneven = imported(root, "--out", tmp_path / "uneven", *options[:-1], "clean|pc[0-9]+")
    assert uneven.exit_code == 0, uneven.output
    assert "calibrate: 0 of 15 pictures show no sticker, 6 would be its share" in uneven.output
    assert "learn: 24" not in uneven.output
    assert "no labelled image" in uneven.output or "no laptops without a sticker" in uneven.output
    assert "another --seed makes other parts" in uneven.output


@pytest.mark.parametrize(
    ("kind", "file", "text", "message"),
    [
        ("voc", "Annotations/lid_01.xml", "<annotation>", "not an XML file"),
        (
            "voc",
            "Annotations/lid_01.xml",
            '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>',
            "has a document type or entities",
        ),
        (
            "voc",
            "Annotations/lid_01.xml",
            "<annotation><filename>lid_01.png</filename><object><name>logo</name><polygon><x1>3</x1></polygon></object></annotation>",
            "object 1: <polygon>: expected a <bndbox>",
        ),
        ("voc", "broken.json", '[{"a": 1', "it may hold labels: repair it, or take it out of the folder"),
        ("coco", "data.yml", "names: [", "it may hold labels"),
        ("yolo", "labels/other.txt", "0 0.5 0.5 0.1 0.1", "has 1 labels, but there is no picture for it"),
        ("yolo", "labels/lid_01.txt", "0 0.5 0.5 0.1 0.1 0.9", "a prediction with its confidence is no label"),
        ("yolo", "data.yaml", "names: [Aufkleber, logo, screw]\nkpt_shape: 3", "kpt_shape 3: expected two integers"),
        ("cvat", "annotations.xml", "<annotations><track/></annotations>", "export the task as CVAT for images 1.1"),
        (
            "cvat",
            "annotations.xml",
            '<annotations><image name="../../secret.png" width="80" height="60"/></annotations>',
            "is not below",
        ),
        ("yolo", "labels/lid_01.txt", "7 0.5 0.5 0.1 0.1", "class '7': expected one of 0 to 2"),
        ("yolo", "labels/lid_01.txt", "0 0.5 0.5 0.1", "line 1: 4 values"),
        ("yolo", "labels/lid_01.txt", "0 0.5 nan 0.1 0.1", "value 'nan': expected a number"),
        ("label-studio", "export.json", '[{"id": 1, "annotations": 3, "data": {}}]', "annotations 3: expected a list"),
        ("label-studio", "export.json", "[]", "no annotations found"),
        ("coco", "instances.json", '{"images": 3, "annotations": [], "categories": []}', "'images' to be a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(kind: str, file: str, text: str, message: str, tmp_path: Path) -> None:
    root = source(tmp_path, kind)
    (root / file).write_text(text)
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("written", ["", "lid_02", "D:\\photos\\lid_02.png"])
def test_a_picture_is_found_by_its_name_without_suffix_or_with_folders_of_another_machine(
    written: str, tmp_path: Path
) -> None:
    root = source(tmp_path, "voc")
    path = root / "Annotations" / "lid_02.xml"
    path.write_text(path.read_text().replace("lid_02.png", written))
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out") == EXPECTED


def test_a_picture_that_is_labelled_twice_is_named_with_both_places(tmp_path: Path) -> None:
    root = source(tmp_path, "coco")
    document = json.loads((root / "instances.json").read_text())
    twin = document["images"][0] | {"id": 99}
    document["images"].append(twin)
    (root / "instances.json").write_text(json.dumps(document))
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert refused.exit_code == 2
    first = document["images"][0]["id"]
    assert f"image {first} and in {root / 'instances.json'}: image 99" in " ".join(refused.output.split())
    with pytest.raises(
        InvalidInput, match=f"is that of image {first} too; expected one entry for each picture"
    ):
        parse_annotations(root / "annotations.json", document)


@pytest.mark.parametrize(
    "address", ["/storage-data/uploaded/?filepath=upload/3/", "/data/local-files/?d=lids%5C"]
)
def test_a_task_names_its_picture_by_an_address(address: str, tmp_path: Path) -> None:
    root = source(tmp_path, "label-studio")
    (root / "images" / "lid_01.png").rename(root / "images" / "lid+01.png")
    text = (root / "export.json").read_text()
    (root / "export.json").write_text(re.sub(r'"[^"]*lid_01\.png"', json.dumps(f"{address}lid+01.png"), text))
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert {item.source_name for item in read_coco(tmp_path / "out")} > {"images/lid+01.png"}


def test_a_label_file_may_have_the_name_of_its_picture_as_in_an_address(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    for folder, name in (("images", "d\u00e9 1.png"), ("labels", "d%C3%A9%201.TXT")):
        file = root / folder / f"lid_01{name[-4:].lower()}"
        file.rename(root / folder / name)
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert sorted(len(item.labels) for item in read_coco(tmp_path / "out")) == [0, 1, 2]


def test_label_files_that_are_all_empty_are_named_as_such(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    for file in (root / "labels").glob("*.txt"):
        file.write_text("")
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert refused.exit_code == 2
    assert "none of 3 pictures has a label; CVAT leaves polygons" in " ".join(refused.output.split())


def test_two_formats_in_one_folder_are_not_guessed(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    write_cvat(root, root / "images")
    refused = imported(root, "--out", tmp_path / "out", *MEANING)
    assert "has annotations of cvat and yolo; choose one with --format" in refused.output
    assert imported(root, "--out", tmp_path / "out", "--format", "cvat", *MEANING).exit_code == 0


def test_nothing_is_left_of_an_import_that_fails_while_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = source(tmp_path, "coco")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sticker_uq.io.coco.write_annotations", full)
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_turned_shapes_give_the_box_around_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    cv2.imwrite(str(tmp_path / "in" / "a.png"), picture(0))
    image = f'<image name="a.png" width="{WIDTH}" height="{HEIGHT}">'
    shapes = (
        '<box label="s" xtl="20" ytl="20" xbr="40" ybr="30" rotation="90"/>'
        '<ellipse label="s" cx="50" cy="30" rx="8" ry="4" rotation="90"/>'
        '<ellipse label="s" cx="50" cy="30" rx="8" ry="4"/>'
    )
    (tmp_path / "in" / "a.xml").write_text(f"<annotations>{image}{shapes}</image></annotations>")
    assert imported(tmp_path / "in", "--out", tmp_path / "out", "--class", "s=sticker").exit_code == 0
    (item,) = read_coco(tmp_path / "out")
    np.testing.assert_allclose(item.boxes, [[25, 15, 35, 35], [46, 22, 54, 38], [42, 26, 58, 34]], atol=1e-4)
    (tmp_path / "in" / "a.xml").unlink()
    turned = {"x": 50, "y": 50, "width": 25, "height": 10, "rotation": 90, "rectanglelabels": ["s"]}
    region = {"original_width": WIDTH, "original_height": HEIGHT, "value": turned}
    task = {"data": {"image": "s3://bucket/a.png"}, "annotations": [{"result": [region]}]}
    (tmp_path / "in" / "a.json").write_text(json.dumps([task]))
    assert imported(tmp_path / "in", "--out", tmp_path / "two", "--class", "s=sticker").exit_code == 0
    (item,) = read_coco(tmp_path / "two")
    # 20 x 6 px turned clockwise around its upper left corner (40, 30)
    np.testing.assert_allclose(item.boxes, [[34, 30, 40, 50]], atol=1e-4)


def label_studio(root: Path, results: list[dict[str, Any]], **task: Any) -> Path:
    """A folder with a picture and its task: ``results``, or the lists of JSON-MIN in ``task``."""
    (root / "in").mkdir(exist_ok=True)
    cv2.imwrite(str(root / "in" / "a.png"), picture(0))
    whole = {"id": 7, "image": "a.png", **task} if task else {"id": 7, "data": {"image": "a.png"}}
    content = whole if task else {**whole, "annotations": [{"result": results}]}
    (root / "in" / "a.json").write_text(json.dumps([content]))
    return root / "in"


def region(kind: str, label: str | None = "s", **value: Any) -> dict[str, Any]:
    labels = {} if label is None else {kind: [label]}
    size = {"original_width": WIDTH, "original_height": HEIGHT}
    return {"type": kind, **size, "value": {**value, **labels}}


BOX = {"x": 25.0, "y": 50.0, "width": 25.0, "height": 20.0, "rotation": 0}
PIXELS = [20.0, 30.0, 40.0, 42.0]


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (
            [region("brushlabels", format="rle", rle=[1, 2])],
            "region 1: 'brushlabels': the box of such a region is not read",
        ),
        (
            [region("rectanglelabels", **BOX), region("keypointlabels", x=1, y=2, width=0.3)],
            "region 2: 'keypointlabels'",
        ),
        (
            [region("rectanglelabels", None, **BOX)],
            "region 1: 'rectanglelabels' with labels []: expected a single one",
        ),
        ([region("rectangle", None, **BOX)], "region 1: 'rectangle' with labels []: expected a single one"),
        ([region("vectorlabels", vertices=[{"x": 1, "y": 2}])], "region 1: 'vectorlabels'"),
    ],
)
def test_a_shape_that_cannot_be_read_is_never_nothing(
    results: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    refused = imported(label_studio(tmp_path, results), "--out", tmp_path / "out", "--class", "s=sticker")
    assert refused.exit_code == 2
    assert f"task 7: {message}" in " ".join(refused.output.split())
    assert not (tmp_path / "out").exists()


def test_what_is_no_shape_is_passed_over_and_counted(tmp_path: Path) -> None:
    results = [
        {**region("rectangle", None, **BOX), "id": "a"},
        {**region("labels", "s", **BOX), "id": "a"},
        {**region("choices", "dirty", **BOX), "id": "a"},
        {"type": "relation", "from_id": "a", "to_id": "b"},
        {"type": "textarea", "value": {"text": ["x"]}},
        region("brushlabels", "junk", format="rle", rle=[1]),
    ]
    source = label_studio(tmp_path, results)
    result = imported(
        source,
        "--out",
        tmp_path / "out",
        "--class",
        "s=sticker",
        "--ignore",
        "junk",
        "--json",
        tmp_path / "counts.json",
    )
    assert result.exit_code == 0, result.output
    assert "2 labels declared, 1 read, 1 ignored" in result.output
    (item,) = read_coco(tmp_path / "out")
    np.testing.assert_allclose(item.boxes, [PIXELS])
    counts = json.loads((tmp_path / "counts.json").read_text())["labels"]
    assert counts["passed_over"] == {"choices, texts and relations": 3}
    assert counts["ignored"] == {"junk": 1}
    assert (counts["objects"], counts["read"]) == (2, 1)


def test_all_lists_of_a_short_export_are_read(tmp_path: Path) -> None:
    size = {"original_width": WIDTH, "original_height": HEIGHT}
    dirt = [{"x": 1, "y": 1, "width": 2, "height": 2, "rectanglelabels": ["dirt"], **size}]
    source = label_studio(
        tmp_path, [], dirt=dirt, label=[{**BOX, "rectanglelabels": ["s"], **size}], note="x"
    )
    result = imported(source, "--out", tmp_path / "out", "--class", "s=sticker", "--ignore", "rest")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(read_coco(tmp_path / "out")[0].boxes, [PIXELS])
    brush = [{"format": "rle", "rle": [1, 2], "brushlabels": ["s"], **size}]
    refused = imported(
        label_studio(tmp_path, [], brush=brush), "--out", tmp_path / "two", "--class", "s=sticker"
    )
    assert refused.exit_code == 2
    assert "task 7: region 1: 'brushlabels'" in refused.output


def cvat(root: Path, shapes: str) -> Path:
    (root / "in").mkdir(exist_ok=True)
    cv2.imwrite(str(root / "in" / "a.png"), picture(0))
    image = f'<image name="a.png" width="{WIDTH}" height="{HEIGHT}">'
    (root / "in" / "a.xml").write_text(f"<annotations>{image}{shapes}</image></annotations>")
    return root / "in"


def test_shapes_of_ignored_classes_cannot_stop_an_import(tmp_path: Path) -> None:
    source = cvat(
        tmp_path,
        '<box label="s" xtl="20" ytl="30" xbr="40" ybr="42"/><points label="junk" points="1,2"/><box label="junk" xtl="x"/>'
        '<mask label="s" rle="1" left="4" top="5" width="6" height="7"/><tag label="dirty"/>',
    )
    result = imported(source, "--out", tmp_path / "out", "--class", "s=sticker", "--ignore", "rest")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(read_coco(tmp_path / "out")[0].boxes, [PIXELS, [4, 5, 10, 12]])
    assert "4 labels declared, 2 read, 2 ignored" in result.output
    assert "not read: 1 tags of whole pictures" in result.output
    refused = imported(source, "--out", tmp_path / "two", "--class", "s=sticker", "--class", "junk=logo")
    assert refused.exit_code == 2
    assert "object 2: <points> of class 'junk': expected one of box, polygon, ellipse, mask" in refused.output


@pytest.mark.parametrize("size", ["", "<size><width>0</width><height>0</height></size>", "<size/>"])
def test_boxes_in_pixels_need_no_size(size: str, tmp_path: Path) -> None:
    root = source(tmp_path, "voc")
    for path in (root / "Annotations").iterdir():
        top = ElementTree.parse(path).getroot()
        for child in top.findall("size"):
            top.remove(child)
        for one in top.findall("object"):
            ElementTree.SubElement(one, "difficult").text = "1"
        path.write_text(ElementTree.tostring(top, "unicode").replace("</annotation>", f"{size}</annotation>"))
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out") == EXPECTED
    assert "3 objects are marked as difficult: they count as any other object" in result.output


@pytest.mark.parametrize("kind", FORMATS)
def test_a_byte_order_mark_changes_nothing(kind: str, tmp_path: Path) -> None:
    root = source(tmp_path, kind)
    for path in root.rglob("*"):
        if path.suffix in (".txt", ".json", ".xml", ".yaml"):
            path.write_text(path.read_text(), encoding="utf-8-sig")
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out") == EXPECTED


def test_crowds_stay_crowds_unless_each_is_one_object(tmp_path: Path) -> None:
    root = source(tmp_path, "coco")
    document = json.loads((root / "instances.json").read_text())
    document["annotations"][0]["iscrowd"] = 1
    for entry in (*document["images"], *document["annotations"], *document["categories"]):
        entry["id"] = float(entry["id"])
    (root / "instances.json").write_text(json.dumps(document))
    kept = imported(root, "--out", tmp_path / "kept", *MEANING)
    assert kept.exit_code == 0, kept.output
    assert "4 labels declared, 2 read, 1 ignored, 1 crowd" in kept.output
    first = read_coco(tmp_path / "kept", crowd=True)[0]
    assert first.crowd.tolist() == [EXPECTED["lid_01.png"][0][0]]
    assert first.boxes.tolist() == [EXPECTED["lid_01.png"][1][0]]
    objects = imported(root, "--out", tmp_path / "objects", *MEANING, "--crowd", "object")
    assert objects.exit_code == 0, objects.output
    assert boxes_of(read_coco(tmp_path / "objects"), tmp_path / "objects") == EXPECTED


def test_coco_boxes_need_no_size_of_the_picture(tmp_path: Path) -> None:
    root = source(tmp_path, "coco")
    document = json.loads((root / "instances.json").read_text())
    document["images"] = [{**image, "width": None, "height": None} for image in document["images"]]
    (root / "instances.json").write_text(json.dumps(document))
    assert imported(root, "--out", tmp_path / "out", *MEANING).exit_code == 0
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out") == EXPECTED


def test_without_boxes_polygons_are_read(tmp_path: Path) -> None:
    root = source(tmp_path, "coco")
    document = json.loads((root / "instances.json").read_text())
    x, y, w, h = document["annotations"][0].pop("bbox")
    document["annotations"][0]["segmentation"] = [[x, y, x + w, y, x + 1, y + h], [x, y, x + 1, y, x, y + 1]]
    (root / "instances.json").write_text(json.dumps(document))
    assert imported(root, "--out", tmp_path / "out", *MEANING).exit_code == 0
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out") == EXPECTED
    document["annotations"][0]["segmentation"] = {"counts": [0, 9], "size": [HEIGHT, WIDTH]}
    document["annotations"][1]["category_id"] = "1"
    (root / "instances.json").write_text(json.dumps(document))
    refused = imported(root, "--out", tmp_path / "two", *MEANING)
    assert "annotation 0: bbox None: expected four numbers" in refused.output
    assert "category_id '1' (text)" in refused.output


def test_turned_boxes_of_cvat_in_coco_give_the_box_around_them(tmp_path: Path) -> None:
    root = source(tmp_path, "coco")
    document = json.loads((root / "instances.json").read_text())
    document["annotations"][0].update(bbox=[10, 20, 20, 10], attributes={"rotation": 90.0, "occluded": False})
    (root / "instances.json").write_text(json.dumps(document))
    assert imported(root, "--out", tmp_path / "out", *MEANING).exit_code == 0
    np.testing.assert_allclose(read_coco(tmp_path / "out")[0].boxes[0], [15, 15, 25, 35], atol=1e-5)


def test_key_points_are_no_polygon(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    (root / "data.yaml").write_text(yaml.safe_dump({"names": CLASSES, "kpt_shape": [2, 2]}))
    for path in (root / "labels").iterdir():
        path.write_text("".join(f"{line} 0.01 0.01 0.99 0.99\n" for line in path.read_text().splitlines()))
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert boxes_of(read_coco(tmp_path / "out"), tmp_path / "out") == EXPECTED


def test_files_that_hold_no_labels_of_the_format_are_said(tmp_path: Path) -> None:
    root = source(tmp_path, "yolo")
    (root / "labels" / "gone.txt").write_text("")
    (root / "images" / "new.PNG").write_bytes((root / "images" / "lid_01.png").read_bytes())
    (root / "b.csv").write_text("filename,class\n")
    for name, content in {
        "a.json": json.dumps({"shapes": [], "imagePath": "lid_01.png"}),
        "labelTxt/lid_01.txt": "1 1 9 1 9 9 1 9 logo 0",
        "c.csv": "filename,width,height,class,xmin,ymin,xmax,ymax\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content)
        refused = imported(root, "--out", tmp_path / "out", *MEANING)
        assert refused.exit_code == 2
        assert f"first {root / name}; " in " ".join(refused.output.split())
    result = imported(root, "--out", tmp_path / "out", "--format", "yolo", *MEANING)
    assert result.exit_code == 0, result.output
    for kind in (
        "files of oriented boxes (labelTxt of DOTA)",
        "text files that belong to no picture",
        "pictures without a label file",
        "files of labelme",
        "another kind (.csv)",
    ):
        assert kind in result.output


@pytest.mark.parametrize(
    ("content", "tool"),
    [
        ({"shapes": [], "imagePath": "a.png"}, "labelme"),
        ({"_via_img_metadata": {}}, "VGG Image Annotator"),
        ({"a.png123": {"filename": "a.png", "regions": []}}, "VGG Image Annotator"),
        ({"description": "", "objects": [], "size": {"height": 3, "width": 4}}, "Supervisely"),
        ([{"image": "a.png", "annotations": []}], "CreateML"),
        (
            [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}],
            "detections in COCO's format of results",
        ),
    ],
)
def test_exports_of_tools_that_are_not_read_are_named(content: object, tool: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    refused = imported(tmp_path, "--out", tmp_path / "out", "--class", "s=sticker")
    assert refused.exit_code == 2
    assert f"a.json is of {tool}; export or convert it, for example to COCO" in " ".join(
        refused.output.split()
    )


def test_a_picture_is_found_whatever_case_and_composition_its_name_has(tmp_path: Path) -> None:
    root = source(tmp_path, "voc")
    (root / "images" / "lid_02.png").rename(root / "images" / "lid_u\u0308.PNG")
    path = root / "Annotations" / "lid_02.xml"
    path.write_text(path.read_text().replace("lid_02.png", "LID_\u00fc.png"), encoding="utf-8")
    result = imported(root, "--out", tmp_path / "out", *MEANING)
    assert result.exit_code == 0, result.output
    assert sorted(len(item.labels) for item in read_coco(tmp_path / "out")) == [0, 1, 2]

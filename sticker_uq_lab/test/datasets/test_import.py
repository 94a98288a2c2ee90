# SPDX-License-Identifier: Apache-2.0
"""Photographs labelled with other tools: the same boxes from every format, upright, and no laptop in two parts."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.formats import FORMATS
from sticker_uq_lab.datasets.importing.grouping import split_groups
from sticker_uq_lab.datasets.importing.importing import shown_box, shown_size

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


def imported(root: Path, *options: object, out: str = "out") -> Any:
    """The command's result; it writes beside ``root``."""
    arguments = (root, "--out", root.parent / out, "--no-compare", *(options or MEANING))
    return CliRunner().invoke(app, ["dataset", "import", *map(str, arguments)])


def refusal(root: Path, *options: object, out: str = "out") -> str:
    """What the command says that refuses and leaves nothing."""
    result = imported(root, *options, out=out)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert not (root.parent / out).exists()
    return " ".join(result.output.split())


def taken(root: Path, *options: object, out: str = "out") -> tuple[str, list[LabelledImage]]:
    """What the command says that succeeds, and the pictures that it wrote; none where there are parts."""
    result = imported(root, *options, out=out)
    assert result.exit_code == 0, result.output
    folder = root.parent / out
    return result.output, read_coco(folder) if (folder / "annotations.json").is_file() else []


def boxes_of(items: list[LabelledImage]) -> dict[str, list[tuple[list[float], int]]]:
    return {
        Path(item.source_name).name: [
            (np.round(box, 3).tolist(), int(label))
            for box, label in zip(item.boxes, item.labels, strict=True)
        ]
        for item in items
    }


def edit(path: Path, change: Callable[[Any], object]) -> None:
    """Change the JSON document in ``path``."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


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


def annotated(
    root: Path, names: Iterable[str], objects: Mapping[int, Sequence[float]], size: Any = None
) -> Path:
    """Annotations in COCO's format of the pictures ``names``, with one sticker on those whose numbers are in ``objects``."""
    width, height = size or (WIDTH, HEIGHT)
    document = {
        "images": [
            {"id": n, "file_name": name, "width": width, "height": height} for n, name in enumerate(names)
        ],
        "categories": [{"id": 1, "name": "s"}],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 1, "bbox": list(box)} for n, box in objects.items()
        ],
    }
    (root / "a.json").write_text(json.dumps(document))
    return root


STICKER = ("--class", "s=sticker")


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


def many(root: Path, laptops: int, each: int) -> Path:
    """Pictures of laptops, some frames of each: nearly the same; a sticker on every second one."""
    (root / "in").mkdir()
    names = []
    for laptop in range(laptops):
        base = picture(100 + laptop).astype(np.int16)
        for frame in range(each):
            noise = np.random.default_rng(laptop * each + frame).integers(-2, 3, base.shape)
            names.append(f"pc{laptop:02d}_{frame}.png")
            cv2.imwrite(str(root / "in" / names[-1]), np.clip(base + noise, 0, 255).astype(np.uint8))
    return annotated(root / "in", names, dict.fromkeys(range(0, len(names), 2), (1, 2, 30, 40)))


@pytest.mark.parametrize("grouping", [["--group", r"pc(\d+)", "--near", "-1"], [], ["--near", "-1"]])
def test_no_laptop_is_in_two_parts(grouping, tmp_path):
    root = many(tmp_path, 12, 4)
    if grouping == ["--near", "-1"]:  # the annotations name the laptops

        def name_them(document: Any) -> None:
            for image in document["images"]:
                image["workpiece_id"] = image["file_name"][:4]

        edit(root / "a.json", name_them)
    options = [*STICKER, "--split", "0.5,0.25,0.25", *grouping]
    taken(root, *options)
    laptops: dict[str, set[str]] = {}
    for part, count in (("learn", 24), ("calibrate", 12), ("test", 12)):
        items = read_coco(tmp_path / "out" / part)
        assert len(items) == count
        laptops[part] = {item.source_name[:4] for item in items}
        assert len({item.workpiece_id for item in items}) == len(laptops[part]) == count // 4
        labelled = LabelledSource(tmp_path / "out" / part)
        assert len({labelled.workpiece_of(item, 0) for item in labelled.items.values()}) == count // 4
    assert not laptops["learn"] & laptops["calibrate"]
    assert not (laptops["learn"] | laptops["calibrate"]) & laptops["test"]
    # the same seed gives the same parts, another one others
    for name, seed in (("same", 0), ("other", 1)):
        taken(root, *options, "--seed", seed, out=name)
    first, same, other = (
        (tmp_path / name / "learn" / "annotations.json").read_text() for name in ("out", "same", "other")
    )
    assert first == same != other


def test_parts_that_stay_empty_and_wrong_shares_are_refused(tmp_path):
    root = many(tmp_path, 2, 2)
    for options, message in (
        (["--split", "0.7,0.15,0.15"], "4 pictures of 2 laptops: nothing is left for"),
        (["--split", "0.7,0.2"], "expected the shares of learn, calibrate, test"),
        (["--split", "0.7,0.2,0.2"], "which sum to 1"),
        (["--group", "("], "not a regular expression"),
        (["--group", "x"], "finds nothing in 4 of 4 names, first 'pc00_0.png'"),
    ):
        assert message in refusal(root, *STICKER, *options)


def test_laptops_without_stickers_are_divided_by_the_same_shares():
    groups, clean = list(range(100)), [number % 5 == 0 for number in range(100)]
    parts = split_groups(groups, (0.5, 0.35, 0.15), seed=0, clean=clean)
    assert [parts.count(part) for part in range(3)] == [50, 35, 15]
    assert [sum(c for c, p in zip(clean, parts, strict=True) if p == part) for part in range(3)] == [10, 7, 3]


def test_copies_are_left_out_and_copies_with_other_objects_refused(tmp_path):
    root = source(tmp_path, "yolo")
    (root / "images" / "lid_09.png").write_bytes((root / "images" / "lid_02.png").read_bytes())
    labels = root / "labels" / "lid_09.txt"
    labels.write_text("0 0.5 0.5 0.1 0.1\n")
    assert "lid_09.png and images/lid_02.png have other objects" in refusal(root)
    output, items = taken(root, *MEANING, "--repair", out="repaired")
    assert "lid_09.png and images/lid_02.png have other objects: both left out" in output
    assert len(items) == 2
    labels.write_text((root / "labels" / "lid_02.txt").read_text())
    output, items = taken(root)
    assert "images/lid_09.png has the pixels of images/lid_02.png" in output
    assert len(items) == 3


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


def test_frames_of_a_video_are_one_laptop_and_told_when_they_are_not(tmp_path):
    numbers = [start + 6 * step for start in range(0, 12000, 1000) for step in range(4)]
    root = tmp_path / "in"
    root.mkdir()
    names = [f"video{number:04d}.png" for number in numbers]
    for number, name in zip(numbers, names, strict=True):
        cv2.imwrite(str(root / name), picture(number))
    annotated(root, names, dict.fromkeys(range(0, len(names), 2), (1, 2, 30, 40)))
    options = [*STICKER, "--split", "0.5,0.25,0.25"]
    apart, _ = taken(root, *options, out="apart")
    assert "test: 12 of 12 pictures have a name that differs by at most 30 in its number" in apart
    assert "import again with --consecutive N" in apart
    joined, _ = taken(root, *options, "--consecutive", "6")
    assert "in its number" not in joined
    scenes_of = {}
    for part in ("learn", "calibrate", "test"):
        items = read_coco(tmp_path / "out" / part)
        scenes_of[part] = {int(Path(item.source_name).stem[5:]) // 1000 for item in items}
        assert len({item.workpiece_id for item in items}) == len(scenes_of[part]) == len(items) // 4
    assert sum(map(len, scenes_of.values())) == len(set().union(*scenes_of.values())) == 12
    assert yaml.safe_load((tmp_path / "out" / "import.yaml").read_text())["consecutive"] == 6
    # numbers that --group says are those of laptops number no frames, and without parts nothing can be in another one
    assert "in its number" not in taken(root, *options, "--group", r"video(\d+)", out="grouped")[0]
    assert "in its number" not in taken(root, *STICKER, out="whole")[0]


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

# SPDX-License-Identifier: Apache-2.0
"""The same three labelled photographs in every format that is imported, and the command that imports them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import yaml
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import LabelledImage, read_coco

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

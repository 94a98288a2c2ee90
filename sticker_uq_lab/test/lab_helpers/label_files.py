# SPDX-License-Identifier: Apache-2.0
"""Files of labels as other tools write them, each of one sticker on a picture, and the command that imports them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import LabelledImage, read_coco

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


def refused_again(root: Path, *options: object) -> list[str]:
    code, said = imported(root, *options, out="again")
    assert code == 2, said
    return [said]

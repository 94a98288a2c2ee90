# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from sticker_uq.cli import app
from sticker_uq.io.coco import read_coco


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A folder with one good object and one of every fault."""
    cv2.imwrite(str(tmp_path / "lid.png"), np.zeros((60, 80, 3), np.uint8))
    boxes: list[tuple[int, Any, int, int]] = [
        (1, [10, 10, 20, 20], 3, 2),
        (2, [70, 10, 20, 20], 3, 2),
        (3, [10, 10, 0, 20], 3, 1),
        (4, [90, 10, 5, 5], 3, 1),
        (5, [1, 2, 3], 3, 1),
        (6, [1, 2, 3, 4], 99, 1),
        (1, [40, 30, 10, 10], 3, 1),
        (7, [0, 0, 0, 0], 3, 8),
    ]
    document = {
        "info": {"licence": "kept"},
        "categories": [{"id": 1, "name": "logo"}, {"id": 2, "name": "sticker"}, {"id": 8, "name": "vent"}],
        "images": [{"id": 3, "file_name": "lid.png", "width": 80, "height": 60}],
        "annotations": [
            {"id": identity, "bbox": box, "image_id": image, "category_id": category}
            for identity, box, image, category in boxes
        ],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    (tmp_path / "categories.yaml").write_text("vent: ignore\n")
    return tmp_path


def check(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["dataset", "check", *map(str, arguments)])


def test_faulty_boxes_are_clipped_or_left_out_and_named(faulty: Path) -> None:
    before = (faulty / "annotations.json").read_text()
    refused = check(faulty)
    assert refused.exit_code == 2
    assert "6 faults" in refused.output
    assert "--repair" in refused.output
    result = check(faulty, "--repair", faulty / "new.json")
    assert result.exit_code == 0, result.output
    assert (faulty / "annotations.json").read_text() == before
    lines = result.output.splitlines()
    assert lines[0].startswith("annotation 2 of lid.png: clipped to [70.0, 10.0, 10.0, 20.0], 50% of it")
    assert [line.split(":")[1] for line in lines[1:5]] == [" left out"] * 4
    assert lines[5].startswith("annotation 1, now 8")
    assert lines[6].startswith("6 changes in")
    (faulty / "new.json").replace(faulty / "annotations.json")
    (item,) = read_coco(faulty)
    assert item.boxes.tolist() == [[10, 10, 30, 30], [70, 10, 80, 30], [40, 30, 50, 40]]
    assert item.labels.tolist() == [2, 2, 1]
    document = json.loads((faulty / "annotations.json").read_text())
    assert document["info"] == {"licence": "kept"}
    assert [entry["id"] for entry in document["annotations"]] == [1, 2, 8, 7]


def test_what_cannot_be_repaired_is_refused_without_a_file(faulty: Path) -> None:
    document = json.loads((faulty / "annotations.json").read_text())
    document["images"][0]["width"] = "80"
    (faulty / "annotations.json").write_text(json.dumps(document))
    result = check(faulty, "--repair", faulty / "new.json")
    assert result.exit_code == 2
    assert "image 3: width '80'" in result.output
    assert not (faulty / "new.json").exists()


def test_the_annotations_themselves_are_not_overwritten(faulty: Path) -> None:
    result = check(faulty, "--repair", faulty / "annotations.json")
    assert result.exit_code == 2
    assert "is the file to repair" in result.output

# SPDX-License-Identifier: Apache-2.0
"""What annotators said about the objects of a COCO folder."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from sticker_uq.io.coco import read_coco
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.annotator_votes import sticker_fractions


def folder(path: Path, *further: dict[str, Any]) -> Path:
    """A COCO folder of one picture with a logo and stickers, which have these further fields."""
    cv2.imwrite(str(path / "a.png"), np.zeros((60, 80, 3), np.uint8))
    objects = [
        {"id": n + 1, "image_id": 3, "category_id": 1 if n == 0 else 2, "bbox": [5 * n, 5, 10, 10], **fields}
        for n, fields in enumerate(further)
    ]
    document = {
        "categories": [{"id": 1, "name": "logo"}, {"id": 2, "name": "sticker"}],
        "images": [{"id": 3, "file_name": "a.png", "width": 80, "height": 60}],
        "annotations": objects,
    }
    (path / "annotations.json").write_text(json.dumps(document))
    return path


def test_counts_and_probabilities_and_neither(tmp_path):
    data = folder(
        tmp_path,
        {},
        {},
        {"annotators": {"sticker": 3, "logo": 1}},
        {"annotators": {"background": 2}},
        {"probabilities": [0.1, 0.25, 0.65]},
    )
    (found,) = sticker_fractions(data, read_coco(data)).values()
    assert found.tolist() == [0.0, 1.0, 0.75, 0.0, 0.65]


def test_an_object_of_an_ignored_category_is_left_out_with_what_was_said_about_it(tmp_path):
    data = folder(
        tmp_path, {}, {"annotators": {"sticker": 1, "logo": 3}}, {}, {"annotators": {"screw": 5}}, {}
    )
    document = json.loads((data / "annotations.json").read_text())
    document["categories"].append({"id": 7, "name": "Screw"})
    for annotation in document["annotations"][2:4]:
        annotation["category_id"] = 7
    (data / "annotations.json").write_text(json.dumps(document))
    (data / "categories.yaml").write_text("screw: ignore\n")
    items = read_coco(data)
    (found,) = sticker_fractions(data, items).values()
    assert items[0].boxes[:, 0].tolist() == [0, 5, 20]
    assert found.tolist() == [0.0, 0.25, 1.0]


def test_votes_may_use_the_names_of_the_folder(tmp_path):
    data = folder(tmp_path, {}, {"annotators": {"Badge": 2, "sticker": 1, "screw": 1, "brand mark": 1}})
    document = json.loads((data / "annotations.json").read_text())
    document["categories"] += [
        {"id": n, "name": name} for n, name in enumerate(("badge", "screw", "brand mark"), 3)
    ]
    (data / "annotations.json").write_text(json.dumps(document))
    (data / "categories.yaml").write_text("badge: sticker\nscrew: ignore\nbrand mark: logo\n")
    (found,) = sticker_fractions(data, read_coco(data)).values()
    assert found.tolist() == [0.0, 0.6]


@pytest.mark.parametrize(
    "field",
    [
        {"annotators": {"sticker": 0}},
        {"annotators": {"stiker": 2}},
        {"annotators": {"sticker": 1.5}},
        {"annotators": [3, 1]},
        {"probabilities": [0.1, 0.9]},
        {"probabilities": [0.5, 0.6, 0.5]},
        {"probabilities": [-0.5, 0.5, 1.0]},
        {"probabilities": "often"},
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, field):
    data = folder(tmp_path, {}, field)
    with pytest.raises(InvalidInput, match=f"annotation 2: {next(iter(field))} .* expected"):
        sticker_fractions(data, read_coco(data))

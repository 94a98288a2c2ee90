# SPDX-License-Identifier: Apache-2.0
"""What shows labels that belong to other pictures: agreement with a detector, and the sheet of the oddest pictures."""

from pathlib import Path

import cv2
import numpy as np

from lab_helpers.label_files import HEIGHT, WIDTH, coco, pictures, taken, write
from sticker_uq.io.coco import LabelledImage
from sticker_uq_lab.datasets.importing.nets import SHEET, agreement, contact_sheet, oddest


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

# SPDX-License-Identifier: Apache-2.0
"""The rendered laptops in test/laptops, which ``make`` there draws."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.coco import EncodedScene, LabelledImage, read_coco, write_coco

FOLDER = Path(__file__).parents[1] / "laptops"
"""COCO folders: ``small`` (240 x 180 px, one sticker each), ``medium`` (480 x 360), ``large`` and ``page`` (960 x 720)."""


def labelled(name: str, number: int = 0) -> LabelledImage:
    """A picture of the folder ``name`` with its boxes and labels."""
    return read_coco(FOLDER / name)[number]


def laptop(name: str = "large", number: int = 0, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """The picture, (H, W, 3) uint8 BGR, made smaller where a ``size``, (width, height), is given."""
    image = cv2.imread(str(labelled(name, number).path))
    return image if size is None else cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def scene(number: int, image_format: str = "jpg") -> EncodedScene:
    """A small picture and its objects, to be written to another COCO folder."""
    found = labelled("small", number)
    return EncodedScene.of(laptop("small", number), number, image_format, found.boxes, found.labels)


def data_set(folder: Path, count: int) -> Path:
    """A new COCO ``folder`` with the first ``count`` small pictures."""
    write_coco(folder, map(scene, range(count)))
    return folder

# SPDX-License-Identifier: Apache-2.0
"""Loading, augmentation and resizing of training pictures, with transformations that keep boxes axis-aligned."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.scene import InvalidInput, Rng

_SMALLEST_SIDE = 2.0  # px of the result; thinner boxes are dropped
_LEAST_VISIBLE = 0.35  # lowest share of a box inside a crop for it to stay labelled


@dataclass(frozen=True)
class Sample:
    """``image`` (H, W, 3) uint8 BGR; ``boxes`` (N, 4) float32 px of ``image``; ``labels`` (N,) int64."""

    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]


def split_items(
    data: Sequence[Path], val_data: Path | None, seed: int
) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """Pictures to train on, and to validate on: of ``val_data``, or a tenth by ``seed``; a laptop is on one side."""
    items, laptops = [], []
    for folder in data:
        for item in read_coco(folder, crowd=True):
            items.append(item)
            laptops.append(f"{item.workpiece_id} of {folder}" if item.workpiece_id else str(len(items)))
    if val_data is not None:
        return items, read_coco(val_data, crowd=True)
    if len(items) < 2:
        folders = ", ".join(map(str, data))
        raise InvalidInput(
            f"{folders}: has {len(items)} picture, expected 2 or more to train and validate on"
        )
    sizes = Counter(laptops)
    names = list(sizes)
    if len(names) < 2:
        folders = ", ".join(map(str, data))
        raise InvalidInput(
            f"{folders}: all {len(items)} pictures show one laptop ({names[0]}), expected 2 or more, or --val-data"
        )
    held_out: set[str] = set()
    count = 0
    for number in np.random.default_rng(seed).permutation(len(names)).tolist():
        if count >= max(1, len(items) // 10) or len(held_out) == len(names) - 1:
            break
        held_out.add(names[number])
        count += sizes[names[number]]
    learned = [item for item, laptop in zip(items, laptops, strict=True) if laptop not in held_out]
    return learned, [item for item, laptop in zip(items, laptops, strict=True) if laptop in held_out]


def augment(item: LabelledImage, size: tuple[int, int] | None, rng: Rng) -> Sample:
    """A random variant of ``item``, resized to ``size`` (width, height) or left in the size of its crop.

    Zoomed in on a part or out onto a plain margin, mirrored in both directions, with other brightness,
    contrast, gamma and colour balance, sometimes with its channels swapped.
    """
    image = read_picture(item)
    image, offset = _window(image, rng)
    boxes, labels = _shift(item, offset, image.shape)
    height, width = image.shape[:2]
    if size is not None and size != (width, height):
        # Detectors interpolate without smoothing; area averaging now and then keeps the model from relying on it.
        image = cv2.resize(
            image, size, interpolation=cv2.INTER_AREA if rng.random() < 0.3 else cv2.INTER_LINEAR
        )
        boxes = boxes * np.array([size[0] / width, size[1] / height] * 2, np.float32)
        width, height = size
    if rng.random() < 0.5:
        image = image[:, ::-1]
        boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)
    if rng.random() < 0.5:
        image = image[::-1]
        boxes = np.stack([boxes[:, 0], height - boxes[:, 3], boxes[:, 2], height - boxes[:, 1]], 1)
    image = cv2.LUT(np.ascontiguousarray(image), _tones(rng))
    if rng.random() < 0.1:
        image = np.ascontiguousarray(image[..., rng.permutation(3)])
    large = (boxes[:, 2:] - boxes[:, :2] >= _SMALLEST_SIDE).all(axis=1)
    return Sample(image, boxes[large].astype(np.float32), labels[large])


def _window(image: NDArray[np.uint8], rng: Rng) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """A part of ``image`` or ``image`` on a margin, with the position of its upper left corner in ``image``."""
    height, width = image.shape[:2]
    kind = rng.random()
    if kind < 0.35:
        return image, (0, 0)
    scale = rng.uniform(0.65, 1.0) if kind < 0.8 else rng.uniform(1.0, 1.25)
    wide, high = (max(8, round(side * scale * rng.uniform(0.93, 1.07))) for side in (width, height))
    x, y = (round(rng.uniform(0, 1) * (old - new)) for old, new in ((width, wide), (height, high)))
    part = image[max(y, 0) : min(y + high, height), max(x, 0) : min(x + wide, width)]
    top, left = max(-y, 0), max(-x, 0)
    bottom, right = high - part.shape[0] - top, wide - part.shape[1] - left
    if top or left or bottom or right:
        grey = tuple(rng.integers(0, 256, 3).tolist())
        part = cv2.copyMakeBorder(part, top, bottom, left, right, cv2.BORDER_CONSTANT, value=grey)
    return np.asarray(part, np.uint8), (x, y)


def _shift(
    item: LabelledImage, offset: tuple[int, int], shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Boxes and labels of ``item`` in the window that begins at ``offset``, without those mostly outside."""
    boxes = item.boxes - np.array([*offset, *offset], np.float32)
    inside = boxes.clip(0, np.array([shape[1], shape[0], shape[1], shape[0]], np.float32))
    whole, left = (np.prod(b[:, 2:] - b[:, :2], axis=1) for b in (boxes, inside))
    kept = left > _LEAST_VISIBLE * whole
    return inside[kept], item.labels[kept]


def _tones(rng: Rng) -> NDArray[np.uint8]:
    """A table (256, 3) of new values for every channel."""
    values = np.linspace(0, 1, 256)[:, None] ** rng.uniform(0.75, 1.35)
    contrast, brightness = rng.uniform(0.75, 1.25), rng.uniform(-0.1, 0.1)
    balance = rng.uniform(0.9, 1.1, 3)
    table = ((values - 0.5) * contrast + 0.5 + brightness) * balance
    return (table.clip(0, 1) * 255).round().astype(np.uint8)[:, None, :].reshape(256, 1, 3)

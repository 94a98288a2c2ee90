# SPDX-License-Identifier: Apache-2.0
"""What still shows labels that were read wrongly: a contact sheet for a person, and agreement with a detector."""

from collections.abc import Callable, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.images import Picture, read_image_file
from sticker_uq.scene import ObjectClass
from sticker_uq.uncertainty.overlap import iou_matrix

SHEET = "contact_sheet.jpg"
_TILE, _COLUMNS, _ROWS = 400, 4, 4
_COLOURS = {ObjectClass.LOGO: (60, 200, 60), ObjectClass.STICKER: (40, 80, 255)}
_PICTURES, _PERMUTATIONS, _MOST_BOXES = 20, 999, 20
FEWEST = 6
"""Labelled pictures below which no permutation is rare enough."""
ALPHA = 0.05


def oddest(items: Sequence[LabelledImage], most: int = _COLUMNS * _ROWS) -> list[int]:
    """The ``most`` pictures whose objects differ most from all others in place, size, shape or number, the oddest first."""
    owner = np.repeat(np.arange(len(items)), [len(item.boxes) for item in items])
    sizes = np.array([(item.width, item.height) * 2 for item in items], float)[owner]
    boxes = np.concatenate([item.boxes for item in items]) / sizes
    sides = boxes[:, 2:] - boxes[:, :2]
    features = np.column_stack(
        [boxes[:, :2] + sides / 2, np.log(sides.prod(axis=1)), np.log(sides[:, 0] / sides[:, 1])]
    )
    score = _distance(np.array([[len(item.boxes)] for item in items], float))
    np.maximum.at(score, owner, _distance(features))
    return np.argsort(-score, kind="stable")[:most].tolist()


def _distance(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The largest distance of each row from the median of its column, in median absolute deviations."""
    apart = np.abs(values - np.median(values, axis=0)) if len(values) else values
    spread = np.median(apart, axis=0) if len(values) else 1.0
    return np.asarray((apart / np.maximum(spread, 1e-3)).max(axis=1, initial=0))


def contact_sheet(items: Sequence[LabelledImage]) -> Picture:
    """The oddest pictures with their boxes, classes and names."""
    sheet = np.full((_ROWS * _TILE, _COLUMNS * _TILE, 3), 255, np.uint8)
    for place, index in enumerate(oddest(items)):
        item = items[index]
        scale = (_TILE - 20) / max(item.width, item.height)
        size = max(1, round(item.width * scale)), max(1, round(item.height * scale))
        tile = cv2.resize(read_image_file(item.path), size, interpolation=cv2.INTER_AREA)
        labels = [ObjectClass(int(label)) for label in (*item.labels, *item.crowd_labels)]
        for box, label in zip(np.concatenate([item.boxes, item.crowd]) * scale, labels, strict=True):
            x1, y1, x2, y2 = box.round().astype(int).tolist()
            cv2.rectangle(tile, (x1, y1), (x2, y2), _COLOURS[label], 2)
            _write(tile, label.name.lower(), (x1, max(y1 - 3, 10)), _COLOURS[label])
        top, left = place // _COLUMNS * _TILE, place % _COLUMNS * _TILE
        sheet[top : top + size[1], left : left + size[0]] = tile
        _write(sheet, item.path.name[-40:], (left, top + _TILE - 6), (0, 0, 0))
    return sheet


def _write(image: Picture, text: str, place: tuple[int, int], colour: tuple[int, int, int]) -> None:
    cv2.putText(image, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA)


def agreement(
    items: Sequence[LabelledImage], detect: Callable[[Picture], npt.NDArray[np.float32]]
) -> tuple[int, float]:
    """How many labelled pictures were looked at, and the p-value of a permutation test: that their labels agree with the boxes
    (K, 4) of ``detect``, best first, no better than with those of another of these pictures.
    """
    labelled = [item for item in items if len(item.boxes)]
    chosen = [
        labelled[n]
        for n in np.linspace(0, len(labelled) - 1, min(_PICTURES, len(labelled))).round().astype(int)
    ]
    sizes = [np.array([item.width, item.height] * 2, np.float32) for item in chosen]
    labels = [item.boxes / size for item, size in zip(chosen, sizes, strict=True)]
    seen = [
        detect(read_image_file(i.path))[:_MOST_BOXES] / size for i, size in zip(chosen, sizes, strict=True)
    ]
    overlap = np.array([[_overlap(one, other) for other in seen] for one in labels])
    rng, rows = np.random.default_rng(0), np.arange(len(chosen))
    others = [overlap[rows, rng.permutation(rows)].mean() for _ in range(_PERMUTATIONS)]
    better = sum(one >= overlap[rows, rows].mean() - 1e-9 for one in others)
    return len(chosen), (1 + better) / (1 + _PERMUTATIONS)


def _overlap(labels: npt.NDArray[np.float32], seen: npt.NDArray[np.float32]) -> float:
    return float(iou_matrix(labels, seen).max(axis=1).mean()) if len(seen) else 0.0

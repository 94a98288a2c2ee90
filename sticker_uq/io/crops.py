# SPDX-License-Identifier: Apache-2.0
"""Square crops of objects, resized to one size."""

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.scene import FloatArray

MARGIN = 1.25
"""Side of a crop as a multiple of the longer side of the object's box, so that the crop shows a margin of the lid."""
_PLACES = 60


def crop_square(box: FloatArray) -> tuple[int, int, int]:
    """Left, top and side in px of the square crop of an object in ``box`` (4,); it may extend beyond the picture."""
    x1, y1, x2, y2 = (float(v) for v in box)
    side = max(4, round(MARGIN * max(x2 - x1, y2 - y1)))
    return round((x1 + x2 - side) / 2), round((y1 + y2 - side) / 2), side


def cut_crops(image: npt.NDArray[np.uint8], boxes: FloatArray, size: int) -> npt.NDArray[np.float32]:
    """Crops (N, 3, size, size) 0..1 BGR of ``boxes`` (N, 4) px of ``image`` (H, W, 3) uint8, mirrored beyond its border."""
    found = np.empty((len(boxes), 3, size, size), np.float32)
    for number, box in enumerate(boxes):
        left, top, side = crop_square(box)
        rows = _mirror_indices(np.arange(top, top + side), image.shape[0])
        columns = _mirror_indices(np.arange(left, left + side), image.shape[1])
        piece = image[rows[:, None], columns[None, :]]
        method = cv2.INTER_AREA if side >= size else cv2.INTER_LINEAR
        resized = cv2.resize(piece, (size, size), interpolation=method)
        found[number] = resized.transpose(2, 0, 1).astype(np.float32) / 255
    return found


def empty_boxes(
    size: tuple[int, int], boxes: FloatArray, count: int, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Up to ``count`` square boxes (M, 4) px of object size, clear of ``boxes`` (N, 4), in an image of ``size`` (w, h).

    Candidates lie within the hull of the objects, which are on the laptop, or in the middle half of the picture.
    """
    whole = np.array([*size, *size], float)
    low, high = whole[:2] * 0.3, whole[:2] * 0.7
    side = 0.12 * size[1]
    if len(boxes):
        low = np.minimum(low, boxes[:, :2].min(axis=0))
        high = np.maximum(high, boxes[:, 2:].max(axis=0))
        side = float(np.median((boxes[:, 2:] - boxes[:, :2]).max(axis=1)))
    found: list[npt.NDArray[np.float64]] = []
    for _ in range(_PLACES):
        if len(found) == count:
            break
        half = side / 2 * rng.uniform(0.8, 1.2)
        centre = rng.uniform(low, high)
        box = np.concatenate([centre - half, centre + half])
        reach = np.concatenate([centre - MARGIN * half, centre + MARGIN * half])
        taken = np.concatenate([np.asarray(boxes, float).reshape(-1, 4), *(b[None] for b in found)])
        apart = (taken[:, :2] >= reach[2:]) | (taken[:, 2:] <= reach[:2])
        if reach.min() >= 0 and (reach[2:] <= whole[:2]).all() and apart.any(axis=1).all():
            found.append(box)
    return np.asarray(found, np.float32).reshape(-1, 4)


def _mirror_indices(positions: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    folded = np.mod(positions, 2 * length)
    return np.where(folded >= length, 2 * length - 1 - folded, folded)

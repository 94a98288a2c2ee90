# SPDX-License-Identifier: Apache-2.0
"""A second look at what may be a sticker: enlarged, from the pixels that a camera has beyond those of the network's input."""

from collections.abc import Iterator
from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.detection import StochasticDetector
from sticker_uq.scene import FloatArray, ObjectClass, ObservedObject
from sticker_uq.uncertainty.observe import sticker_scores

_LEAST = 0.02
"""Mean probability of sticker from which an object is looked at: nobody is asked about less."""
_SIDE = 4
"""Close-ups in a row and in a column. Fewer of them, with more around each thing, tell mistakes less well."""
_ZOOM = 1.5
"""With 2.0 more stickers are larger than those of training and are no longer recognised."""
_SURE = 0.5
"""Mean of both looks from which an object that the passes call background is a sticker."""
_ROOM = 2.0
"""Sides of a close-up over those of its box, at least: what is large is enlarged less, or made smaller."""


def seen_closely(
    detector: StochasticDetector, image: npt.NDArray[np.uint8], objects: tuple[ObservedObject, ...]
) -> tuple[ObservedObject, ...]:
    """``objects`` of ``image`` (H, W, 3), of which those that may be a sticker have the probability that their close-up has.

    What the passes call background, and sooner a sticker than a logo, is a sticker where their probability of one and that of the
    close-up are half or more on average. Raises NonFiniteOutput as the detector does.
    """
    doubtful = [one for one in objects if one.over_all_passes[ObjectClass.STICKER] >= _LEAST]
    pictures = close_ups(image, np.array([one.box for one in doubtful]))
    scores = [s for shown, boxes in pictures for s in sticker_scores(boxes, detector.detect_apart(shown))]
    seen = {one.id: _seen_as(one, score) for one, score in zip(doubtful, scores, strict=True)}
    return tuple(seen.get(one.id, one) for one in objects)


def _seen_as(one: ObservedObject, score: float) -> ObservedObject:
    vector = one.over_all_passes
    sooner = one.label is ObjectClass.BACKGROUND and vector[ObjectClass.STICKER] >= vector[ObjectClass.LOGO]
    sticker = sooner and (float(vector[ObjectClass.STICKER]) + score) / 2 >= _SURE
    return replace(one, close_up=score, label=ObjectClass.STICKER if sticker else one.label)


def close_ups(
    image: npt.NDArray[np.uint8], boxes: FloatArray
) -> Iterator[tuple[npt.NDArray[np.uint8], FloatArray]]:
    """Pictures (H, W, 3) uint8, as large as ``image``, of the close-ups of up to 16 of ``boxes`` (N, 4) px each, in order, and
    where these boxes lie there, (n, 4) float32 px.

    Close-ups are mirrored too: the more a second look differs from the first, the more it adds.
    """
    height, width = image.shape[:2]
    high, wide = max(height // _SIDE, 1), max(width // _SIDE, 1)
    for start in range(0, len(boxes), _SIDE * _SIDE):
        picture, placed = np.zeros_like(image), []
        for number, (x1, y1, x2, y2) in enumerate(boxes[start : start + _SIDE * _SIDE].tolist()):
            zoom = min(_ZOOM, 1 / max(_ROOM * (x2 - x1) / wide, _ROOM * (y2 - y1) / high, 1e-9))
            w, h = min(max(round(wide / zoom), 1), width), min(max(round(high / zoom), 1), height)
            left = min(max(round((x1 + x2 - w) / 2), 0), width - w)
            top = min(max(round((y1 + y2 - h) / 2), 0), height - h)
            method = cv2.INTER_AREA if w > wide else cv2.INTER_LINEAR
            part = cv2.resize(image[top : top + h, left : left + w], (wide, high), interpolation=method)
            row, column = divmod(number, _SIDE)
            here = slice(row * high, (row + 1) * high), slice(column * wide, (column + 1) * wide)
            picture[here] = part[:, ::-1]
            inside = np.array([left + w - x2, y1 - top, left + w - x1, y2 - top])
            placed.append(inside * ([wide / w, high / h] * 2) + [column * wide, row * high] * 2)
        yield picture, np.array(placed, np.float32)

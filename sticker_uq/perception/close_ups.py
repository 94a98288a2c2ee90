# SPDX-License-Identifier: Apache-2.0
"""A second look at what may be a sticker: enlarged, from the pixels that a camera has beyond those of the network's input."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.detection import StochasticDetector
from sticker_uq.scene import FloatArray, ObjectClass, ObservedObject
from sticker_uq.uncertainty.observe import sticker_scores

AT_ONCE = 16
"""Close-ups in a picture. Fewer of them, with more around each thing, tell mistakes less well."""
ZOOM = 1.5
"""Most that weights enlarge which learned whole pictures: with 2.0 more stickers are larger than theirs and not recognised."""
LEARNED_ZOOM = 3.0
"""Most for weights that learned close-ups."""
_LEAST = 0.02
"""Mean probability of sticker from which an object is looked at: nobody is asked about less."""
_SIDE = 4
_SURE = 0.5
"""Mean of both looks from which an object that the passes call background is a sticker."""
_ROOM = 2.0
"""Sides of a close-up over those of its box, at least: what is large is enlarged less, or made smaller."""


def look_closely(
    detector: StochasticDetector,
    image: npt.NDArray[np.uint8],
    objects: tuple[ObservedObject, ...],
    most_zoom: float = ZOOM,
) -> tuple[ObservedObject, ...]:
    """``objects`` of ``image`` (H, W, 3), of which those that may be a sticker have the probability that their close-up has.

    What the passes call background, and sooner a sticker than a logo, is a sticker where their probability of one and that of the
    close-up are half or more on average. Raises NonFiniteOutput as the detector does.
    """
    doubtful = [one for one in objects if one.over_all_passes[ObjectClass.STICKER] >= _LEAST]
    boxes = np.array([one.box for one in doubtful])
    scores: list[float] = []
    for picture, parts in close_ups(image, boxes, most_zoom):
        own = boxes[len(scores) : len(scores) + len(parts), None]
        shown = np.concatenate([part.project_boxes(box) for part, box in zip(parts, own, strict=True)])
        scores += sticker_scores(shown, detector.detect_in(picture))
    seen = {one.id: _with_close_up(one, score) for one, score in zip(doubtful, scores, strict=True)}
    return tuple(seen.get(one.id, one) for one in objects)


def _with_close_up(one: ObservedObject, score: float) -> ObservedObject:
    vector = one.over_all_passes
    sooner = one.label is ObjectClass.BACKGROUND and vector[ObjectClass.STICKER] >= vector[ObjectClass.LOGO]
    sticker = sooner and (float(vector[ObjectClass.STICKER]) + score) / 2 >= _SURE
    return replace(one, close_up=score, label=ObjectClass.STICKER if sticker else one.label)


@dataclass(frozen=True)
class CloseUp:
    """The part of an image in ``window`` and where a picture shows it, mirrored, in ``place``: left, top, width, height px."""

    window: tuple[int, int, int, int]
    place: tuple[int, int, int, int]

    def project_boxes(self, boxes: FloatArray) -> FloatArray:
        """Where the picture shows ``boxes`` (N, 4) px of the image, (N, 4) float32."""
        (left, top, w, h), (x, y, wide, high) = self.window, self.place
        x1, y1, x2, y2 = boxes.T
        inside = np.stack([left + w - x2, y1 - top, left + w - x1, y2 - top], axis=1)
        return np.asarray(inside * ([wide / w, high / h] * 2) + [x, y] * 2, np.float32)


def close_ups(
    image: npt.NDArray[np.uint8], boxes: FloatArray, most_zoom: float = ZOOM
) -> Iterator[tuple[npt.NDArray[np.uint8], list[CloseUp]]]:
    """Pictures (H, W, 3) uint8, as large as ``image``, of the close-ups of up to `AT_ONCE` of ``boxes`` (N, 4) px each, in order.

    Close-ups are mirrored too: the more a second look differs from the first, the more it adds.
    """
    height, width = image.shape[:2]
    high, wide = max(height // _SIDE, 1), max(width // _SIDE, 1)
    for start in range(0, len(boxes), AT_ONCE):
        picture, parts = np.zeros_like(image), []
        for number, (x1, y1, x2, y2) in enumerate(boxes[start : start + AT_ONCE].tolist()):
            zoom = min(most_zoom, 1 / max(_ROOM * (x2 - x1) / wide, _ROOM * (y2 - y1) / high, 1e-9))
            w, h = min(max(round(wide / zoom), 1), width), min(max(round(high / zoom), 1), height)
            left = min(max(round((x1 + x2 - w) / 2), 0), width - w)
            top = min(max(round((y1 + y2 - h) / 2), 0), height - h)
            method = cv2.INTER_AREA if w > wide else cv2.INTER_LINEAR
            part = cv2.resize(image[top : top + h, left : left + w], (wide, high), interpolation=method)
            row, column = divmod(number, _SIDE)
            y, x = row * high, column * wide
            picture[y : y + high, x : x + wide] = part[:, ::-1]
            parts.append(CloseUp((left, top, w, h), (x, y, wide, high)))
        yield picture, parts

"""Scenes with shapes that are no thing in particular, to learn from what it looks like when something lies there.

Random outlines with random surfaces (outlier exposure, Hendrycks et al. 2019). None of them is one of the things, unknown
stickers, occluders or patches of `CASES`, so that what is learned here is tried on kinds that it has never seen.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from sticker_uq.datasets.abnormal_surfaces import surface
from sticker_uq.datasets.overlays import lay
from sticker_uq.datasets.painting import Image
from sticker_uq.scene import FloatArray

MOST_SHAPES = 3
_ON_OBJECT = 0.5
"""Part of the shapes that lie on or beside an object."""
_INSIDE = 0.4
"""Part of these that are small and near its middle."""
_REALISTIC = 0.7
"""Part of the shapes with shadow, light and noise of the picture; the others are pasted."""
_COMPOSED = 0.35
"""Part of the shapes that are put together of several."""
_REACH = 40.0
"""Length of a bar that comes from outside of the picture, in half sides of an object."""


def exposed(image: Image, boxes: FloatArray, rng: np.random.Generator) -> tuple[Image, Image]:
    """``image`` (H, W, 3) uint8 BGR with one to three shapes laid on it, and what they cover, (H, W) uint8 up to 255.

    ``boxes`` (N, 4) px are the objects of the picture; some shapes lie on them, the others on or around the laptop.
    """
    height, width = image.shape[:2]
    result, covered = image.copy(), np.zeros((height, width), np.uint8)
    low, high = np.array([0.2 * width, 0.2 * height]), np.array([0.8 * width, 0.8 * height])
    if len(boxes):
        low, high = np.minimum(low, boxes[:, :2].min(axis=0)), np.maximum(high, boxes[:, 2:].max(axis=0))
    for _ in range(int(rng.integers(1, MOST_SHAPES + 1))):
        if len(boxes) and rng.random() < _ON_OBJECT:
            box = boxes[int(rng.integers(len(boxes)))]
            side = float(np.sqrt(np.prod(box[2:] - box[:2])))
            inside = rng.random() < _INSIDE
            centre = (box[:2] + box[2:]) / 2 + rng.uniform(-0.6, 0.6, 2) * side * (0.3 if inside else 1.0)
            side *= 0.6 if inside else 1.0
        else:
            side, centre = 0.16 * height, rng.uniform(low, high)
        colours, mask = _shape(result, centre, side * float(rng.uniform(0.2, 0.9)), rng)
        lift = float(rng.uniform(0.3, max(0.6, 0.012 * width)))
        lay(result, colours, mask, rng, height=lift, realistic=bool(rng.random() < _REALISTIC))
        covered = np.maximum(covered, mask)
    return result, covered


def _shape(image: Image, centre: FloatArray, unit: float, rng: np.random.Generator) -> tuple[Image, Image]:
    """Colours (H, W, 3) and coverage (H, W) of a shape about ``unit`` px in every direction, of one part or of several."""
    colours, covered = np.zeros_like(image), np.zeros(image.shape[:2], np.uint8)
    parts = int(rng.integers(2, 5)) if rng.random() < _COMPOSED else 1
    for _ in range(parts):
        size = unit if parts == 1 else unit * float(rng.uniform(0.2, 0.8))
        place = centre if parts == 1 else centre + rng.uniform(-0.6, 0.6, 2) * unit
        mask = _outline(covered.shape, place, size, rng)
        x, y, w, h = cv2.boundingRect(mask)
        if w:
            there = (slice(y, y + h), slice(x, x + w))
            colours[there][mask[there] > 0] = surface(h, w, image, rng)[mask[there] > 0]
            covered = np.maximum(covered, mask)
    return colours, covered


def _outline(size: tuple[int, ...], centre: FloatArray, unit: float, rng: np.random.Generator) -> Image:
    """Coverage (H, W) of a polygon, ellipse, blob, bar, star, ring or scribble about ``unit`` px in every direction."""
    mask = np.zeros(size, np.uint8)
    kind = int(rng.integers(8))
    if kind == 0:
        for _ in range(int(rng.integers(1, 5))):  # one scribble, or several side by side
            walk = np.cumsum(rng.normal(0, 0.5, (int(rng.integers(2, 7)), 2)), axis=0)
            away = rng.uniform(-0.6, 0.6, 2)
            points = np.rint((walk - walk.mean(axis=0) + away) * unit + centre).astype(np.int32)
            thickness = max(2, int(unit * rng.uniform(0.06, 0.35)))
            cv2.polylines(mask, [points], bool(rng.random() < 0.3), (255,), thickness, cv2.LINE_AA)
        return mask
    turn = float(rng.uniform(0, 2 * math.pi))
    c, s = math.cos(turn), math.sin(turn)
    corners = _corners(kind, rng) @ np.array([[c, s], [-s, c]])
    cv2.fillPoly(mask, [np.rint((corners * unit + centre) * 16).astype(np.int32)], (255,), cv2.LINE_AA, 4)
    if kind != 3 and rng.random() < 0.2:
        x, y = np.rint(centre).astype(int).tolist()
        cv2.circle(mask, (x, y), int(unit * rng.uniform(0.1, 0.5)), (0,), -1)
    return mask


def _corners(kind: int, rng: np.random.Generator) -> FloatArray:
    """Corners (N, 2) of an outline of that kind, about one unit in every direction."""
    slim = float(rng.uniform(0.1, 1.0))
    if kind in (3, 4):
        far = _REACH if kind == 3 else 1.0
        return np.array([[-1, -slim], [far, -slim], [far, slim], [-1, slim]])
    if kind == 1:
        turns = np.sort(rng.uniform(0, 2 * math.pi, int(rng.integers(3, 10))))
        reach = rng.uniform(0.4, 1.2, len(turns))
    elif kind == 5:  # a blob
        turns = np.linspace(0, 2 * math.pi, 60, endpoint=False)
        waves = [rng.normal(0, 0.3 / k) * np.cos(k * turns + rng.uniform(0, 6)) for k in range(2, 6)]
        reach = np.clip(0.8 + np.sum(waves, axis=0), 0.15, 1.4)
    elif kind == 6:  # a star or a regular polygon
        turns = np.linspace(0, 2 * math.pi, 2 * int(rng.integers(3, 9)), endpoint=False)
        reach = np.where(np.arange(len(turns)) % 2, rng.uniform(0.4, 1.0), 1.0)
    else:
        turns, reach = np.linspace(0, 2 * math.pi, 40, endpoint=False), np.ones(40)
    corners = np.stack([np.cos(turns), np.sin(turns)], axis=1) * reach[:, None]
    return np.asarray(corners * [1.0, slim if kind in (2, 7) else rng.uniform(0.6, 1.0)])

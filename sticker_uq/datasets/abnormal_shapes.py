"""Scenes with shapes that are no thing in particular, to learn from what it looks like when something lies there.

Random outlines with random surfaces (outlier exposure, Hendrycks et al. 2019). None of them is one of the things, unknown
stickers, occluders or patches of `CASES`, so that what is learned here is tried on kinds that it has never seen.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from sticker_uq.datasets.overlays import lay
from sticker_uq.datasets.painting import Image
from sticker_uq.scene import FloatArray

MOST_SHAPES = 3
_ON_OBJECT = 0.6
"""Part of the shapes that lie on or beside an object."""
_REALISTIC = 0.6
"""Part of the shapes with shadow, light and noise of the picture; the others are pasted."""
_REACH = 40.0
"""Length of a bar that comes from outside of the picture, in half sides of an object."""


def exposed(image: Image, boxes: FloatArray, rng: np.random.Generator) -> tuple[Image, Image]:
    """``image`` (H, W, 3) uint8 BGR with one to three shapes laid on it, and what they cover, (H, W) uint8 up to 255.

    ``boxes`` (N, 4) px are the objects of the picture; some shapes lie on them, the others on or around the laptop.
    """
    height, width = image.shape[:2]
    result, covered = image.copy(), np.zeros((height, width), np.uint8)
    low, high = np.array([0.3 * width, 0.3 * height]), np.array([0.7 * width, 0.7 * height])
    if len(boxes):
        low, high = np.minimum(low, boxes[:, :2].min(axis=0)), np.maximum(high, boxes[:, 2:].max(axis=0))
    for _ in range(int(rng.integers(1, MOST_SHAPES + 1))):
        if len(boxes) and rng.random() < _ON_OBJECT:
            box = boxes[int(rng.integers(len(boxes)))]
            side = float(np.sqrt(np.prod(box[2:] - box[:2])))
            centre = (box[:2] + box[2:]) / 2 + rng.uniform(-0.6, 0.6, 2) * side
        else:
            side, centre = 0.16 * height, rng.uniform(low, high)
        mask = _outline((height, width), centre, side * float(rng.uniform(0.3, 0.9)), rng)
        lift = float(rng.uniform(0.5, max(0.6, 0.012 * width)))
        lay(result, _surface(result, rng), mask, rng, height=lift, realistic=bool(rng.random() < _REALISTIC))
        covered = np.maximum(covered, mask)
    return result, covered


def _outline(size: tuple[int, int], centre: FloatArray, unit: float, rng: np.random.Generator) -> Image:
    """Coverage (H, W) of a polygon, ellipse, bar from outside or scribble about ``unit`` px in every direction."""
    mask = np.zeros(size, np.uint8)
    kind = int(rng.integers(5))
    if kind == 0:
        walk = np.cumsum(rng.normal(0, 0.6, (int(rng.integers(2, 7)), 2)), axis=0)
        points = np.rint((walk - walk.mean(axis=0)) * unit + centre).astype(np.int32)
        thickness = max(2, int(unit * rng.uniform(0.08, 0.4)))
        cv2.polylines(mask, [points], False, (255,), thickness, cv2.LINE_AA)
        return mask
    slim = float(rng.uniform(0.1, 1.0))
    if kind == 1:
        turns = np.sort(rng.uniform(0, 2 * math.pi, int(rng.integers(3, 10))))
        corners = np.stack([np.cos(turns), np.sin(turns)], axis=1) * rng.uniform(0.4, 1.2, (len(turns), 1))
    elif kind == 2:
        turns = np.linspace(0, 2 * math.pi, 40, endpoint=False)
        corners = np.stack([np.cos(turns), np.sin(turns) * slim], axis=1)
    else:
        far = _REACH if kind == 3 else 1.0
        corners = np.array([[-1, -slim], [far, -slim], [far, slim], [-1, slim]])
    turn = float(rng.uniform(0, 2 * math.pi))
    c, s = math.cos(turn), math.sin(turn)
    points = np.rint((corners @ np.array([[c, s], [-s, c]]) * unit + centre) * 16).astype(np.int32)
    cv2.fillPoly(mask, [points], (255,), cv2.LINE_AA, 4)
    if kind != 3 and rng.random() < 0.2:
        x, y = np.rint(centre).astype(int).tolist()
        cv2.circle(mask, (x, y), int(unit * rng.uniform(0.1, 0.4)), (0,), -1)
    return mask


def _surface(image: Image, rng: np.random.Generator) -> Image:
    """A plain, graded, striped or cloudy surface (H, W, 3), or another part of ``image`` in other colours."""
    height, width = image.shape[:2]
    kind = int(rng.integers(5))
    if kind == 4:
        shift = (int(rng.integers(height)), int(rng.integers(width)))
        return np.ascontiguousarray(np.roll(image, shift, (0, 1))[..., rng.permutation(3)])
    first, second = rng.integers(0, 256, (2, 3)).astype(np.float32)
    if kind == 3:
        small = rng.standard_normal((height // 8 + 1, width // 8 + 1, 3)).astype(np.float32)
        clouds = cv2.resize(
            cv2.GaussianBlur(small, (0, 0), float(rng.uniform(0.3, 4))),
            (width, height),
            interpolation=cv2.INTER_CUBIC,
        )
        levels = first + (clouds - clouds.mean()) / clouds.std() * float(rng.uniform(20, 80))
        return np.clip(levels, 0, 255).astype(np.uint8)
    turn = float(rng.uniform(0, 2 * math.pi))
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    along = columns * math.cos(turn) + rows * math.sin(turn)
    share = np.zeros((height, width), np.float32)
    if kind == 1:
        share = (along - along.min()) / max(1.0, float(np.ptp(along)))
    elif kind == 2:
        wave = np.sin(along * (2 * math.pi / float(rng.uniform(4, 60))) + float(rng.uniform(0, 6)))
        share = (wave > float(rng.uniform(-0.6, 0.6))).astype(np.float32)
    noise = rng.normal(0, float(rng.uniform(0, 12)), (height, width, 1)).astype(np.float32)
    return np.clip(first + (second - first) * share[..., None] + noise, 0, 255).astype(np.uint8)

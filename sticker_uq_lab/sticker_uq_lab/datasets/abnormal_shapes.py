# SPDX-License-Identifier: Apache-2.0
"""Abnormal shapes of any kind and surface, to learn novelty from."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.scene import FloatArray, Rng
from sticker_uq_lab.rendering.painting import Image, lay, lid_region

Floats = npt.NDArray[np.float32]

_GREYISH = 0.5  # share of the colours that are nearly grey, as metal, rubber and paper are
_DETAILED = 0.5  # share of the surfaces with lines and circles on them
_MOST_DETAILS = 6
_MOST_WAVES = 6


def _paint(kinds: Sequence[Any], height: int, width: int, image: Image, rng: Rng) -> Image:
    """Surface (height, width, 3) uint8 of one of ``kinds``; some are cut from ``image`` (H, W, 3) in other colours."""
    made = kinds[int(rng.integers(len(kinds)))](height, width, image, rng)
    grain = rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(rng.uniform(0, 10))
    painted = np.ascontiguousarray(np.clip(np.rint(made + grain), 0, 255), np.uint8)
    if rng.random() < _DETAILED:
        _details(painted, rng)
    return painted


def print_of(height: int, width: int, image: Image, rng: Rng) -> Image:
    """A surface (height, width, 3) uint8 of full colours: blocks, waves or clouds, over all grey levels."""
    kinds = (_noisy, _waves, _cloudy, _stripe)
    made = kinds[rng.integers(len(kinds))](height, width, image, rng)
    if rng.random() < 0.5:  # two interleaved ones
        other = kinds[rng.integers(len(kinds))](height, width, image, rng)
        share = _wave(height, width, rng, 4, 60)[..., None] > rng.uniform(-0.5, 0.5)
        made = np.where(share, made, other)
    middle = made.mean(axis=(0, 1))
    strong = 128 + (made - middle) * np.float32(rng.uniform(1, 4))
    return np.asarray(np.clip(np.rint(strong), 0, 255), np.uint8)


def colour(rng: Rng) -> Floats:
    """A random colour (3,), every second one nearly grey."""
    if rng.random() < _GREYISH:
        return np.clip(rng.uniform(10, 245) + rng.normal(0, 10, 3), 0, 255).astype(np.float32)
    return rng.uniform(0, 255, 3).astype(np.float32)


def _mix(share: Floats, rng: Rng) -> Floats:
    first, second = colour(rng), colour(rng)
    return np.asarray(first + (second - first) * share[..., None], np.float32)


def _plain(height: int, width: int, image: Image, rng: Rng) -> Floats:
    return np.broadcast_to(colour(rng), (height, width, 3)).astype(np.float32)


def _grade(height: int, width: int, image: Image, rng: Rng) -> Floats:
    if rng.random() < 0.5:
        along = _along(height, width, rng)
    else:  # around a bright or dark place
        rows, columns = np.ogrid[:height, :width]
        y, x = rng.uniform(0, height), rng.uniform(0, width)
        along = np.hypot(rows - y, columns - x).astype(np.float32)
    return _mix((along - along.min()) / max(1.0, float(np.ptp(along))), rng)


def _stripe(height: int, width: int, image: Image, rng: Rng) -> Floats:
    stripes = _wave(height, width, rng, 3, 50) > rng.uniform(-0.6, 0.6)
    if rng.random() < 0.3:  # checks
        stripes ^= _wave(height, width, rng, 3, 50) > rng.uniform(-0.6, 0.6)
    return _mix(stripes.astype(np.float32), rng)


def _waves(height: int, width: int, image: Image, rng: Rng) -> Floats:
    made = np.zeros((height, width, 3), np.float32)
    for _ in range(rng.integers(2, _MOST_WAVES + 1)):
        made += _wave(height, width, rng, 4, 90)[..., None] * rng.normal(0, 60, 3).astype(np.float32)
    return np.asarray(made + colour(rng), np.float32)


def _cloudy(height: int, width: int, image: Image, rng: Rng) -> Floats:
    made = np.zeros((height, width, 3), np.float32)
    rough = rng.uniform(0.3, 1.0)
    for octave in range(5):
        cells = 2**octave + 1
        coarse = rng.standard_normal((cells, cells, 3), dtype=np.float32)
        made += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC) * np.float32(rough**octave)
    return np.asarray(colour(rng) + made * np.float32(rng.uniform(15, 60)), np.float32)


def _noisy(height: int, width: int, image: Image, rng: Rng) -> Floats:
    block = float(rng.choice([1, 2, 3, 4, 6, 9, 14]))
    size = (math.ceil(height / block), math.ceil(width / block), 3)
    cells = rng.random(size)
    if rng.random() < 0.5:  # only the ends of every channel
        cells = (cells < rng.uniform(0.2, 0.8)).astype(float)
    how = cv2.INTER_NEAREST if rng.random() < 0.5 else cv2.INTER_LINEAR
    return np.asarray(
        cv2.resize(255 * cells.astype(np.float32), (width, height), interpolation=how), np.float32
    )


def _cut(height: int, width: int, image: Image, rng: Rng) -> Floats:
    return _part(image, height, width, rng)[..., rng.permutation(3)].astype(np.float32)


def _photograph(height: int, width: int, image: Image, rng: Rng) -> Floats:
    photographs = _photographs()
    part = _part(photographs[rng.integers(len(photographs))], height, width, rng)
    return np.asarray(part[..., rng.permutation(3)].astype(np.float32) * np.float32(rng.uniform(0.5, 1.2)))


_SURFACES: Any = (_plain, _plain, _grade, _grade, _stripe, _waves, _cloudy, _noisy, _cut, _photograph)
"""The kinds of surface, as often as they are drawn."""
_PRINTED = (_plain, _plain, _plain, _stripe, _waves, _noisy, _cut, _photograph)
"""The same of a shape as flat as a sticker, which is printed and has no shading."""


def _part(picture: Image, height: int, width: int, rng: Rng) -> Image:
    scale = rng.uniform(0.5, 2.0)
    rows, columns = (
        max(1, min(have, round(want / scale)))
        for have, want in zip(picture.shape[:2], (height, width), strict=True)
    )
    top, left = rng.integers(picture.shape[0] - rows + 1), rng.integers(picture.shape[1] - columns + 1)
    part = picture[top : top + rows, left : left + columns]
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)


@lru_cache(maxsize=1)
def _photographs() -> tuple[Image, ...]:
    from sklearn.datasets import load_sample_images

    return tuple(np.ascontiguousarray(photo[..., ::-1]) for photo in load_sample_images().images)


def _along(height: int, width: int, rng: Rng) -> Floats:
    turn = rng.uniform(0, 2 * math.pi)
    rows, columns = np.ogrid[:height, :width]
    return np.asarray(columns * math.cos(turn) + rows * math.sin(turn), np.float32)


def _wave(height: int, width: int, rng: Rng, least: float, most: float) -> Floats:
    """A plane wave -1..1 whose length is between ``least`` and ``most`` px."""
    turns = 2 * math.pi / math.exp(rng.uniform(math.log(least), math.log(most)))
    return np.asarray(np.sin(_along(height, width, rng) * np.float32(turns) + np.float32(rng.uniform(0, 6))))


def _details(painted: Image, rng: Rng) -> None:
    height, width = painted.shape[:2]
    most = max(2, round(0.06 * max(height, width)))
    for _ in range(rng.integers(1, _MOST_DETAILS + 1)):
        ink = colour(rng).tolist()
        thickness = int(rng.integers(1, most + 1))
        (x1, x2), (y1, y2) = rng.integers(0, width, 2).tolist(), rng.integers(0, height, 2).tolist()
        if rng.random() < 0.6:
            cv2.line(painted, (x1, y1), (x2, y2), ink, thickness, cv2.LINE_AA)
        else:
            radius = max(1, int(rng.uniform(0.05, 0.4) * max(height, width)))
            cv2.circle(painted, (x1, y1), radius, ink, -1 if rng.random() < 0.4 else thickness, cv2.LINE_AA)


MOST_SHAPES = 3
_ROLES = {"lying": 0.5, "beside": 0.15, "over": 0.2, "patch": 0.15}
"""Shares of the shapes that lie apart, on or beside an object, over a large part of one, and small and flush on one."""
_FLAT = 0.55  # share of the shapes lying apart that are as flat as a sticker
_FLAT_LIFT, _RAISED_LIFT = (0.2, 1.2), (1.8, 12.0)
"""Height above the lid, px in a picture 960 px wide, with low ones more frequent; affects the shadow."""
_REALISTIC = 0.7  # share of the other shapes with shadow, light and noise of the picture; the rest are pasted
_COMPOSED = 0.35  # share of the shapes that are composed of several
_KINDS = tuple(range(8))
_BAR = 3
_REACHING = 0.4
"""Share of the shapes over an object that enter from outside the picture, as a hand or an arm does."""
_REACH = 40.0  # length of a bar that comes from outside of the picture, in half sides of an object
_HIDES = (0.3, 0.85)  # share of an object's box that a shape over it covers
_TRIES = 8
_LEAST_SIDE = 0.02  # lowest shorter side of a flat shape that counts, relative to the picture's height
_WIDTH = 960.0


class Exposed(NamedTuple):
    """A training picture (H, W, 3) uint8 BGR with random shapes as foreign objects on it.

    ``covered`` (H, W) uint8 up to 255: their coverage; ``raised``: coverage of those that are not as flat as a sticker;
    ``flat`` (K, 4) float32 px: boxes of the flat ones.
    """

    image: Image
    covered: Image
    raised: Image
    flat: FloatArray


def add_shapes(image: Image, boxes: FloatArray, rng: Rng) -> Exposed:
    """``image`` (H, W, 3) uint8 BGR with 1 to 3 random shapes, on its objects ``boxes`` (N, 4) px and on or around the laptop."""
    height, width = image.shape[:2]
    result = image.copy()
    covered, raised = np.zeros((height, width), np.uint8), np.zeros((height, width), np.uint8)
    flat: list[FloatArray] = []
    roles = rng.choice(list(_ROLES), int(rng.integers(1, MOST_SHAPES + 1)), p=list(_ROLES.values()))
    # flat shapes are below the others
    plans = sorted((role != "lying" or bool(rng.random() >= _FLAT), str(role)) for role in roles)
    for is_raised, role in plans:
        colours, mask = _laid(result, role, is_raised, np.concatenate([boxes, *(f[None] for f in flat)]), rng)
        if not is_raised:
            x, y, w, h = cv2.boundingRect(mask)
            box = np.array([x, y, x + w, y + h], np.float32)
            if _overlaps(box, [*boxes, *flat]) or (box[2:] - box[:2]).min() < _LEAST_SIDE * height:
                continue
            flat.append(box)
        else:
            raised = np.maximum(raised, mask)
        low, high = _RAISED_LIFT if is_raised else _FLAT_LIFT
        realistic = not is_raised or (role != "patch" and bool(rng.random() < _REALISTIC))
        lift = math.exp(rng.uniform(math.log(low), math.log(high))) * width / _WIDTH
        lay(result, colours, mask, rng, height=lift, realistic=realistic)
        covered = np.maximum(covered, mask)
    return Exposed(result, covered, raised, np.array(flat, np.float32).reshape(-1, 4))


def _laid(image: Image, role: str, is_raised: bool, boxes: FloatArray, rng: Rng) -> tuple[Image, Image]:
    sides = np.sqrt(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1))
    if role == "lying" or not len(boxes):
        side = float(np.median(sides)) if len(boxes) else 0.16 * image.shape[0]
        unit = side * float(rng.uniform(0.25, 0.65) if not is_raised else rng.uniform(0.2, 0.9))
        kinds = _KINDS if is_raised else [k for k in _KINDS if k != _BAR]
        surfaces = _SURFACES if is_raised else _PRINTED
        centre = (
            rng.uniform(*lid_region(image.shape, boxes, 0.2)) if is_raised else _free(image, boxes, unit, rng)
        )
        return _shape(image, centre, unit, rng, kinds, surfaces)
    which = int(rng.integers(len(boxes)))
    box, side = boxes[which], float(sides[which])
    middle = (box[:2] + box[2:]) / 2
    if role == "beside":
        centre = middle + rng.uniform(-0.6, 0.6, 2) * side
        return _shape(image, centre, side * rng.uniform(0.2, 0.9), rng)
    if role == "patch":
        return _flush(image, middle + rng.uniform(-0.15, 0.15, 2) * side, side, rng)
    return _over(image, box, side, rng)


def _free(image: Image, boxes: FloatArray, unit: float, rng: Rng) -> FloatArray:
    for _ in range(_TRIES):
        centre = rng.uniform(*lid_region(image.shape, boxes, 0.2))
        if not _overlaps(np.concatenate([centre - unit, centre + unit]), list(boxes)):
            break
    return np.asarray(centre, np.float64)


def _over(image: Image, box: FloatArray, side: float, rng: Rng) -> tuple[Image, Image]:
    middle = (box[:2] + box[2:]) / 2
    kinds = (_BAR,) if rng.random() < _REACHING else _KINDS
    for _ in range(_TRIES):
        centre = middle + rng.uniform(-0.9, 0.9, 2) * side
        colours, mask = _shape(image, centre, side * rng.uniform(0.4, 1.3), rng, kinds)
        x1, y1, x2, y2 = np.rint(np.maximum(box, 0)).astype(int)
        hidden = float((mask[y1:y2, x1:x2] > 127).mean()) if x2 > x1 and y2 > y1 else 0.0
        if _HIDES[0] <= hidden <= _HIDES[1]:
            break
    return colours, mask


def _flush(image: Image, centre: FloatArray, side: float, rng: Rng) -> tuple[Image, Image]:
    colours, mask = np.zeros_like(image), np.zeros(image.shape[:2], np.uint8)
    half = side * rng.uniform(0.2, 0.35) * np.array([1.0, rng.uniform(0.6, 1.0)])
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half
    if rng.random() < 0.5:
        corners = corners @ _rotation(rng.uniform(0, 2 * math.pi))
    cv2.fillPoly(mask, [np.rint((corners + centre) * 16).astype(np.int32)], (255,), cv2.LINE_AA, 4)
    x, y, w, h = cv2.boundingRect(mask)
    if w:
        colours[y : y + h, x : x + w] = print_of(h, w, image, rng)
    return colours, mask


def _overlaps(box: FloatArray, others: Sequence[FloatArray]) -> bool:
    apart = [(other[:2] > box[2:]) | (other[2:] < box[:2]) for other in others]
    return not all(one.any() for one in apart)


def _rotation(turn: float) -> FloatArray:
    c, s = math.cos(turn), math.sin(turn)
    return np.array([[c, s], [-s, c]])


def _shape(
    image: Image,
    centre: FloatArray,
    unit: float,
    rng: Rng,
    kinds: Sequence[int] = _KINDS,
    surfaces: Sequence[Any] = _SURFACES,
) -> tuple[Image, Image]:
    """Colours (H, W, 3) and coverage (H, W) of a shape about ``unit`` px in every direction, of one part or of several."""
    colours, covered = np.zeros_like(image), np.zeros(image.shape[:2], np.uint8)
    parts = int(rng.integers(2, 5)) if rng.random() < _COMPOSED else 1
    for _ in range(parts):
        size = unit if parts == 1 else unit * rng.uniform(0.2, 0.8)
        place = centre if parts == 1 else centre + rng.uniform(-0.6, 0.6, 2) * unit
        mask = _outline(covered.shape, place, size, rng, kinds)
        x, y, w, h = cv2.boundingRect(mask)
        if w:
            there = (slice(y, y + h), slice(x, x + w))
            colours[there][mask[there] > 0] = _paint(surfaces, h, w, image, rng)[mask[there] > 0]
            covered = np.maximum(covered, mask)
    return colours, covered


def _outline(size: tuple[int, ...], centre: FloatArray, unit: float, rng: Rng, kinds: Sequence[int]) -> Image:
    mask = np.zeros(size, np.uint8)
    kind = int(rng.choice(kinds))
    if kind == 0:
        for _ in range(rng.integers(1, 5)):  # one scribble, or several side by side
            walk = np.cumsum(rng.normal(0, 0.5, (int(rng.integers(2, 7)), 2)), axis=0)
            away = rng.uniform(-0.6, 0.6, 2)
            points = np.rint((walk - walk.mean(axis=0) + away) * unit + centre).astype(np.int32)
            thickness = max(2, int(unit * rng.uniform(0.06, 0.35)))
            cv2.polylines(mask, [points], bool(rng.random() < 0.3), (255,), thickness, cv2.LINE_AA)
        return mask
    corners = _corners(kind, rng) @ _rotation(rng.uniform(0, 2 * math.pi))
    cv2.fillPoly(mask, [np.rint((corners * unit + centre) * 16).astype(np.int32)], (255,), cv2.LINE_AA, 4)
    if kind != _BAR and rng.random() < 0.2:
        x, y = np.rint(centre).astype(int).tolist()
        cv2.circle(mask, (x, y), int(unit * rng.uniform(0.1, 0.5)), (0,), -1)
    return mask


def _corners(kind: int, rng: Rng) -> FloatArray:
    slim = rng.uniform(0.1, 1.0)
    if kind in (_BAR, 4):
        far = _REACH if kind == _BAR else 1.0
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

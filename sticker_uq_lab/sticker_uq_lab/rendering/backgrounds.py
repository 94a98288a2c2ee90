# SPDX-License-Identifier: Apache-2.0
"""Backgrounds: benches, mats, belts, sheets of metal and cloth, with a few tools."""

import math

import cv2
import numpy as np

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering.designs import paint_photograph
from sticker_uq_lab.rendering.painting import Floats, Image, Pen, clouds, grain, shade
from sticker_uq_lab.rendering.scene_spec import BackgroundSpec


def paint_background(background: BackgroundSpec, width: int, height: int) -> Image:
    rng = np.random.default_rng(background.seed)
    diagonal = math.ceil(math.hypot(width, height)) // 2 + 2
    # Half resolution: the background is out of focus and mostly hidden.
    side = 2 * ((diagonal + 1) // 2)
    if background.photograph:
        flat = paint_photograph(background.photograph, side, side)
    else:
        texture = _TEXTURES[background.kind](rng, side)
        flat = np.clip(np.asarray(background.colour, np.float32) + texture, 0, 255).astype(np.uint8)
    turn = cv2.getRotationMatrix2D((side / 2, side / 2), background.angle, 2.0)
    turn[0, 2] += width / 2 - side / 2
    turn[1, 2] += height / 2 - side / 2
    image: Image = cv2.warpAffine(
        flat, turn, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
    )
    for tool in background.clutter:
        _paint_tool(image, tool, rng)
    return image


def _wood(rng: Rng, side: int) -> Floats:
    texture = np.empty((side, side), np.float32)
    plank = side // int(rng.integers(4, 7))
    for top in range(0, side, plank):
        rows = min(plank, side - top)
        fibre = clouds(rng, side, rows, (5, 26), octaves=2) * 9 + clouds(rng, side, rows, (3, 4)) * 9
        rings = (
            np.sin(clouds(rng, side, rows, (3, 4)) * 9 + np.linspace(0, 9, rows, dtype=np.float32)[:, None])
            * 5
        )
        texture[top : top + rows] = fibre + rings + np.float32(rng.uniform(-9, 9))
        texture[top : top + 2] -= 38
    texture += cv2.blur(grain(rng, side, side), (25, 1)) * 14
    return texture[:, :, None] * np.array([0.75, 0.95, 1.1], np.float32)


def _mat(rng: Rng, side: int) -> Floats:
    texture = grain(rng, side, side) * 4 + clouds(rng, side, side, (5, 5)) * 4
    if rng.random() < 0.5:
        step = max(8, side // 22)
        offset = int(rng.integers(step))
        texture[offset::step] += 16
        texture[:, offset::step] += 16
        texture[offset :: 5 * step] += 16
        texture[:, offset :: 5 * step] += 16
    return texture[:, :, None]


def _conveyor(rng: Rng, side: int) -> Floats:
    ys = np.arange(side, dtype=np.float32)[:, None]
    period = max(6.0, side / float(rng.integers(36, 60)))
    texture = np.broadcast_to(np.sin(2 * np.pi * ys / period) * 5, (side, side)) + grain(rng, side, side) * 3
    texture = texture + cv2.blur(grain(rng, side, side), (1, 41)) * 12
    seam = int(rng.integers(side))
    texture[max(0, seam - 2) : seam + 2] -= 18
    colour = np.repeat(texture[:, :, None], 3, axis=2)
    rail = round(side * 0.2)
    for left, right in ((0, rail), (side - rail, side)):
        colour[:, left:right] = 105 + cv2.blur(grain(rng, right - left, side), (1, 61))[:, :, None] * 24
    for edge in (rail, side - rail):
        colour[:, max(0, edge - 3) : edge + 3] = -10
    return colour.astype(np.float32)


def _metal(rng: Rng, side: int) -> Floats:
    texture = cv2.blur(grain(rng, side, side), (81, 1)) * 34 + clouds(rng, side, side, (3, 6)) * 12
    for _ in range(14):
        start, end = rng.integers(0, side, 2), rng.integers(0, side, 2)
        cv2.line(texture, start.tolist(), end.tolist(), (rng.uniform(8, 20),), 1, cv2.LINE_AA)
    return texture[:, :, None]


def _cloth(rng: Rng, side: int) -> Floats:
    ys, xs = np.indices((side, side), dtype=np.float32)
    weave = (np.sin(xs * 1.7) * np.sin(ys * 1.7)) * 5
    folds = clouds(rng, side, side, (4, 3), octaves=2)
    crease = cv2.Sobel(cv2.GaussianBlur(folds, (0, 0), side / 60), cv2.CV_32F, 1, 0, ksize=3)
    return (weave + folds * 7 + np.clip(crease * (side * 0.22), -16, 16) + grain(rng, side, side) * 3)[
        :, :, None
    ]


_TEXTURES = {"wood": _wood, "mat": _mat, "conveyor": _conveyor, "metal": _metal, "cloth": _cloth}


def _paint_tool(image: Image, kind: str, rng: Rng) -> None:
    """A tool near the border of the picture, lying on its shadow."""
    height, width = image.shape[:2]
    unit = width * 0.1
    along = rng.uniform(0.05, 0.95)
    side = int(rng.integers(4))
    x, y = ((along, 0.05), (along, 0.95), (0.05, along), (0.95, along))[side]
    angle = rng.uniform(0, 2 * math.pi)
    overlay, mask = np.zeros_like(image), np.zeros((height, width), np.uint8)
    pen = Pen(overlay, unit, (x * width, y * height), mask)
    _TOOLS[kind](pen, angle, rng)
    left, top, w, h = cv2.boundingRect(mask)
    if w == 0:
        return
    pad = round(unit * 0.2)
    rows, columns = slice(max(0, top - pad), top + h + pad), slice(max(0, left - pad), left + w + pad)
    cover = mask[rows, columns].astype(np.float32) / 255
    aside = np.array([[1, 0, unit * 0.04], [0, 1, unit * 0.06]])
    moved = cv2.warpAffine(cover, aside, cover.shape[::-1], borderMode=cv2.BORDER_REPLICATE)
    fallen = cv2.GaussianBlur(moved, (0, 0), unit * 0.05)
    region = image[rows, columns]
    dimmed = region * (1 - 0.5 * fallen[:, :, None])
    region[:] = (dimmed * (1 - cover[:, :, None]) + overlay[rows, columns] * cover[:, :, None]).astype(
        np.uint8
    )


def _along(angle: float, distance: float, across: float = 0.0) -> tuple[float, float]:
    c, s = math.cos(angle), math.sin(angle)
    return distance * c - across * s, distance * s + across * c


def _screwdriver(pen: Pen, angle: float, rng: Rng) -> None:
    pen.line([_along(angle, 0.2), _along(angle, 1.5)], (190, 190, 190), 0.07)
    colour = ((30, 30, 200), (30, 160, 230), (160, 80, 30))[rng.integers(3)]
    pen.line([_along(angle, -0.9), _along(angle, 0.15)], colour, 0.27)
    pen.line([_along(angle, -0.85, 0.05), _along(angle, 0.1, 0.05)], shade(colour, 1.3), 0.05)


def _cable(pen: Pen, angle: float, rng: Rng) -> None:
    bend, phase = rng.uniform(0.2, 0.6), rng.uniform(0, 6)
    points = [_along(angle, t, bend * math.sin(1.3 * t + phase)) for t in np.linspace(-3, 3, 60).tolist()]
    pen.line(points, (36, 34, 34), 0.09)


def _screws(pen: Pen, angle: float, rng: Rng) -> None:
    for _ in range(rng.integers(3, 8)):
        x, y = rng.uniform(-0.7, 0.7, 2)
        pen.circle(x, y, 0.09, (120, 120, 122))
        pen.circle(x - 0.01, y - 0.01, 0.07, (190, 192, 194))
        for turn in (0.0, math.pi / 2):
            dx, dy = _along(angle + turn + x, 0.045)
            pen.line([(x - dx, y - dy), (x + dx, y + dy)], (70, 70, 70), 0.02)


def _tape(pen: Pen, angle: float, rng: Rng) -> None:
    pen.circle(0, 0, 0.62, (70, 160, 205))
    pen.circle(0, 0, 0.5, (120, 195, 225))
    pen.circle(0, 0, 0.42, (60, 95, 120))
    pen.circle(0, 0, 0.37, (70, 70, 72))


def _scraper(pen: Pen, angle: float, rng: Rng) -> None:
    blade = ((0.1, -0.15), (0.7, -0.32), (0.7, 0.32), (0.1, 0.15))
    pen.polygon([_along(angle, *corner) for corner in blade], (200, 200, 198))
    pen.line([_along(angle, -1.0), _along(angle, 0.12)], (50, 50, 54), 0.26)


_TOOLS = {"screwdriver": _screwdriver, "cable": _cable, "screws": _screws, "tape": _tape, "scraper": _scraper}
TOOLS = tuple(_TOOLS)

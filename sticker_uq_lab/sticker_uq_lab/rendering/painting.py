# SPDX-License-Identifier: Apache-2.0
"""Drawing: a pen in local coordinates, text, noise, and objects laid over a finished picture with shadow and matching light."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering.scene_spec import Colour, Point

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]
Path = Sequence[Point] | Floats

_SHIFT = 4
_TEXT_PIXELS = 72


class Pen:
    """Draws in coordinates centred on `origin`, `unit` pixels long, to `image` (H,W,3) and as 255 to `mask` (H,W), if any."""

    def __init__(self, image: Image, unit: float, origin: Point, mask: Image | None = None) -> None:
        self.image, self.mask = image, mask
        self.unit, self.origin = unit, origin

    def _to_fixed_point(self, points: Path) -> npt.NDArray[np.int32]:
        pixels = np.asarray(points, np.float64) * self.unit + self.origin
        return np.rint(pixels * (1 << _SHIFT)).astype(np.int32)

    def polygon(self, points: Path, colour: Colour) -> None:
        fixed = [self._to_fixed_point(points)]
        cv2.fillPoly(self.image, fixed, colour, cv2.LINE_AA, _SHIFT)
        if self.mask is not None:
            cv2.fillPoly(self.mask, fixed, (255,), cv2.LINE_AA, _SHIFT)

    def ellipse(
        self,
        x: float,
        y: float,
        rx: float,
        ry: float,
        colour: Colour,
        angle: float = 0.0,
        start: float = 0.0,
        end: float = 360.0,
    ) -> None:
        """Fill an ellipse, or the sector from `start` to `end` degrees (clockwise from +x)."""
        turn, sweep = math.radians(angle), np.radians(np.linspace(start, end, 48))
        px, py = rx * np.cos(sweep), ry * np.sin(sweep)
        across = x + px * math.cos(turn) - py * math.sin(turn)
        down = y + px * math.sin(turn) + py * math.cos(turn)
        self.polygon(np.stack((across, down), axis=1), colour)

    def circle(self, x: float, y: float, r: float, colour: Colour) -> None:
        self.ellipse(x, y, r, r, colour)

    def line(self, points: Path, colour: Colour, width: float) -> None:
        thick = max(1, round(width * self.unit))
        fixed = [self._to_fixed_point(points)]
        cv2.polylines(self.image, fixed, False, colour, thick, cv2.LINE_AA, _SHIFT)
        if self.mask is not None:
            cv2.polylines(self.mask, fixed, False, (255,), thick, cv2.LINE_AA, _SHIFT)

    def arc(
        self, x: float, y: float, r: float, start: float, end: float, colour: Colour, width: float
    ) -> None:
        sweep = np.radians(np.linspace(start, end, 40))
        self.line(np.stack((x + r * np.cos(sweep), y + r * np.sin(sweep)), axis=1), colour, width)

    def box(self, x: float, y: float, half_width: float, half_height: float, colour: Colour) -> None:
        left, right, top, bottom = x - half_width, x + half_width, y - half_height, y + half_height
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], colour)

    def text(
        self,
        words: str,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: Colour,
        face: str = "sans",
        weight: int = 800,
    ) -> None:
        """Draw `words` centred on (x, y), as large as fits `width` by `height`."""
        ink = text_mask(words, face, weight)
        scale = min(width * self.unit / ink.shape[1], height * self.unit / ink.shape[0])
        size = (max(2, round(ink.shape[1] * scale)), max(2, round(ink.shape[0] * scale)))
        small = cv2.resize(ink, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        left = round(self.origin[0] + x * self.unit - size[0] / 2)
        top = round(self.origin[1] + y * self.unit - size[1] / 2)
        stamp(self.image, small, left, top, colour)
        if self.mask is not None:
            stamp(self.mask[:, :, None], small, left, top, (255,))


@lru_cache(maxsize=8)
def _face(name: str) -> object:
    return cv2.FontFace(name)


@lru_cache(maxsize=1024)
def text_mask(words: str, face: str = "sans", weight: int = 700) -> Image:
    """Coverage (h,w) uint8 of drawn `words`, cropped to the ink; read only because it is shared.

    OpenCV 5 draws the "sans", "serif" and "italic" faces it carries; OpenCV 4, which ROS Jazzy installs, has
    only Hershey's strokes, so there the lettering looks plainer.
    """
    canvas = np.zeros((_TEXT_PIXELS * 2, _TEXT_PIXELS * (len(words) + 2)), np.uint8)
    origin = (_TEXT_PIXELS // 2, round(_TEXT_PIXELS * 1.4))
    if hasattr(cv2, "FontFace"):
        cv2.putText(canvas, words, origin, (255,), _face(face), _TEXT_PIXELS, weight)  # type: ignore[call-overload]
    else:
        hershey = {"serif": cv2.FONT_HERSHEY_TRIPLEX, "italic": cv2.FONT_HERSHEY_COMPLEX | cv2.FONT_ITALIC}
        thickness = 3 + max(0, weight - 400) // 80
        strokes = hershey.get(face, cv2.FONT_HERSHEY_SIMPLEX)
        cv2.putText(canvas, words, origin, strokes, 2.0, (255,), thickness, cv2.LINE_AA)
    x, y, w, h = cv2.boundingRect(canvas)
    ink = canvas[y : y + h, x : x + w].copy() if w else canvas[:2, :2].copy()
    ink.setflags(write=False)
    return ink


def stamp(
    image: Image, coverage: Image | Floats, left: int, top: int, colour: Sequence[int] | Floats
) -> None:
    """Paint `colour` (C,) or (h,w,C) into `image` (H,W,C) by `coverage` (h,w), uint8 or 0 to 1, as far as it is inside."""
    height, width = image.shape[:2]
    x0, y0 = max(0, left), max(0, top)
    x1, y1 = min(width, left + coverage.shape[1]), min(height, top + coverage.shape[0])
    if x0 >= x1 or y0 >= y1:
        return
    cut = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    part = coverage[cut][:, :, None]
    if part.dtype == np.uint8:
        part = part.astype(np.float32) / 255
    ink = np.broadcast_to(np.asarray(colour, np.float32), (*coverage.shape, image.shape[2]))[cut]
    region = image[y0:y1, x0:x1]
    region[:] = np.rint(region * (1 - part) + ink * part).astype(np.uint8)


def rounded_mask(width: int, height: int, radius: float, inset: float = 0.0) -> Image:
    """Coverage (height,width) of a rectangle with rounded corners, `inset` pixels inside the edge."""
    mask = np.zeros((height, width), np.uint8)
    r = max(0.0, min(radius, width / 2 - inset, height / 2 - inset))
    left, right, top, bottom = inset + r, width - inset - r, inset + r, height - inset - r
    corners = []
    for x, y, start in ((right, bottom, 0), (left, bottom, 90), (left, top, 180), (right, top, 270)):
        sweep = np.radians(np.linspace(start, start + 90, 12))
        corners.append(np.stack((x + r * np.cos(sweep), y + r * np.sin(sweep)), axis=1))
    points = np.rint((np.concatenate(corners) - 0.5) * (1 << _SHIFT)).astype(np.int32)
    cv2.fillPoly(mask, [points], (255,), cv2.LINE_AA, _SHIFT)
    return mask


@lru_cache(maxsize=2)
def _noise_tile(side: int) -> Floats:
    return np.random.default_rng(side).standard_normal((side, side), dtype=np.float32)


def grain(rng: Rng, width: int, height: int) -> Floats:
    """White noise (height,width), deviation 1, read only: cut from a tile, because sampling is slow."""
    tile = _noise_tile(1 << (max(width, height) + 255).bit_length())
    x, y = rng.integers(0, len(tile) - width), rng.integers(0, len(tile) - height)
    piece = tile[y : y + height, x : x + width]
    return piece[:: rng.choice((-1, 1)), :: rng.choice((-1, 1))]


def clouds(rng: Rng, width: int, height: int, cells: tuple[int, int], octaves: int = 1) -> Floats:
    """Smooth noise (height,width) about 0, roughly -1 to 1; `cells` counts its blobs across and down."""
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        across, down = (max(2, count << octave) for count in cells)
        coarse = rng.uniform(-1, 1, (down, across)).astype(np.float32)
        total += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC) * np.float32(0.5**octave)
    return total


def mix(a: Sequence[float], b: Sequence[float], share: float) -> Colour:
    blue, green, red = (min(255, max(0, round(p + (q - p) * share))) for p, q in zip(a, b, strict=True))
    return blue, green, red


def shade(colour: Sequence[float], factor: float) -> Colour:
    if factor <= 1:
        return mix(colour, (0, 0, 0), 1 - factor)
    return mix(colour, (255, 255, 255), min(1.0, factor - 1))


def luminance(colour: Sequence[float]) -> float:
    """Brightness from 0 to 255 (ITU-R BT.601 weights)."""
    return 0.114 * colour[0] + 0.587 * colour[1] + 0.299 * colour[2]


def rotate(layer: Any, angle: float) -> Any:
    """A layer (h,w) or (h,w,C) turned by `angle` degrees, clockwise, on a canvas that holds all of it."""
    height, width = layer.shape[:2]
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    size = (math.ceil(abs(c) * width + abs(s) * height), math.ceil(abs(s) * width + abs(c) * height))
    x, y = (size[0] - c * width + s * height) / 2, (size[1] - s * width - c * height) / 2
    return cv2.warpAffine(layer, np.array([[c, -s, x], [s, c, y]]), size, flags=cv2.INTER_LINEAR)


def lid_region(
    shape: tuple[int, ...], boxes: npt.NDArray[Any], margin: float
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Corners px of where the laptop lies: around ``boxes`` (N, 4) and the middle, ``margin`` from the picture's border."""
    size = np.array([shape[1], shape[0]])
    low, high = margin * size, (1 - margin) * size
    if len(boxes):
        low, high = np.minimum(low, boxes[:, :2].min(axis=0)), np.maximum(high, boxes[:, 2:].max(axis=0))
    return low, high


_MIDDLE_GREY = 135.0
_CAMERA_NOISE = 2.5  # grey levels


class TurnedPen(Pen):
    """A pen whose coordinates are turned by ``turn`` radians, clockwise in the picture. Text stays upright."""

    def __init__(self, image: Image, unit: float, origin: Point, mask: Image, turn: float) -> None:
        super().__init__(image, unit, origin, mask)
        c, s = math.cos(turn), math.sin(turn)
        self._angle, self._turn = turn, np.array([[c, s], [-s, c]])

    def move(self, along: float, scale: float) -> TurnedPen:
        """A pen on the same picture whose origin is at (``along``, 0) and whose unit is ``scale`` times as long."""
        assert self.mask is not None
        x, y = along * self.unit * self._turn[0]
        origin = (self.origin[0] + float(x), self.origin[1] + float(y))
        return TurnedPen(self.image, self.unit * scale, origin, self.mask, self._angle)

    def _to_fixed_point(self, points: Path) -> npt.NDArray[np.int32]:
        return super()._to_fixed_point(np.asarray(points, np.float64) @ self._turn)


Draw = Callable[[TurnedPen, Rng], None]
"""Draws an object around the pen's origin, about one unit in every direction."""


def draw_over(
    shape: tuple[int, ...], draw: Draw, centre: Point, unit: float, turn: float, rng: Rng
) -> tuple[Image, Image]:
    """Colours (H,W,3) and coverage (H,W) of an object at ``centre`` px, ``unit`` px long, for a picture of ``shape``."""
    colours, mask = np.zeros((*shape[:2], 3), np.uint8), np.zeros(shape[:2], np.uint8)
    draw(TurnedPen(colours, unit, centre, mask, turn), rng)
    return colours, mask


def lay(image: Image, colours: Image, mask: Image, rng: Rng, *, height: float, realistic: bool) -> None:
    """Lay ``colours`` over ``image`` where ``mask`` covers.

    A realistic object is ``height`` px above the lid: it casts a soft shadow and has the picture's brightness, the blur of
    the lens and the noise of the camera. An unrealistic one is only pasted.
    """
    left, top, w, h = cv2.boundingRect(mask)
    if w == 0:
        return
    pad = math.ceil(3 * height) + 4
    rows, columns = slice(max(0, top - pad), top + h + pad), slice(max(0, left - pad), left + w + pad)
    region, inks = image[rows, columns], colours[rows, columns].astype(np.float32)
    cover = mask[rows, columns].astype(np.float32) / 255
    if realistic:
        # premultiplied, or the black around the object would bleed into its edge
        inks = cv2.GaussianBlur(inks * cover[:, :, None], (0, 0), 0.8)
        cover = cv2.GaussianBlur(cover, (0, 0), 0.8)
        aside = np.array([[1, 0, 0.6 * height], [0, 1, 0.8 * height]])
        fallen = cv2.warpAffine(cover, aside, cover.shape[::-1], borderMode=cv2.BORDER_REPLICATE)
        fallen = cv2.GaussianBlur(fallen, (0, 0), max(1.0, 0.7 * height))
        light = float(np.clip(region.mean() / _MIDDLE_GREY, 0.6, 1.2))
        noise = grain(rng, cover.shape[1], cover.shape[0]) * _CAMERA_NOISE * cover
        under = region * (1 - 0.5 * fallen)[:, :, None] * (1 - cover)[:, :, None]
        laid = under + inks * light + noise[:, :, None]
    else:
        laid = region * (1 - cover)[:, :, None] + inks * cover[:, :, None]
    region[:] = np.clip(np.rint(laid), 0, 255).astype(np.uint8)

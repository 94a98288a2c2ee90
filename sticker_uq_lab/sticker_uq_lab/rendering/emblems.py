# SPDX-License-Identifier: Apache-2.0
"""Brand emblems and word marks as coverage masks, and their rendering on a laptop's surface."""

import math
import zlib
from collections.abc import Callable
from functools import lru_cache

import cv2
import numpy as np

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering.designs import paint_design
from sticker_uq_lab.rendering.figures import star_points
from sticker_uq_lab.rendering.laptops import brand_of
from sticker_uq_lab.rendering.painting import Floats, Image, Pen, luminance, mix, shade, text_mask
from sticker_uq_lab.rendering.scene_spec import Colour, LogoSpec, Point

_INK: Colour = (255, 255, 255)
_VOID: Colour = (0, 0, 0)
_PIXELS = 240


def _peaks(pen: Pen, name: str) -> None:
    pen.polygon([(-0.98, 0.7), (-0.3, -0.75), (0.38, 0.7)], _INK)
    pen.polygon([(0.06, -0.3), (0.32, -0.6), (0.98, 0.7), (0.56, 0.7)], _INK)


def _orbit(pen: Pen, name: str) -> None:
    pen.arc(0, 0, 0.8, -25, 290, _INK, 0.24)
    pen.circle(0.62, -0.62, 0.22, _INK)


def _wing(pen: Pen, name: str) -> None:
    for step in range(3):
        y, reach = 0.5 - 0.48 * step, 0.55 + 0.2 * step
        pen.polygon([(-reach, y - 0.12), (0.1, y + 0.3), (0.98, y - 0.5), (0.1, y + 0.0)], _INK)


def _spark(pen: Pen, name: str) -> None:
    pen.polygon(star_points(4, 0.28), _INK)
    pen.polygon([(0.68 + 0.28 * x, -0.66 + 0.28 * y) for x, y in star_points(4, 0.3)], _INK)


def _hexagon(pen: Pen, name: str) -> None:
    for radius, ink in ((0.98, _INK), (0.7, _VOID), (0.45, _INK)):
        pen.polygon(
            [(radius * math.cos(math.pi * k / 3), radius * math.sin(math.pi * k / 3)) for k in range(6)], ink
        )
    pen.line([(0.2, 0), (1.0, 0)], _VOID, 0.16)


def _leaf(pen: Pen, name: str) -> None:
    left = [(-0.1 - 0.62 * math.sin(math.pi * k / 24), 0.9 - 1.8 * k / 24) for k in range(25)]
    right = [(0.1 + 0.62 * math.sin(math.pi * k / 24), 0.9 - 1.8 * k / 24) for k in range(25)]
    pen.polygon(left, _INK)
    pen.polygon(right, _INK)


def _arcs(pen: Pen, name: str) -> None:
    for radius in (0.35, 0.68, 1.0):
        pen.arc(-0.7, 0.7, radius * 1.5, -88, -2, _INK, 0.24)
    pen.circle(-0.68, 0.68, 0.2, _INK)


def _letter(pen: Pen, name: str) -> None:
    pen.circle(0, 0, 0.98, _INK)
    pen.text(name[0], 0, 0, 1.1, 1.15, _VOID, "serif", 800)


def _bars(pen: Pen, name: str) -> None:
    for x, top in ((-0.66, 0.1), (0.0, -0.85), (0.66, -0.4)):
        pen.polygon([(x - 0.26, top + 0.2), (x + 0.26, top - 0.1), (x + 0.26, 0.85), (x - 0.26, 0.85)], _INK)


def _diamonds(pen: Pen, name: str) -> None:
    for x, y in ((0, -0.52), (-0.52, 0), (0.52, 0), (0, 0.52)):
        pen.polygon([(x, y - 0.45), (x + 0.45, y), (x, y + 0.45), (x - 0.45, y)], _INK)


def _crescent(pen: Pen, name: str) -> None:
    pen.circle(0, 0, 0.95, _INK)
    pen.circle(0.34, -0.2, 0.68, _VOID)
    pen.circle(0.42, -0.24, 0.26, _INK)


def _loop(pen: Pen, name: str) -> None:
    curve = []
    for k in range(81):
        t = 2 * math.pi * k / 80
        curve.append((0.85 * math.sin(t), 0.85 * math.sin(t) * math.cos(t)))
    pen.line(curve, _INK, 0.24)


def _unknown(pen: Pen, name: str) -> None:
    """An emblem generated from the name: a figure, pierced or framed by others."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    corners = int(rng.integers(3, 9))
    turn, pinch = rng.uniform(0, math.pi), rng.uniform(0.35, 1.0)

    def ring(radius: float) -> list[tuple[float, float]]:
        steps = range(2 * corners)
        reach = [radius * (pinch if step % 2 else 1.0) for step in steps]
        angles = [turn + math.pi * step / corners for step in steps]
        return [(r * math.cos(t), r * math.sin(t)) for r, t in zip(reach, angles, strict=True)]

    pen.polygon(ring(0.98), _INK)
    if rng.random() < 0.6:
        pen.polygon(ring(rng.uniform(0.5, 0.75)), _VOID)
    for _ in range(rng.integers(1, 4)):
        x, y = rng.uniform(-0.5, 0.5, 2)
        if rng.random() < 0.5:
            pen.circle(x, y, rng.uniform(0.12, 0.35), _VOID if rng.random() < 0.6 else _INK)
        else:
            pen.line([(x, y), (-y, x)], _VOID if rng.random() < 0.6 else _INK, rng.uniform(0.1, 0.25))


_DRAWN = (_peaks, _orbit, _wing, _spark, _hexagon, _leaf, _arcs, _letter, _bars, _diamonds, _crescent, _loop)
_EMBLEMS: dict[str, Callable[[Pen, str], None]] = {draw.__name__[1:]: draw for draw in _DRAWN}


@lru_cache(maxsize=64)
def emblem_mask(brand: int) -> Image:
    """Coverage (h,w) of the emblem, cropped to its ink."""
    image = np.zeros((_PIXELS, _PIXELS, 3), np.uint8)
    make = brand_of(brand)
    _EMBLEMS.get(make.emblem, _unknown)(Pen(image, _PIXELS * 0.44, (_PIXELS / 2, _PIXELS / 2)), make.name)
    mask = np.ascontiguousarray(image[:, :, 0])
    x, y, w, h = cv2.boundingRect(mask)
    return mask[y : y + h, x : x + w]


def _beside(left: Image, right: Image, gap: int) -> Image:
    height = max(left.shape[0], right.shape[0])
    canvas = np.zeros((height, left.shape[1] + gap + right.shape[1]), np.uint8)
    for part, x in ((left, 0), (right, left.shape[1] + gap)):
        top = (height - part.shape[0]) // 2
        canvas[top : top + part.shape[0], x : x + part.shape[1]] = part
    return canvas


@lru_cache(maxsize=64)
def logo_mask(brand: int, layout: str) -> Image:
    """Coverage (h,w) of a brand's logo in one of the layouts "emblem", "word", "stacked", "row"."""
    emblem = emblem_mask(brand)
    if layout == "emblem":
        return emblem
    make = brand_of(brand)
    word = text_mask(make.name, make.face, make.weight)
    if layout == "word":
        return word
    if layout == "row":
        scale = 1.5 * word.shape[0] / emblem.shape[0]
        return _beside(cv2.resize(emblem, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), word, 22)
    scale = 0.55 * word.shape[1] / emblem.shape[1]
    small = cv2.resize(emblem, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(_beside(small.T, word.T, 28).T)


def paint_logo(logo: LogoSpec, width: int, height: int) -> tuple[Image, Image, Image]:
    """A logo of `width` by `height` pixels: its colours (h,w,3), coverage (h,w) and gloss (h,w)."""
    if logo.design:
        colours, mask = paint_design(logo.design, width, height)
        return colours, mask, cv2.multiply(mask, 0.6)
    source = logo_mask(logo.brand, logo.layout)
    how = cv2.INTER_AREA if width < source.shape[1] else cv2.INTER_LINEAR
    mask = cv2.resize(source, (width, height), interpolation=how)
    ramp = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    if logo.finish == "metal":
        # Chrome mirrors a bright sky above and a dark floor below the horizon.
        tone: Floats = np.where(ramp < 0.1, 0.25 - 0.5 * ramp, -0.5 + 0.9 * ramp) * 0.32
    elif logo.finish == "embossed":
        tone = ramp * -0.06
    else:
        tone = ramp * -0.16
    colour = np.asarray(logo.colour, np.float32) * (1 + np.broadcast_to(tone, mask.shape))[:, :, None]
    # A bright upper and a dark lower edge make the mark appear raised (or engraved).
    relief = cv2.subtract(mask, np.roll(mask, max(1, height // 40), axis=0)).astype(np.float32)
    fall = cv2.subtract(mask, np.roll(mask, -max(1, height // 40), axis=0)).astype(np.float32)
    sign = -1.0 if logo.finish == "embossed" else 1.0
    colour += (sign * 0.22 * (relief - fall))[:, :, None]
    shine = cv2.multiply(mask, 1.0 if logo.finish == "metal" else 0.6)
    return np.clip(colour, 0, 255).astype(np.uint8), mask, shine


def logo_colour(finish: str, surface: Colour, accent: Colour) -> Colour:
    dark = luminance(surface) < 110
    if finish == "embossed":
        return shade(surface, 1.5 if dark else 0.6)
    if finish == "bright":
        return (246, 246, 246) if luminance(surface) < 165 else (52, 50, 50)
    if finish == "metal":
        return (205, 204, 202) if luminance(surface) < 150 else (108, 106, 104)
    if abs(luminance(accent) - luminance(surface)) > 75:
        return accent
    return mix(accent, (255, 255, 255) if dark else (0, 0, 0), 0.5)


def new_logo(
    rng: Rng, number: int, brand: int, layout: str, centre: Point, size: Point, surface: Colour, angle: float
) -> LogoSpec:
    """A logo of that width and height, laptop units, in a finish that is drawn."""
    finish = str(rng.choice(("metal", "metal", "bright", "bright", "embossed", "colour")))
    colour = logo_colour(finish, surface, brand_of(brand).accent)
    return LogoSpec(number, brand, layout, centre, *size, finish, colour, angle)

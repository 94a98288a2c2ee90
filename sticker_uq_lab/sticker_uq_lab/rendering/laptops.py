# SPDX-License-Identifier: Apache-2.0
"""The laptop: invented makes and finishes, the layout of its parts, and its surface, flat and before lighting: a lid or an
open deck.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering import painting
from sticker_uq_lab.rendering.designs import paint_photograph
from sticker_uq_lab.rendering.painting import Image, Pen, clouds, rounded_mask, shade
from sticker_uq_lab.rendering.scene_spec import Colour, LaptopSpec
from sticker_uq_lab.rendering.things import paint_fixture


@dataclass(frozen=True)
class Brand:
    """An invented make: its name, the emblem family and the type of its word mark."""

    name: str
    emblem: str
    face: str
    weight: int
    accent: Colour


@dataclass(frozen=True)
class Finish:
    colour: Colour
    keys: Colour
    legends: Colour
    textures: tuple[str, ...]
    gloss: float


BRANDS: tuple[Brand, ...] = (
    Brand("HALDEN", "peaks", "sans", 800, (60, 60, 200)),
    Brand("ORBIQ", "orbit", "sans", 700, (200, 120, 30)),
    Brand("kestria", "wing", "italic", 800, (40, 140, 230)),
    Brand("lumeno", "spark", "sans", 600, (60, 190, 240)),
    Brand("TESVEL", "hexagon", "sans", 800, (120, 170, 40)),
    Brand("mirelo", "leaf", "sans", 700, (80, 170, 70)),
    Brand("ZEPHRA", "arcs", "italic", 700, (190, 130, 50)),
    Brand("Quillon", "letter", "serif", 800, (50, 50, 170)),
    Brand("ARKTO", "bars", "sans", 800, (170, 80, 30)),
    Brand("SOLVEK", "diamonds", "sans", 800, (40, 40, 210)),
    Brand("nimbu", "crescent", "sans", 800, (170, 90, 120)),
    Brand("VOLTAN", "loop", "sans", 700, (160, 60, 20)),
)

_SYLLABLES = (
    "ba", "cor", "da", "fen", "gri", "hu", "jo", "kal", "mun", "nor", "pix", "ruv", "sta", "tyo", "wex",
    "yl",
)  # fmt: skip


def brand_of(index: int) -> Brand:
    """The make of an index; beyond `BRANDS` an unseen one is generated from the index."""
    if index < len(BRANDS):
        return BRANDS[index]
    rng = np.random.default_rng(index)
    parts = rng.integers(len(_SYLLABLES), size=int(rng.integers(2, 4)))
    name = "".join(_SYLLABLES[part] for part in parts)
    written = name.upper() if rng.random() < 0.5 else name
    blue, green, red = rng.integers(30, 220, 3).tolist()
    face = str(rng.choice(("sans", "italic", "serif")))
    return Brand(written, "unknown", face, 800, (blue, green, red))


_DARK_KEYS: Colour = (38, 36, 35)
_LIGHT_LEGENDS: Colour = (225, 225, 225)

FINISHES: tuple[Finish, ...] = (
    Finish((203, 202, 200), _DARK_KEYS, _LIGHT_LEGENDS, ("brushed", "matte"), 0.55),
    Finish((196, 195, 192), (188, 187, 184), (70, 70, 70), ("brushed", "matte"), 0.5),
    Finish((104, 99, 96), _DARK_KEYS, _LIGHT_LEGENDS, ("brushed", "matte"), 0.5),
    Finish((44, 41, 40), (30, 28, 28), _LIGHT_LEGENDS, ("matte", "carbon", "glossy"), 0.45),
    Finish((96, 62, 38), (44, 34, 28), _LIGHT_LEGENDS, ("matte", "glossy"), 0.5),
    Finish((184, 186, 220), (230, 230, 236), (90, 90, 100), ("brushed", "matte"), 0.5),
    Finish((232, 234, 235), (240, 240, 240), (110, 110, 110), ("glossy", "matte"), 0.7),
    Finish((44, 36, 150), _DARK_KEYS, _LIGHT_LEGENDS, ("glossy", "matte"), 0.7),
    Finish((178, 200, 214), (60, 62, 64), _LIGHT_LEGENDS, ("brushed",), 0.5),
    Finish((78, 92, 62), (40, 42, 38), _LIGHT_LEGENDS, ("matte",), 0.35),
    Finish((150, 128, 84), (236, 236, 234), (90, 90, 90), ("matte", "brushed"), 0.45),
    Finish((62, 58, 58), (32, 31, 31), (90, 90, 235), ("carbon", "matte"), 0.45),
)

Rect = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class DeckLayout:
    screen: Rect  # the tilted screen's lower edge and bezel, foreshortened
    hinge: Rect
    keyboard: Rect
    touchpad: Rect
    palm_left: Rect
    palm_right: Rect


def deck_layout(laptop: LaptopSpec) -> DeckLayout:
    depth, half = laptop.depth, laptop.depth / 2
    side, middle = (45.0, 440.0) if laptop.numpad else (85.0, 500.0)
    if laptop.view == "flat":
        keys_top, keys_bottom = half * 1.13, half * 1.58
        return DeckLayout(
            screen=(0.0, 0.0, 1000.0, half - 14),
            hinge=(60.0, half - 14, 940.0, half + 14),
            keyboard=(side, keys_top, 1000.0 - side, keys_bottom),
            touchpad=(middle - 150.0, half * 1.64, middle + 150.0, half * 1.95),
            palm_left=(20.0, keys_bottom + 15.0, middle - 165.0, depth - 20.0),
            palm_right=(middle + 165.0, keys_bottom + 15.0, 980.0, depth - 20.0),
        )
    keys_top, keys_bottom = 0.225 * depth, 0.6 * depth
    return DeckLayout(
        screen=(0.0, 0.0, 1000.0, 0.13 * depth),
        hinge=(60.0, 0.13 * depth, 940.0, 0.165 * depth),
        keyboard=(side, keys_top, 1000.0 - side, keys_bottom),
        touchpad=(middle - 155.0, 0.64 * depth, middle + 155.0, 0.95 * depth),
        palm_left=(25.0, keys_bottom + 20.0, middle - 175.0, depth - 25.0),
        palm_right=(middle + 175.0, keys_bottom + 20.0, 975.0, depth - 25.0),
    )


_ROWS = (" " * 14, "`1234567890-=<", ">QWERTYUIOP[]\\", "^ASDFGHJKL;'~", "*ZXCVBNM,./*", "")
_KEY_WIDTHS: tuple[tuple[float, ...], ...] = (
    (1.0,) * 14,
    (1.0,) * 13 + (1.7,),
    (1.5,) + (1.0,) * 12 + (1.2,),
    (1.8,) + (1.0,) * 11 + (1.9,),
    (2.3,) + (1.0,) * 10 + (2.4,),
    (1.2, 1.0, 1.0, 1.2, 5.2, 1.2, 1.0, 0.9, 0.9, 1.1),
)
_NUMPAD = ("    ", "/*-+", "789+", "456+", "123=", "0.,=")


@dataclass
class Surface:
    """The flat laptop; `colours` (h,w,3) are premultiplied by `coverage` (h,w), `gloss` (h,w) is 255 where light is mirrored."""

    colours: Image
    coverage: Image
    gloss: Image
    scale: float  # pixels per laptop unit
    margin: int  # pixels around the laptop


def paint_laptop(laptop: LaptopSpec, scale: float, margin: int) -> Surface:
    width, height = round(1000 * scale), round(laptop.depth * scale)
    rng = np.random.default_rng(laptop.seed)
    body = np.empty((height, width, 3), np.uint8)
    body[:] = laptop.colour if laptop.view == "lid" else laptop.deck_colour
    gloss = np.full((height, width), round(255 * laptop.gloss), np.uint8)
    body = _draw_texture(laptop, body, rng)
    if laptop.view == "lid":
        _paint_lid(laptop, body, gloss, scale)
    elif laptop.view == "deck":
        _paint_deck(laptop, body, gloss, scale)
    else:
        _paint_flat(laptop, body, gloss, scale)
    for fixture in laptop.fixtures:
        paint_fixture(body, fixture, scale, laptop.colour if laptop.view == "lid" else laptop.deck_colour)
    _wear(laptop, body, scale, rng)
    coverage = rounded_mask(width, height, laptop.corner * scale)
    _rim(body, laptop, scale)
    canvas = np.zeros((height + 2 * margin, width + 2 * margin, 3), np.uint8)
    inside = (slice(margin, margin + height), slice(margin, margin + width))
    canvas[inside] = cv2.multiply(body, cv2.merge((coverage, coverage, coverage)), scale=1 / 255)
    full_coverage = np.zeros(canvas.shape[:2], np.uint8)
    full_coverage[inside] = coverage
    full_gloss = np.zeros(canvas.shape[:2], np.uint8)
    full_gloss[inside] = cv2.min(gloss, coverage)
    return Surface(canvas, full_coverage, full_gloss, scale, margin)


def _draw_texture(laptop: LaptopSpec, body: Image, rng: Rng) -> Image:
    height, width = body.shape[:2]
    if laptop.texture == "brushed":
        texture: painting.Floats = cv2.blur(painting.grain(rng, width, height), (61, 1)) * 18
    elif laptop.texture == "carbon":
        period = max(4, round(width / 90))
        ys, xs = np.indices((height, width))
        weave = ((xs // period + ys // period) % 2).astype(np.float32)
        slope = ((xs + ys) % period).astype(np.float32) / period
        texture = (weave - 0.5) * 14 + (slope - 0.5) * 8
    elif laptop.texture == "matte":
        texture = painting.grain(rng, width, height) * 2.2
    else:
        texture = clouds(rng, width, height, (3, 2)) * 2
    texture += clouds(rng, width, height, (4, 3)) * 4
    return cv2.add(body, cv2.merge((texture, texture, texture)), dtype=cv2.CV_8U)


def _rim(body: Image, laptop: LaptopSpec, scale: float) -> None:
    """The chamfer that catches light along the edge of the case."""
    height, width = body.shape[:2]
    base = laptop.colour if laptop.view == "lid" else laptop.deck_colour
    for inset, thickness, colour in ((0.0, 5.0, shade(base, 0.6)), (4.5, 3.5, shade(base, 1.45))):
        outer = rounded_mask(width, height, (laptop.corner - inset) * scale, inset * scale)
        corner, inside = laptop.corner - inset - thickness, inset + thickness
        inner = rounded_mask(width, height, corner * scale, inside * scale)
        ring = cv2.subtract(outer, inner).astype(np.float32)
        band = max(2, round((laptop.corner + 8) * scale))
        sides = np.s_[band:-band, :band], np.s_[band:-band, -band:]
        for part in (np.s_[:band, :], np.s_[-band:, :], *sides):
            share = ring[part][:, :, None] / 255 * 0.75
            body[part] = (body[part] * (1 - share) + np.asarray(colour, np.float32) * share).astype(np.uint8)


def _paint_lid(laptop: LaptopSpec, body: Image, gloss: Image, scale: float) -> None:
    pen = Pen(body, scale, (0, 0))
    depth, base = laptop.depth, laptop.colour
    near = depth - 16.0 if laptop.hinge_below else 16.0
    pen.box(500, near, 380, 13, shade(base, 0.45))
    pen.line([(125, near), (875, near)], shade(base, 0.75), 5)
    gloss[round((near - 13) * scale) : round((near + 13) * scale)] //= 3
    line, dark = shade(base, 1.25 if painting.luminance(base) < 110 else 0.82), shade(base, 0.72)
    if laptop.decoration == "antenna":
        for y in (70.0, 82.0):
            pen.line([(0, y), (1000, y)], line, 3)
    elif laptop.decoration == "grooves":
        for x in (90.0, 910.0):
            pen.line([(x, 40), (x, depth - 40)], dark, 3)
            pen.line([(x + 4, 40), (x + 4, depth - 40)], line, 3)
    elif laptop.decoration == "twotone":
        band = body[round(0.84 * depth * scale) :]
        band[:] = (band * 0.72).astype(np.uint8)
        pen.line([(0, 0.84 * depth), (1000, 0.84 * depth)], line, 3)
    elif laptop.decoration == "slash":
        pen.line([(0, depth * 0.72), (330, depth)], line, 5)
        pen.line([(0, depth * 0.62), (440, depth)], dark, 3)


def _paint_deck(laptop: LaptopSpec, body: Image, gloss: Image, scale: float) -> None:
    pen, parts = Pen(body, scale, (0, 0)), deck_layout(laptop)
    base = laptop.deck_colour
    _fill(pen, parts.screen, (26, 24, 24))
    _fill(pen, (22.0, 0.0, 978.0, parts.screen[3] * 0.34), (64, 52, 44))
    pen.line([(22, parts.screen[3] * 0.34), (978, parts.screen[3] * 0.34)], (48, 44, 42), 3)
    gloss[: round(parts.screen[3] * scale)] = 150
    _fill(pen, (0.0, parts.screen[3], 1000.0, parts.hinge[3]), shade(base, 0.55))
    _fill(pen, parts.hinge, (34, 32, 32))
    pen.line([(parts.hinge[0], parts.hinge[1] + 7), (parts.hinge[2], parts.hinge[1] + 7)], (70, 68, 68), 4)
    _paint_palm_rest(laptop, pen, parts, gloss)


def _paint_flat(laptop: LaptopSpec, body: Image, gloss: Image, scale: float) -> None:
    pen, parts = Pen(body, scale, (0, 0)), deck_layout(laptop)
    base, rng = laptop.deck_colour, np.random.default_rng(laptop.seed + 7)
    frame = (26, 24, 24) if rng.random() < 0.6 else base
    _fill(pen, parts.screen, frame)
    left, top, right, bottom = 34.0, 36.0, 966.0, parts.screen[3] - 56.0
    _fill(pen, (left, top, right, bottom), (18, 17, 17) if rng.random() < 0.7 else (70, 66, 62))
    glass = np.s_[round(top * scale) : round(bottom * scale), round(left * scale) : round(right * scale)]
    switched_on = rng.random() < 0.3
    if laptop.screen:
        body[glass] = paint_photograph(laptop.screen, *body[glass].shape[1::-1])
    elif switched_on:
        _paint_desktop(body[glass], scale, rng)
    gloss[glass] = 60 if rng.random() < 0.5 else 170
    _fill(pen, (0.0, parts.hinge[1], 1000.0, parts.hinge[3]), shade(base, 0.45))
    for barrel in (170.0, 830.0):
        _fill(pen, (barrel - 80, parts.hinge[1], barrel + 80, parts.hinge[3]), (52, 50, 50))
    _paint_palm_rest(laptop, pen, parts, gloss)


def _paint_desktop(window: Image, scale: float, rng: Rng) -> None:
    """What a screen shows that is switched on: a wallpaper, symbols, perhaps a window."""
    height, width = window.shape[:2]
    for channel in range(3):
        tone = rng.uniform(60, 200) + 70 * clouds(rng, width, height, (3, 3), 2)
        window[:, :, channel] = np.clip(tone, 0, 255).astype(np.uint8)
    pen = Pen(window, scale, (0, 0))
    for row in range(rng.integers(2, 7)):
        for column in range(rng.integers(1, 3)):
            colour = tuple(int(part) for part in rng.integers(20, 255, 3))
            pen.box(40 + 62 * column, 45 + 70 * row, 15, 15, (colour[0], colour[1], colour[2]))
            pen.box(40 + 62 * column, 68 + 70 * row, 20, 3, (235, 235, 235))
    pen.box(466, height / scale - 14, 466, 14, (38, 34, 32))
    if rng.random() < 0.4:
        x, y = rng.uniform(380, 640), rng.uniform(220, 380)
        pen.box(x, y, 230, 160, (244, 244, 244))
        pen.box(x, y - 148, 230, 13, (150, 110, 60))
        for line in range(9):
            pen.box(x - 60, y - 105 + 26 * line, rng.uniform(60, 150), 3.5, (120, 116, 112))


def _paint_palm_rest(laptop: LaptopSpec, pen: Pen, parts: DeckLayout, gloss: Image) -> None:
    base, body, scale = laptop.deck_colour, pen.image, pen.unit
    _keyboard(laptop, pen, parts.keyboard)
    if not laptop.numpad:
        _speakers(pen, parts.keyboard, base)
    pad = parts.touchpad
    _draw_rounded(body, pad, 10, scale, shade(base, 0.7))
    _draw_rounded(body, (pad[0] + 3, pad[1] + 3, pad[2] - 3, pad[3] - 3), 8, scale, shade(base, 0.93))
    middle = (pad[0] + pad[2]) / 2
    pen.line([(middle, pad[3] - 28), (middle, pad[3] - 4)], shade(base, 0.75), 2.5)
    if laptop.fingerprint:
        x, y = pad[2] + 26, pad[1] - 2
        _draw_rounded(body, (x, y, x + 34, y + 34), 6, scale, shade(base, 0.55))
        _draw_rounded(body, (x + 3, y + 3, x + 31, y + 31), 5, scale, shade(base, 0.75))
    left, top, right, bottom = (round(edge * scale) for edge in parts.keyboard)
    gloss[top:bottom, left:right] //= 3


def _fill(pen: Pen, rect: Rect, colour: Colour) -> None:
    left, top, right, bottom = rect
    pen.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], colour)


def _draw_rounded(body: Image, rect: Rect, radius: float, scale: float, colour: Colour) -> None:
    left, top, right, bottom = (round(edge * scale) for edge in rect)
    mask = rounded_mask(right - left, bottom - top, radius * scale).astype(np.float32)[:, :, None] / 255
    region = body[top:bottom, left:right]
    region[:] = (region * (1 - mask) + np.asarray(colour, np.float32) * mask).astype(np.uint8)


def _speakers(pen: Pen, keyboard: Rect, base: Colour) -> None:
    for left in (28.0, keyboard[2] + 18.0):
        for row in range(22):
            for column in range(4):
                y = keyboard[1] + 4 + row * (keyboard[3] - keyboard[1] - 8) / 21
                pen.box(left + column * 13, y, 2.6, 2.6, shade(base, 0.5))


def _keyboard(laptop: LaptopSpec, pen: Pen, rect: Rect) -> None:
    left, top, right, bottom = rect
    well = shade(laptop.deck_colour, 0.62)
    _draw_rounded(pen.image, (left - 6, top - 6, right + 6, bottom + 6), 8, pen.unit, well)
    main = right - 200 if laptop.numpad else right
    row_height = (bottom - top) / 5.55
    y = top
    for index in range(6):
        height = row_height * (0.55 if index == 0 else 1.0)
        _key_row(laptop, pen, _KEY_WIDTHS[index], _ROWS[index], (left, y, main, y + height))
        if laptop.numpad:
            _key_row(laptop, pen, (1.0,) * 4, _NUMPAD[index], (main + 12, y, right, y + height))
        y += height
    if laptop.trackpoint:
        x, y = left + (main - left) * 0.46, top + row_height * 3.05
        pen.circle(x, y, 12, (30, 30, 140))
        pen.circle(x, y, 9, (50, 50, 215))


def _key_row(laptop: LaptopSpec, pen: Pen, widths: tuple[float, ...], labels: str, rect: Rect) -> None:
    left, top, right, bottom = rect
    unit = (right - left) / sum(widths)
    cap, light = laptop.key_colour, shade(laptop.key_colour, 1.16)
    x, gap = left, 2.6
    for index, width in enumerate(widths):
        end = x + width * unit
        centre, half_width, half_height = (x + end) / 2, (end - x) / 2 - gap, (bottom - top) / 2 - gap
        pen.box(centre, (top + bottom) / 2, half_width, half_height, shade(cap, 0.7))
        middle = (top + bottom) / 2 - 1.5
        pen.box(centre, middle, half_width - 1.5, half_height - 2.5, light)
        if index < len(labels) and labels[index].strip():
            _legend(pen, labels[index], centre, middle, laptop.legend_colour)
        elif labels and not labels[index].strip():
            pen.box(centre, middle, 7, 2.0, laptop.legend_colour)
        x = end


def _legend(pen: Pen, glyph: str, x: float, y: float, colour: Colour) -> None:
    # Hershey fonts are fast and, at the few pixels of a legend, look like any other font.
    size = 0.62 * pen.unit
    where = (round((x - 7) * pen.unit), round((y + 8) * pen.unit))
    cv2.putText(pen.image, glyph, where, cv2.FONT_HERSHEY_SIMPLEX, size, colour, 1, cv2.LINE_AA)


def _wear(laptop: LaptopSpec, body: Image, scale: float, rng: Rng) -> None:
    height, width = body.shape[:2]
    case = laptop.colour if laptop.view == "lid" else laptop.deck_colour
    # The screen of an open laptop is glass; scratches are for the case.
    top = 0.0 if laptop.view == "lid" else deck_layout(laptop).keyboard[3] * scale
    for _ in range(laptop.scratches):
        x, y = rng.uniform(0, width), rng.uniform(top, height)
        angle, length = rng.uniform(0, 2 * np.pi), rng.uniform(15, 110) * scale
        end = (int(x + length * np.cos(angle)), int(max(top, y + length * np.sin(angle))))
        cv2.line(body, (int(x), int(y)), end, shade(case, rng.uniform(1.06, 1.2)), 1, cv2.LINE_AA)
    if laptop.dust > 0:
        for _ in range(int(laptop.dust * 30)):
            x, y = int(rng.integers(width)), int(rng.integers(height))
            pixel = body[y, x].tolist()
            cv2.circle(body, (x, y), 1, shade(pixel, rng.uniform(1.15, 1.4)), -1, cv2.LINE_AA)

# SPDX-License-Identifier: Apache-2.0
"""What is neither laptop, logo nor sticker: occluders before the camera, parts and prints of the case, what lies about in a
workshop, and foreign objects, which are in no scene, so that a detector can be tested on them.
"""

import math
from collections.abc import Callable

import numpy as np

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering import painting
from sticker_uq_lab.rendering.painting import Draw, Pen, TurnedPen, mix, shade
from sticker_uq_lab.rendering.scene_spec import FRAME_HEIGHT, Colour, FixtureSpec, ThingSpec

Occluder = Callable[[TurnedPen, float, Rng], None]
"""Draws an occluder that enters from the right over an object about one unit in every direction from the origin.

The number is its reach: at -1.5 it covers nothing of the object, at 1.5 all.
"""

METALS: tuple[Colour, ...] = ((70, 68, 66), (120, 118, 116), (40, 40, 42))
GLOVES: tuple[Colour, ...] = ((196, 128, 40), (60, 58, 58), (120, 150, 205), (96, 128, 190))
CABLES: tuple[Colour, ...] = ((34, 32, 32), (205, 205, 205), (40, 40, 150))
_FAR = 60.0  # length of an arm, in lengths of a finger: beyond the border of every picture


def draw_gripper(pen: Pen, colour: Colour) -> None:
    """A gripper's two jaws and the arm behind; the tips meet near the origin, the arm leaves towards +x."""
    dark, light = shade(colour, 0.6), shade(colour, 1.3)
    pen.polygon([(1.5, -0.55), (_FAR, -0.7), (_FAR, 0.7), (1.5, 0.55)], dark)
    pen.polygon([(1.5, -0.3), (_FAR, -0.38), (_FAR, 0.05), (1.5, 0.05)], colour)
    pen.polygon([(0.8, -0.75), (1.7, -0.75), (1.7, 0.75), (0.8, 0.75)], colour)
    pen.polygon([(0.9, -0.68), (1.6, -0.68), (1.6, -0.4), (0.9, -0.4)], light)
    for side in (-1, 1):
        pen.polygon([(-0.1, side * 0.22), (0.9, side * 0.42), (0.9, side * 0.7), (-0.1, side * 0.42)], dark)
        pen.polygon([(0.0, side * 0.28), (0.8, side * 0.47), (0.8, side * 0.56), (0.0, side * 0.34)], light)
    for y in (-0.5, 0.5):
        pen.circle(1.25, y, 0.09, dark)


def draw_hand(pen: Pen, colour: Colour) -> None:
    """Four fingers, a thumb, the palm and the forearm; the finger tips lie near the origin."""
    dark = shade(colour, 0.72)
    pen.line([(2.2, 0.1), (_FAR, 0.4)], colour, 1.1)
    fingers = ((0.25, -0.62), (-0.05, -0.2), (0.0, 0.24), (0.35, 0.64))
    for tip, base in zip(fingers, (-0.5, -0.17, 0.17, 0.5), strict=True):
        pen.line([tip, (0.95, (tip[1] + base) / 2), (1.6, base)], dark, 0.36)
        pen.line([tip, (0.95, (tip[1] + base) / 2), (1.6, base)], colour, 0.29)
        pen.circle(tip[0] - 0.02, tip[1], 0.09, shade(colour, 1.25))
    pen.line([(0.9, -1.15), (1.4, -1.0), (2.0, -0.5)], colour, 0.38)
    pen.polygon([(1.45, -0.72), (2.5, -0.62), (2.5, 0.72), (1.45, 0.7)], colour)


def draw_cables(pen: Pen, colour: Colour) -> None:
    """Four cables side by side that cross the whole picture in waves."""
    for strand in range(4):
        across = np.linspace(-5 * _FAR, 5 * _FAR, 1200).tolist()
        points = [(x, 0.3 * (strand - 1.5) + 0.25 * math.sin(0.7 * x)) for x in across]
        pen.line(points, colour, 0.28)
        pen.line([(x, y - 0.06) for x, y in points], shade(colour, 1.35), 0.05)


def gripper(pen: TurnedPen, reach: float, rng: Rng) -> None:
    """A gripper whose jaws are about as wide as the object."""
    draw_gripper(pen.move(-reach, rng.uniform(1.5, 2.2)), METALS[rng.integers(len(METALS))])


def hand(pen: TurnedPen, reach: float, rng: Rng) -> None:
    draw_hand(pen.move(-reach, rng.uniform(1.4, 2.0)), GLOVES[rng.integers(len(GLOVES))])


def cable(pen: TurnedPen, reach: float, rng: Rng) -> None:
    """A bundle of cables lying across; it grows with ``reach``."""
    colour = CABLES[rng.integers(len(CABLES))]
    bend, phase = rng.uniform(0.1, 0.3), rng.uniform(0, 6)
    strands = max(0, round((reach + 1.5) * 4))
    for strand in range(strands):
        # the next strand lies beside the bundle, on either side in turn
        offset = 0.26 * ((strand + 1) // 2) * (1 if strand % 2 else -1)
        points = [
            (float(x), offset + bend * math.sin(0.7 * x + phase) + 0.03 * math.sin(5 * x + strand))
            for x in np.linspace(-_FAR, _FAR, 120)
        ]
        pen.line(points, colour, 0.28)
        pen.line([(x, y - 0.06) for x, y in points], shade(colour, 1.35), 0.05)


def paper(pen: TurnedPen, reach: float, rng: Rng) -> None:
    """A sheet of paper with lines of print, one of its edges over the sticker."""
    white: Colour = (232, 238, 240)
    half, long = rng.uniform(1.8, 2.8), rng.uniform(4.0, 6.0)
    skew = rng.uniform(-0.25, 0.25)
    left = -reach
    pen.polygon([(left - skew, -half), (left + long, -half), (left + long, half), (left + skew, half)], white)
    for y in np.arange(-half + 0.4, half - 0.3, 0.34):
        end = left + long * rng.uniform(0.5, 0.92)
        pen.line([(left + 0.55, float(y)), (float(end), float(y))], (120, 116, 114), 0.09)


OCCLUDERS: dict[str, Occluder] = {draw.__name__: draw for draw in (gripper, hand, cable, paper)}

Fixture = Callable[[Pen, Colour, Rng], None]
"""Draws a part or print of a case of that colour, about one unit to the left and right of the origin."""


def paint_fixture(body: painting.Image, fixture: FixtureSpec, scale: float, case: Colour) -> None:
    x, y = (part * scale for part in fixture.centre)
    unit, unused = fixture.size * scale, np.zeros((1, 1), np.uint8)
    pen = TurnedPen(body, unit, (x, y), unused, math.radians(fixture.angle))
    FIXTURES[fixture.kind](pen, case, np.random.default_rng(fixture.seed))


def lay_thing(image: painting.Image, thing: ThingSpec, hidden: painting.Image) -> None:
    """Lay a thing over `image` (H,W,3), and mark in `hidden` (H,W) what it covers."""
    height, width = image.shape[:2]
    scale = min(width, height / FRAME_HEIGHT)
    x = thing.centre[0] * scale + (width - scale) / 2
    y = thing.centre[1] * scale + (height - scale * FRAME_HEIGHT) / 2
    unit, rng = thing.size * scale, np.random.default_rng(thing.seed)
    colours, mask = painting.draw_over(
        image.shape, THINGS[thing.kind], (x, y), unit, math.radians(thing.angle), rng
    )
    painting.lay(image, colours, mask, rng, height=max(1.0, 0.004 * scale), realistic=True)
    np.maximum(hidden, mask, out=hidden)


def _tone(case: Colour) -> Colour:
    """A print's ink on a case: a little lighter or darker."""
    return shade(case, 1.35 if painting.luminance(case) < 110 else 0.6)


def _screw(pen: Pen, case: Colour, rng: Rng) -> None:
    metal = ((40, 40, 42), (150, 152, 154), (190, 190, 192))[rng.integers(3)]
    pen.circle(0, 0, 1.0, shade(case, 0.55))
    pen.circle(0, 0, 0.75, metal)
    turn = rng.uniform(0, math.pi)
    for quarter in (0.0, math.pi / 2):
        dx, dy = 0.5 * math.cos(turn + quarter), 0.5 * math.sin(turn + quarter)
        pen.line([(-dx, -dy), (dx, dy)], shade(metal, 0.45), 0.2)


def _foot(pen: Pen, case: Colour, rng: Rng) -> None:
    rubber = mix((30, 30, 30), (90, 90, 92), rng.uniform())
    if rng.random() < 0.5:
        pen.circle(0, 0, 1.0, shade(rubber, 0.7))
        pen.circle(0, 0, 0.85, rubber)
    else:
        pen.line([(-0.75, 0), (0.75, 0)], shade(rubber, 0.7), 0.5)
        pen.line([(-0.75, 0), (0.75, 0)], rubber, 0.36)


def _vent(pen: Pen, case: Colour, rng: Rng) -> None:
    slots, dark = int(rng.integers(5, 16)), shade(case, 0.35)
    half = rng.uniform(0.15, 0.5)
    for slot in range(slots):
        pen.box(-1 + (2 * slot + 1) / slots, 0, 0.55 / slots, half, dark)


def _port(pen: Pen, case: Colour, rng: Rng) -> None:
    half = rng.uniform(0.2, 0.45)
    pen.box(0, 0, 1.0, half, (150, 150, 152))
    pen.box(0, 0, 0.9, half * 0.75, (24, 24, 24))
    pen.box(0, half * 0.1, 0.7, half * 0.2, (60, 58, 56) if rng.random() < 0.6 else (170, 90, 30))


def _camera(pen: Pen, case: Colour, rng: Rng) -> None:
    pen.circle(0, 0, 1.0, (30, 28, 28))
    pen.circle(0, 0, 0.55, (60, 40, 30))
    pen.circle(-0.2, -0.2, 0.2, (190, 180, 170))


def _lamps(pen: Pen, case: Colour, rng: Rng) -> None:
    for x in np.linspace(-0.9, 0.9, int(rng.integers(2, 6))):
        pen.box(float(x), 0, 0.09, 0.06, (250, 240, 200) if rng.random() < 0.4 else shade(case, 0.5))


def _symbols(pen: Pen, case: Colour, rng: Rng) -> None:
    ink = _tone(case)
    count = int(rng.integers(1, 5))
    for index in range(count):
        x, r = (2 * index + 1) / count - 1, 0.7 / count
        kind = int(rng.integers(5))
        if kind == 0:
            pen.arc(x, 0, r * 0.8, 0, 360, ink, r * 0.25)
            pen.line([(x, -r * 0.9), (x, 0)], ink, r * 0.25)
        elif kind == 1:
            pen.box(x, 0, r * 0.8, r * 0.45, ink)
            pen.box(x, 0, r * 0.6, r * 0.25, case)
        elif kind == 2:
            pen.polygon([(x - r, r * 0.8), (x + r, r * 0.8), (x, -r)], ink)
        elif kind == 3:
            pen.box(x, r * 0.25, r * 0.6, r * 0.6, ink)
            pen.arc(x, -r * 0.3, r * 0.4, 180, 360, ink, r * 0.2)
        else:
            for side in (-1, 1):
                pen.line([(x - r, side * r * 0.4), (x + r, side * r * 0.4)], ink, r * 0.25)
                pen.line([(x - r * 0.8, side * r), (x + r * 0.8, -side * r)], ink, r * 0.2)


def _certification(pen: Pen, case: Colour, rng: Rng) -> None:
    ink = _tone(case)
    rows = int(rng.integers(3, 8))
    for row in range(rows):
        y, x = (2 * row + 1) / rows * 0.5 - 0.5, -1.0
        while x < 0.85:
            end = min(1.0, x + rng.uniform(0.1, 0.5))
            pen.box((x + end) / 2, y, (end - x) / 2, 0.2 / rows, ink)
            x = end + 0.06
    for x, words in zip((-0.75, -0.25, 0.25, 0.75), ("CE", "FC", "UL", "R"), strict=True):
        if rng.random() < 0.7:
            pen.text(words, x, 0.75, 0.36, 0.3, ink, "sans", 600)


FIXTURES: dict[str, Fixture] = {
    draw.__name__[1:]: draw
    for draw in (_screw, _foot, _vent, _port, _camera, _lamps, _symbols, _certification)
}


def _pick(rng: Rng, *colours: Colour) -> Colour:
    return colours[rng.integers(len(colours))]


def _mouse(pen: Pen, rng: Rng) -> None:
    shell = _pick(rng, (40, 40, 42), (150, 150, 154), (235, 235, 236), (60, 40, 170), (150, 90, 40))
    pen.line([(-0.8, 0), (-2.0, 0.3), (-3.0, -0.4), (-6.0, 0.5)], (40, 40, 40), 0.06)
    pen.ellipse(0, 0, 1.0, 0.56, shade(shell, 0.7))
    pen.ellipse(0.02, -0.02, 0.94, 0.5, shell)
    pen.line([(-0.9, 0), (-0.1, 0)], shade(shell, 0.6), 0.05)
    pen.line([(-0.1, -0.48), (-0.1, 0.48)], shade(shell, 0.6), 0.05)
    pen.box(-0.55, 0, 0.16, 0.07, (70, 70, 72))
    if rng.random() < 0.5:
        pen.circle(0.5, 0, 0.13, _pick(rng, (60, 60, 220), (200, 160, 60), (220, 220, 220)))


def _charger(pen: Pen, rng: Rng) -> None:
    pen.line([(0.9, 0), (1.8, 0.5), (2.6, -0.5), (6.0, 0.2)], (34, 34, 34), 0.12)
    pen.line([(-0.9, 0), (-1.8, -0.4), (-2.6, 0.4), (-6.0, -0.3)], (34, 34, 34), 0.09)
    shell = _pick(rng, (38, 38, 40), (60, 60, 62), (230, 230, 230))
    pen.box(0, 0, 1.0, 0.44, shade(shell, 0.6))
    pen.box(0, -0.03, 0.94, 0.38, shell)
    if rng.random() < 0.6:
        # The type plate is printed on the shell.
        ink = _tone(shell)
        for row in range(4):
            pen.box(-0.1, -0.24 + 0.13 * row, 0.3 + 0.15 * rng.uniform(), 0.025, ink)
        pen.circle(0.55, 0.1, 0.09, ink)


def _cup(pen: Pen, rng: Rng) -> None:
    china = _pick(rng, (240, 240, 238), (60, 60, 200), (160, 110, 50), (50, 50, 52), (90, 170, 210))
    pen.arc(1.05, 0, 0.42, -120, 120, shade(china, 0.8), 0.16)
    pen.circle(0, 0, 0.9, shade(china, 0.75))
    pen.circle(0, 0, 0.84, china)
    pen.circle(0, 0, 0.72, shade(china, 0.55))
    pen.circle(0.03, 0.03, 0.68, _pick(rng, (22, 38, 60), (60, 100, 150), (40, 70, 40)))


def _cable(pen: Pen, rng: Rng) -> None:
    colour = CABLES[rng.integers(len(CABLES))]
    bend, phase = rng.uniform(0.3, 1.0), rng.uniform(0, 6)
    points = [(float(t), float(bend * math.sin(0.9 * t + phase))) for t in np.linspace(-1.2, 9, 80)]
    pen.line(points, colour, 0.13)
    x, y = points[0]
    pen.box(x, y, 0.3, 0.16, shade(colour, 1.2))
    pen.box(x - 0.38, y, 0.14, 0.11, (190, 190, 190))


def _keycap(pen: Pen, rng: Rng) -> None:
    cap = _pick(rng, (40, 40, 42), (230, 230, 230), (110, 112, 114))
    pen.box(0, 0, 1.0, 0.95, shade(cap, 0.6))
    pen.box(0, -0.06, 0.78, 0.72, shade(cap, 1.15))
    pen.text(str(rng.choice(tuple("QWERTZASDF12345"))), -0.3, -0.3, 0.5, 0.5, _tone(cap), "sans", 700)


def _screws(pen: Pen, rng: Rng) -> None:
    for _ in range(rng.integers(1, 6)):
        x, y = rng.uniform(-0.8, 0.8, 2)
        metal = _pick(rng, (190, 192, 194), (120, 120, 122), (60, 60, 62))
        pen.circle(x, y, 0.16, shade(metal, 0.6))
        pen.circle(x - 0.01, y - 0.01, 0.13, metal)
        turn = rng.uniform(0, math.pi)
        dx, dy = 0.09 * math.cos(turn), 0.09 * math.sin(turn)
        pen.line([(x - dx, y - dy), (x + dx, y + dy)], (50, 50, 50), 0.04)
        pen.line([(x - dy, y + dx), (x + dy, y - dx)], (50, 50, 50), 0.04)


def _driver(pen: Pen, rng: Rng) -> None:
    grip = _pick(rng, (30, 30, 200), (30, 160, 230), (160, 80, 30), (60, 150, 60), (40, 40, 42))
    pen.line([(0.1, 0), (1.0, 0)], (190, 190, 190), 0.07)
    pen.line([(-0.85, 0), (0.05, 0)], grip, 0.26)
    pen.line([(-0.8, -0.05), (0.0, -0.05)], shade(grip, 1.3), 0.05)


def _tweezers(pen: Pen, rng: Rng) -> None:
    for side in (-1, 1):
        pen.line([(-1.0, 0), (0.2, side * 0.16), (1.0, side * 0.03)], (170, 172, 176), 0.09)


def _spatula(pen: Pen, rng: Rng) -> None:
    grip = _pick(rng, (50, 50, 54), (200, 120, 40), (40, 170, 230))
    pen.polygon([(0.1, -0.13), (0.95, -0.3), (0.95, 0.3), (0.1, 0.13)], (205, 205, 202))
    pen.line([(-0.9, 0), (0.1, 0)], grip, 0.24)


def _pad(pen: Pen, rng: Rng) -> None:
    """A game controller: two grips, a cross and buttons in colours."""
    shell = _pick(rng, (40, 40, 42), (232, 232, 232), (60, 50, 170))
    for side in (-1, 1):
        pen.ellipse(side * 0.62, 0.18, 0.4, 0.55, shade(shell, 0.85), side * 25)
    pen.box(0, -0.05, 0.62, 0.42, shell)
    pen.box(-0.5, -0.05, 0.18, 0.06, (70, 70, 70))
    pen.box(-0.5, -0.05, 0.06, 0.18, (70, 70, 70))
    colours = ((60, 200, 60), (220, 120, 60), (60, 60, 220), (60, 200, 240))
    places = ((0.5, -0.22), (0.5, 0.12), (0.33, -0.05), (0.67, -0.05))
    for (x, y), colour in zip(places, colours, strict=True):
        pen.circle(x, y, 0.08, colour)


def _note(pen: Pen, rng: Rng) -> None:
    """A work order beside the laptop: paper with lines of print and a bar code."""
    pen.box(0, 0, 0.75, 1.0, (232, 238, 240))
    for row in range(9):
        length = rng.uniform(0.2, 0.6)
        pen.box(-0.62 + length, -0.8 + 0.14 * row, length, 0.02, (110, 106, 104))
    x = -0.6
    while x < 0.5:
        step = float(rng.choice((0.03, 0.05, 0.08)))
        pen.box(x, 0.72, step / 3, 0.14, (40, 38, 38))
        x += step


def _hand(pen: Pen, rng: Rng) -> None:
    draw_hand(pen, mix(GLOVES[rng.integers(len(GLOVES))], (90, 120, 190), rng.uniform(0, 0.5)))


def _gripper(pen: Pen, rng: Rng) -> None:
    draw_gripper(pen, METALS[rng.integers(len(METALS))])


def _shape(pen: Pen, rng: Rng) -> None:
    """An object of no kind: a polygon or an ellipse in any colour, plain or with another one on it."""
    colours = [mix(rng.integers(0, 256, 3).tolist(), (128, 128, 128), 0.2) for _ in range(2)]
    if rng.random() < 0.4:
        pen.ellipse(0, 0, 1.0, rng.uniform(0.3, 1.0), colours[0])
    else:
        turns = np.sort(rng.uniform(0, 2 * math.pi, int(rng.integers(3, 9))))
        radii = rng.uniform(0.5, 1, len(turns))
        corners = [(math.cos(t) * r, math.sin(t) * r) for t, r in zip(turns, radii, strict=True)]
        pen.polygon(corners, colours[0])
    if rng.random() < 0.4:
        pen.box(rng.uniform(-0.3, 0.3), rng.uniform(-0.3, 0.3), 0.2, rng.uniform(0.05, 0.3), colours[1])


_SIZED: tuple[tuple[Draw, float, float], ...] = (
    (_mouse, 0.07, 0.1),
    (_charger, 0.07, 0.1),
    (_cup, 0.06, 0.085),
    (_cable, 0.05, 0.1),
    (_keycap, 0.01, 0.018),
    (_screws, 0.03, 0.06),
    (_driver, 0.09, 0.16),
    (_tweezers, 0.08, 0.13),
    (_spatula, 0.1, 0.16),
    (_pad, 0.1, 0.14),
    (_note, 0.08, 0.16),
    (_shape, 0.015, 0.06),
    (_hand, 0.09, 0.14),
    (_gripper, 0.06, 0.12),
)
THINGS: dict[str, Draw] = {draw.__name__[1:]: draw for draw, _, _ in _SIZED}
SIZES = {draw.__name__[1:]: (low, high) for draw, low, high in _SIZED}
"""Bounds of `ThingSpec.size` by kind, for a laptop that is about half as wide as the picture."""

_STEEL: Colour = (186, 188, 190)


def screw(pen: Pen, rng: Rng) -> None:
    pen.line([(-0.5, 0), (0.95, 0)], (150, 152, 154), 0.3)
    for x in np.arange(-0.35, 0.95, 0.13):
        pen.line([(float(x), -0.15), (float(x) + 0.07, 0.15)], (92, 92, 96), 0.045)
    pen.ellipse(-0.68, 0, 0.26, 0.44, _STEEL)
    pen.line([(-0.72, -0.28), (-0.72, 0.28)], (80, 80, 84), 0.08)


def washer(pen: Pen, rng: Rng) -> None:
    pen.circle(0, 0, 0.8, (128, 130, 132))
    pen.circle(-0.03, -0.03, 0.74, _STEEL)
    pen.circle(0, 0, 0.44, (110, 112, 116))
    turn = rng.uniform(0, math.pi)
    for quarter in (0.0, math.pi / 2):
        dx, dy = 0.3 * math.cos(turn + quarter), 0.3 * math.sin(turn + quarter)
        pen.line([(-dx, -dy), (dx, dy)], (46, 46, 50), 0.11)


def coin(pen: Pen, rng: Rng) -> None:
    metal = ((70, 130, 190), (90, 170, 205), (188, 190, 192))[rng.integers(3)]
    pen.circle(0, 0, 0.85, shade(metal, 0.65))
    pen.circle(-0.02, -0.02, 0.8, metal)
    for step in range(36):
        a = 2 * math.pi * step / 36
        c, s = math.cos(a), math.sin(a)
        pen.line([(0.72 * c, 0.72 * s), (0.79 * c, 0.79 * s)], shade(metal, 0.7), 0.03)
    pen.arc(0, 0, 0.66, 0, 360, shade(metal, 0.8), 0.05)
    pen.text(str(rng.choice(("1", "2", "5", "20", "50"))), 0, 0, 0.6, 0.7, shade(metal, 0.6), "serif", 800)


def tape(pen: Pen, rng: Rng) -> None:
    """A torn strip of masking or insulating tape."""
    colour = ((130, 190, 225), (40, 40, 44), (200, 140, 60))[rng.integers(3)]
    half = rng.uniform(0.22, 0.36)
    teeth = [
        (sign * (0.95 + 0.07 * (step % 2)), sign * (-half + 2 * half * step / 6))
        for sign in (-1, 1)
        for step in range(7)
    ]
    pen.polygon(teeth, colour)
    for y in (-0.4, 0.1, 0.55):
        pen.line([(-0.9, y * half), (0.9, y * half + 0.03)], shade(colour, 0.92), 0.03)


def key(pen: Pen, rng: Rng) -> None:
    metal = ((120, 170, 195), _STEEL)[rng.integers(2)]
    pen.line([(-0.3, 0), (0.95, 0)], metal, 0.2)
    for x, depth in zip(np.arange(0.25, 0.95, 0.14), rng.uniform(0.1, 0.26, 6), strict=False):
        pen.box(float(x), 0.09 + float(depth) / 2, 0.05, float(depth) / 2, metal)
    pen.circle(-0.6, 0, 0.4, shade(metal, 0.8))
    pen.circle(-0.61, -0.01, 0.36, metal)
    pen.circle(-0.72, 0, 0.12, (46, 46, 50))


def pliers(pen: Pen, rng: Rng) -> None:
    grip = ((40, 40, 200), (190, 90, 30), (40, 160, 230))[rng.integers(3)]
    for side in (-1, 1):
        pen.line([(0.15, side * 0.08), (-0.35, side * 0.26), (-0.95, side * 0.34)], grip, 0.19)
        pen.polygon([(0.1, 0), (0.2, side * 0.24), (0.95, side * 0.05), (0.95, 0)], (120, 122, 126))
    pen.circle(0.17, 0, 0.15, (90, 92, 96))


def phone(pen: Pen, rng: Rng) -> None:
    """A telephone, its screen dark or its back with the lenses up."""
    back = mix((40, 40, 44), (190, 150, 130), rng.uniform())
    shape = [(-0.48, -0.92), (-0.4, -1), (0.4, -1), (0.48, -0.92), (0.48, 0.92), (0.4, 1), (-0.4, 1)]
    pen.polygon([*shape, (-0.48, 0.92)], shade(back, 0.6))
    if rng.random() < 0.5:
        pen.box(0, 0, 0.43, 0.93, (26, 22, 20))
        pen.polygon([(-0.43, -0.5), (0.2, -0.93), (0.43, -0.93), (-0.43, -0.1)], (52, 46, 42))
    else:
        pen.box(0, 0, 0.44, 0.94, back)
        pen.box(-0.2, -0.68, 0.18, 0.2, shade(back, 0.8))
        for y in (-0.78, -0.58):
            pen.circle(-0.2, y, 0.09, (30, 28, 28))
            pen.circle(-0.22, y - 0.02, 0.035, (120, 90, 70))


def memory_stick(pen: Pen, rng: Rng) -> None:
    shell = mix((180, 60, 40), (50, 50, 52), rng.uniform())
    pen.box(0.7, 0, 0.28, 0.2, _STEEL)
    for y in (-0.09, 0.09):
        pen.box(0.78, y, 0.06, 0.04, (70, 70, 72))
    pen.box(-0.25, 0, 0.68, 0.3, shell)
    pen.box(-0.25, -0.2, 0.66, 0.05, shade(shell, 1.3))


def foil(pen: Pen, rng: Rng) -> None:
    """A hologram: bands of colour that no print has, without a rim."""
    phase = rng.uniform(0, 6)
    for step, y in enumerate(np.linspace(-0.8, 0.76, 26)):
        colour = tuple(round(165 + 75 * math.sin(phase + 0.55 * step + third)) for third in (0.0, 2.1, 4.2))
        half = 0.8 * math.sqrt(max(0.0, 1 - (float(y) / 0.9) ** 4))
        pen.box(0, float(y), half, 0.035, (colour[0], colour[1], colour[2]))


def lettering(pen: Pen, rng: Rng) -> None:
    """Cut vinyl letters without a ground."""
    colour: Colour = ((240, 240, 240), (30, 30, 30), (60, 60, 220))[rng.integers(3)]
    words = str(rng.choice(("no gods", "kernel", "LAB 4", "vim", "tofu", "Ghent")))
    pen.text(words, 0, 0, 1.9, 0.9, colour, "italic", 900)


def glyphs(pen: Pen, rng: Rng) -> None:
    """A column of brush strokes on a clear film."""
    ink: Colour = ((40, 36, 36), (50, 50, 200))[rng.integers(2)]
    for row in (-0.62, 0.0, 0.62):
        for _ in range(5):
            (x1, x2), (y1, y2) = rng.uniform(-0.32, 0.32, 2), rng.uniform(-0.24, 0.24, 2)
            pen.line([(float(x1), row + float(y1)), (float(x2), row + float(y2))], ink, 0.1)


def seal(pen: Pen, rng: Rng) -> None:
    """A tamper-evident seal: a chequered strip that was cut once."""
    colour: Colour = ((60, 190, 240), (70, 70, 220), (200, 200, 205))[rng.integers(3)]
    for column in range(12):
        for row in range(4):
            if (column + row) % 2 and column not in (5, 6):
                pen.box(-0.9 + 0.16 * column, -0.24 + 0.16 * row, 0.085, 0.085, colour)


OBJECTS: dict[str, Draw] = {
    draw.__name__: draw for draw in (screw, washer, coin, tape, key, pliers, phone, memory_stick)
}
"""Foreign objects on a laptop."""
UNKNOWN_STICKERS: dict[str, Draw] = {draw.__name__: draw for draw in (foil, lettering, glyphs, seal)}
"""Stickers of kinds that the renderer does not use."""

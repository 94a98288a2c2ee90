# SPDX-License-Identifier: Apache-2.0
"""What is neither logo nor sticker and must not be peeled: parts and prints of the case, and what lies about in a workshop.

The objects of `foreign_objects` are kept apart: they are in no scene, so that a detector can be tested on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sticker_uq.lab.rendering.occluders import CABLES, GLOVES, METALS, draw_gripper, draw_hand
from sticker_uq.lab.rendering.overlays import Draw, TurnedPen, draw_over, lay
from sticker_uq.lab.rendering.painting import Image, Pen, luminance, mix, shade
from sticker_uq.lab.rendering.scene_spec import FRAME_HEIGHT, Colour, FixtureSpec, ThingSpec

Fixture = Callable[[Pen, Colour, np.random.Generator], None]
"""Draws a part or print of a case of that colour, about one unit to the left and right of the origin."""


def paint_fixture(body: Image, fixture: FixtureSpec, scale: float, case: Colour) -> None:
    """Draw a rendered laptop's fixture on its flat surface at `scale` pixels per laptop unit."""
    x, y = (part * scale for part in fixture.centre)
    pen = TurnedPen(
        body,
        fixture.size * scale,
        (x, y),
        np.zeros((1, 1), np.uint8),
        math.radians(fixture.angle),
    )
    FIXTURES[fixture.kind](pen, case, np.random.default_rng(fixture.seed))


def lay_thing(image: Image, thing: ThingSpec, hidden: Image) -> None:
    """Lay a thing over the rendered `image` (H,W,3), and mark in `hidden` (H,W) what it covers."""
    height, width = image.shape[:2]
    scale = min(width, height / FRAME_HEIGHT)
    x = thing.centre[0] * scale + (width - scale) / 2
    y = thing.centre[1] * scale + (height - scale * FRAME_HEIGHT) / 2
    unit, rng = thing.size * scale, np.random.default_rng(thing.seed)
    colours, mask = draw_over(image.shape, THINGS[thing.kind], (x, y), unit, math.radians(thing.angle), rng)
    lay(image, colours, mask, rng, height=max(1.0, 0.004 * scale), realistic=True)
    np.maximum(hidden, mask, out=hidden)


def _tone(case: Colour) -> Colour:
    """A print's ink on a case: a little lighter or darker."""
    return shade(case, 1.35 if luminance(case) < 110 else 0.6)


def _screw(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    metal = ((40, 40, 42), (150, 152, 154), (190, 190, 192))[int(rng.integers(3))]
    pen.circle(0, 0, 1.0, shade(case, 0.55))
    pen.circle(0, 0, 0.75, metal)
    turn = rng.uniform(0, math.pi)
    for quarter in (0.0, math.pi / 2):
        dx, dy = 0.5 * math.cos(turn + quarter), 0.5 * math.sin(turn + quarter)
        pen.line([(-dx, -dy), (dx, dy)], shade(metal, 0.45), 0.2)


def _foot(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    rubber = mix((30, 30, 30), (90, 90, 92), float(rng.uniform()))
    if rng.random() < 0.5:
        pen.circle(0, 0, 1.0, shade(rubber, 0.7))
        pen.circle(0, 0, 0.85, rubber)
    else:
        pen.line([(-0.75, 0), (0.75, 0)], shade(rubber, 0.7), 0.5)
        pen.line([(-0.75, 0), (0.75, 0)], rubber, 0.36)


def _vent(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    slots, dark = int(rng.integers(5, 16)), shade(case, 0.35)
    half = rng.uniform(0.15, 0.5)
    for slot in range(slots):
        pen.box(-1 + (2 * slot + 1) / slots, 0, 0.55 / slots, half, dark)


def _port(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    half = rng.uniform(0.2, 0.45)
    pen.box(0, 0, 1.0, half, (150, 150, 152))
    pen.box(0, 0, 0.9, half * 0.75, (24, 24, 24))
    pen.box(0, half * 0.1, 0.7, half * 0.2, (60, 58, 56) if rng.random() < 0.6 else (170, 90, 30))


def _camera(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    pen.circle(0, 0, 1.0, (30, 28, 28))
    pen.circle(0, 0, 0.55, (60, 40, 30))
    pen.circle(-0.2, -0.2, 0.2, (190, 180, 170))


def _lamps(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    for x in np.linspace(-0.9, 0.9, int(rng.integers(2, 6))):
        pen.box(float(x), 0, 0.09, 0.06, (250, 240, 200) if rng.random() < 0.4 else shade(case, 0.5))


def _symbols(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    """Printed symbols in a row: plug, battery, lock, bin, arrows."""
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


def _certification(pen: Pen, case: Colour, rng: np.random.Generator) -> None:
    """The printed block of approvals and type data under a laptop."""
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
    "screw": _screw,
    "foot": _foot,
    "vent": _vent,
    "port": _port,
    "camera": _camera,
    "lamps": _lamps,
    "symbols": _symbols,
    "certification": _certification,
}


def _pick(rng: np.random.Generator, *colours: Colour) -> Colour:
    return colours[int(rng.integers(len(colours)))]


def _mouse(pen: Pen, rng: np.random.Generator) -> None:
    shell = _pick(rng, (40, 40, 42), (150, 150, 154), (235, 235, 236), (60, 40, 170), (150, 90, 40))
    pen.line([(-0.8, 0), (-2.0, 0.3), (-3.0, -0.4), (-6.0, 0.5)], (40, 40, 40), 0.06)
    pen.ellipse(0, 0, 1.0, 0.56, shade(shell, 0.7))
    pen.ellipse(0.02, -0.02, 0.94, 0.5, shell)
    pen.line([(-0.9, 0), (-0.1, 0)], shade(shell, 0.6), 0.05)
    pen.line([(-0.1, -0.48), (-0.1, 0.48)], shade(shell, 0.6), 0.05)
    pen.box(-0.55, 0, 0.16, 0.07, (70, 70, 72))
    if rng.random() < 0.5:
        pen.circle(0.5, 0, 0.13, _pick(rng, (60, 60, 220), (200, 160, 60), (220, 220, 220)))


def _charger(pen: Pen, rng: np.random.Generator) -> None:
    pen.line([(0.9, 0), (1.8, 0.5), (2.6, -0.5), (6.0, 0.2)], (34, 34, 34), 0.12)
    pen.line([(-0.9, 0), (-1.8, -0.4), (-2.6, 0.4), (-6.0, -0.3)], (34, 34, 34), 0.09)
    shell = _pick(rng, (38, 38, 40), (60, 60, 62), (230, 230, 230))
    pen.box(0, 0, 1.0, 0.44, shade(shell, 0.6))
    pen.box(0, -0.03, 0.94, 0.38, shell)
    if rng.random() < 0.6:
        # The type plate is printed on the shell.
        ink = _tone(shell)
        for row in range(4):
            pen.box(-0.1, -0.24 + 0.13 * row, 0.3 + 0.15 * float(rng.uniform()), 0.025, ink)
        pen.circle(0.55, 0.1, 0.09, ink)


def _cup(pen: Pen, rng: np.random.Generator) -> None:
    china = _pick(rng, (240, 240, 238), (60, 60, 200), (160, 110, 50), (50, 50, 52), (90, 170, 210))
    pen.arc(1.05, 0, 0.42, -120, 120, shade(china, 0.8), 0.16)
    pen.circle(0, 0, 0.9, shade(china, 0.75))
    pen.circle(0, 0, 0.84, china)
    pen.circle(0, 0, 0.72, shade(china, 0.55))
    pen.circle(0.03, 0.03, 0.68, _pick(rng, (22, 38, 60), (60, 100, 150), (40, 70, 40)))


def _cable(pen: Pen, rng: np.random.Generator) -> None:
    colour = CABLES[int(rng.integers(len(CABLES)))]
    bend, phase = rng.uniform(0.3, 1.0), rng.uniform(0, 6)
    points = [(float(t), float(bend * math.sin(0.9 * t + phase))) for t in np.linspace(-1.2, 9, 80)]
    pen.line(points, colour, 0.13)
    x, y = points[0]
    pen.box(x, y, 0.3, 0.16, shade(colour, 1.2))
    pen.box(x - 0.38, y, 0.14, 0.11, (190, 190, 190))


def _keycap(pen: Pen, rng: np.random.Generator) -> None:
    cap = _pick(rng, (40, 40, 42), (230, 230, 230), (110, 112, 114))
    pen.box(0, 0, 1.0, 0.95, shade(cap, 0.6))
    pen.box(0, -0.06, 0.78, 0.72, shade(cap, 1.15))
    pen.text(str(rng.choice(tuple("QWERTZASDF12345"))), -0.3, -0.3, 0.5, 0.5, _tone(cap), "sans", 700)


def _screws(pen: Pen, rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(1, 6))):
        x, y = rng.uniform(-0.8, 0.8, 2)
        metal = _pick(rng, (190, 192, 194), (120, 120, 122), (60, 60, 62))
        pen.circle(x, y, 0.16, shade(metal, 0.6))
        pen.circle(x - 0.01, y - 0.01, 0.13, metal)
        turn = rng.uniform(0, math.pi)
        dx, dy = 0.09 * math.cos(turn), 0.09 * math.sin(turn)
        pen.line([(x - dx, y - dy), (x + dx, y + dy)], (50, 50, 50), 0.04)
        pen.line([(x - dy, y + dx), (x + dy, y - dx)], (50, 50, 50), 0.04)


def _driver(pen: Pen, rng: np.random.Generator) -> None:
    grip = _pick(rng, (30, 30, 200), (30, 160, 230), (160, 80, 30), (60, 150, 60), (40, 40, 42))
    pen.line([(0.1, 0), (1.0, 0)], (190, 190, 190), 0.07)
    pen.line([(-0.85, 0), (0.05, 0)], grip, 0.26)
    pen.line([(-0.8, -0.05), (0.0, -0.05)], shade(grip, 1.3), 0.05)


def _tweezers(pen: Pen, rng: np.random.Generator) -> None:
    for side in (-1, 1):
        pen.line([(-1.0, 0), (0.2, side * 0.16), (1.0, side * 0.03)], (170, 172, 176), 0.09)


def _spatula(pen: Pen, rng: np.random.Generator) -> None:
    grip = _pick(rng, (50, 50, 54), (200, 120, 40), (40, 170, 230))
    pen.polygon([(0.1, -0.13), (0.95, -0.3), (0.95, 0.3), (0.1, 0.13)], (205, 205, 202))
    pen.line([(-0.9, 0), (0.1, 0)], grip, 0.24)


def _pad(pen: Pen, rng: np.random.Generator) -> None:
    """A game controller: two grips, a cross and buttons in colours."""
    shell = _pick(rng, (40, 40, 42), (232, 232, 232), (60, 50, 170))
    for side in (-1, 1):
        pen.ellipse(side * 0.62, 0.18, 0.4, 0.55, shade(shell, 0.85), side * 25)
    pen.box(0, -0.05, 0.62, 0.42, shell)
    pen.box(-0.5, -0.05, 0.18, 0.06, (70, 70, 70))
    pen.box(-0.5, -0.05, 0.06, 0.18, (70, 70, 70))
    for (x, y), colour in zip(
        ((0.5, -0.22), (0.5, 0.12), (0.33, -0.05), (0.67, -0.05)),
        ((60, 200, 60), (220, 120, 60), (60, 60, 220), (60, 200, 240)),
        strict=True,
    ):
        pen.circle(x, y, 0.08, colour)


def _note(pen: Pen, rng: np.random.Generator) -> None:
    """A work order beside the laptop: paper with lines of print and a bar code."""
    pen.box(0, 0, 0.75, 1.0, (232, 238, 240))
    for row in range(9):
        length = float(rng.uniform(0.2, 0.6))
        pen.box(-0.62 + length, -0.8 + 0.14 * row, length, 0.02, (110, 106, 104))
    x = -0.6
    while x < 0.5:
        step = float(rng.choice((0.03, 0.05, 0.08)))
        pen.box(x, 0.72, step / 3, 0.14, (40, 38, 38))
        x += step


def _hand(pen: Pen, rng: np.random.Generator) -> None:
    draw_hand(pen, mix(GLOVES[int(rng.integers(len(GLOVES)))], (90, 120, 190), float(rng.uniform(0, 0.5))))


def _gripper(pen: Pen, rng: np.random.Generator) -> None:
    draw_gripper(pen, METALS[int(rng.integers(len(METALS)))])


def _shape(pen: Pen, rng: np.random.Generator) -> None:
    """An object of no kind: a polygon or an ellipse in any colour, plain or with another one on it."""
    colours = [mix(rng.integers(0, 256, 3).tolist(), (128, 128, 128), 0.2) for _ in range(2)]
    if rng.random() < 0.4:
        pen.ellipse(0, 0, 1.0, float(rng.uniform(0.3, 1.0)), colours[0])
    else:
        turns = np.sort(rng.uniform(0, 2 * math.pi, int(rng.integers(3, 9))))
        pen.polygon(
            [
                (math.cos(t) * r, math.sin(t) * r)
                for t, r in zip(turns, rng.uniform(0.5, 1, len(turns)), strict=True)
            ],
            colours[0],
        )
    if rng.random() < 0.4:
        pen.box(
            float(rng.uniform(-0.3, 0.3)),
            float(rng.uniform(-0.3, 0.3)),
            0.2,
            float(rng.uniform(0.05, 0.3)),
            colours[1],
        )


THINGS: dict[str, Draw] = {
    "mouse": _mouse,
    "charger": _charger,
    "cup": _cup,
    "cable": _cable,
    "keycap": _keycap,
    "screws": _screws,
    "driver": _driver,
    "tweezers": _tweezers,
    "spatula": _spatula,
    "pad": _pad,
    "note": _note,
    "shape": _shape,
    "hand": _hand,
    "gripper": _gripper,
}
SIZES: dict[str, tuple[float, float]] = {
    "mouse": (0.07, 0.1),
    "charger": (0.07, 0.1),
    "cup": (0.06, 0.085),
    "cable": (0.05, 0.1),
    "keycap": (0.01, 0.018),
    "screws": (0.03, 0.06),
    "driver": (0.09, 0.16),
    "tweezers": (0.08, 0.13),
    "spatula": (0.1, 0.16),
    "pad": (0.1, 0.14),
    "note": (0.08, 0.16),
    "shape": (0.015, 0.06),
    "hand": (0.09, 0.14),
    "gripper": (0.06, 0.12),
}
"""Bounds of `ThingSpec.size` by kind, for a laptop that is about half as wide as the picture."""

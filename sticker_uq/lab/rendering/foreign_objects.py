# SPDX-License-Identifier: Apache-2.0
"""Foreign objects that are in no training scene: objects left on a lid, and stickers of unknown kinds.

Each extends about one unit in every direction from the pen's origin.
"""

from __future__ import annotations

import math

import numpy as np

from sticker_uq.lab.rendering.overlays import Draw
from sticker_uq.lab.rendering.painting import Pen, mix, shade
from sticker_uq.lab.rendering.scene_spec import Colour

_STEEL: Colour = (186, 188, 190)


def screw(pen: Pen, rng: np.random.Generator) -> None:
    pen.line([(-0.5, 0), (0.95, 0)], (150, 152, 154), 0.3)
    for x in np.arange(-0.35, 0.95, 0.13):
        pen.line([(float(x), -0.15), (float(x) + 0.07, 0.15)], (92, 92, 96), 0.045)
    pen.ellipse(-0.68, 0, 0.26, 0.44, _STEEL)
    pen.line([(-0.72, -0.28), (-0.72, 0.28)], (80, 80, 84), 0.08)


def washer(pen: Pen, rng: np.random.Generator) -> None:
    pen.circle(0, 0, 0.8, (128, 130, 132))
    pen.circle(-0.03, -0.03, 0.74, _STEEL)
    pen.circle(0, 0, 0.44, (110, 112, 116))
    turn = rng.uniform(0, math.pi)
    for quarter in (0.0, math.pi / 2):
        dx, dy = 0.3 * math.cos(turn + quarter), 0.3 * math.sin(turn + quarter)
        pen.line([(-dx, -dy), (dx, dy)], (46, 46, 50), 0.11)


def coin(pen: Pen, rng: np.random.Generator) -> None:
    metal = ((70, 130, 190), (90, 170, 205), (188, 190, 192))[int(rng.integers(3))]
    pen.circle(0, 0, 0.85, shade(metal, 0.65))
    pen.circle(-0.02, -0.02, 0.8, metal)
    for step in range(36):
        a = 2 * math.pi * step / 36
        c, s = math.cos(a), math.sin(a)
        pen.line([(0.72 * c, 0.72 * s), (0.79 * c, 0.79 * s)], shade(metal, 0.7), 0.03)
    pen.arc(0, 0, 0.66, 0, 360, shade(metal, 0.8), 0.05)
    pen.text(str(rng.choice(("1", "2", "5", "20", "50"))), 0, 0, 0.6, 0.7, shade(metal, 0.6), "serif", 800)


def tape(pen: Pen, rng: np.random.Generator) -> None:
    """A torn strip of masking or insulating tape."""
    colour = ((130, 190, 225), (40, 40, 44), (200, 140, 60))[int(rng.integers(3))]
    half = rng.uniform(0.22, 0.36)
    teeth = [
        (sign * (0.95 + 0.07 * (step % 2)), sign * (-half + 2 * half * step / 6))
        for sign in (-1, 1)
        for step in range(7)
    ]
    pen.polygon(teeth, colour)
    for y in (-0.4, 0.1, 0.55):
        pen.line([(-0.9, y * half), (0.9, y * half + 0.03)], shade(colour, 0.92), 0.03)


def key(pen: Pen, rng: np.random.Generator) -> None:
    metal = ((120, 170, 195), _STEEL)[int(rng.integers(2))]
    pen.line([(-0.3, 0), (0.95, 0)], metal, 0.2)
    for x, depth in zip(np.arange(0.25, 0.95, 0.14), rng.uniform(0.1, 0.26, 6), strict=False):
        pen.box(float(x), 0.09 + float(depth) / 2, 0.05, float(depth) / 2, metal)
    pen.circle(-0.6, 0, 0.4, shade(metal, 0.8))
    pen.circle(-0.61, -0.01, 0.36, metal)
    pen.circle(-0.72, 0, 0.12, (46, 46, 50))


def pliers(pen: Pen, rng: np.random.Generator) -> None:
    grip = ((40, 40, 200), (190, 90, 30), (40, 160, 230))[int(rng.integers(3))]
    for side in (-1, 1):
        pen.line([(0.15, side * 0.08), (-0.35, side * 0.26), (-0.95, side * 0.34)], grip, 0.19)
        pen.polygon([(0.1, 0), (0.2, side * 0.24), (0.95, side * 0.05), (0.95, 0)], (120, 122, 126))
    pen.circle(0.17, 0, 0.15, (90, 92, 96))


def phone(pen: Pen, rng: np.random.Generator) -> None:
    """A telephone, its screen dark or its back with the lenses up."""
    back = mix((40, 40, 44), (190, 150, 130), float(rng.uniform()))
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


def memory_stick(pen: Pen, rng: np.random.Generator) -> None:
    shell = mix((180, 60, 40), (50, 50, 52), float(rng.uniform()))
    pen.box(0.7, 0, 0.28, 0.2, _STEEL)
    for y in (-0.09, 0.09):
        pen.box(0.78, y, 0.06, 0.04, (70, 70, 72))
    pen.box(-0.25, 0, 0.68, 0.3, shell)
    pen.box(-0.25, -0.2, 0.66, 0.05, shade(shell, 1.3))


def foil(pen: Pen, rng: np.random.Generator) -> None:
    """A hologram: bands of colour that no print has, without a rim."""
    phase = rng.uniform(0, 6)
    for step, y in enumerate(np.linspace(-0.8, 0.76, 26)):
        colour = tuple(round(165 + 75 * math.sin(phase + 0.55 * step + third)) for third in (0.0, 2.1, 4.2))
        half = 0.8 * math.sqrt(max(0.0, 1 - (float(y) / 0.9) ** 4))
        pen.box(0, float(y), half, 0.035, (colour[0], colour[1], colour[2]))


def lettering(pen: Pen, rng: np.random.Generator) -> None:
    """Cut vinyl letters without a ground."""
    colour: Colour = ((240, 240, 240), (30, 30, 30), (60, 60, 220))[int(rng.integers(3))]
    words = str(rng.choice(("no gods", "kernel", "LAB 4", "vim", "tofu", "Ghent")))
    pen.text(words, 0, 0, 1.9, 0.9, colour, "italic", 900)


def glyphs(pen: Pen, rng: np.random.Generator) -> None:
    """A column of brush strokes on a clear film."""
    ink: Colour = ((40, 36, 36), (50, 50, 200))[int(rng.integers(2))]
    for row in (-0.62, 0.0, 0.62):
        for _ in range(5):
            (x1, x2), (y1, y2) = rng.uniform(-0.32, 0.32, 2), rng.uniform(-0.24, 0.24, 2)
            pen.line([(float(x1), row + float(y1)), (float(x2), row + float(y2))], ink, 0.1)


def seal(pen: Pen, rng: np.random.Generator) -> None:
    """A tamper-evident seal: a chequered strip that was cut once."""
    colour: Colour = ((60, 190, 240), (70, 70, 220), (200, 200, 205))[int(rng.integers(3))]
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

# SPDX-License-Identifier: Apache-2.0
"""Occluders between camera and laptop: a gripper, a hand, a cable, a sheet of paper."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sticker_uq.lab.rendering.overlays import TurnedPen
from sticker_uq.lab.rendering.painting import Pen, shade
from sticker_uq.lab.rendering.scene_spec import Colour

Occluder = Callable[[TurnedPen, float, np.random.Generator], None]
"""Draws an occluder that enters from the right over an object about one unit in every direction from the origin.

The number is its reach: at -1.5 it covers nothing of the object, at 1.5 all.
"""

METALS: tuple[Colour, ...] = ((70, 68, 66), (120, 118, 116), (40, 40, 42))
GLOVES: tuple[Colour, ...] = ((196, 128, 40), (60, 58, 58), (120, 150, 205), (96, 128, 190))
CABLES: tuple[Colour, ...] = ((34, 32, 32), (205, 205, 205), (40, 40, 150))
_FAR = 60.0
"""Length of an arm, in lengths of a finger: beyond the border of every picture."""


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
        waves = [
            (x, 0.3 * (strand - 1.5) + 0.25 * math.sin(0.7 * x))
            for x in np.linspace(-5 * _FAR, 5 * _FAR, 1200)
        ]
        points = [(float(x), float(y)) for x, y in waves]
        pen.line(points, colour, 0.28)
        pen.line([(x, y - 0.06) for x, y in points], shade(colour, 1.35), 0.05)


def gripper(pen: TurnedPen, reach: float, rng: np.random.Generator) -> None:
    """A gripper whose jaws are about as wide as the object."""
    draw_gripper(pen.moved(-reach, float(rng.uniform(1.5, 2.2))), METALS[int(rng.integers(len(METALS)))])


def hand(pen: TurnedPen, reach: float, rng: np.random.Generator) -> None:
    """Fingers and palm, bare or in a glove."""
    draw_hand(pen.moved(-reach, float(rng.uniform(1.4, 2.0))), GLOVES[int(rng.integers(len(GLOVES)))])


def cable(pen: TurnedPen, reach: float, rng: np.random.Generator) -> None:
    """A bundle of cables lying across; it grows with ``reach``."""
    colour = CABLES[int(rng.integers(len(CABLES)))]
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


def paper(pen: TurnedPen, reach: float, rng: np.random.Generator) -> None:
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

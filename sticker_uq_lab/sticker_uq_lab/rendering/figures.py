# SPDX-License-Identifier: Apache-2.0
"""The figures on stickers, each drawn with a pen whose unit is half the figure's size."""

import math
from collections.abc import Callable, Sequence

from sticker_uq_lab.rendering.painting import Pen, mix, shade
from sticker_uq_lab.rendering.scene_spec import Colour

Figure = Callable[[Pen, Sequence[Colour]], None]

BLACK: Colour = (32, 28, 28)
WHITE: Colour = (250, 250, 250)
PINK: Colour = (170, 150, 245)
GREEN: Colour = (70, 160, 70)
BROWN: Colour = (50, 80, 130)
YELLOW: Colour = (50, 205, 250)
RED: Colour = (50, 50, 220)


def _eyes(pen: Pen, y: float, apart: float, size: float) -> None:
    for side in (-1, 1):
        pen.circle(side * apart, y, size, BLACK)
        pen.circle(side * apart - size * 0.3, y - size * 0.35, size * 0.35, WHITE)


def _smile(pen: Pen, y: float, size: float) -> None:
    pen.arc(0, y, size, 20, 160, BLACK, size * 0.32)


def star_points(points: int, inner: float) -> list[tuple[float, float]]:
    """Corners of a star around the origin, its first tip upwards."""
    corners = []
    for step in range(points * 2):
        r = inner if step % 2 else 1.0
        angle = math.pi * step / points - math.pi / 2
        corners.append((r * math.cos(angle), r * math.sin(angle)))
    return corners


def heart_points(size: float = 1.0) -> list[tuple[float, float]]:
    points = []
    for step in range(60):
        t = 2 * math.pi * step / 60
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((size * 16 * math.sin(t) ** 3 / 17, -size * (y + 2.5) / 16))
    return points


def smiley(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.circle(0, 0, 0.95, YELLOW)
    _eyes(pen, -0.25, 0.32, 0.14)
    pen.ellipse(0, 0.12, 0.55, 0.55, BLACK, 0, 0, 180)
    pen.ellipse(0, 0.2, 0.38, 0.34, RED, 0, 20, 160)


def cat(pen: Pen, colours: Sequence[Colour]) -> None:
    fur = colours[0]
    for side in (-1, 1):
        pen.polygon([(side * 0.85, -0.95), (side * 0.2, -0.6), (side * 0.85, 0.0)], fur)
        pen.polygon([(side * 0.72, -0.72), (side * 0.4, -0.52), (side * 0.72, -0.25)], PINK)
    pen.ellipse(0, 0.1, 0.92, 0.76, fur)
    pen.ellipse(0, 0.38, 0.42, 0.32, shade(fur, 1.6))
    _eyes(pen, -0.02, 0.42, 0.16)
    pen.polygon([(-0.1, 0.22), (0.1, 0.22), (0, 0.34)], PINK)
    for side in (-1, 1):
        pen.arc(side * 0.13, 0.36, 0.13, 0, 180, BLACK, 0.05)
        for lift in (0.25, 0.4):
            pen.line([(side * 0.5, lift), (side * 0.86, lift + 0.1 * (lift - 0.3))], BLACK, 0.035)


def bear(pen: Pen, colours: Sequence[Colour]) -> None:
    fur = colours[0]
    for side in (-1, 1):
        pen.circle(side * 0.62, -0.6, 0.32, fur)
        pen.circle(side * 0.62, -0.6, 0.17, shade(fur, 1.5))
    pen.ellipse(0, 0.08, 0.9, 0.84, fur)
    pen.ellipse(0, 0.4, 0.42, 0.34, shade(fur, 1.6))
    _eyes(pen, -0.05, 0.38, 0.12)
    pen.ellipse(0, 0.26, 0.15, 0.1, BLACK)
    _smile(pen, 0.36, 0.17)


def panda(pen: Pen, colours: Sequence[Colour]) -> None:
    for side in (-1, 1):
        pen.circle(side * 0.65, -0.62, 0.3, BLACK)
    pen.ellipse(0, 0.08, 0.92, 0.82, (238, 240, 240))
    for side in (-1, 1):
        pen.ellipse(side * 0.4, 0.0, 0.2, 0.28, BLACK, side * 25)
        pen.circle(side * 0.38, -0.02, 0.09, WHITE)
    pen.ellipse(0, 0.34, 0.13, 0.09, BLACK)
    _smile(pen, 0.42, 0.18)


def ghost(pen: Pen, colours: Sequence[Colour]) -> None:
    body = mix(colours[0], WHITE, 0.75)
    pen.ellipse(0, -0.2, 0.75, 0.76, body, 0, 180, 360)
    wave = [(-0.75, -0.22), (0.75, -0.22), (0.75, 0.9), (0.5, 0.68), (0.25, 0.92), (0, 0.68), (-0.25, 0.92)]
    pen.polygon([*wave, (-0.5, 0.68), (-0.75, 0.9)], body)
    _eyes(pen, -0.2, 0.28, 0.15)
    pen.ellipse(0, 0.18, 0.14, 0.2, BLACK)
    for side in (-1, 1):
        pen.ellipse(side * 0.5, 0.06, 0.13, 0.08, PINK)


def cactus(pen: Pen, colours: Sequence[Colour]) -> None:
    for side, top in ((-1, -0.25), (1, -0.45)):
        pen.line([(side * 0.2, 0.2), (side * 0.6, 0.2), (side * 0.6, top)], GREEN, 0.26)
    pen.line([(0, -0.62), (0, 0.5)], GREEN, 0.52)
    for x in (-0.12, 0.1):
        pen.line([(x, -0.6), (x, 0.4)], shade(GREEN, 0.75), 0.04)
    pen.circle(0, -0.86, 0.14, PINK)
    pot = colours[0]
    pen.polygon([(-0.5, 0.42), (0.5, 0.42), (0.36, 0.96), (-0.36, 0.96)], pot)
    pen.box(0, 0.46, 0.56, 0.1, shade(pot, 0.8))


def avocado(pen: Pen, colours: Sequence[Colour]) -> None:
    for size, colour in ((1.0, (50, 110, 50)), (0.84, (130, 220, 190))):
        pen.circle(0, 0.3, 0.68 * size, colour)
        pen.ellipse(0, -0.25, 0.48 * size, 0.72 * size, colour)
    pen.circle(0, 0.32, 0.32, BROWN)
    pen.circle(-0.1, 0.22, 0.08, shade(BROWN, 1.4))


def watermelon(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.ellipse(0, -0.35, 0.98, 1.15, GREEN, 0, 0, 180)
    pen.ellipse(0, -0.35, 0.86, 1.0, (205, 240, 215), 0, 0, 180)
    pen.ellipse(0, -0.35, 0.78, 0.9, (80, 75, 235), 0, 0, 180)
    for x, y in ((-0.45, -0.15), (0, -0.18), (0.45, -0.15), (-0.22, 0.12), (0.22, 0.12), (0, 0.36)):
        pen.ellipse(x, y, 0.05, 0.09, BLACK)


def strawberry(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.polygon(
        [(-0.8, -0.35), (-0.4, -0.62), (0.4, -0.62), (0.8, -0.35), (0.6, 0.3), (0, 0.98), (-0.6, 0.3)], RED
    )
    for row, xs in ((-0.3, (-0.45, 0, 0.45)), (0.05, (-0.28, 0.28)), (0.35, (-0.15, 0.18)), (0.62, (0,))):
        for x in xs:
            pen.ellipse(x, row, 0.05, 0.08, (120, 220, 250))
    for tip in (-0.6, -0.2, 0.2, 0.6):
        pen.polygon([(0, -0.72), (tip * 1.25, -0.35), (tip - 0.2, -0.78)], GREEN)
    pen.line([(0, -0.7), (0.08, -0.95)], GREEN, 0.1)


def orange(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.circle(0, 0, 0.95, (20, 130, 250))
    pen.circle(0, 0, 0.82, (170, 225, 255))
    for step in range(8):
        turns = [math.pi * (step / 4 + part / 32) for part in range(1, 8)]
        rim = [(0.74 * math.cos(turn), 0.74 * math.sin(turn)) for turn in turns]
        pen.polygon([(0.1 * math.cos(turns[3]), 0.1 * math.sin(turns[3])), *rim], (40, 150, 252))
    pen.circle(0, 0, 0.1, (170, 225, 255))


def donut(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.circle(0, 0, 0.95, (110, 170, 225))
    pen.circle(0, 0, 0.82, colours[0])
    for step in range(14):
        a = step * 2.4
        r = 0.5 + 0.18 * math.sin(step * 5.1)
        x, y = r * math.cos(a), r * math.sin(a)
        end = (x + 0.12 * math.cos(3 * a), y + 0.12 * math.sin(3 * a))
        pen.line([(x, y), end], (WHITE, YELLOW)[step % 2], 0.07)
    pen.circle(0, 0, 0.3, (90, 145, 200))
    pen.circle(0, 0, 0.24, WHITE)


def mushroom(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.polygon([(-0.3, 0.1), (0.3, 0.1), (0.42, 0.92), (-0.42, 0.92)], (215, 232, 240))
    pen.ellipse(0, 0.18, 0.95, 1.05, RED, 0, 180, 360)
    for x, y, r in ((-0.5, -0.15, 0.17), (0.08, -0.5, 0.2), (0.55, -0.1, 0.15), (0.02, 0.02, 0.1)):
        pen.circle(x, y, r, WHITE)
    _eyes(pen, 0.42, 0.14, 0.07)


def rocket(pen: Pen, colours: Sequence[Colour]) -> None:
    fin = colours[0]
    pen.polygon([(-0.16, 0.6), (0.16, 0.6), (0, 1.0)], (30, 140, 250))
    for side in (-1, 1):
        pen.polygon([(side * 0.25, 0.1), (side * 0.62, 0.72), (side * 0.25, 0.58)], fin)
    pen.ellipse(0, -0.1, 0.36, 0.88, (235, 235, 238), 0, 130, 410)
    pen.ellipse(0, -0.1, 0.36, 0.88, fin, 0, 232, 308)
    pen.circle(0, -0.15, 0.19, BLACK)
    pen.circle(0, -0.15, 0.13, (230, 190, 110))


def planet(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.circle(0, 0, 0.62, colours[0])
    pen.ellipse(-0.02, 0.2, 0.58, 0.14, shade(colours[0], 0.75))
    pen.ellipse(0.05, -0.25, 0.5, 0.1, shade(colours[0], 1.3))
    ring = [
        (0.98 * math.cos(t) * 0.96 + 0.2 * math.sin(t), -0.3 * math.cos(t) + 0.26 * math.sin(t))
        for t in [math.pi * (-0.08 + 1.16 * i / 40) for i in range(41)]
    ]
    pen.line(ring, colours[1], 0.13)


def heart(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.polygon(heart_points(0.98), RED)
    pen.ellipse(-0.45, -0.4, 0.2, 0.11, shade(RED, 1.6), -35)


def star(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.polygon(star_points(5, 0.5), YELLOW)
    _eyes(pen, -0.08, 0.2, 0.08)
    _smile(pen, 0.1, 0.14)


def bolt(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.polygon(
        [(0.25, -0.98), (-0.55, 0.12), (-0.05, 0.12), (-0.25, 0.98), (0.55, -0.2), (0.05, -0.2)], YELLOW
    )


def mug(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.arc(0.5, 0.2, 0.32, -90, 90, colours[0], 0.16)
    pen.polygon([(-0.7, -0.3), (0.55, -0.3), (0.45, 0.85), (-0.6, 0.85)], colours[0])
    pen.ellipse(-0.08, -0.3, 0.62, 0.16, shade(colours[0], 0.7))
    pen.ellipse(-0.08, -0.29, 0.52, 0.11, BROWN)
    for x in (-0.35, 0.0, 0.3):
        pen.line([(x, -0.5), (x + 0.08, -0.62), (x - 0.06, -0.75), (x + 0.04, -0.9)], (190, 190, 190), 0.07)
    pen.polygon([(x * 0.25 - 0.08, y * 0.25 + 0.3) for x, y in heart_points()], WHITE)


def rainbow(pen: Pen, colours: Sequence[Colour]) -> None:
    bands = ((50, 50, 230), (40, 140, 250), (60, 220, 250), (80, 180, 80), (210, 130, 50), (180, 70, 130))
    for step, colour in enumerate(bands):
        pen.arc(0, 0.5, 0.9 - 0.11 * step, 180, 360, colour, 0.13)
    for side in (-1, 1):
        for dx, r in ((-0.18, 0.18), (0.05, 0.24), (0.24, 0.17)):
            pen.circle(side * 0.62 + dx, 0.56, r, (245, 240, 236))


def fish(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.polygon([(0.4, 0), (0.98, -0.5), (0.85, 0), (0.98, 0.5)], shade(colours[0], 0.8))
    pen.ellipse(-0.15, 0, 0.8, 0.52, colours[0])
    for x in (-0.1, 0.2):
        pen.arc(x - 0.2, 0, 0.4, -50, 50, colours[1], 0.1)
    pen.circle(-0.6, -0.12, 0.12, WHITE)
    pen.circle(-0.62, -0.12, 0.07, BLACK)


def flower(pen: Pen, colours: Sequence[Colour]) -> None:
    for step in range(7):
        a = 2 * math.pi * step / 7
        pen.circle(0.58 * math.cos(a), 0.58 * math.sin(a), 0.34, colours[0])
    pen.circle(0, 0, 0.38, YELLOW)
    _eyes(pen, -0.05, 0.14, 0.06)
    _smile(pen, 0.06, 0.13)


def penguin(pen: Pen, colours: Sequence[Colour]) -> None:
    pen.ellipse(0, 0.05, 0.66, 0.9, BLACK)
    pen.ellipse(0, 0.25, 0.46, 0.62, WHITE)
    for side in (-1, 1):
        pen.circle(side * 0.2, -0.32, 0.22, WHITE)
        pen.ellipse(side * 0.32, 0.92, 0.24, 0.1, (30, 150, 250))
        pen.ellipse(side * 0.66, 0.2, 0.13, 0.44, BLACK, side * -18)
    _eyes(pen, -0.3, 0.17, 0.1)
    pen.polygon([(-0.13, -0.12), (0.13, -0.12), (0, 0.08)], (30, 150, 250))


def fox(pen: Pen, colours: Sequence[Colour]) -> None:
    fur = (40, 115, 235)
    for side in (-1, 1):
        pen.polygon([(side * 0.9, -0.95), (side * 0.15, -0.5), (side * 0.9, -0.05)], fur)
        pen.polygon([(side * 0.78, -0.7), (side * 0.42, -0.5), (side * 0.78, -0.25)], BLACK)
    pen.polygon([(-0.92, -0.2), (0, -0.6), (0.92, -0.2), (0, 0.95)], fur)
    for side in (-1, 1):
        pen.polygon([(side * 0.92, -0.2), (side * 0.1, 0.2), (0, 0.95)], WHITE)
    _eyes(pen, 0.02, 0.34, 0.11)
    pen.circle(0, 0.86, 0.13, BLACK)


FIGURES: dict[str, Figure] = {
    figure.__name__: figure
    for figure in (
        smiley, cat, bear, panda, ghost, cactus, avocado, watermelon, strawberry, orange, donut, mushroom,
        rocket, planet, heart, star, bolt, mug, rainbow, fish, flower, penguin, fox,
    )
}  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""Stickers: what is printed on them, their outlines, wear and peeled corners, and what is left where one was."""

import math
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from sticker_uq.scene import Rng
from sticker_uq_lab.rendering import painting
from sticker_uq_lab.rendering.designs import paint_design
from sticker_uq_lab.rendering.emblems import emblem_mask
from sticker_uq_lab.rendering.figures import FIGURES, heart_points, star_points
from sticker_uq_lab.rendering.painting import Image, Pen, clouds, rotate, shade
from sticker_uq_lab.rendering.scene_spec import Colour, ResidueSpec, StickerSpec

Painter = Callable[[Pen, StickerSpec, float, float, Rng], None]

INK: Colour = (36, 32, 32)
PAPER: Colour = (246, 248, 248)


def contrast(colour: Sequence[float]) -> Colour:
    return INK if painting.luminance(colour) > 135 else PAPER


def _scale(pen: Pen, factor: float, x: float = 0.0, y: float = 0.0) -> Pen:
    origin = (pen.origin[0] + x * pen.unit, pen.origin[1] + y * pen.unit)
    return Pen(pen.image, pen.unit * factor, origin, pen.mask)


def _barcode(pen: Pen, x: float, y: float, half_width: float, half_height: float, rng: Rng) -> None:
    position, end = x - half_width, x + half_width
    while position < end:
        bar, gap = rng.choice((0.03, 0.05, 0.08), 2)
        right = min(end, position + bar)
        pen.box((position + right) / 2, y, (right - position) / 2, half_height, INK)
        position += bar + gap


def _figure(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    pen.image[:] = spec.colours[2]
    if rng.random() < 0.4:
        for step in range(0, 24, 2):
            a, b = 2 * math.pi * step / 24, 2 * math.pi * (step + 1) / 24
            far = 2 * max(ax, ay)
            ray = [(far * math.cos(turn), far * math.sin(turn)) for turn in (a, b)]
            pen.polygon([(0, 0), *ray], shade(spec.colours[2], 1.2))
    FIGURES[spec.motif](_scale(pen, 0.7), spec.colours)


def _words(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    ground, ink = spec.colours[0], contrast(spec.colours[0])
    pen.image[:] = ground
    lines = spec.motif.split("/")
    face, weight = (("sans", 800), ("italic", 800), ("serif", 800))[rng.integers(3)]
    fit = 0.72 if spec.shape in ("circle", "oval", "burst", "hexagon", "shield") else 0.84
    if spec.shape in ("circle", "hexagon") and rng.random() < 0.6:
        pen.arc(0, 0, 0.78, 0, 360, ink, 0.05)
        fit = 0.66
    elif spec.shape in ("rect", "rounded") and rng.random() < 0.5:
        pen.box(0, -ay + 0.12, ax, 0.12, spec.colours[1])
        pen.box(0, ay - 0.12, ax, 0.12, spec.colours[1])
        fit = 0.74
    step = 2 * ay * fit / len(lines)
    for index, line in enumerate(lines):
        y = -ay * fit + step * (index + 0.5)
        accent = (
            spec.colours[1]
            if abs(painting.luminance(spec.colours[1]) - painting.luminance(ground)) > 70
            else ink
        )
        pen.text(line, 0, y, 2 * ax * fit, step * 0.74, ink if index % 2 == 0 else accent, face, weight)


def _label(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    foil = spec.motif.startswith("ASSET")
    pen.image[:] = (205, 207, 208) if foil else PAPER
    pen.box(0, -ay * 0.68, ax, ay * 0.34, spec.colours[0])
    pen.text(spec.motif, 0, -ay * 0.66, ax * 1.7, ay * 0.36, contrast(spec.colours[0]), "sans", 800)
    _barcode(pen, 0, ay * 0.14, ax * 0.82, ay * 0.36, rng)
    pen.text(f"{int(rng.integers(100_000, 1_000_000))}", 0, ay * 0.76, ax * 1.5, ay * 0.3, INK, "sans", 600)


def _shipping(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    pen.image[:] = PAPER
    pen.text(spec.motif, 0, -ay * 0.68, ax * 1.6, ay * 0.38, INK, "sans", 800)
    pen.box(0, -ay * 0.4, ax * 0.9, 0.02, INK)
    for row in range(3):
        length = ax * rng.uniform(0.35, 0.8)
        pen.box(-ax * 0.84 + length, -ay * 0.24 + row * ay * 0.2, length, 0.035, (110, 105, 105))
    _barcode(pen, 0, ay * 0.62, ax * 0.82, ay * 0.22, rng)


def _hello(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    pen.image[:] = spec.colours[0]
    light = contrast(spec.colours[0])
    pen.text("HELLO", 0, -ay * 0.7, ax * 1.3, ay * 0.32, light, "sans", 800)
    pen.text("my name is", 0, -ay * 0.36, ax * 1.2, ay * 0.2, light, "sans", 600)
    pen.box(0, ay * 0.28, ax, ay * 0.46, PAPER)
    pen.text(spec.motif, 0, ay * 0.28, ax * 1.4, ay * 0.56, (120, 50, 30), "italic", 700)


def _qr(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    pen.image[:] = PAPER
    cells = 21
    matrix = (rng.random((cells, cells)) < 0.48).astype(np.uint8)
    for row, column in ((0, 0), (0, cells - 7), (cells - 7, 0)):
        block = np.zeros((8, 8), np.uint8)
        block[:7, :7] = 1
        block[1:6, 1:6] = 0
        block[2:5, 2:5] = 1
        target = matrix[max(0, row - 1) : row + 8, max(0, column - 1) : column + 8]
        target[:] = 0
        matrix[row : row + 7, column : column + 7] = block[:7, :7]
    side = max(cells, round(1.56 * pen.unit))
    coverage = cv2.resize(matrix * np.uint8(255), (side, side), interpolation=cv2.INTER_NEAREST)
    lift = 0.14 * pen.unit if ay > ax * 1.1 else 0.0
    painting.stamp(
        pen.image, coverage, round(pen.origin[0] - side / 2), round(pen.origin[1] - side / 2 - lift), INK
    )
    if lift:
        pen.text(spec.motif, 0, ay - 0.24, ax * 1.6, 0.24, spec.colours[0], "sans", 800)


def _flag(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    a, b, c = spec.colours[:3]
    pen.image[:] = b
    if spec.motif == "bands":
        pen.box(0, -ay * 2 / 3, ax, ay / 3, a)
        pen.box(0, ay * 2 / 3, ax, ay / 3, c)
    elif spec.motif == "columns":
        pen.box(-ax * 2 / 3, 0, ax / 3, ay, a)
        pen.box(ax * 2 / 3, 0, ax / 3, ay, c)
    elif spec.motif == "cross":
        for width, colour in ((0.3, PAPER), (0.16, a)):
            pen.box(0, 0, ax, width, colour)
            pen.box(-ax * 0.3, 0, width, ay, colour)
    else:
        for row in range(4):
            pen.box(0, -ay + ay * (0.25 + row * 4 / 7) - 0.02, ax, ay / 7, a)
        pen.box(-ax * 0.55, -ay * 0.45, ax * 0.45, ay * 0.55, c)
        star = [(-ax * 0.55 + 0.4 * ay * x, -ay * 0.45 + 0.4 * ay * y) for x, y in star_points(5, 0.42)]
        pen.polygon(star, PAPER)


def _pattern(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    a, b, c = spec.colours[:3]
    far = max(ax, ay) * 1.5
    pen.image[:] = a
    if spec.motif == "stripes":
        for step in range(-6, 7):
            x = step * 0.5
            stripe = [(x - far, far), (x - far + 0.25, far), (x + far + 0.25, -far), (x + far, -far)]
            pen.polygon(stripe, (b, c)[step % 2])
    elif spec.motif == "sunset":
        pen.circle(0, 0.0, 0.62, (40, 190, 252))
        for row in range(4):
            pen.box(0, 0.12 + row * 0.15, far, 0.02 + 0.013 * row, a)
        hills = [(-far, ay), (-far, 0.75), (-0.4, 0.35), (0.1, 0.7), (0.55, 0.45), (far, 0.9), (far, ay)]
        pen.polygon(hills, b)
    elif spec.motif == "mountains":
        pen.image[:] = (225, 190, 120)
        pen.circle(0.45, -0.45, 0.2, (90, 220, 255))
        pen.polygon([(-far, 0.8), (-0.3, -0.5), (0.6, 0.8)], (110, 90, 80))
        pen.polygon([(-0.3, -0.5), (-0.47, -0.2), (-0.3, -0.28), (-0.12, -0.2)], PAPER)
        pen.polygon([(-0.4, 0.8), (0.5, -0.15), (far, 0.8)], (85, 70, 60))
        pen.box(0, ay, far, ay - 0.55, (70, 120, 60))
    elif spec.motif == "checker":
        for row in range(-6, 6):
            for column in range(-6 + row % 2, 6, 2):
                pen.box(column * 0.3 + 0.15, row * 0.3 + 0.15, 0.15, 0.15, b)
    elif spec.motif == "rings":
        for step in range(5):
            pen.circle(0, 0, 0.95 - 0.19 * step, (b, c, a)[step % 3])
    else:
        for _ in range(22):
            x, y = rng.uniform(-ax, ax), rng.uniform(-ay, ay)
            pen.circle(x, y, rng.uniform(0.06, 0.16), (b, c)[rng.integers(2)])


def _badge(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    """A processor badge: dark glossy ground, coloured sweep, maker and model."""
    maker, model = spec.motif.split("/")
    height, width = pen.image.shape[:2]
    ramp = np.linspace(0, 1, height, dtype=np.float32)[:, None, None] * np.ones((1, width, 1), np.float32)
    low, high = np.asarray(spec.colours[0], np.float32), np.asarray(spec.colours[1], np.float32)
    pen.image[:] = (high * (1 - ramp) * 0.9 + low * ramp).astype(np.uint8)
    ink = contrast(spec.colours[0])
    pen.polygon([(-ax, ay), (-ax, ay * 0.55), (ax, ay * 0.05), (ax, ay * 0.35)], shade(spec.colours[1], 1.35))
    pen.text(maker, 0, -ay * 0.42, ax * 1.56, ay * 0.5, contrast(spec.colours[1]), "sans", 700)
    pen.text(model, ax * 0.25, ay * 0.66, ax * 1.2, ay * 0.42, ink, "sans", 800)


def _warning(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    pen.image[:] = (30, 205, 250)
    if spec.shape == "triangle":
        pen.line([(0, -0.72), (0.8, 0.74), (-0.8, 0.74), (0, -0.72), (0.1, -0.55)], INK, 0.14)
        if spec.motif == "bolt":
            FIGURES["bolt"](dark := _scale(pen, 0.45, 0, 0.22), spec.colours)
            bolt = [(0.25, -0.98), (-0.55, 0.12), (-0.05, 0.12), (-0.25, 0.98), (0.55, -0.2), (0.05, -0.2)]
            dark.polygon(bolt, INK)
        else:
            pen.polygon([(-0.13, -0.28), (0.13, -0.28), (0.06, 0.32), (-0.06, 0.32)], INK)
            pen.circle(0, 0.5, 0.1, INK)
        return
    for step in range(-8, 9, 2):
        x = step * 0.28
        for y in (-ay + 0.14, ay - 0.14):
            low, high = y + 0.14, y - 0.14
            pen.polygon([(x - 0.14, low), (x + 0.14, low), (x + 0.42, high), (x + 0.14, high)], INK)
    pen.text(spec.motif, 0, 0, ax * 1.7, ay * 0.8, INK, "sans", 800)


def _decal(pen: Pen, spec: StickerSpec, ax: float, ay: float, rng: Rng) -> None:
    """A maker's emblem on a plain ground: the sticker most similar to a logo."""
    pen.image[:] = spec.colours[0]
    mask = emblem_mask(int(spec.motif))
    scale = 1.3 * pen.unit / max(mask.shape)
    small: Image = cv2.resize(mask, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    left, top = (round(pen.origin[axis] - small.shape[1 - axis] / 2) for axis in (0, 1))
    painting.stamp(pen.image, small, left, top, contrast(spec.colours[0]))


PRINTS: dict[str, Painter] = {
    paint.__name__[1:]: paint
    for paint in (_figure, _words, _label, _shipping, _hello, _qr, _flag, _pattern, _badge, _warning, _decal)
}


def paint_print(spec: StickerSpec, width: int, height: int) -> Image:
    image = np.zeros((height, width, 3), np.uint8)
    unit = min(width, height) / 2
    pen = Pen(image, unit, (width / 2, height / 2))
    half = width / 2 / unit, height / 2 / unit
    PRINTS[spec.print](pen, spec, *half, np.random.default_rng(spec.seed))
    return image


COVERED = 0.6
"""Share of a residue's rectangle that is covered."""


def paint_residue(residue: ResidueSpec, scale: float) -> tuple[painting.Floats, painting.Floats]:
    """Residue turned by its angle: colours (h,w,3), grey levels, and opacity (h,w), 0 to 1, at `scale` pixels per unit."""
    rng = np.random.default_rng(residue.seed)
    width, height = max(8, round(residue.width * scale)), max(8, round(residue.height * scale))
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    edge = np.maximum(np.abs(xs / (width - 1) - 0.5), np.abs(ys / (height - 1) - 0.5)) * 2
    ragged = clouds(rng, width, height, (4, 3), 3) * 0.8 - edge**4
    film = ragged > np.quantile(ragged, 1 - COVERED)
    tears = clouds(rng, width, height, (5, 4), 3)
    paper = film & (tears > np.quantile(tears, rng.uniform(0.35, 0.75)))
    opacity = np.where(paper, rng.uniform(0.75, 0.95), np.where(film, rng.uniform(0.25, 0.5), 0))
    opacity = cv2.GaussianBlur(opacity.astype(np.float32), (0, 0), max(0.6, 1.2 * scale))
    dirt, white = rng.uniform(90, 190), rng.uniform(195, 240)
    tone = np.where(
        paper, white + painting.grain(rng, width, height) * 9, dirt + clouds(rng, width, height, (9, 7)) * 25
    )
    warm = np.array([0.92, 0.98, 1.0], np.float32)
    colours = np.clip(tone, 0, 255).astype(np.float32)[:, :, None] * warm
    return rotate(colours, residue.angle), rotate(opacity, residue.angle)


_PAPER_BACK = (222, 230, 232)


def outline_mask(shape: str, width: int, height: int, inset: float = 0.0) -> Image:
    if shape == "rect":
        return painting.rounded_mask(width, height, 0.02 * min(width, height), inset)
    if shape == "rounded":
        return painting.rounded_mask(width, height, 0.22 * min(width, height), inset)
    canvas = np.zeros((height, width, 3), np.uint8)
    half_x, half_y = width / 2 - inset - 0.5, height / 2 - inset - 0.5
    pen = Pen(canvas, 1.0, (width / 2, height / 2))
    if shape in ("circle", "oval"):
        pen.ellipse(0, 0, half_x, half_y, (255, 255, 255))
    else:
        points = _POLYGONS[shape]
        pen.polygon([(x * half_x, y * half_y) for x, y in points], (255, 255, 255))
    return np.ascontiguousarray(canvas[:, :, 0])


def _shield() -> list[tuple[float, float]]:
    sweep = [math.pi * step / 24 for step in range(25)]
    return [(-1, -0.9), (0, -1), (1, -0.9), *((math.cos(t), -0.1 + 1.1 * math.sin(t) ** 0.8) for t in sweep)]


_POLYGONS: dict[str, list[tuple[float, float]]] = {
    "hexagon": [(math.cos(math.pi * k / 3), math.sin(math.pi * k / 3) / 0.866) for k in range(6)],
    "star": star_points(5, 0.55),
    "burst": star_points(16, 0.84),
    "triangle": [(0, -1), (0.08, -0.97), (1, 0.88), (0.95, 1), (-0.95, 1), (-1, 0.88), (-0.08, -0.97)],
    "heart": heart_points(1.0),
    "shield": _shield(),
}


def paint_sticker(spec: StickerSpec, scale: float) -> tuple[Image, Image]:
    """Colours (h,w,3) and coverage (h,w) of a sticker, upright, at `scale` pixels per laptop unit."""
    width, height = (max(8, round(length * scale)) for length in (spec.width, spec.height))
    if spec.shape == "diecut":
        colours, coverage = _die_cut(spec, width, height)
    elif spec.shape == "design":
        colours, coverage = paint_design(spec.motif, width, height)
    else:
        colours = paint_print(spec, width, height)
        coverage = outline_mask(spec.shape, width, height)
        rim = spec.border * min(width, height)
        if rim >= 0.5:
            inner = outline_mask(spec.shape, width, height, rim).astype(np.float32)[:, :, None] / 255
            colours = (colours * inner + 246.0 * (1 - inner)).astype(np.uint8)
    rng = np.random.default_rng(spec.seed + 1)
    colours, coverage = _age(spec, colours, coverage, rng)
    return _peel(spec, colours, coverage) if spec.peel > 0 else (colours, coverage)


def _die_cut(spec: StickerSpec, width: int, height: int) -> tuple[Image, Image]:
    colours = np.full((height, width, 3), 250, np.uint8)
    drawn = np.zeros((height, width), np.uint8)
    unit = min(width, height) / 2
    FIGURES[spec.motif](Pen(colours, unit * 0.84, (width / 2, height / 2), drawn), spec.colours)
    rim = max(2, round(0.13 * unit))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * rim + 1, 2 * rim + 1))
    swollen = cv2.dilate(drawn, disc)
    return colours, cv2.GaussianBlur(swollen, (0, 0), 0.7)


def _age(spec: StickerSpec, colours: Image, coverage: Image, rng: Rng) -> tuple[Image, Image]:
    height, width = coverage.shape
    tinted = colours.astype(np.float32)
    if spec.faded > 0:
        grey = tinted.mean(axis=2, keepdims=True)
        tinted += (0.55 * (grey - tinted) + 0.35 * (190 - tinted)) * np.float32(spec.faded)
    if spec.wear > 0.05:
        blotches = clouds(rng, width, height, (7, 7), octaves=2)
        fibres = cv2.GaussianBlur(painting.grain(rng, width, height), (0, 0), 1.0) * 0.8
        depth = np.minimum(cv2.distanceTransform((coverage > 127).astype(np.uint8), cv2.DIST_L2, 3), 1e3)
        edge = 1.0 - np.minimum(1.0, depth / (0.22 * min(width, height)))
        bare = np.clip((blotches * 0.55 + fibres + 1.1 * edge - 2.25 + 1.35 * spec.wear) * 4, 0, 1)
        tinted += (np.float32(232) - tinted) * bare[:, :, None]
        scuffed = np.zeros((height, width), np.uint8)
        for _ in range(int(2 + 9 * spec.wear)):
            x, y = rng.uniform(0, width), rng.uniform(0, height)
            angle, length = rng.uniform(0, math.pi), rng.uniform(0.1, 0.6) * width
            end = (int(x + length * math.cos(angle)), int(y + length * math.sin(angle)))
            cv2.line(scuffed, (int(x), int(y)), end, (int(rng.integers(90, 220)),), 1, cv2.LINE_AA)
        tinted += (np.float32(228) - tinted) * (scuffed.astype(np.float32) / 255)[:, :, None]
        torn = (blotches * 0.8 + fibres * 0.4 + 1.6 * edge > 3.1 - 1.3 * spec.wear) & (edge > 0.2)
        if spec.wear > 0.45 and torn.any():
            gone = cv2.GaussianBlur(torn.astype(np.uint8) * np.uint8(255), (0, 0), 1.0)
            coverage = cv2.subtract(coverage, gone)
    return np.clip(tinted, 0, 255).astype(np.uint8), coverage


def _peel(spec: StickerSpec, colours: Image, coverage: Image) -> tuple[Image, Image]:
    """Fold the part beyond a line over, its paper back up, with a soft shade along the fold."""
    height, width = coverage.shape
    angle = math.radians(spec.peel_angle)
    direction = np.array([math.cos(angle), math.sin(angle)])
    centre = np.array([width / 2, height / 2])
    ys, xs = np.nonzero(coverage > 127)
    if len(xs) == 0:
        return colours, coverage
    along = (xs - centre[0]) * direction[0] + (ys - centre[1]) * direction[1]
    low, high = float(along.min()), float(along.max())
    fold = high - spec.peel * (high - low)
    grid_y, grid_x = np.mgrid[0:height, 0:width].astype(np.float32)
    distance = (grid_x - centre[0]) * direction[0] + (grid_y - centre[1]) * direction[1] - fold
    loose = (distance > 0).astype(np.uint8)
    # Reflection about the fold: p' = p - 2 ((p - c).d - fold) d, its own inverse.
    reflection = np.eye(2) - 2 * np.outer(direction, direction)
    shift = 2 * (direction @ centre + fold) * direction
    matrix = np.column_stack((reflection, shift)).astype(np.float64)
    flap = cv2.warpAffine(coverage * loose, matrix, (width, height), flags=cv2.INTER_LINEAR)
    flap[distance > 0] = 0
    flap = cv2.min(flap, coverage)
    sigma = max(1.0, 0.04 * min(width, height))
    shadow = cv2.GaussianBlur(flap, (0, 0), sigma).astype(np.float32)[:, :, None] / 255
    reach = max(1.0, spec.peel * (high - low))
    curl = (0.8 + 0.28 * np.clip(1 + distance / reach, 0, 1))[:, :, None]
    lit = flap.astype(np.float32)[:, :, None] / 255
    under = colours * (1 - 0.5 * shadow)
    result = under * (1 - lit) + np.asarray(_PAPER_BACK, np.float32) * curl * lit
    kept = cv2.max(np.where(distance > 0.5, 0, coverage).astype(np.uint8), flap)
    return np.clip(result, 0, 255).astype(np.uint8), kept

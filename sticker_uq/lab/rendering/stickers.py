# SPDX-License-Identifier: Apache-2.0
"""A sticker as a flat patch: outline, print, wear and a folded corner."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from sticker_uq.lab.rendering.figures import FIGURES, heart_points, star_points
from sticker_uq.lab.rendering.painting import Image, Pen, clouds, grain, rounded_mask
from sticker_uq.lab.rendering.prints import paint_print
from sticker_uq.lab.rendering.scene_spec import StickerSpec

_PAPER_BACK = (222, 230, 232)


@dataclass(frozen=True)
class Patch:
    colours: Image
    coverage: Image


def outline_mask(shape: str, width: int, height: int, inset: float = 0.0) -> Image:
    """Coverage (height,width) of a rendered sticker's outline, `inset` pixels inside its edge."""
    if shape == "rect":
        return rounded_mask(width, height, 0.02 * min(width, height), inset)
    if shape == "rounded":
        return rounded_mask(width, height, 0.22 * min(width, height), inset)
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


def paint_sticker(spec: StickerSpec, scale: float) -> Patch:
    """Paint a sticker upright at `scale` pixels per laptop unit."""
    width, height = (max(8, round(length * scale)) for length in (spec.width, spec.height))
    if spec.shape == "diecut":
        colours, coverage = _die_cut(spec, width, height)
    else:
        colours = paint_print(spec, width, height)
        coverage = outline_mask(spec.shape, width, height)
        rim = spec.border * min(width, height)
        if rim >= 0.5:
            inner = outline_mask(spec.shape, width, height, rim).astype(np.float32)[:, :, None] / 255
            colours = (colours * inner + 246.0 * (1 - inner)).astype(np.uint8)
    rng = np.random.default_rng(spec.seed + 1)
    colours, coverage = _age(spec, colours, coverage, rng)
    if spec.peel > 0:
        colours, coverage = _peel(spec, colours, coverage)
    return Patch(colours, coverage)


def _die_cut(spec: StickerSpec, width: int, height: int) -> tuple[Image, Image]:
    colours = np.full((height, width, 3), 250, np.uint8)
    drawn = np.zeros((height, width), np.uint8)
    unit = min(width, height) / 2
    FIGURES[spec.motif](Pen(colours, unit * 0.84, (width / 2, height / 2), drawn), spec.colours)
    rim = max(2, round(0.13 * unit))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * rim + 1, 2 * rim + 1))
    swollen = cv2.dilate(drawn, disc)
    return colours, cv2.GaussianBlur(swollen, (0, 0), 0.7)


def _age(spec: StickerSpec, colours: Image, coverage: Image, rng: np.random.Generator) -> tuple[Image, Image]:
    height, width = coverage.shape
    tinted = colours.astype(np.float32)
    if spec.faded > 0:
        grey = tinted.mean(axis=2, keepdims=True)
        tinted += (0.55 * (grey - tinted) + 0.35 * (190 - tinted)) * np.float32(spec.faded)
    if spec.wear > 0.05:
        blotches = clouds(rng, width, height, (7, 7), octaves=2)
        fibres = cv2.GaussianBlur(grain(rng, width, height), (0, 0), 1.0) * 0.8
        depth = np.minimum(cv2.distanceTransform((coverage > 127).astype(np.uint8), cv2.DIST_L2, 3), 1e3)
        edge = 1.0 - np.minimum(1.0, depth / (0.22 * min(width, height)))
        bare = np.clip((blotches * 0.55 + fibres + 1.1 * edge - 2.25 + 1.35 * spec.wear) * 4, 0, 1)[
            :, :, None
        ]
        tinted += (np.float32(232) - tinted) * bare
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

# SPDX-License-Identifier: Apache-2.0
"""Occlusion by a gripper, a hand or cables between camera and laptop."""

from __future__ import annotations

import math
from collections.abc import Callable

import cv2
import numpy as np

from sticker_uq.lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq.lab.corruptions.light import interior
from sticker_uq.lab.corruptions.registry import COVER, chosen, transformation
from sticker_uq.lab.rendering.occluders import CABLES, GLOVES, METALS, draw_cables, draw_gripper, draw_hand
from sticker_uq.lab.rendering.painting import Image, Pen, grain
from sticker_uq.lab.rendering.scene_spec import Colour

_LARGEST = 0.4
"""Highest length of a finger, in widths of the picture."""

_TOOLS: dict[str, tuple[Callable[[Pen, Colour], None], tuple[Colour, ...]]] = {
    "gripper": (draw_gripper, METALS),
    "hand": (draw_hand, GLOVES),
    "cables": (draw_cables, CABLES),
}
_ANY = ("gripper", "hand")
"""What the arm and the operator move over the laptop; cables are asked for by name."""


def _painted(
    tool: str, colour: Colour, size: tuple[int, int], tip: tuple[float, float], unit: float, turn: float
) -> tuple[Image, Image]:
    """The tool (H, W, 3) and its coverage (H, W), its tip at `tip`, its arm leaving in direction `turn` (radians)."""
    width, height = size
    side = 2 * math.ceil(math.hypot(width, height))
    # Drawn upright on a square around the tip, which is then turned into the picture.
    flat, mask = np.zeros((side, side, 3), np.uint8), np.zeros((side, side), np.uint8)
    _TOOLS[tool][0](Pen(flat, unit, (side / 2, side / 2), mask), colour)
    c, s = math.cos(turn), math.sin(turn)
    matrix = np.array([[c, -s, tip[0] - (c - s) * side / 2], [s, c, tip[1] - (s + c) * side / 2]], np.float64)
    return cv2.warpAffine(flat, matrix, size), cv2.warpAffine(mask, matrix, size)


@transformation(
    unit="% of the image",
    strength="area that the gripper, hand or cables cover",
    stage=COVER,
    ladder=(2, 5, 10, 17, 26, 36),
    limits=(0, 40),
    tool="any",
)
def occlusion(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, tool: str = "any"
) -> LabelledPicture:
    """Occlude the picture by a gripper, a hand or cables from outside, in two of three cases over an object.

    ``tool``: "gripper", "hand", "cables" or "any" of the first two. Boxes shrink to the visible part; an object of which less
    than a quarter is visible is hidden.
    """
    chosen("occlusion", "tool", tool, ("any", *_TOOLS))
    kind = tool if tool != "any" else str(rng.choice(_ANY))
    colours = _TOOLS[kind][1]
    colour = colours[int(rng.integers(len(colours)))]
    tip = interior(picture, rng, 2 / 3)
    turn = float(rng.uniform(0, 2 * math.pi))
    if strength == 0:
        return picture
    unit, tip = _fitted(strength / 100, kind, colour, picture.size, tip, turn)
    inks, cover = _painted(kind, colour, picture.size, tip, unit, turn)
    solid = cover.astype(np.float32)[:, :, None] / 255
    offset = max(1, round(unit * 0.12))
    shadow = cv2.GaussianBlur(np.roll(cover, (offset, offset), (0, 1)), (0, 0), max(1.0, unit * 0.12))
    behind = picture.image * (1 - 0.45 * shadow.astype(np.float32)[:, :, None] / 255)
    light = np.clip(picture.image.mean() / 120, 0.4, 1.4)
    lit = inks * np.float32(light) + grain(rng, *picture.size)[:, :, None] * 3
    image = np.rint(behind * (1 - solid) + lit * solid).clip(0, 255).astype(np.uint8)
    return picture.covered((cover > 127).astype(np.uint8), image)


def _fitted(
    share: float, kind: str, colour: Colour, size: tuple[int, int], aim: tuple[float, float], turn: float
) -> tuple[float, tuple[float, float]]:
    """Length of a finger, px, and where its tip is, so that the tool covers `share` of a picture.

    Found by bisection on a small picture: the tool grows with its tip at `aim` up to its highest size, then reaches
    further in.
    """
    shrink = 160 / max(size)
    small = (max(16, round(size[0] * shrink)), max(16, round(size[1] * shrink)))
    largest, far = _LARGEST * size[0], math.hypot(*size)

    def at(step: float) -> tuple[float, tuple[float, float]]:
        beyond = max(0.0, step - 1) * far
        return largest * min(step, 1.0), (aim[0] - beyond * math.cos(turn), aim[1] - beyond * math.sin(turn))

    low, high = 0.0, 2.0
    for _ in range(12):
        middle = (low + high) / 2
        unit, (x, y) = at(middle)
        _, cover = _painted(kind, colour, small, (x * shrink, y * shrink), unit * shrink, turn)
        low, high = (middle, high) if (cover > 127).mean() < share else (low, middle)
    return at((low + high) / 2)

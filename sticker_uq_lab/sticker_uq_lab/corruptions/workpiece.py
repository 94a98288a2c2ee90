# SPDX-License-Identifier: Apache-2.0
"""Another pose of the laptop, what lies before it, and another state of it."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from sticker_uq.scene import InvalidInput, ObjectClass, Rng
from sticker_uq_lab.corruptions.camera import interior
from sticker_uq_lab.corruptions.labelled_picture import LabelledPicture, warp_image
from sticker_uq_lab.corruptions.registry import CONTENT, COVER, POSE, transformation
from sticker_uq_lab.rendering.emblems import logo_mask
from sticker_uq_lab.rendering.laptops import BRANDS, Rect
from sticker_uq_lab.rendering.painting import Image, Pen, grain, lid_region, luminance, stamp
from sticker_uq_lab.rendering.render import laptop_to_picture, render
from sticker_uq_lab.rendering.scene_spec import FRAME_HEIGHT, Colour, ResidueSpec, SceneSpec
from sticker_uq_lab.rendering.stickers import COVERED, paint_residue
from sticker_uq_lab.rendering.things import CABLES, GLOVES, METALS, draw_cables, draw_gripper, draw_hand

_FIELD_OF_VIEW = 55.0  # of the camera that is tilted, across the picture, degrees


def rotation_matrix(angle: float, size: tuple[int, int]) -> Any:
    """Map (3, 3) that turns a picture of `size` (width, height) about its middle by `angle` degrees clockwise."""
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = size[0] / 2, size[1] / 2
    return np.array([[c, -s, x - c * x + s * y], [s, c, y - s * x - c * y], [0, 0, 1]])


def tilt_matrix(angle: float, axis: float, field_of_view: float, size: tuple[int, int]) -> Any:
    """Map (3, 3) of the laptop's plane for a camera tilted by `angle` degrees around the plane's centre.

    The camera keeps pointing at the centre from the same distance. `axis`: direction in the picture, degrees, of the line about
    which it turns; `field_of_view`: across the width of the picture, degrees.
    """
    width, height = size
    focal = width / 2 / math.tan(math.radians(field_of_view) / 2)
    turn, lean = math.radians(axis), math.radians(angle)
    ux, uy = math.cos(turn), math.sin(turn)
    c, s = math.cos(lean), math.sin(lean)
    # Rodrigues' formula for the axis (ux, uy, 0); the plane is z = 0, so only the first two columns count.
    rotation = np.array(
        [
            [c + ux * ux * (1 - c), ux * uy * (1 - c)],
            [ux * uy * (1 - c), c + uy * uy * (1 - c)],
            [-uy * s, ux * s],
        ]
    )
    to_plane = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1]])
    # A plane of one px per unit at distance `focal` is unchanged without tilt.
    project = np.column_stack([rotation, [0, 0, focal]])
    to_picture = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    return to_picture @ project @ to_plane / focal


@transformation("degrees", "angle in the picture, to either side", POSE, (2, 5, 10, 15, 25, 45), (0, 180))
def rotation(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    matrix = rotation_matrix(strength if rng.random() < 0.5 else -strength, picture.size)
    return picture.warp(matrix, warp_image(picture.image, matrix))


@transformation(
    "degrees", "angle between the camera's axis and the vertical", POSE, (3, 6, 10, 15, 22, 30), (0, 50)
)
def tilt(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Tilt the camera or the laptop to any side."""
    matrix = tilt_matrix(strength, rng.uniform(0, 360), _FIELD_OF_VIEW, picture.size)
    return picture.warp(matrix, warp_image(picture.image, matrix))


_LARGEST = 0.4  # highest length of a finger, in widths of the picture

_TOOLS: dict[str, tuple[Callable[[Pen, Colour], None], tuple[Colour, ...]]] = {
    "gripper": (draw_gripper, METALS),
    "hand": (draw_hand, GLOVES),
    "cables": (draw_cables, CABLES),
}
_ANY = ("gripper", "hand")  # what the arm and the operator move over the laptop; cables are asked for by name


def _paint(
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
    "% of the image",
    "area that the gripper, hand or cables cover",
    COVER,
    (2, 5, 10, 17, 26, 36),
    (0, 40),
    tool="any",
)
def occlusion(picture: LabelledPicture, strength: float, rng: Rng, tool: str = "any") -> LabelledPicture:
    """Occlude the picture by a gripper, a hand or cables from outside, in two of three cases over an object.

    ``tool``: "gripper", "hand", "cables" or "any" of the first two. Boxes shrink to the visible part; an object of which less
    than a quarter is visible is hidden.
    """
    if tool not in (known := ("any", *_TOOLS)):
        raise InvalidInput(f"occlusion: tool = {tool!r}: expected one of {', '.join(known)}")
    kind = tool if tool != "any" else str(rng.choice(_ANY))
    colours = _TOOLS[kind][1]
    colour = colours[rng.integers(len(colours))]
    tip = interior(picture, rng, 2 / 3)
    turn = rng.uniform(0, 2 * math.pi)
    if strength == 0:
        return picture
    unit, tip = _fit(strength / 100, kind, colour, picture.size, tip, turn)
    inks, cover = _paint(kind, colour, picture.size, tip, unit, turn)
    solid = cover.astype(np.float32)[:, :, None] / 255
    offset = max(1, round(unit * 0.12))
    shadow = cv2.GaussianBlur(np.roll(cover, (offset, offset), (0, 1)), (0, 0), max(1.0, unit * 0.12))
    behind = picture.image * (1 - 0.45 * shadow.astype(np.float32)[:, :, None] / 255)
    light = np.clip(picture.image.mean() / 120, 0.4, 1.4)
    lit = inks * np.float32(light) + grain(rng, *picture.size)[:, :, None] * 3
    image = np.rint(behind * (1 - solid) + lit * solid).clip(0, 255).astype(np.uint8)
    return picture.with_cover((cover > 127).astype(np.uint8), image)


def _fit(
    share: float, kind: str, colour: Colour, size: tuple[int, int], aim: tuple[float, float], turn: float
) -> tuple[float, tuple[float, float]]:
    """Length of a finger and place of its tip, px, with which the tool covers `share` of a picture, by bisection on a small one.

    The tool grows with its tip at `aim` up to its highest size, then reaches further in.
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
        _, cover = _paint(kind, colour, small, (x * shrink, y * shrink), unit * shrink, turn)
        low, high = (middle, high) if (cover > 127).mean() < share else (low, middle)
    return at((low + high) / 2)


_LAYOUTS = ("emblem", "word", "stacked", "row")
_TRIES = 40
_SHARE_OF_ONE = 0.012  # approximate share of the laptop that one residue covers


def _render(picture: LabelledPicture, before: SceneSpec, after: SceneSpec) -> LabelledPicture:
    """`picture` with the pixels that differ between two scenes replaced."""
    size = picture.size
    old, new = render(before, size), render(after, size)
    same = (old.image == new.image).all(axis=2, keepdims=True)
    image = np.where(same, picture.image, new.image)
    return replace(picture.follow_scene(image, old, new), scene=after)


@transformation(
    "grey levels",
    "contrast between the unknown logo and the case",
    CONTENT,
    (120, 80, 50, 30, 18, 10),
    (5, 200),
)
def unknown_make(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """A make in no data set: its own emblem and name, in the place of the old, and (if rendered) a case of its own colour."""
    make = len(BRANDS) + int(rng.integers(2**20))
    if picture.scene is None:
        return _paste_make(picture, strength, make)
    return _render(picture, picture.scene, _of_make(picture.scene, make, strength, rng))


def _of_make(scene: SceneSpec, make: int, contrast: float, rng: Rng) -> SceneSpec:
    # A saturated colour between those of the known finishes.
    hue = rng.uniform(0, 180)
    value = rng.uniform(60, 200)
    pixel = np.array([[[hue, rng.uniform(110, 200), value]]]).astype(np.uint8)
    blue, green, red = cv2.cvtColor(pixel, cv2.COLOR_HSV2BGR)[0, 0].tolist()
    case: Colour = (blue, green, red)
    new: dict[str, Any] = {"brand": make, "colour": _contrasting_colour(case, contrast), "finish": "bright"}
    laptop = replace(scene.laptop, brand=make, colour=case, deck_colour=case)
    return replace(scene, laptop=laptop, logos=tuple(replace(logo, **new) for logo in scene.logos))


def _contrasting_colour(surface: Colour, contrast: float) -> Colour:
    """A neutral colour lighter than `surface` by `contrast` grey levels; or darker if that would exceed white."""
    base = luminance(surface)
    level = base + contrast if base + contrast <= 255 else max(0.0, base - contrast)
    return (round(level),) * 3


def _paste_make(picture: LabelledPicture, contrast: float, make: int) -> LabelledPicture:
    image = picture.image.copy()
    width, height = picture.size
    for box, label in zip(picture.boxes, picture.labels, strict=True):
        if label != ObjectClass.LOGO:
            continue
        left, top = int(max(0, math.floor(box[0]))), int(max(0, math.floor(box[1])))
        right, bottom = int(min(width, math.ceil(box[2]))), int(min(height, math.ceil(box[3])))
        if right - left < 4 or bottom - top < 4:
            continue
        _erase(image, left, top, right, bottom)
        aspect = (right - left) / (bottom - top)
        layout = min(_LAYOUTS, key=lambda n: abs(math.log(aspect * np.divide(*logo_mask(make, n).shape))))
        ink = cv2.resize(logo_mask(make, layout), (right - left, bottom - top), interpolation=cv2.INTER_AREA)
        case: Colour = tuple(image[top:bottom, left:right].mean((0, 1)).tolist())
        stamp(image, ink, left, top, _contrasting_colour(case, contrast))
    return picture.with_image(image)


def _erase(image: Image, left: int, top: int, right: int, bottom: int) -> None:
    """Fill a box from its border inwards."""
    margin = 3
    x0, y0 = max(0, left - margin), max(0, top - margin)
    part = image[y0 : bottom + margin, x0 : right + margin]
    hole = np.zeros(part.shape[:2], np.uint8)
    hole[top - y0 : bottom - y0, left - x0 : right - x0] = 255
    part[:] = cv2.inpaint(part, hole, 3, cv2.INPAINT_TELEA)


@transformation(
    "% of the image", "area of the laptop that residue covers", CONTENT, (0.3, 0.6, 1.2, 2.5, 4, 6), (0, 15)
)
def sticker_residue(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Torn paper and adhesive of a former sticker, not labelled, beside the objects; less than asked for without space."""
    area = picture.size[0] * picture.size[1] * strength / 100
    if picture.scene is None:
        image = picture.image.copy()
        left, top, right, bottom = np.concatenate(lid_region(image.shape, picture.boxes, 0.3)).tolist()
        for residue in _residues(picture, np.eye(3), (left, top, right, bottom), area, rng):
            colours, opacity = paint_residue(residue, 1.0)
            left, top = (round(residue.centre[n] - opacity.shape[1 - n] / 2) for n in (0, 1))
            stamp(image, opacity, left, top, colours)
        return picture.with_image(image)
    scene, (width, height) = picture.scene, picture.size
    to_picture = laptop_to_picture(scene.pose, width, height)
    scale = scene.pose.width * min(width, height / FRAME_HEIGHT) / 1000
    region = (25.0, 25.0, 975.0, scene.laptop.depth - 25.0)
    residues = _residues(picture, to_picture, region, area / scale**2, rng)
    return _render(picture, scene, replace(scene, residues=scene.residues + residues))


def _residues(
    picture: LabelledPicture, to_picture: Any, region: Rect, area: float, rng: Rng
) -> tuple[ResidueSpec, ...]:
    if area <= 0:
        return ()
    whole = (region[2] - region[0]) * (region[3] - region[1])
    count = max(1, round(area / whole / _SHARE_OF_ONE))
    laid: list[ResidueSpec] = []
    taken = picture.boxes.astype(np.float64).tolist()
    for _ in range(count):
        aspect = rng.uniform(0.6, 1.8)
        height = math.sqrt(area / count / COVERED / aspect)
        for _ in range(_TRIES):
            x, y = rng.uniform(region[0], region[2]), rng.uniform(region[1], region[3])
            size, angle = (height * aspect, height), rng.uniform(0, 180)
            residue = ResidueSpec((x, y), *size, angle, int(rng.integers(2**31)))
            reach = math.hypot(*size) / 2
            corners = [[(x + a * reach, y + b * reach) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]]
            seen = cv2.perspectiveTransform(np.array(corners), to_picture)[0]
            left, top = seen.min(axis=0)
            right, bottom = seen.max(axis=0)
            if all(left > b[2] or right < b[0] or top > b[3] or bottom < b[1] for b in taken):
                laid.append(residue)
                taken.append([left, top, right, bottom])
                break
    return tuple(laid)

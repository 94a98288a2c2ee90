# SPDX-License-Identifier: Apache-2.0
"""Corruptions by the workpiece: an unknown make, and sticker residue.

A picture whose scene is known is rendered again with the same light, pose and camera; other pictures are painted over.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cv2
import numpy as np

from sticker_uq.lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq.lab.corruptions.registry import CONTENT, transformation
from sticker_uq.lab.rendering.brands import BRANDS
from sticker_uq.lab.rendering.emblems import logo_mask
from sticker_uq.lab.rendering.layout import Rect
from sticker_uq.lab.rendering.painting import Floats, Image, luminance, stamp
from sticker_uq.lab.rendering.render import laptop_to_picture, render
from sticker_uq.lab.rendering.residue import COVERED, paint_residue
from sticker_uq.lab.rendering.scene_spec import FRAME_HEIGHT, Colour, ResidueSpec, SceneSpec
from sticker_uq.scene import ObjectClass

_LAYOUTS = ("emblem", "word", "stacked", "row")
_TRIES = 40
_SHARE_OF_ONE = 0.012
"""Approximate share of the laptop that one residue covers."""


def _rendered(picture: LabelledPicture, before: SceneSpec, after: SceneSpec) -> LabelledPicture:
    """`picture` with the pixels that differ between two scenes replaced."""
    size = picture.size
    old, new = render(before, size), render(after, size)
    same = (old.image == new.image).all(axis=2, keepdims=True)
    image = np.where(same, picture.image, new.image)
    return replace(picture.seen_again(image, old, new), scene=after)


@transformation(
    unit="grey levels",
    strength="contrast between the unknown logo and the case",
    stage=CONTENT,
    ladder=(120, 80, 50, 30, 18, 10),
    limits=(5, 200),
)
def unknown_make(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """A laptop of a make in no data set: its own emblem and name, and (if rendered) a case of its own colour.

    Lower contrast between logo and case is harder. Boxes stay, as the new logo replaces the old one.
    """
    make = len(BRANDS) + int(rng.integers(2**20))
    if picture.scene is None:
        return _pasted_make(picture, strength, make)
    return _rendered(picture, picture.scene, _of_make(picture.scene, make, strength, rng))


def scene_of_unknown_make(scene: SceneSpec, contrast: float, seed: int) -> SceneSpec:
    """`scene` with the laptop of another make, as the corruption `unknown_make` with that seed makes it."""
    rng = np.random.default_rng(seed)
    return _of_make(scene, len(BRANDS) + int(rng.integers(2**20)), contrast, rng)


def _of_make(scene: SceneSpec, make: int, contrast: float, rng: np.random.Generator) -> SceneSpec:
    # A saturated colour between those of the known finishes.
    hue = float(rng.uniform(0, 180))
    value = float(rng.uniform(60, 200))
    pixel = np.array([[[hue, rng.uniform(110, 200), value]]]).astype(np.uint8)
    blue, green, red = cv2.cvtColor(pixel, cv2.COLOR_HSV2BGR)[0, 0].tolist()
    case: Colour = (blue, green, red)
    logos = []
    for logo in scene.logos:
        colour = _contrasting(case, contrast)
        logos.append(replace(logo, brand=make, colour=colour, finish="bright"))
    laptop = replace(scene.laptop, brand=make, colour=case, deck_colour=case)
    return replace(scene, laptop=laptop, logos=tuple(logos))


def _contrasting(surface: Colour, contrast: float) -> Colour:
    """A neutral colour lighter than `surface` by `contrast` grey levels; or darker if that would exceed white."""
    base = luminance(surface)
    level = base + contrast if base + contrast <= 255 else max(0.0, base - contrast)
    return (round(level),) * 3


def _pasted_make(picture: LabelledPicture, contrast: float, make: int) -> LabelledPicture:
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
        layout = min(_LAYOUTS, key=lambda name: abs(math.log(aspect / _aspect(make, name))))
        ink = cv2.resize(logo_mask(make, layout), (right - left, bottom - top), interpolation=cv2.INTER_AREA)
        case: Colour = tuple(image[top:bottom, left:right].mean((0, 1)).tolist())
        stamp(image, ink, left, top, _contrasting(case, contrast))
    return picture.with_image(image)


def _aspect(make: int, layout: str) -> float:
    height, width = logo_mask(make, layout).shape
    return width / height


def _erase(image: Image, left: int, top: int, right: int, bottom: int) -> None:
    """Fill a box from its border inwards."""
    margin = 3
    x0, y0 = max(0, left - margin), max(0, top - margin)
    part = image[y0 : bottom + margin, x0 : right + margin]
    hole = np.zeros(part.shape[:2], np.uint8)
    hole[top - y0 : bottom - y0, left - x0 : right - x0] = 255
    part[:] = cv2.inpaint(part, hole, 3, cv2.INPAINT_TELEA)


@transformation(
    unit="% of the image",
    strength="area of the laptop that residue covers",
    stage=CONTENT,
    ladder=(0.3, 0.6, 1.2, 2.5, 4, 6),
    limits=(0, 15),
)
def sticker_residue(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """Torn paper and adhesive of a former sticker, which is not labelled.

    It is placed beside the labelled objects. If there is little space, less residue is placed than requested.
    """
    area = picture.size[0] * picture.size[1] * strength / 100
    if picture.scene is None:
        image = picture.image.copy()
        for residue in _residues(picture, np.eye(3), _reach(picture), area, rng):
            _paste(image, *paint_residue(residue, 1.0), residue.centre)
        return picture.with_image(image)
    scene, (width, height) = picture.scene, picture.size
    to_picture = laptop_to_picture(scene.pose, width, height)
    scale = scene.pose.width * min(width, height / FRAME_HEIGHT) / 1000
    region = (25.0, 25.0, 975.0, scene.laptop.depth - 25.0)
    residues = _residues(picture, to_picture, region, area / scale**2, rng)
    return _rendered(picture, scene, replace(scene, residues=scene.residues + residues))


def _residues(
    picture: LabelledPicture, to_picture: Any, region: Rect, area: float, rng: np.random.Generator
) -> tuple[ResidueSpec, ...]:
    """Residues that cover `area` in all, within `region`, apart from the objects; `to_picture` maps their units to pixels."""
    if area <= 0:
        return ()
    whole = (region[2] - region[0]) * (region[3] - region[1])
    count = max(1, round(area / whole / _SHARE_OF_ONE))
    laid: list[ResidueSpec] = []
    taken = picture.boxes.astype(np.float64).tolist()
    for _ in range(count):
        aspect = float(rng.uniform(0.6, 1.8))
        height = math.sqrt(area / count / COVERED / aspect)
        for _ in range(_TRIES):
            residue = ResidueSpec(
                (float(rng.uniform(region[0], region[2])), float(rng.uniform(region[1], region[3]))),
                height * aspect,
                height,
                float(rng.uniform(0, 180)),
                int(rng.integers(2**31)),
            )
            (x, y), reach = residue.centre, math.hypot(residue.width, residue.height) / 2
            corners = [
                (x - reach, y - reach),
                (x + reach, y - reach),
                (x + reach, y + reach),
                (x - reach, y + reach),
            ]
            seen = cv2.perspectiveTransform(np.array([corners], np.float64), to_picture)[0]
            left, top = seen.min(axis=0)
            right, bottom = seen.max(axis=0)
            if all(left > b[2] or right < b[0] or top > b[3] or bottom < b[1] for b in taken):
                laid.append(residue)
                taken.append([left, top, right, bottom])
                break
    return tuple(laid)


def _reach(picture: LabelledPicture) -> Rect:
    """Estimated region of the laptop from the boxes alone: around the centre and all objects."""
    width, height = picture.size
    left, top, right, bottom = 0.3 * width, 0.3 * height, 0.7 * width, 0.7 * height
    if len(picture.boxes):
        left, top = min(left, float(picture.boxes[:, 0].min())), min(top, float(picture.boxes[:, 1].min()))
        right, bottom = (
            max(right, float(picture.boxes[:, 2].max())),
            max(bottom, float(picture.boxes[:, 3].max())),
        )
    return left, top, right, bottom


def _paste(image: Image, colours: Floats, opacity: Floats, centre: tuple[float, float]) -> None:
    """Blend a residue into `image` with the brightness of the surface."""
    height, width = opacity.shape
    left, top = round(centre[0] - width / 2), round(centre[1] - height / 2)
    x0, y0 = max(0, left), max(0, top)
    x1, y1 = min(image.shape[1], left + width), min(image.shape[0], top + height)
    if x0 >= x1 or y0 >= y1:
        return
    part = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    cover = opacity[part][:, :, None]
    region = image[y0:y1, x0:x1]
    region[:] = np.rint(region * (1 - cover) + colours[part] * cover).clip(0, 255).astype(np.uint8)

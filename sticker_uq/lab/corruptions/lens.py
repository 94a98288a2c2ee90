# SPDX-License-Identifier: Apache-2.0
"""Corruptions by lens and motion, which blur without moving objects."""

from __future__ import annotations

import math
from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq.lab.corruptions.light import grey_levels, linear
from sticker_uq.lab.corruptions.registry import LENS, transformation
from sticker_uq.lab.rendering.painting import Floats

_OVERSAMPLING = 8
"""Samples per pixel and axis of a kernel."""


def _kernel(half: float, inside: Callable[[Floats, Floats], npt.NDArray[np.bool_]]) -> Floats:
    """Normalised kernel that covers what `inside(x, y)` says, centred on its middle pixel."""
    reach = math.ceil(half + 0.5)
    steps = (np.arange((2 * reach + 1) * _OVERSAMPLING) + 0.5) / _OVERSAMPLING - reach - 0.5
    xs, ys = np.meshgrid(steps, steps)
    fine = inside(xs, ys).astype(np.float32)
    size = 2 * reach + 1
    kernel = fine.reshape(size, _OVERSAMPLING, size, _OVERSAMPLING).sum((1, 3))
    return kernel / kernel.sum()


def motion_kernel(length: float, angle: float) -> Floats:
    """A line `length` px long, one wide, at `angle` degrees (clockwise), sums to 1."""
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))

    def on_line(xs: Floats, ys: Floats) -> npt.NDArray[np.bool_]:
        along, across = xs * c + ys * s, ys * c - xs * s
        return (np.abs(along) <= max(length, 1.0) / 2) & (np.abs(across) <= 0.5)

    return _kernel(max(length, 1.0) / 2, on_line)


def disc_kernel(diameter: float) -> Floats:
    """A disc of `diameter` px, sums to 1: the blur circle of a lens out of focus."""
    return _kernel(diameter / 2, lambda xs, ys: xs**2 + ys**2 <= (max(diameter, 1.0) / 2) ** 2)


def _smeared(picture: LabelledPicture, kernel: Floats) -> LabelledPicture:
    # Blur is linear in light, not in grey levels.
    blurred = cv2.filter2D(linear(picture.image), -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    return picture.with_image(grey_levels(blurred))


@transformation(
    unit="px",
    strength="length of the path that a point draws while the shutter is open",
    stage=LENS,
    ladder=(3, 6, 10, 15, 25, 40),
    limits=(0, 200),
    angle=-1.0,
)
def motion_blur(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, angle: float = -1.0
) -> LabelledPicture:
    """Uniform motion of laptop or camera during the exposure; boxes are those at half time.

    ``angle`` in degrees, 0 along the rows, clockwise; negative: any direction.
    """
    drawn = float(rng.uniform(0, 180))
    return _smeared(picture, motion_kernel(strength, drawn if angle < 0 else angle))


@transformation(
    unit="px",
    strength="diameter of the blur circle",
    stage=LENS,
    ladder=(2, 4, 7, 11, 18, 30),
    limits=(0, 150),
)
def defocus(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """The lens is focused in front of or behind the laptop."""
    return _smeared(picture, disc_kernel(strength))


@transformation(
    unit="% of the image",
    strength="area behind dirt",
    stage=LENS,
    ladder=(1, 3, 6, 12, 25, 45),
    limits=(0, 100),
    haze=0.35,
)
def lens_dirt(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, haze: float = 0.35
) -> LabelledPicture:
    """Grease and dust on the front lens: soft spots with blur and haze.

    ``haze``: share of the light there that the dirt scatters from the whole scene. Objects stay labelled.
    """
    width, height = picture.size
    spots = int(rng.integers(4, 10))
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32)
    field = np.full((height, width), -np.inf, np.float32)
    for _ in range(spots):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        size, aspect = rng.uniform(0.3, 1.0) * width / 20, rng.uniform(0.6, 1.6)
        field = np.maximum(field, np.float32(size) - np.hypot((xs - x) * aspect, (ys - y) / aspect))
    level = np.quantile(field, 1 - strength / 100) if strength < 100 else field.min() - 1
    if strength == 0:
        return picture
    soft = cv2.GaussianBlur((field >= level).astype(np.float32), (0, 0), max(1.0, width / 240))[:, :, None]
    light = linear(picture.image)
    smeared = cv2.GaussianBlur(light, (0, 0), max(1.5, width / 130))
    veiled = smeared * np.float32(1 - haze) + light.mean((0, 1)) * np.float32(haze)
    return picture.with_image(grey_levels(light * (1 - soft) + veiled * soft))

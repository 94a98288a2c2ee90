# SPDX-License-Identifier: Apache-2.0
"""Corruptions by lighting, which do not move objects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sticker_uq.lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq.lab.corruptions.registry import LIGHT, chosen, transformation
from sticker_uq.lab.rendering.painting import Floats, Image
from sticker_uq.scene import InvalidInput

GAMMA = 2.2
"""Exponent between grey levels and linear light."""
DAYLIGHT_K = 6500.0
_READ_NOISE = 8.0
_TO_LINEAR = ((np.arange(256) / 255) ** GAMMA).astype(np.float32)


def linear(image: Image) -> Floats:
    return _TO_LINEAR[image]


def grey_levels(light: Floats) -> Image:
    """Linear light of a corruption as grey levels of the picture, clipped to white."""
    return np.rint(255 * np.clip(light, 0, 1) ** np.float32(1 / GAMMA)).astype(np.uint8)


def interior(picture: LabelledPicture, rng: np.random.Generator, aim: float = 0.5) -> tuple[float, float]:
    """With probability `aim` the centre of one of the objects, else anywhere but at the border."""
    width, height = picture.size
    if len(picture.boxes) and rng.random() < aim:
        x1, y1, x2, y2 = picture.boxes[int(rng.integers(len(picture.boxes)))].tolist()
        return (x1 + x2) / 2, (y1 + y2) / 2
    return float(rng.uniform(0.15, 0.85)) * width, float(rng.uniform(0.15, 0.85)) * height


@transformation(
    unit="% of the image",
    strength="area that the reflection alone drives to white",
    stage=LIGHT,
    ladder=(0.25, 0.5, 1, 2, 4, 8),
    limits=(0, 50),
    shape="any",
)
def glare(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, shape: str = "any"
) -> LabelledPicture:
    """Specular reflection of a lamp or window on the laptop: added light, white in the middle and fading outwards.

    ``shape``: "lamp" (round), "tube" (long) or "any". Half of the reflections lie on an object.
    """
    chosen("glare", "shape", shape, ("any", "lamp", "tube"))
    if strength == 0:
        return picture
    return picture.with_image(grey_levels(linear(picture.image) + reflection(picture, strength, rng, shape)))


def reflection(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, shape: str = "any"
) -> Floats:
    """The light (H, W, 3) that the corruption glare adds, 1 is white; InvalidInput unless ``strength`` is positive."""
    if not strength > 0:
        raise InvalidInput(f"glare: strength {strength:g}: expected more than 0")
    width, height = picture.size
    kind = shape if shape != "any" else str(rng.choice(("lamp", "tube")))
    aspect = float(rng.uniform(1.0, 1.6) if kind == "lamp" else rng.uniform(3.0, 6.0))
    turn = float(rng.uniform(0, math.pi))
    x, y = interior(picture, rng)
    radius = math.sqrt(strength / 100 * width * height / (math.pi * aspect))
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32) + np.float32(0.5)
    along = ((xs - x) * math.cos(turn) + (ys - y) * math.sin(turn)) / (radius * aspect)
    across = ((ys - y) * math.cos(turn) - (xs - x) * math.sin(turn)) / radius
    # Gaussian with a peak of four times white: it reaches white exactly on the ellipse of the wanted area.
    added = 4 ** (1 - (along**2 + across**2))
    tint = np.float32(1) + rng.uniform(-0.04, 0.04, 3).astype(np.float32)
    return np.asarray(added[:, :, None] * np.maximum(tint, 1), np.float32)


@transformation(
    unit="EV",
    strength="stops of light missing",
    stage=LIGHT,
    ladder=(1, 2, 3, 4, 5, 6),
    limits=(0, 12),
    gain=0.5,
    full_well=8000.0,
)
def low_light(
    picture: LabelledPicture,
    strength: float,
    rng: np.random.Generator,
    gain: float = 0.5,
    full_well: float = 8000.0,
) -> LabelledPicture:
    """Low light: fewer electrons, hence a dark and noisy picture.

    White is ``full_well`` electrons under normal light. Shot noise is the root of the electrons, read noise 8 electrons; the
    camera's gain brings back the share ``gain`` of the missing stops, noise included.
    """
    electrons = linear(picture.image) * np.float32(full_well * 2.0**-strength)
    noise = rng.standard_normal(electrons.shape, np.float32) * np.sqrt(electrons + np.float32(_READ_NOISE**2))
    return picture.with_image(
        grey_levels((electrons + noise) * np.float32(2.0 ** (gain * strength) / full_well))
    )


@transformation(
    unit="EV",
    strength="stops of light too many",
    stage=LIGHT,
    ladder=(0.5, 1, 1.5, 2, 3, 4),
    limits=(0, 8),
)
def overexposure(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """Overexposure: everything brighter, bright parts clipped to white."""
    return picture.with_image(grey_levels(linear(picture.image) * np.float32(2.0**strength)))


@transformation(
    unit="K",
    strength=f"colour temperature of the light while the camera is balanced for {DAYLIGHT_K:g} K",
    stage=LIGHT,
    ladder=(5500, 4500, 3800, 3200, 2700, 2200),
    limits=(1700, 20000),
)
def colour_cast(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """Wrong white balance: warm below 6500 K, cold above."""
    gains = planckian_gains(strength)
    return picture.with_image(grey_levels(linear(picture.image) * gains[::-1].astype(np.float32)))


def planckian_gains(kelvin: float) -> Any:
    """Gains (3,) of linear red, green, blue of the corruption colour cast: a black body of that temperature against 6500 K,
    green 1.

    Chromaticity by the cubic fit of Kim et al. (US patent 7024034) to the Planckian locus, 1667 to 25000 K.
    """
    return _black_body(kelvin) / _black_body(DAYLIGHT_K)


def _black_body(kelvin: float) -> Any:
    u = 1000 / kelvin
    if kelvin <= 4000:
        x = -0.2661239 * u**3 - 0.2343589 * u**2 + 0.8776956 * u + 0.179910
    else:
        x = -3.0258469 * u**3 + 2.1070379 * u**2 + 0.2226347 * u + 0.240390
    if kelvin <= 2222:
        y = -1.1063814 * x**3 - 1.34811020 * x**2 + 2.18555832 * x - 0.20219683
    elif kelvin <= 4000:
        y = -0.9549476 * x**3 - 1.37418593 * x**2 + 2.09137015 * x - 0.16748867
    else:
        y = 3.0817580 * x**3 - 5.87338670 * x**2 + 3.75112997 * x - 0.37001483
    to_rgb = np.array(
        [
            [3.2404542, -1.5371385, -0.4985314],
            [-0.9692660, 1.8760108, 0.0415560],
            [0.0556434, -0.2040259, 1.0572252],
        ]
    )
    rgb = np.maximum(to_rgb @ np.array([x / y, 1.0, (1 - x - y) / y]), 1e-3)
    return rgb / rgb[1]

# SPDX-License-Identifier: Apache-2.0
"""Corruptions by sensor, transmission and compression, which do not move objects."""

from __future__ import annotations

import cv2
import numpy as np

from sticker_uq.lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq.lab.corruptions.registry import CODING, SENSOR, transformation

_BAND = 3
"""Lines that are shifted together."""


@transformation(
    unit="grey levels",
    strength="standard deviation of the noise, of each colour",
    stage=SENSOR,
    ladder=(4, 8, 14, 22, 35, 55),
    limits=(0, 128),
)
def sensor_noise(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """White Gaussian noise, as of a hot sensor or a high gain."""
    noise = rng.standard_normal(picture.image.shape, np.float32) * np.float32(strength)
    return picture.with_image(np.rint(picture.image + noise).clip(0, 255).astype(np.uint8))


@transformation(
    unit="% of the pixels",
    strength="pixels that are black or white",
    stage=SENSOR,
    ladder=(0.1, 0.5, 1, 3, 6, 12),
    limits=(0, 100),
)
def salt_and_pepper(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """Dead and hot pixels, or transmission errors: half of them black, half white."""
    drawn = rng.random(picture.image.shape[:2])
    share, image = strength / 200, picture.image.copy()
    image[drawn < share] = 0
    image[drawn >= 1 - share] = 255
    return picture.with_image(image)


@transformation(
    unit="px",
    strength="distance by which lines are shifted",
    stage=SENSOR,
    ladder=(2, 4, 8, 16, 32, 64),
    limits=(0, 500),
    share=25.0,
)
def shifted_lines(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, share: float = 25.0
) -> LabelledPicture:
    """Bands of lines shifted sideways with wrap-around, as after lost packets.

    ``share`` (0 to 50) % of the lines are shifted, in bands of three. Boxes stay, as most lines
    of an object are not shifted.
    """
    shift, image = round(strength), picture.image.copy()
    starts = np.arange(0, image.shape[0], _BAND)
    for start in rng.choice(starts, round(share / 100 * len(starts)), replace=False):
        rows = slice(start, start + _BAND)
        image[rows] = np.roll(image[rows], shift if rng.random() < 0.5 else -shift, axis=1)
    return picture.with_image(image)


@transformation(
    unit="quality",
    strength="JPEG quality",
    stage=CODING,
    ladder=(60, 40, 25, 15, 8, 4),
    limits=(1, 100),
)
def jpeg(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    quality = (cv2.IMWRITE_JPEG_QUALITY, round(strength))
    _, data = cv2.imencode(".jpg", picture.image, quality)
    return picture.with_image(np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8))


@transformation(
    unit="times",
    strength="factor by which the image has fewer pixels along each side",
    stage=CODING,
    ladder=(1.5, 2, 3, 4, 6, 8),
    limits=(1, 32),
)
def lower_resolution(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """A camera with larger pixels; the image is brought back to its size, so that boxes stay comparable."""
    width, height = picture.size
    small = (max(1, round(width / strength)), max(1, round(height / strength)))
    image = cv2.resize(picture.image, small, interpolation=cv2.INTER_AREA)
    return picture.with_image(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR))

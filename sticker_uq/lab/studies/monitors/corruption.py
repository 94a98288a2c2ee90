# SPDX-License-Identifier: Apache-2.0
"""Corruptions of the small crops that leave their class alone, after MNIST-C (Mu and Gilmer 2019)."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np

from sticker_uq.scene import FloatArray

Picture = FloatArray
Corruption = Callable[[Picture, np.random.Generator], Picture]


def _moved(picture: Picture, matrix: FloatArray) -> Picture:
    """The picture (h, w, C) under an affine map of coordinates around its centre."""
    h, w = picture.shape[:2]
    centre = np.array([(w - 1) / 2, (h - 1) / 2])
    offset = centre - matrix[:, :2] @ centre + matrix[:, 2] * [w, h]
    full = np.column_stack([matrix[:, :2], offset])
    moved = cv2.warpAffine(picture, full, (w, h), borderMode=cv2.BORDER_REPLICATE)
    return np.reshape(moved, picture.shape)


def _linear(a: float, b: float, c: float, d: float, x: float = 0.0, y: float = 0.0) -> FloatArray:
    return np.array([[a, b, x], [c, d, y]])


def shot_noise(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: the noise of few photons."""
    return rng.poisson(picture * 8).astype(np.float32) / 8


def gaussian_noise(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: noise of the camera."""
    return picture + rng.normal(0, 0.2, picture.shape).astype(np.float32)


def impulse_noise(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: dead and hot pixels."""
    drawn = rng.random((*picture.shape[:2], 1))
    return np.where(drawn < 0.06, 0, np.where(drawn > 0.94, 1, picture))


def blur(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: out of focus."""
    return cv2.GaussianBlur(picture, (0, 0), 0.11 * picture.shape[1]).reshape(picture.shape)


def rotate(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: turned by 25 to 45 degrees."""
    angle = np.radians(rng.uniform(25, 45)) * rng.choice([-1, 1])
    return _moved(picture, _linear(np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)))


def shear(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: slanted."""
    return _moved(picture, _linear(1, rng.choice([-1, 1]) * rng.uniform(0.4, 0.7), 0, 1))


def scale(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: smaller."""
    size = rng.uniform(0.5, 0.7)
    return _moved(picture, _linear(size, 0, 0, size))


def translate(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: off their place."""
    x, y = rng.choice([-1, 1], 2) * rng.uniform(0.15, 0.25, 2)
    return _moved(picture, _linear(1, 0, 0, 1, x, y))


def contrast(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: grey in grey."""
    mean = picture.mean()
    return mean + 0.3 * (picture - mean)


def fog(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: a bright cloud."""
    coarse = rng.uniform(0.2, 1.0, (3, 3)).astype(np.float32)
    cloud = cv2.resize(coarse, picture.shape[1::-1], interpolation=cv2.INTER_CUBIC)[..., None]
    return 0.5 * picture + 0.5 * cloud


def stripe(picture: Picture, rng: np.random.Generator) -> Picture:
    """Corrupted crops: a bright bar across."""
    w = picture.shape[1]
    found, width = picture.copy(), max(1, w // 8)
    at = int(rng.integers(w // 4, 3 * w // 4))
    if rng.random() < 0.5:
        found[:, at : at + width] = 1
    else:
        found[at : at + width] = 1
    return found


CORRUPTIONS: dict[str, Corruption] = {
    made.__name__: made
    for made in (
        shot_noise,
        gaussian_noise,
        impulse_noise,
        blur,
        rotate,
        shear,
        scale,
        translate,
        contrast,
        fog,
        stripe,
    )
}


def corrupt(crops: FloatArray, seed: int) -> FloatArray:
    """The crops (N, C, h, w) 0..1, each corrupted in one of the ways in turn; float32 0..1."""
    kinds = list(CORRUPTIONS.values())
    found = np.empty(crops.shape, np.float32)
    for number, crop in enumerate(crops):
        rng = np.random.default_rng([seed, number])
        picture = np.ascontiguousarray(crop.transpose(1, 2, 0), np.float32)
        changed = kinds[number % len(kinds)](picture, rng)
        found[number] = np.clip(changed, 0, 1).reshape(picture.shape).transpose(2, 0, 1)
    return found

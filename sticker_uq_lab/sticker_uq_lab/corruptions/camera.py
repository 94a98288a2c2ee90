# SPDX-License-Identifier: Apache-2.0
"""What light, lens and sensor do to a picture."""

import math
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.scene import Rng
from sticker_uq_lab.corruptions.labelled_picture import LabelledPicture
from sticker_uq_lab.corruptions.registry import CODING, LENS, LIGHT, SENSOR, transformation
from sticker_uq_lab.rendering.painting import Floats, Image

GAMMA = 2.2
"""Exponent between grey levels and linear light."""
DAYLIGHT_K = 6500.0
_WHITE, _READ_NOISE = 8000.0, 8.0
"""Electrons of white under normal light, and those that reading adds or takes."""
_GAIN = 0.5
_TO_LINEAR = ((np.arange(256) / 255) ** GAMMA).astype(np.float32)


def linear(image: Image) -> Floats:
    return _TO_LINEAR[image]


def grey_levels(light: Floats) -> Image:
    """Linear light as grey levels, clipped to white."""
    return np.rint(255 * np.clip(light, 0, 1) ** np.float32(1 / GAMMA)).astype(np.uint8)


def interior(picture: LabelledPicture, rng: Rng, aim: float = 0.5) -> tuple[float, float]:
    """With probability `aim` the centre of one of the objects, else anywhere but at the border."""
    width, height = picture.size
    if len(picture.boxes) and rng.random() < aim:
        x1, y1, x2, y2 = picture.boxes[rng.integers(len(picture.boxes))].tolist()
        return (x1 + x2) / 2, (y1 + y2) / 2
    return rng.uniform(0.15, 0.85) * width, rng.uniform(0.15, 0.85) * height


@transformation(
    "% of the image",
    "area that the reflection alone drives to white",
    LIGHT,
    (0.25, 0.5, 1, 2, 4, 8),
    (0, 50),
)
def glare(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Reflection of a round lamp or a long tube: white in the middle, half of them on an object."""
    if strength == 0:
        return picture
    width, height = picture.size
    aspect = rng.uniform(1.0, 1.6) if rng.choice(("lamp", "tube")) == "lamp" else rng.uniform(3.0, 6.0)
    turn = rng.uniform(0, math.pi)
    x, y = interior(picture, rng)
    radius = math.sqrt(strength / 100 * width * height / (math.pi * aspect))
    ys, xs = np.mgrid[0:height, 0:width].astype(np.float32) + np.float32(0.5)
    along = ((xs - x) * math.cos(turn) + (ys - y) * math.sin(turn)) / (radius * aspect)
    across = ((ys - y) * math.cos(turn) - (xs - x) * math.sin(turn)) / radius
    # Gaussian with a peak of four times white: it reaches white exactly on the ellipse of the wanted area.
    added = 4 ** (1 - (along**2 + across**2))
    tint = np.float32(1) + rng.uniform(-0.04, 0.04, 3).astype(np.float32)
    reflection = np.asarray(added[:, :, None] * np.maximum(tint, 1), np.float32)
    return picture.with_image(grey_levels(linear(picture.image) + reflection))


@transformation("EV", "stops of light missing", LIGHT, (1, 2, 3, 4, 5, 6), (0, 12))
def low_light(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Fewer electrons: shot noise is their root, read noise 8; gain brings half of the stops back, noise included."""
    electrons = linear(picture.image) * np.float32(_WHITE * 2.0**-strength)
    noise = rng.standard_normal(electrons.shape, np.float32) * np.sqrt(electrons + np.float32(_READ_NOISE**2))
    return picture.with_image(
        grey_levels((electrons + noise) * np.float32(2.0 ** (_GAIN * strength) / _WHITE))
    )


@transformation("EV", "stops of light too many", LIGHT, (0.5, 1, 1.5, 2, 3, 4), (0, 8))
def overexposure(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    return picture.with_image(grey_levels(linear(picture.image) * np.float32(2.0**strength)))


@transformation(
    "K",
    f"colour temperature of the light while the camera is balanced for {DAYLIGHT_K:g} K",
    LIGHT,
    (5500, 4500, 3800, 3200, 2700, 2200),
    (1700, 20000),
)
def colour_cast(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Wrong white balance: warm below 6500 K, cold above."""
    gains = planckian_gains(strength)
    return picture.with_image(grey_levels(linear(picture.image) * gains[::-1].astype(np.float32)))


def planckian_gains(kelvin: float) -> Any:
    """Gains (3,) of linear red, green, blue of a black body of that temperature against 6500 K, green 1.

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


_OVERSAMPLING = 8  # samples per pixel and axis of a kernel


def _kernel(half: float, inside: Callable[[Floats, Floats], npt.NDArray[np.bool_]]) -> Floats:
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


_HAZE = 0.35  # share of the light behind dirt that comes from the whole scene


def _smear(picture: LabelledPicture, kernel: Floats) -> LabelledPicture:
    # Blur is linear in light, not in grey levels.
    blurred = cv2.filter2D(linear(picture.image), -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    return picture.with_image(grey_levels(blurred))


@transformation(
    "px",
    "length of the path that a point draws while the shutter is open",
    LENS,
    (3, 6, 10, 15, 25, 40),
    (0, 200),
)
def motion_blur(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Uniform motion of laptop or camera in any direction; boxes are those at half time."""
    return _smear(picture, motion_kernel(strength, rng.uniform(0, 180)))


@transformation("px", "diameter of the blur circle", LENS, (2, 4, 7, 11, 18, 30), (0, 150))
def defocus(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    return _smear(picture, disc_kernel(strength))


@transformation(
    "%",
    "share by which red is magnified and blue reduced against green; both are blurred by as much of the shorter side",
    LENS,
    (0.1, 0.25, 0.5, 0.75, 1, 1.5),
    (0, 5),
)
def chromatic_aberration(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """A poor lens focuses colours at different sizes and distances (Wozniak et al., box 6); boxes are those of green."""
    width, height = picture.size
    blue, green, red = cv2.split(linear(picture.image))
    share = strength / 100
    kernel = disc_kernel(share * min(width, height))

    def spread(channel: Floats, factor: float) -> Floats:
        moved = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), 0, factor)
        scaled = cv2.warpAffine(
            channel, moved, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
        )
        return cv2.filter2D(scaled, -1, kernel, borderType=cv2.BORDER_REFLECT_101)

    return picture.with_image(
        grey_levels(cv2.merge((spread(blue, 1 - share), green, spread(red, 1 + share))))
    )


@transformation("% of the image", "area behind dirt", LENS, (1, 3, 6, 12, 25, 45), (0, 100))
def lens_dirt(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Grease and dust on the front lens blur, and scatter light of the whole scene; objects stay labelled."""
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
    veiled = smeared * np.float32(1 - _HAZE) + light.mean((0, 1)) * np.float32(_HAZE)
    return picture.with_image(grey_levels(light * (1 - soft) + veiled * soft))


_BAND, _SHIFTED = 3, 0.25  # lines that are shifted together, and the share of all lines that is shifted


@transformation(
    "grey levels", "standard deviation of the noise, of each colour", SENSOR, (4, 8, 14, 22, 35, 55), (0, 128)
)
def sensor_noise(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """White Gaussian noise, as of a hot sensor or a high gain."""
    noise = rng.standard_normal(picture.image.shape, np.float32) * np.float32(strength)
    return picture.with_image(np.rint(picture.image + noise).clip(0, 255).astype(np.uint8))


@transformation(
    "% of the pixels", "pixels that are black or white", SENSOR, (0.1, 0.5, 1, 3, 6, 12), (0, 100)
)
def salt_and_pepper(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Dead and hot pixels, or transmission errors: half of them black, half white."""
    drawn = rng.random(picture.image.shape[:2])
    share, image = strength / 200, picture.image.copy()
    image[drawn < share] = 0
    image[drawn >= 1 - share] = 255
    return picture.with_image(image)


@transformation("px", "distance by which lines are shifted", SENSOR, (2, 4, 8, 16, 32, 64), (0, 500))
def shifted_lines(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """Bands of lines shifted sideways with wrap-around, as after lost packets; boxes stay, as most lines do."""
    shift, image = round(strength), picture.image.copy()
    starts = np.arange(0, image.shape[0], _BAND)
    for start in rng.choice(starts, round(_SHIFTED * len(starts)), replace=False):
        rows = slice(start, start + _BAND)
        image[rows] = np.roll(image[rows], shift if rng.random() < 0.5 else -shift, axis=1)
    return picture.with_image(image)


@transformation("quality", "JPEG quality", CODING, (60, 40, 25, 15, 8, 4), (1, 100))
def jpeg(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    quality = (cv2.IMWRITE_JPEG_QUALITY, round(strength))
    _, data = cv2.imencode(".jpg", picture.image, quality)
    return picture.with_image(np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8))


@transformation(
    "times",
    "factor by which the image has fewer pixels along each side",
    CODING,
    (1.5, 2, 3, 4, 6, 8),
    (1, 32),
)
def lower_resolution(picture: LabelledPicture, strength: float, rng: Rng) -> LabelledPicture:
    """A camera with larger pixels; the image is brought back to its size, so that boxes stay comparable."""
    width, height = picture.size
    small = (max(1, round(width / strength)), max(1, round(height / strength)))
    image = cv2.resize(picture.image, small, interpolation=cv2.INTER_AREA)
    return picture.with_image(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR))

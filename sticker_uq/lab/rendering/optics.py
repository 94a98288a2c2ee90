# SPDX-License-Identifier: Apache-2.0
"""Lighting of the scene and the camera model."""

from __future__ import annotations

import math

import cv2
import numpy as np

from sticker_uq.lab.rendering.painting import Floats, Image, grain
from sticker_uq.lab.rendering.scene_spec import FRAME_HEIGHT, CameraSpec, LightSpec

_COARSE = 96
"""Columns of the coarse grid on which light is computed before upsampling."""


def _grid(width: int, height: int) -> tuple[Floats, Floats]:
    """Reference-frame coordinates of a coarse grid over a picture of `width` by `height`."""
    columns, rows = _COARSE, max(2, round(_COARSE * height / width))
    scale = min(width, height / FRAME_HEIGHT)
    xs = ((np.arange(columns, dtype=np.float32) + 0.5) / columns - 0.5) * (width / scale) + 0.5
    ys = ((np.arange(rows, dtype=np.float32) + 0.5) / rows - 0.5) * (height / scale) + FRAME_HEIGHT / 2
    return np.broadcast_to(xs[None, :], (rows, columns)), np.broadcast_to(ys[:, None], (rows, columns))


def _turned(x: Floats, y: Floats, centre: tuple[float, float], angle: float) -> tuple[Floats, Floats]:
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    dx, dy = x - np.float32(centre[0]), y - np.float32(centre[1])
    return dx * c + dy * s, dy * c - dx * s


def light_map(light: LightSpec, width: int, height: int) -> Floats:
    x, y = _grid(width, height)
    along, _ = _turned(x, y, (0.5, FRAME_HEIGHT / 2), light.direction)
    field = 1.0 + light.gradient * along
    away = (x - light.hot_spot[0]) ** 2 + (y - light.hot_spot[1]) ** 2
    field = field + light.hot_strength * np.exp(-away / (2 * light.hot_radius**2))
    field = field * (1 - light.shadow_strength * _shadow(light, x, y))
    corner = ((x - 0.5) ** 2 + (y - FRAME_HEIGHT / 2) ** 2) / 0.39
    field = field * (1 - light.vignette * corner)
    return cv2.resize(
        np.maximum(field, 0.15).astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR
    )


def _shadow(light: LightSpec, x: Floats, y: Floats) -> Floats:
    along, across = _turned(x, y, (0.5 + light.shadow_offset, FRAME_HEIGHT / 2), light.shadow_angle)
    if light.shadow == "edge":
        dark = _sigmoid(along / 0.025)
    elif light.shadow == "bars":
        dark = _sigmoid((np.sin(along * 16) - 0.25) / 0.18)
    elif light.shadow == "arm":
        reach = 0.07 + 0.05 * np.clip(across + 0.4, 0, 1)
        dark = _sigmoid((reach - np.abs(along)) / 0.012)
        dark = dark * _sigmoid((0.12 - across) / 0.02)
    else:
        dark = np.zeros_like(along)
    return dark


def specular_map(light: LightSpec, width: int, height: int) -> Floats:
    """Rendered reflections: grey levels (height,width) a perfect mirror would add to every pixel."""
    x, y = _grid(width, height)
    along, across = _turned(x, y, light.specular_centre, light.specular_angle)
    if light.specular == "streak":
        glow = np.exp(-((along / 0.09) ** 2)) * np.exp(-((across / 0.6) ** 2))
    elif light.specular == "lamp":
        glow = np.exp(-(along**2 + across**2) / (2 * 0.06**2))
    elif light.specular == "window":
        panes = _soft_box(np.abs(along) - 0.075, 0.06) * _soft_box(np.abs(across) - 0.1, 0.085)
        glow = panes
    else:
        return np.zeros((height, width), np.float32)
    grown = cv2.resize(glow.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    return grown * np.float32(light.specular_strength)


def _sigmoid(values: Floats) -> Floats:
    return (1 / (1 + np.exp(-np.clip(values, -40, 40)))).astype(np.float32)


def _soft_box(distance: Floats, half: float) -> Floats:
    return _sigmoid((half - np.abs(distance)) / 0.006)


def photograph(image: Image, camera: CameraSpec, noise_seed: int) -> Image:
    """The rendered picture after lens, sensor and exposure; only the noise depends on `noise_seed`."""
    height, width = image.shape[:2]
    sigma = camera.blur * width
    if sigma > 0.25:
        image = cv2.GaussianBlur(image, (0, 0), sigma)
    length = camera.motion * width
    if length >= 2:
        image = cv2.filter2D(image, -1, _motion_kernel(length, camera.motion_angle))
    values = np.arange(256, dtype=np.float64) / 255
    curve = np.empty((1, 256, 3), np.uint8)
    for channel, gain in enumerate(camera.white_balance):
        exposed = np.clip(values * gain * camera.exposure, 0, 1) ** camera.gamma
        curve[0, :, channel] = np.rint(exposed * 255)
    image = cv2.LUT(image, curve)
    rng = np.random.default_rng(noise_seed)
    # Demosaicing spreads a sensor's colour noise over neighbouring pixels; its brightness noise stays fine.
    fine = grain(rng, width, height) * np.float32(camera.noise)
    channels = []
    for _ in range(3):
        coarse = grain(rng, (width + 1) // 2, (height + 1) // 2) * np.float32(camera.noise * 0.7)
        channels.append(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR) + fine)
    return cv2.add(image, cv2.merge(channels), dtype=cv2.CV_8U)


def _motion_kernel(length: float, angle: float) -> Floats:
    size = 2 * math.ceil(length / 2) + 1
    kernel = np.zeros((size, size), np.float32)
    dx, dy = math.cos(math.radians(angle)) * length / 2, math.sin(math.radians(angle)) * length / 2
    middle = size // 2
    start = (round(middle - dx), round(middle - dy))
    cv2.line(kernel, start, (round(middle + dx), round(middle + dy)), (1.0,), 1, cv2.LINE_AA)
    return kernel / kernel.sum()

# SPDX-License-Identifier: Apache-2.0
"""Sharpness, noise and brightness of one picture without a reference, to tell which circumstances
it is in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from sticker_uq.io.images import Picture
from sticker_uq.lab.corruptions.light import linear

MIDDLE_GREY = 0.18
"""Linear light of a mean scene: 0 EV."""
_NORMAL_MAD = 0.6745
"""Median of the absolute value of a standard normal variable."""
_TO_WIDTH = 2.563
"""10-90 % width of an edge that was blurred by a Gaussian of standard deviation 1."""
_FINE, _COARSE = 1.0, 2.0
_SCHARR = 1 / 3
"""Variance of the blur of a central difference, px^2."""
_DIRECTIONS = 6
_SHARPER = 0.7
_FEWEST_EDGES = 40
_STRONG = 4.0
_FEWEST_BLOCKS = 200


@dataclass(frozen=True)
class Estimates:
    """Image quality measured on one source picture; NaN where it shows nothing to measure it on.

    ``blur`` px: 10-90 % width of its edges in the direction in which they are sharpest; ``motion`` px: how much wider they are in
    the direction in which they are widest; ``noise``: standard deviation in grey levels; ``exposure``: mean light against middle
    grey, EV.
    """

    blur: float
    motion: float
    noise: float
    exposure: float


def estimate(image: Picture) -> Estimates:
    """Sharpness, noise and brightness of `image` (H, W, 3) uint8 BGR, for the circumstances."""
    blur, widest = edge_widths(image)
    return Estimates(blur, widest - blur, noise(image), exposure(image))


def noise(image: Picture) -> float:
    """White noise of a source picture: standard deviation, grey levels.

    It is estimated by the median absolute deviation of the finest diagonal Haar wavelet coefficients.

    Mean over the colours (Donoho and Johnstone, 1994). Pixels that are nearly black or white are left out: clipping hides noise.
    NaN when hardly any are left.
    """
    height, width = (side // 2 * 2 for side in image.shape[:2])
    values = image[:height, :width].astype(np.float32)
    blocks = values.reshape(height // 2, 2, width // 2, 2, 3)
    usable = np.all((blocks > 3) & (blocks < 252), axis=(1, 3))
    diagonal = np.abs(blocks[:, 0, :, 0] - blocks[:, 0, :, 1] - blocks[:, 1, :, 0] + blocks[:, 1, :, 1]) / 2
    found = [
        np.median(diagonal[:, :, colour][usable[:, :, colour]])
        for colour in range(3)
        if np.count_nonzero(usable[:, :, colour]) >= _FEWEST_BLOCKS
    ]
    return float(np.mean(found)) / _NORMAL_MAD if found else math.nan


def exposure(image: Picture) -> float:
    """Brightness of a source picture: mean of linear light against middle grey, EV (stops).

    Minus infinity for a black picture.
    """
    mean = float(linear(image).mean())
    return math.log2(mean / MIDDLE_GREY) if mean > 0 else -math.inf


def edge_widths(image: Picture) -> tuple[float, float]:
    """Sharpness of a source picture: 10-90 % widths of edges, px.

    In the direction in which they are sharpest, and in the one in which they are widest.

    The gradient of an edge of width sigma falls with a further blur s as 1 / sqrt(sigma^2 + s^2); its ratio after two known blurs
    tells sigma (Zhuo and Sim, 2011). Each direction is judged by its edges but for the softest, which are soft on the laptop
    itself. NaN without enough edges.
    """
    light = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY).astype(np.float32)
    fine, coarse = (cv2.GaussianBlur(light, (0, 0), sigma) for sigma in (_FINE, _COARSE))
    dx, dy = (cv2.Scharr(fine, cv2.CV_32F, *axis) / 32 for axis in ((1, 0), (0, 1)))
    strength = np.hypot(dx, dy)
    after = np.hypot(cv2.Scharr(coarse, cv2.CV_32F, 1, 0), cv2.Scharr(coarse, cv2.CV_32F, 0, 1)) / 32
    angle = np.arctan2(dy, dx) % np.pi
    # An edge is where the gradient is largest along its own direction, and well above what noise makes.
    floor = max(_STRONG * float(np.median(strength)), 1.0)
    step_x, step_y = np.rint(np.cos(angle)).astype(int), np.rint(np.sin(angle)).astype(int)
    ys, xs = np.nonzero(strength[2:-2, 2:-2] > floor)
    ys, xs = ys + 2, xs + 2
    sx, sy = step_x[ys, xs], step_y[ys, xs]
    peak = (strength[ys, xs] >= strength[ys + sy, xs + sx]) & (strength[ys, xs] > strength[ys - sy, xs - sx])
    ys, xs = ys[peak], xs[peak]
    square = np.maximum(strength[ys, xs] / np.maximum(after[ys, xs], 1e-6), 1.0 + 1e-6) ** 2
    first, second = _FINE**2 + _SCHARR, _COARSE**2 + _SCHARR
    variance = np.maximum((second - square * first) / (square - 1), 0.0)
    direction = np.floor(angle[ys, xs] / np.pi * _DIRECTIONS + 0.5).astype(int) % _DIRECTIONS
    widths = [
        _TO_WIDTH * math.sqrt(float(np.quantile(variance[direction == d], _SHARPER)))
        for d in range(_DIRECTIONS)
        if np.count_nonzero(direction == d) >= _FEWEST_EDGES
    ]
    return (min(widths), max(widths)) if widths else (math.nan, math.nan)

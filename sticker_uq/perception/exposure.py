# SPDX-License-Identifier: Apache-2.0
"""How an image was taken: how bright, noisy and sharp. Tells a covered lens, a blinded sensor, noise and blur
from a lid without stickers.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.scene import Exposure

DARK_LEVEL = 16
"""Grey level up to which a pixel is too dark to tell anything."""

SATURATED_LEVEL = 250
"""Grey level from which a pixel is saturated."""

_ENOUGH_PIXELS = 1 << 20
"""Of larger images only every n-th row and column is looked at: shares of a million pixels are exact enough."""
_NORMAL_MAD = 0.6745
"""Median of the absolute value of a standard normal variable."""
_FEWEST_BLOCKS = 200


def measure_exposure(image: NDArray[np.uint8]) -> Exposure:
    """Exposure: what ``image`` (H, W, 3) uint8 BGR with at least one pixel tells about how it was taken.

    Noise and sharpness are NaN where there is nothing to measure them on.
    """
    stride = _stride(image)
    grey = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGR2GRAY)
    bright = _brightness(np.ascontiguousarray(grey[::stride, ::stride]))
    return replace(bright, noise=_noise(grey, stride), sharpness=_sharpness(grey, stride))


def measure_brightness(image: NDArray[np.uint8]) -> Exposure:
    """How bright ``image`` (H, W, 3) uint8 BGR is, as :func:`measure_exposure` says, in a fraction of its time; no noise, no
    sharpness.
    """
    stride = _stride(image)
    return _brightness(cv2.cvtColor(np.ascontiguousarray(image[::stride, ::stride]), cv2.COLOR_BGR2GRAY))


def _stride(image: NDArray[np.uint8]) -> int:
    return max(1, int(np.sqrt(image.shape[0] * image.shape[1] / _ENOUGH_PIXELS)))


def _brightness(grey: NDArray[np.uint8]) -> Exposure:
    counts = cv2.calcHist([grey], [0], None, [256], [0, 256]).ravel().astype(np.int64)
    return Exposure(
        mean_level=float(counts @ np.arange(256) / grey.size),
        dark_share=float(counts[: DARK_LEVEL + 1].sum() / grey.size),
        saturated_share=float(counts[SATURATED_LEVEL:].sum() / grey.size),
    )


def _noise(grey: NDArray[np.uint8], stride: int) -> float:
    """Standard deviation of white noise in ``grey`` (H, W): median absolute diagonal Haar coefficient (Donoho, Johnstone 1994).

    Blocks with a pixel that is nearly black or white do not count: clipping hides noise.
    """
    height, width = (side // 2 * 2 for side in grey.shape)
    a, b, c, d = (
        grey[row:height:2, column:width:2][::stride, ::stride].astype(np.int16)
        for row, column in ((0, 0), (0, 1), (1, 0), (1, 1))
    )
    low, high = np.minimum(np.minimum(a, b), np.minimum(c, d)), np.maximum(np.maximum(a, b), np.maximum(c, d))
    usable = (low > DARK_LEVEL // 4) & (high < SATURATED_LEVEL)
    counts = np.bincount(np.abs(a - b - c + d)[usable])
    below = np.cumsum(counts)
    if not len(below) or below[-1] < _FEWEST_BLOCKS:
        return float("nan")
    # of whole numbers, the median within the one that it falls into: each stands for half a level to either side
    whole = int(np.searchsorted(below, below[-1] / 2))
    into = (below[-1] / 2 - (below[whole] - counts[whole])) / counts[whole]
    median = into / 2 if whole == 0 else whole - 0.5 + into
    return float(median) / 2 / _NORMAL_MAD


def _sharpness(grey: NDArray[np.uint8], stride: int) -> float:
    """Standard deviation of the Laplacian of ``grey`` (H, W), the usual measure of focus (Pech-Pacheco et al., 2000)."""
    if min(grey.shape) < 3:
        return float("nan")
    laplacian = cv2.Laplacian(grey, cv2.CV_16S)[1:-1:stride, 1:-1:stride]
    return float(cv2.meanStdDev(np.ascontiguousarray(laplacian))[1][0, 0])

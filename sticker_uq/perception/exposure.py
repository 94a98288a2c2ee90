"""How bright an image is: what tells a covered lens or a blinded sensor from a lid without stickers."""

from __future__ import annotations

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


def measure_exposure(image: NDArray[np.uint8]) -> Exposure:
    """The brightness of ``image`` (H, W, 3) uint8 BGR with at least one pixel."""
    stride = max(1, int(np.sqrt(image.shape[0] * image.shape[1] / _ENOUGH_PIXELS)))
    grey = cv2.cvtColor(np.ascontiguousarray(image[::stride, ::stride]), cv2.COLOR_BGR2GRAY)
    counts = cv2.calcHist([grey], [0], None, [256], [0, 256]).ravel().astype(np.int64)
    return Exposure(
        mean_level=float(counts @ np.arange(256) / grey.size),
        dark_share=float(counts[: DARK_LEVEL + 1].sum() / grey.size),
        saturated_share=float(counts[SATURATED_LEVEL:].sum() / grey.size),
    )

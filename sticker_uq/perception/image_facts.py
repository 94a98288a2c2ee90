# SPDX-License-Identifier: Apache-2.0
"""What is measured of an image without any model: whether it can be used and repeats the last, and how bright, noisy and sharp
it is, which tells a covered lens, a blinded sensor, noise and blur from a lid without stickers.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.images import Picture
from sticker_uq.scene import Exposure, ImageCheck, InvalidInput

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
    """What ``image`` (H, W, 3) uint8 BGR with at least one pixel tells about how it was taken.

    Noise and sharpness are NaN where there is nothing to measure them on.
    """
    stride = _stride(image)
    grey = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGR2GRAY)
    bright = _brightness(np.ascontiguousarray(grey[::stride, ::stride]))
    return replace(bright, noise=_noise(grey, stride), sharpness=_sharpness(grey, stride))


def measure_brightness(image: NDArray[np.uint8]) -> Exposure:
    """How bright ``image`` (H, W, 3) uint8 BGR is, in a fraction of :func:`measure_exposure`'s time; no noise, no sharpness."""
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


class ImageFacts(NamedTuple):
    """What is measured of an image without any model; ``exposure`` None without a pixel.

    ``digest``: see :func:`image_digest`; "" where it was not measured.
    """

    digest: str
    exposure: Exposure | None


def image_facts(image: NDArray[np.uint8]) -> ImageFacts:
    """What is measured of ``image`` (H, W, 3) uint8 BGR without a model; from any thread.

    Raises :class:`InvalidInput` for anything else.
    """
    digest = image_digest(image)
    return ImageFacts(digest, measure_exposure(image) if image.size else None)


def check_picture(image: NDArray[np.uint8]) -> None:
    """Raise :class:`InvalidInput` unless ``image`` is (H, W, 3) uint8."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        shape, dtype = getattr(image, "shape", None), getattr(image, "dtype", type(image).__name__)
        raise InvalidInput(f"image has shape {shape} and type {dtype}, expected (H, W, 3) uint8 BGR")


def image_digest(image: NDArray[np.uint8]) -> str:
    """BLAKE2b digest of shape and pixels of ``image`` (H, W, 3) uint8, 32 hex digits; raises :class:`InvalidInput`."""
    check_picture(image)
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


_ROWS = 64
"""So many rows are compared at once: of two pictures of a living camera the first ones differ already."""


class ImageInspector:
    """Inspects the images of one camera one after the other, in the order in which they arrive."""

    def __init__(self) -> None:
        self._newest: Picture | None = None
        self._repeats = 0
        self._stamp_ns = 0

    def glance(self, stamp_ns: int, frame_id: str, image_size: tuple[int, int]) -> ImageCheck | None:
        """What the header tells of an image that is not as large as the one before; else, or for the first, None.

        To decode a giant image takes long. :meth:`inspect` still follows.
        """
        if self._newest is None or image_size == (self._newest.shape[1], self._newest.shape[0]):
            return None
        return ImageCheck(stamp_ns, frame_id, "", image_size, previous_stamp_ns=self._stamp_ns)

    def inspect(
        self, stamp_ns: int, frame_id: str, decode: Callable[[], Picture]
    ) -> tuple[ImageCheck, Picture | None]:
        """What is known about the next image, and its pixels (H, W, 3) uint8 BGR, which ``decode`` makes; None without any.

        Never raises: whatever ``decode`` raises is the problem of the image.
        """
        before, self._stamp_ns = self._stamp_ns, stamp_ns
        try:
            picture = decode()
            exposure = measure_brightness(picture)
        except InvalidInput as error:
            return ImageCheck(stamp_ns, frame_id, str(error), previous_stamp_ns=before), None
        except Exception as error:  # noqa: BLE001 - one image must not end its receiver
            problem = f"{type(error).__name__}: {error}"
            return ImageCheck(stamp_ns, frame_id, problem, previous_stamp_ns=before), None
        same = self._newest is not None and same_pixels(picture, self._newest)
        self._newest, self._repeats = picture, self._repeats + 1 if same else 1
        size = (picture.shape[1], picture.shape[0])
        return ImageCheck(stamp_ns, frame_id, "", size, exposure, self._repeats, before), picture


def same_pixels(one: Picture, other: Picture) -> bool:
    """Whether two images have the same size and in each place the same pixel."""
    if one.shape != other.shape:
        return False
    pieces = (slice(start, start + _ROWS) for start in range(0, one.shape[0], _ROWS))
    return all(np.array_equal(one[piece], other[piece]) for piece in pieces)

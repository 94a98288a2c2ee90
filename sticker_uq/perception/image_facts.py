# SPDX-License-Identifier: Apache-2.0
"""What is measured of an image without any model, in whatever thread has time for it."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sticker_uq.perception.exposure import measure_exposure
from sticker_uq.scene import Exposure, InvalidInput


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
    """Raise :class:`InvalidInput` unless ``image`` is one that perception takes, (H, W, 3) uint8."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        shape, dtype = getattr(image, "shape", None), getattr(image, "dtype", type(image).__name__)
        raise InvalidInput(f"image has shape {shape} and type {dtype}, expected (H, W, 3) uint8 BGR")


def image_digest(image: NDArray[np.uint8]) -> str:
    """Perception's BLAKE2b digest of shape and pixels of ``image`` (H, W, 3) uint8, 32 hex digits; raises
    :class:`InvalidInput`.
    """
    check_picture(image)
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()

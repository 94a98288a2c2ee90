# SPDX-License-Identifier: Apache-2.0
"""What can be told about an image without any model: whether it can be used, how bright it is, whether it repeats the last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sticker_uq.io.images import Picture
from sticker_uq.perception.exposure import measure_brightness
from sticker_uq.scene import ImageCheck, InvalidInput

_ROWS = 64
"""So many rows are compared at once: of two pictures of a living camera the first ones differ already."""


class ImageInspector:
    """Inspects the images of one camera one after the other, in the order in which they arrive."""

    def __init__(self) -> None:
        self._newest: Picture | None = None
        self._repeats = 0
        self._stamp_ns = 0

    def glance(self, stamp_ns: int, frame_id: str, image_size: tuple[int, int]) -> ImageCheck | None:
        """What its header tells of the next image when it is not as large as the one before; None when it is.

        To decode a giant image takes long. :meth:`inspect` still follows.
        """
        if self._newest is None or image_size == (self._newest.shape[1], self._newest.shape[0]):
            return None
        return ImageCheck(stamp_ns, frame_id, "", image_size, previous_stamp_ns=self._stamp_ns)

    def inspect(
        self, stamp_ns: int, frame_id: str, decode: Callable[[], Picture]
    ) -> tuple[ImageCheck, Picture | None]:
        """What is known about the next image, and its pixels (H, W, 3) uint8 BGR, which ``decode`` makes; None
        without any.

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

# SPDX-License-Identifier: Apache-2.0
"""The pictures behind the operator's page: which camera image or saliency map belongs to which scene, encoded when a page asks.

No web server and no ROS: an image is whatever ``encode`` turns into a file. Thread-safe, because the node adds images in
the executor's thread and the page fetches them in the web server's.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np

from sticker_uq.scene import FloatArray, InvalidInput

_KEPT_FILES = 4
_CONTOURS = (0.25, 0.5, 0.75)
_CONTOUR_PARTS = 400
"""A contour is as wide as this part of the picture's width, so that it can be seen on a tablet."""


class _Kept(NamedTuple):
    came_s: float
    image: Any


class Album:
    """The images of the last ``seconds``, and those pinned because a page shows them or a question is about them.

    By time and not by number: a fast camera would push out what an assessment is still to come for. Of those the newest that have
    ``most_bytes`` together, and the newest one always. ``encode`` makes a file of an image, or raises :class:`InvalidInput`.
    """

    def __init__(
        self,
        encode: Callable[[Any], bytes],
        seconds: float,
        most_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encode = encode
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._images: OrderedDict[int, _Kept] = OrderedDict()
        self._bytes = 0
        self._pinned: dict[str, tuple[int, Any]] = {}
        self._files: OrderedDict[int, bytes] = OrderedDict()

    def add(self, stamp_ns: int, image: Any) -> None:
        """Keep ``image``, a message with its pixels in ``data``."""
        now = self._clock()
        with self._lock:
            if again := self._images.pop(stamp_ns, None):
                self._bytes -= len(again.image.data)
            self._images[stamp_ns] = _Kept(now, image)
            self._bytes += len(image.data)
            while len(self._images) > 1 and (
                self._bytes > self._most_bytes or self._oldest.came_s < now - self._seconds
            ):
                self._bytes -= len(self._images.popitem(last=False)[1].image.data)

    def pin(self, purpose: str, stamp_ns: int) -> bool:
        """Keep the picture of ``stamp_ns`` for ``purpose``, in place of the earlier one; returns whether it is there."""
        with self._lock:
            image = self._find(stamp_ns)
            if image is None:
                return False
            self._pinned[purpose] = (stamp_ns, image)
            return True

    def unpin(self, purpose: str) -> None:
        with self._lock:
            self._pinned.pop(purpose, None)

    @property
    def _oldest(self) -> _Kept:
        return self._images[next(iter(self._images))]

    def file(self, stamp_ns: int) -> bytes:
        with self._lock:
            if stamp_ns in self._files:
                return self._files[stamp_ns]
            image = self._find(stamp_ns)
        if image is None:
            return b""
        try:
            data = self._encode(image)
        except InvalidInput:
            return b""  # the detector has told about it; here there is only nothing to show
        with self._lock:
            self._files[stamp_ns] = data
            while len(self._files) > _KEPT_FILES:
                self._files.popitem(last=False)
        return data

    def _find(self, stamp_ns: int) -> Any:
        if stamp_ns in self._images:
            return self._images[stamp_ns].image
        return next((image for stamp, image in self._pinned.values() if stamp == stamp_ns), None)


def heat(saliency: FloatArray) -> bytes:
    """A saliency map (H, W) >= 0 as a PNG: the stronger, the brighter and the less transparent.

    White contours with a dark rim around a quarter, a half and three quarters of the strongest show its shape without colour.
    """
    top = float(np.nanmax(saliency)) if saliency.size else 0.0
    share = np.nan_to_num(saliency / top) if top > 0.0 else np.zeros_like(saliency)
    levels = (np.clip(share, 0.0, 1.0) * 255).astype(np.uint8)
    colours = cv2.applyColorMap(levels, cv2.COLORMAP_INFERNO)
    picture = np.dstack([colours, (levels * 0.75).astype(np.uint8)])
    width = max(1, round(saliency.shape[1] / _CONTOUR_PARTS))
    for level in _CONTOURS:
        inside = (share >= level).astype(np.uint8)
        outlines, _ = cv2.findContours(inside, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        if top > 0.0:
            cv2.drawContours(picture, outlines, -1, (0, 0, 0, 200), width + 2)
            cv2.drawContours(picture, outlines, -1, (255, 255, 255, 255), width)
    return cv2.imencode(".png", picture)[1].tobytes()

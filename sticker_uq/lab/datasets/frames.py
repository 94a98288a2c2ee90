# SPDX-License-Identifier: Apache-2.0
"""Frames of a recording that are worth labelling: some time apart, and different from the last one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.sources import SourceImage

_WIDTH = 64  # px of the pictures that are compared; the noise of the camera averages out


@dataclass(frozen=True)
class Frame:
    """A frame that was read: ``picture`` is None when it is not chosen. ``read`` and ``unreadable`` count frames so far."""

    picture: SourceImage | None
    read: int
    unreadable: int


def chosen_frames(source: Iterable[SourceImage], every_s: float, min_motion: float) -> Iterator[Frame]:
    """Every frame of ``source``, chosen or not.

    Chosen are the first frame, and those at least ``every_s`` seconds after the last chosen one whose mean absolute difference
    from it, in grey levels of small copies, is at least ``min_motion``. A clock that goes back starts anew.
    """
    last: tuple[int, npt.NDArray[np.int16]] | None = None
    read = unreadable = 0
    for picture in source:
        read += 1
        if picture.image is None:
            unreadable += 1
            yield Frame(None, read, unreadable)
            continue
        if last is not None and 0 <= picture.stamp_ns - last[0] < every_s * 1e9:
            yield Frame(None, read, unreadable)
            continue
        small = small_grey(picture.image)
        same_shape = last is not None and last[1].shape == small.shape
        if last is not None and same_shape and np.abs(small - last[1]).mean() < min_motion:
            yield Frame(None, read, unreadable)
            continue
        last = picture.stamp_ns, small
        yield Frame(picture, read, unreadable)


def small_grey(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.int16]:
    """A small copy in grey levels, (h, 64), of a frame ``image`` (H, W, 3) BGR."""
    height = max(1, round(image.shape[0] * _WIDTH / image.shape[1]))
    small = cv2.resize(image, (_WIDTH, height), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(small, cv2.COLOR_BGR2GRAY).astype(np.int16)


def file_name(picture: SourceImage, workpieces: Sequence[tuple[int, str]], image_format: str) -> str:
    """The file name of ``picture``, a frame: its number, after that of the laptop if ``workpieces`` (time in ns, name) tell
    it.
    """
    before = bisect_right(workpieces, picture.stamp_ns, key=lambda announced: announced[0])
    laptop = f"laptop{before:04d}_" if before else ""
    return f"{laptop}{picture.name}.{image_format}"

# SPDX-License-Identifier: Apache-2.0
"""Objects composited over a finished picture, with shadow and matching light."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.lab.rendering.painting import Image, Pen, grain

_MIDDLE_GREY = 135.0
_CAMERA_NOISE = 2.5
"""Grey levels."""


class TurnedPen(Pen):
    """A pen whose coordinates are turned by ``turn`` radians, clockwise in the picture. Text stays upright."""

    def __init__(
        self, image: Image, unit: float, origin: tuple[float, float], mask: Image, turn: float
    ) -> None:
        super().__init__(image, unit, origin, mask)
        c, s = math.cos(turn), math.sin(turn)
        self._angle, self._turn = turn, np.array([[c, s], [-s, c]])

    def moved(self, along: float, scale: float) -> TurnedPen:
        """A renderer's pen on the same picture whose origin is at (``along``, 0) and whose unit is ``scale`` times as long."""
        assert self.mask is not None
        x, y = along * self.unit * self._turn[0]
        origin = (self.origin[0] + float(x), self.origin[1] + float(y))
        return TurnedPen(self.image, self.unit * scale, origin, self.mask, self._angle)

    def _fixed(self, points: Sequence[tuple[float, float]]) -> npt.NDArray[np.int32]:
        turned = np.asarray(points, np.float64) @ self._turn
        return super()._fixed([(float(x), float(y)) for x, y in turned])


Draw = Callable[[TurnedPen, np.random.Generator], None]
"""Draws an object around the pen's origin, about one unit in every direction."""


def draw_over(
    shape: tuple[int, ...],
    draw: Draw,
    centre: tuple[float, float],
    unit: float,
    turn: float,
    rng: np.random.Generator,
) -> tuple[Image, Image]:
    """Colours (H,W,3) and coverage (H,W) of a rendered object at ``centre`` px, ``unit`` px long, for a picture of ``shape``."""
    colours, mask = np.zeros((*shape[:2], 3), np.uint8), np.zeros(shape[:2], np.uint8)
    draw(TurnedPen(colours, unit, centre, mask, turn), rng)
    return colours, mask


def lay(
    image: Image, colours: Image, mask: Image, rng: np.random.Generator, *, height: float, realistic: bool
) -> None:
    """Lay the rendered object's ``colours`` over ``image`` where ``mask`` covers.

    A realistic object is ``height`` px above the lid: it casts a soft shadow and has the picture's brightness, the blur of
    the lens and the noise of the camera. An unrealistic one is only pasted.
    """
    left, top, w, h = cv2.boundingRect(mask)
    if w == 0:
        return
    pad = math.ceil(3 * height) + 4
    rows, columns = slice(max(0, top - pad), top + h + pad), slice(max(0, left - pad), left + w + pad)
    region, inks = image[rows, columns], colours[rows, columns].astype(np.float32)
    cover = mask[rows, columns].astype(np.float32) / 255
    if realistic:
        # premultiplied, or the black around the object would bleed into its edge
        inks = cv2.GaussianBlur(inks * cover[:, :, None], (0, 0), 0.8)
        cover = cv2.GaussianBlur(cover, (0, 0), 0.8)
        aside = np.array([[1, 0, 0.6 * height], [0, 1, 0.8 * height]])
        fallen = cv2.warpAffine(cover, aside, cover.shape[::-1], borderMode=cv2.BORDER_REPLICATE)
        fallen = cv2.GaussianBlur(fallen, (0, 0), max(1.0, 0.7 * height))
        light = float(np.clip(region.mean() / _MIDDLE_GREY, 0.6, 1.2))
        noise = grain(rng, cover.shape[1], cover.shape[0]) * _CAMERA_NOISE * cover
        under = region * (1 - 0.5 * fallen)[:, :, None] * (1 - cover)[:, :, None]
        laid = under + inks * light + noise[:, :, None]
    else:
        laid = region * (1 - cover)[:, :, None] + inks * cover[:, :, None]
    region[:] = np.clip(np.rint(laid), 0, 255).astype(np.uint8)

# SPDX-License-Identifier: Apache-2.0
"""How different a source picture and its follow-up look: full-reference distances
(Wozniak et al., task 6, M14).

A follow-up of another size is compared in the size of its source. SSIM and CW-SSIM look at brightness, averaged down so that the
shorter side has about 256 px, as the authors of SSIM recommend; MSE and PSNR look at every colour value.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from skimage.metrics import mean_squared_error, structural_similarity

from sticker_uq.io.images import Picture
from sticker_uq.lab.robustness.steerable import Complex, steerable_bands
from sticker_uq.scene import InvalidInput

RANGE = 255.0
"""Largest difference of two grey levels (L)."""
SCALES, ORIENTATIONS = 4, 6
"""Of the steerable pyramid behind CW-SSIM."""
_SHORTER_SIDE = 256
_WINDOW = 7
_STABILITY = _WINDOW**2 * (0.03 * RANGE) ** 2
"""K of CW-SSIM: windows with less contrast than 3 % of the range decide nothing, as C2 provides in SSIM."""
_SMALLEST_SIDE = 64


@dataclass(frozen=True)
class ImageDistances:
    """A source picture and its follow-up compared. ``mse`` grey levels squared; ``psnr`` dB,
    infinite for equal pictures; ``ssim`` and ``cw_ssim`` similarities, 1 for equal pictures.
    """

    mse: float
    psnr: float
    ssim: float
    cw_ssim: float

    def distance(self, name: str) -> float:
        """The distance that epsilon(d) depends on: 0 for equal pictures, growing as they differ.

        ``mse`` as a share of its largest value; ``psnr`` as the root mean square error that it stands for, a share of the
        range (10^(-PSNR/20)); ``ssim`` and ``cw_ssim`` as one minus the similarity.
        """
        if name == "mse":
            return self.mse / RANGE**2
        if name == "psnr":
            return float(10 ** (-self.psnr / 20))
        return 1 - float(getattr(self, name))


class Reference:
    """A source picture (H, W, 3) uint8 BGR, prepared to be compared with many follow-ups."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self._brightness: NDArray[np.float32] | None = None
        self._bands: list[Complex] = []

    def compare(self, followup: Picture) -> ImageDistances:
        """Image distances of a source to its follow-up ``followup`` (H', W', 3) uint8 BGR. InvalidInput for one with a side
        below 64 px.
        """
        followup = _of_same_size(self.picture, followup)
        if self._brightness is None:
            self._brightness = _brightness(self.picture)
            self._bands = _bands(self._brightness)
        other = _brightness(followup)
        mse = float(mean_squared_error(self.picture, followup))
        psnr = float("inf") if mse == 0 else float(10 * np.log10(RANGE**2 / mse))
        return ImageDistances(mse, psnr, ssim(self._brightness, other), cw_ssim(self._bands, _bands(other)))


def compare(source: Picture, followup: Picture) -> ImageDistances:
    """Distances between a ``source`` picture and its ``followup``; see :class:`Reference`."""
    return Reference(source).compare(followup)


def _of_same_size(source: Picture, followup: Picture) -> Picture:
    if min(*source.shape[:2], *followup.shape[:2]) < _SMALLEST_SIDE:
        raise InvalidInput(
            f"pictures of {source.shape[1]}x{source.shape[0]} and {followup.shape[1]}x{followup.shape[0]} px: expected "
            f"sides of at least {_SMALLEST_SIDE} px to compare structure"
        )
    height, width = source.shape[:2]
    if followup.shape != source.shape:
        larger = followup.shape[0] * followup.shape[1] > height * width
        how = cv2.INTER_AREA if larger else cv2.INTER_LINEAR
        followup = np.asarray(cv2.resize(followup, (width, height), interpolation=how), np.uint8)
    return followup


def ssim(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Mean structural similarity of brightness (H, W), -1..1.

    Wang et al. 2004: Gaussian windows, sigma 1.5.
    """
    value = structural_similarity(
        one, other, data_range=RANGE, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    return float(value)


def cw_ssim(one: list[Complex], other: list[Complex]) -> float:
    """Complex wavelet structural similarity by sub-bands, 0..1 (Sampat et al. 2009,
    eq 7).

    Insensitive to small shifts, turns and scalings, which move the phase of all coefficients of a window alike. Mean over 7 x 7
    windows and over the bands of a complex steerable pyramid of 4 scales and 6 orientations; the published K is a "small
    positive constant", here that of SSIM's contrast term.
    """
    return float(np.mean([_band_similarity(a, b) for a, b in zip(one, other, strict=True)]))


def _bands(image: NDArray[np.float32]) -> list[Complex]:
    scales = min(SCALES, int(np.log2(min(image.shape))) - 3)  # the coarsest still has a window
    return steerable_bands(image, scales, ORIENTATIONS)


def _band_similarity(one: Complex, other: Complex) -> float:
    product = one * other.conj()
    power = np.abs(one) ** 2 + np.abs(other) ** 2
    inside = (slice(None), *[slice(_WINDOW // 2, -(_WINDOW // 2))] * 2)

    def summed(values: NDArray[np.floating]) -> NDArray[np.floating]:
        return uniform_filter(values, (0, _WINDOW, _WINDOW))[inside] * _WINDOW**2

    shared = np.hypot(summed(product.real), summed(product.imag))
    return float(np.mean((2 * shared + _STABILITY) / (summed(power) + _STABILITY)))


def _brightness(image: Picture) -> NDArray[np.float32]:
    """Luma (H, W) float32, averaged down by a whole factor so that the shorter side has about 256 px."""
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    factor = max(1, round(min(grey.shape) / _SHORTER_SIDE))
    height, width = grey.shape[0] // factor * factor, grey.shape[1] // factor * factor
    size = (width // factor, height // factor)
    return cv2.resize(grey[:height, :width], size, interpolation=cv2.INTER_AREA).astype(np.float32)

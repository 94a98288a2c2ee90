# SPDX-License-Identifier: Apache-2.0
"""The complex steerable pyramid of a robustness assessment's image distances: oriented, band-passed, complex sub-bands
(Portilla and Simoncelli, 2000).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.fft
from numpy.typing import NDArray

Complex = NDArray[np.complexfloating]


@dataclass(frozen=True)
class _Scale:
    """Filters of one scale in the frequency domain, zero frequency in the middle.

    ``bands`` (K, h, w) complex64: one per orientation; ``low`` (h', w') float32: what the next, coarser scale is multiplied by;
    ``window``: which part of this scale's spectrum the next one keeps.
    """

    bands: Complex
    low: NDArray[np.float32]
    window: tuple[slice, slice]


def steerable_bands(image: NDArray[np.floating], scales: int, orientations: int) -> list[Complex]:
    """Sub-bands of ``image`` (H, W), finest scale first, (orientations, h, w) complex64
    each.

    Every scale halves height and width. The image counts as periodic. ValueError if it is too small for that many scales.
    """
    if min(image.shape) < 2 ** (scales + 2):
        raise ValueError(f"an image of shape {image.shape} has fewer than {scales} scales")
    start, filters = _filters((image.shape[0], image.shape[1]), scales, orientations)
    spectrum = scipy.fft.fftshift(scipy.fft.fft2(np.asarray(image, np.float32))) * start
    found = []
    for scale in filters:
        shifted = scipy.fft.ifftshift(spectrum[None] * scale.bands, axes=(1, 2))
        found.append(scipy.fft.ifft2(shifted, axes=(1, 2)))
        spectrum = spectrum[scale.window] * scale.low
    return found


@lru_cache(maxsize=8)
def _filters(
    shape: tuple[int, int], scales: int, orientations: int
) -> tuple[NDArray[np.float32], list[_Scale]]:
    """The first low-pass filter, and the filters of every scale, for images of ``shape``."""
    height, width = shape
    across = np.linspace(-1, 1, width, endpoint=False)
    down = np.linspace(-1, 1, height, endpoint=False)
    if height % 2:
        down += 1 / height  # zero frequency lies in the middle of an odd number of rows
    if width % 2:
        across += 1 / width
    x, y = np.meshgrid(across, down)
    angle = np.arctan2(y, x)
    radius = np.hypot(x, y)
    radius[height // 2, width // 2] = radius[radius > 0].min()
    octave = np.log2(radius)
    order = orientations - 1
    gain = 2**order * math.factorial(order) / math.sqrt(orientations * math.factorial(2 * order))
    start = _low(octave).astype(np.float32)
    found = []
    for number in range(scales):
        octave = octave + 1
        turned = angle[None] - np.pi * np.arange(orientations)[:, None, None] / orientations
        turned = (turned + np.pi) % (2 * np.pi) - np.pi
        # half of the plane only: that is what makes the bands complex (analytic)
        fan = 2 * gain * np.cos(turned) ** order * (np.abs(turned) < np.pi / 2)
        bands = ((-1j) ** order * fan * _high(octave)[None]).astype(np.complex64)
        window = (_middle(octave.shape[0]), _middle(octave.shape[1]))
        octave, angle = octave[window], angle[window]
        found.append(_Scale(bands, _low(octave).astype(np.float32), window))
        if number + 1 < scales and min(octave.shape) < 2:
            raise ValueError(f"an image of shape {shape} has fewer than {scales} scales")
    return start, found


def _middle(length: int) -> slice:
    """The half of the frequencies around zero, with zero where ``fftshift`` puts it."""
    kept = (length + 1) // 2
    first = length // 2 - kept // 2
    return slice(first, first + kept)


def _high(octave: NDArray[np.floating]) -> NDArray[np.floating]:
    """A raised cosine that rises from 0 to 1 between one octave below 0 and 0; with :func:`_low` its power sums to 1."""
    return np.cos(np.pi / 2 * np.clip(-octave, 0, 1))


def _low(octave: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.sin(np.pi / 2 * np.clip(-octave, 0, 1))

# SPDX-License-Identifier: Apache-2.0
"""How far source and follow-up pictures lie apart (Wozniak et al., task 6): as images (M14), and in the features of a network
(M15 to M17).

A follow-up of another size is compared in the size of its source. SSIM and CW-SSIM look at brightness, averaged down so that the
shorter side has about 256 px, as the authors of SSIM recommend; MSE and PSNR look at every colour value.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import cv2
import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from scipy.spatial.distance import cdist, pdist
from skimage.metrics import mean_squared_error, structural_similarity

from sticker_uq.io.images import Picture
from sticker_uq.scene import FloatArray, InvalidInput

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
    """Sub-bands of ``image`` (H, W), finest scale first, (orientations, h, w) complex64 each.

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


RANGE = 255.0
"""Largest difference of two grey levels (L)."""
SCALES, ORIENTATIONS = 4, 6
"""Of the steerable pyramid behind CW-SSIM."""
_SHORTER_SIDE = 256
_WINDOW = 7
_STABILITY = 0.01
"""K of CW-SSIM, grey levels squared. Its authors' code takes 0; this is as little as keeps the rounding of an even window out."""
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


class ComparedPicture:
    """A source picture (H, W, 3) uint8 BGR, prepared to be compared with many follow-ups."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture

    @cached_property
    def _brightness_bands(self) -> tuple[NDArray[np.float32], list[Complex]]:
        brightness = _brightness(self.picture)
        return brightness, _bands(brightness)

    def compare(self, followup: Picture) -> ImageDistances:
        """``followup``: (H', W', 3) uint8 BGR. SSIM as Wang et al. 2004."""
        followup = _of_same_size(self.picture, followup)
        (own, bands), other = self._brightness_bands, _brightness(followup)
        mse = float(mean_squared_error(self.picture, followup))
        psnr = float("inf") if mse == 0 else float(10 * np.log10(RANGE**2 / mse))
        ssim = structural_similarity(
            own, other, data_range=RANGE, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
        )
        return ImageDistances(mse, psnr, float(ssim), cw_ssim(bands, _bands(other)))


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


def cw_ssim(one: list[Complex], other: list[Complex]) -> float:
    """Complex wavelet structural similarity by sub-bands, 0..1 (Sampat et al. 2009, eq 7).

    Insensitive to small shifts, turns and scalings, which move the phase of all coefficients of a window alike. Mean over 7 x 7
    windows and over the bands of a complex steerable pyramid of 4 scales and 6 orientations.
    """
    return float(np.mean([_band_similarity(a, b) for a, b in zip(one, other, strict=True)]))


def _bands(image: NDArray[np.float32]) -> list[Complex]:
    scales = min(SCALES, int(np.log2(min(image.shape))) - 3)  # the coarsest still has a window
    return steerable_bands(image, scales, ORIENTATIONS)


def _band_similarity(one: Complex, other: Complex) -> float:
    product = one * other.conj()
    power = np.abs(one) ** 2 + np.abs(other) ** 2
    inside = (slice(None), *[slice(_WINDOW // 2, -(_WINDOW // 2))] * 2)

    def sum_windows(values: NDArray[np.floating]) -> NDArray[np.floating]:
        return uniform_filter(values, (0, _WINDOW, _WINDOW))[inside] * _WINDOW**2

    shared = np.hypot(sum_windows(product.real), sum_windows(product.imag))
    return float(np.mean((2 * shared + _STABILITY) / (sum_windows(power) + _STABILITY)))


def _brightness(image: Picture) -> NDArray[np.float32]:
    """Luma (H, W) float32, averaged down by a whole factor so that the shorter side has about 256 px."""
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    factor = max(1, round(min(grey.shape) / _SHORTER_SIDE))
    height, width = grey.shape[0] // factor * factor, grey.shape[1] // factor * factor
    size = (width // factor, height // factor)
    return cv2.resize(grey[:height, :width], size, interpolation=cv2.INTER_AREA).astype(np.float32)


Matrix = NDArray[np.float64]


def feature_distances(source: FloatArray, target: FloatArray, pairs: NDArray[np.intp]) -> dict[str, float]:
    """Distances between features ``source`` (n, D) and follow-ups ``target`` (m, D) by name; ``pairs`` (m,): the source of each
    target row.

    ``fid``: Fréchet distance, inflated as it always is with few pictures. ``euclidean``, ``cosine``: means over pairs of source
    and follow-up, 0 where nothing changed. ``linkage_...``: between the two sets as clusters. Euclidean and linkage distances are
    in units of the mean distance between two source pictures: 1 is as different as another laptop.
    """
    one, other = _check_shapes(source, target)
    if pairs.shape != (len(other),):
        raise InvalidInput(
            f"pairs has shape {pairs.shape}, expected one source for each of {len(other)} rows"
        )
    unit = float(pdist(one).mean()) or 1.0
    moved = pair_distances(source, target, pairs)
    return {
        "fid": frechet_distance(one, other),
        **{name: float(values.mean()) for name, values in moved.items()},
        **{f"linkage_{kind}": value / unit for kind, value in linkages(one, other).items()},
    }


def pair_distances(
    source: FloatArray, target: FloatArray, pairs: NDArray[np.intp]
) -> dict[str, NDArray[np.float64]]:
    """Feature distances of source and follow-up: Euclidean, in units of the mean between two sources, and cosine, (m,) each."""
    one, other = _check_shapes(source, target)
    before = one[pairs]
    unit = float(pdist(one).mean()) or 1.0
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(other, axis=1)
    turned = 1 - np.divide((before * other).sum(axis=1), lengths, out=np.ones(len(other)), where=lengths > 0)
    return {"euclidean": np.linalg.norm(before - other, axis=1) / unit, "cosine": np.clip(turned, 0, 2)}


def linkages(one: Matrix, other: Matrix) -> dict[str, float]:
    """Distances between clusters of features: nearest, farthest, mean pair, and centres (Yim and Ramdeen 2015)."""
    between = cdist(one, other)
    centres = np.linalg.norm(one.mean(axis=0) - other.mean(axis=0))
    return {
        "single": float(between.min()),
        "complete": float(between.max()),
        "average": float(between.mean()),
        "centroid": float(centres),
    }


def frechet_distance(one: Matrix, other: Matrix) -> float:
    """Fréchet distance of source and follow-up features (n, D), (m, D) (Heusel et al. 2017).

    ``|m1 - m2|^2 + trace(C1 + C2 - 2 (C1 C2)^(1/2))``.

    The covariances are shrunk (Ledoit and Wolf 2004), so that sets smaller than D have proper ones. The root is taken of a
    symmetric matrix, whose eigenvalues cannot become complex.
    """
    from sklearn.covariance import ledoit_wolf  # takes a second to load

    gap = float(((one.mean(axis=0) - other.mean(axis=0)) ** 2).sum())
    a, b = (ledoit_wolf(x - x.mean(axis=0), assume_centered=True)[0] for x in (one, other))
    values, vectors = np.linalg.eigh(a)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    crossed = np.linalg.eigvalsh(root @ b @ root)
    return max(gap + float(np.trace(a) + np.trace(b) - 2 * np.sqrt(np.clip(crossed, 0, None)).sum()), 0.0)


def _check_shapes(source: FloatArray, target: FloatArray) -> tuple[Matrix, Matrix]:
    for name, features in (("source", source), ("target", target)):
        if features.ndim != 2 or len(features) < 2 or not np.isfinite(features).all():
            raise InvalidInput(
                f"{name} features have shape {features.shape}, expected finite (n, D), at least two rows"
            )
    if source.shape[1] != target.shape[1]:
        raise InvalidInput(f"features have {source.shape[1]} and {target.shape[1]} columns, expected as many")
    return source.astype(np.float64), target.astype(np.float64)

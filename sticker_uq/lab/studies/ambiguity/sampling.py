# SPDX-License-Identifier: Apache-2.0
"""Ambiguous pictures from the latent space of an autoencoder, many where pictures change fast (Weiss et al. 2022, section V-B3).

Two defects of the published code are not repeated. It applies the weight of grid cell (i, j) to cell (j, i): here every
anchor carries its own weight. And it weighs by the gradient of the picture's energy, which is 0 wherever pictures change
without getting brighter: here by the norm of the decoder's Jacobian, as the paper says. Anchors are Sobol points instead of a
grid, so that latent spaces of any dimension need no more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.spatial.distance import pdist
from scipy.stats import qmc
from torch import Tensor
from torch.autograd.functional import jvp

from sticker_uq.detection.kernels.threads import single_thread
from sticker_uq.lab.studies.ambiguity.raae import Raae
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

TEST_DELTA, TRAINING_DELTA = 0.25, 0.4
"""The paper's delta_max: the largest difference of the two probabilities in pictures to test and to train with."""
_ANCHORS = 10  # two to the power of this
_SPREAD = 2.0  # standard deviations of the prior in directions that do not separate the classes; beyond lie no pictures
_ATTEMPTS = 100  # points tried per point wanted, as in the published code


@dataclass(frozen=True)
class AmbiguousImages:
    """Ambiguous ``images`` (N, C, h, w) float32 0..1, each of two classes ``pairs`` (N, 2) with ``probabilities`` (N, 2)."""

    images: FloatArray
    pairs: IntArray
    probabilities: FloatArray

    def __len__(self) -> int:
        return len(self.images)

    def vectors(self, classes: int) -> FloatArray:
        """The probabilistic labels of ambiguous images as class vectors (N, ``classes``)."""
        found = np.zeros((len(self), classes))
        np.put_along_axis(found, self.pairs, self.probabilities, axis=1)
        return found


def density(decode: Callable[[Tensor], Tensor], codes: Tensor) -> Tensor:
    """AmbiGuess's sampling density: how fast the picture changes at codes (N, L), the norm of the Jacobian of ``decode``, (N,).

    The norm is Frobenius'.
    """
    squared = torch.zeros(len(codes), dtype=codes.dtype)
    for axis in range(codes.shape[1]):
        direction = torch.zeros_like(codes)
        direction[:, axis] = 1
        _, change = jvp(decode, codes, direction)
        squared += (change**2).flatten(1).sum(dim=1)
    return squared.sqrt()


def region(separation: float, latent: int, spread: float = _SPREAD) -> tuple[FloatArray, FloatArray]:
    """AmbiGuess's sampling region: lowest and highest corner (L,) of the latent space between the two classes.

    Two standard deviations of each class away from its centre on the axis that separates them, ``spread`` on the others.
    """
    high = np.full(latent, spread)
    high[0] = separation - 2.0
    if high[0] <= 0:
        raise InvalidInput(
            f"separation is {separation:g}, expected more than 2: there is nothing between the classes"
        )
    return -high, high


@single_thread()
@torch.no_grad()
def draw(
    raae: Raae,
    count: int,
    delta_max: float = TEST_DELTA,
    seed: int = 0,
    weighting: Literal["density", "uniform"] = "density",
) -> tuple[FloatArray, FloatArray]:
    """Draw ``count`` latent codes (N, L) of ambiguous pictures with labels (N, 2) that differ by at most ``delta_max``.

    Anchors that are not that ambiguous are left out, the others drawn in proportion to the :func:`density` (or all alike), and
    a point taken anywhere in the cell around its anchor. Raises InvalidInput when the autoencoder has no such points.
    """
    if not 0 < delta_max <= 1:
        raise InvalidInput(f"delta_max is {delta_max:g}, expected more than 0 and at most 1")
    low, high = region(raae.settings.separation, raae.settings.latent)
    units = qmc.Sobol(len(low), rng=np.random.default_rng(seed)).random_base2(_ANCHORS)
    anchors = low + units * (high - low)
    labels = _labels(raae, anchors)
    anchors = anchors[np.abs(labels[:, 0] - labels[:, 1]) <= delta_max]
    if not len(anchors):
        raise InvalidInput(f"classes {raae.pair}: no point between them is ambiguous within {delta_max:g}")
    weights = np.ones(len(anchors))
    if weighting == "density":
        weights = density(raae.decode, torch.from_numpy(anchors).float()).double().numpy()
    side = (high - low) * 2.0 ** (-_ANCHORS / len(low))
    rng = np.random.default_rng([seed, 1])
    kept: list[FloatArray] = []
    found = 0
    for _ in range(_ATTEMPTS):
        chosen = rng.choice(len(anchors), max(count, 1), p=weights / weights.sum())
        codes = np.clip(anchors[chosen] + rng.uniform(-0.5, 0.5, (len(chosen), len(low))) * side, low, high)
        labels = _labels(raae, codes)
        fits = np.abs(labels[:, 0] - labels[:, 1]) <= delta_max
        kept.append(np.column_stack([codes, labels])[fits])
        found += int(fits.sum())
        if found >= count:
            table = np.concatenate(kept)[:count]
            return table[:, :-2], table[:, -2:]
    raise InvalidInput(
        f"classes {raae.pair}: only {found} of {count} points within {delta_max:g} found in {_ATTEMPTS} attempts each"
    )


def generate(
    raaes: Sequence[Raae],
    count: int,
    delta_max: float = TEST_DELTA,
    seed: int = 0,
    weighting: Literal["density", "uniform"] = "density",
) -> AmbiguousImages:
    """Generate ``count`` ambiguous images of two classes, as many of each of ``raaes`` but for one; InvalidInput as
    :func:`draw`.
    """
    if not raaes:
        raise InvalidInput("no autoencoder to draw pictures from, expected at least one")
    images, pairs, probabilities = [], [], []
    for number, raae in enumerate(raaes):
        share = count // len(raaes) + (number < count % len(raaes))
        if not share:
            continue
        codes, labels = draw(raae, share, delta_max, seed + number, weighting)
        with torch.no_grad():
            images.append(raae.decode(torch.from_numpy(codes).float()).numpy())
        pairs.append(np.tile(np.array(raae.pair), (share, 1)))
        probabilities.append(labels)
    return AmbiguousImages(np.concatenate(images), np.concatenate(pairs), np.concatenate(probabilities))


def diversity(images: FloatArray) -> float:
    """How much ambiguous pictures (N, C, h, w) differ: the mean over all couples of their root mean squared difference, 0..1.

    NaN for fewer than two.
    """
    if len(images) < 2:
        return float("nan")
    flat = images.reshape(len(images), -1).astype(np.float64)
    return float(pdist(flat).mean() / np.sqrt(flat.shape[1]))


def _labels(raae: Raae, codes: FloatArray) -> FloatArray:
    return raae.label(torch.from_numpy(codes).float()).double().numpy()

# SPDX-License-Identifier: Apache-2.0
"""How far source and follow-up pictures lie apart in a network's features (Wozniak et al.,
M15 to M17).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from sticker_uq.scene import FloatArray, InvalidInput

Matrix = NDArray[np.float64]

_FLOOR_SPLITS = 10


@dataclass(frozen=True)
class FeatureDistances:
    """Distances of two sets of features, of source and follow-up pictures.

    ``fid``: Fréchet distance; ``fid_floor``: what it is between random halves of the source set, where nothing differs but the
    pictures: a value near it or below says nothing (it is inflated, as FID always is with few pictures). ``euclidean``,
    ``cosine``: means over pairs of source and follow-up, 0 where nothing changed. ``linkage``: by kind, between the two sets as
    clusters. Euclidean and linkage distances are in units of the mean distance between two source pictures: 1 is as different as
    another laptop.
    """

    fid: float
    fid_floor: float
    euclidean: float
    cosine: float
    linkage: dict[str, float]

    def distance(self, name: str) -> float:
        """The distance of source and follow-up features that epsilon(d) depends on; of the linkages the centroid's, 0 between
        equal sets.
        """
        return self.linkage["centroid"] if name == "linkage" else float(getattr(self, name))


def feature_distances(source: FloatArray, target: FloatArray, pairs: NDArray[np.intp]) -> FeatureDistances:
    """Distances between features ``source`` (n, D) and follow-ups ``target`` (m, D); ``pairs`` (m,):
    the source of each target row.

    Raises InvalidInput for fewer than two pictures in a set or other shapes.
    """
    one, other = _checked(source, target)
    if pairs.shape != (len(other),):
        raise InvalidInput(
            f"pairs has shape {pairs.shape}, expected one source for each of {len(other)} rows"
        )
    unit = float(pdist(one).mean()) or 1.0
    moved = pair_distances(source, target, pairs)
    return FeatureDistances(
        frechet_distance(one, other),
        frechet_floor(one),
        float(moved["euclidean"].mean()),
        float(moved["cosine"].mean()),
        {kind: value / unit for kind, value in linkages(one, other).items()},
    )


def pair_distances(
    source: FloatArray, target: FloatArray, pairs: NDArray[np.intp]
) -> dict[str, NDArray[np.float64]]:
    """Feature distance of every source and follow-up: Euclidean (in units of the mean of two sources) and cosine, (m,) each."""
    one, other = _checked(source, target)
    before = one[pairs]
    unit = float(pdist(one).mean()) or 1.0
    lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(other, axis=1)
    turned = 1 - np.divide((before * other).sum(axis=1), lengths, out=np.ones(len(other)), where=lengths > 0)
    return {
        "euclidean": np.linalg.norm(before - other, axis=1) / unit,
        "cosine": np.clip(turned, 0, 2),
    }


def linkages(one: Matrix, other: Matrix) -> dict[str, float]:
    """Distance between clusters of source and follow-up features: nearest, farthest, mean pair, and centres (Yim and Ramdeen
    2015).
    """
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

    The covariances are shrunk (Ledoit and Wolf 2004), so that sets smaller than D have proper ones; everything outside the span
    of the data is then a multiple of the identity and is added in closed form. The root is taken of a symmetric matrix, whose
    eigenvalues cannot become complex. Like every FID it grows as sets shrink: see ``fid_floor``.
    """
    gap = float(((one.mean(axis=0) - other.mean(axis=0)) ** 2).sum())
    a, b = one - one.mean(axis=0), other - other.mean(axis=0)
    dimensions = one.shape[1]
    basis = _basis(np.vstack([a, b]))
    inside = []
    outside = []
    for centred in (a, b):
        share, spread = _shrinkage(centred)
        reduced = centred @ basis
        covariance = (1 - share) * reduced.T @ reduced / len(centred) + share * spread * np.eye(
            basis.shape[1]
        )
        inside.append(covariance)
        outside.append(share * spread)
    rest = (dimensions - basis.shape[1]) * (np.sqrt(outside[0]) - np.sqrt(outside[1])) ** 2
    return max(gap + _trace_part(*inside) + float(rest), 0.0)


def frechet_floor(features: Matrix, seed: int = 0) -> float:
    """Bias of the Fréchet distance between source and follow-ups: its mean between random halves of ``features`` (n, D).

    That is the bias at n/2 pictures. NaN below four pictures.
    """
    if len(features) < 4:
        return float("nan")
    rng = np.random.default_rng(seed)
    half = len(features) // 2
    values = []
    for _ in range(_FLOOR_SPLITS):
        order = rng.permutation(len(features))
        values.append(frechet_distance(features[order[:half]], features[order[half : 2 * half]]))
    return float(np.mean(values))


def _trace_part(one: Matrix, other: Matrix) -> float:
    values, vectors = np.linalg.eigh(one)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    crossed = np.linalg.eigvalsh(root @ other @ root)
    return float(np.trace(one) + np.trace(other) - 2 * np.sqrt(np.clip(crossed, 0, None)).sum())


def _shrinkage(centred: Matrix) -> tuple[float, float]:
    """Weight of the identity and its scale by Ledoit and Wolf, without forming the (D, D) covariance."""
    n, dimensions = centred.shape
    gram = centred @ centred.T / n  # has the eigenvalues of the covariance
    spread = float(np.trace(gram)) / dimensions
    squared = float((gram**2).sum())
    distance = squared - dimensions * spread**2
    noise = float((np.diag(gram) ** 2).sum()) - squared / n
    # a set without any spread needs no shrinkage
    share = min(max(noise / distance, 0.0), 1.0) if distance > 0 else 0.0
    return share, spread


def _basis(rows: Matrix) -> Matrix:
    """Orthonormal columns (D, r) that span ``rows``."""
    _, singular, turned = np.linalg.svd(rows, full_matrices=False)
    kept = singular > singular.max(initial=0.0) * 1e-10
    return turned[kept].T


def _checked(source: FloatArray, target: FloatArray) -> tuple[Matrix, Matrix]:
    for name, features in (("source", source), ("target", target)):
        if features.ndim != 2 or len(features) < 2 or not np.isfinite(features).all():
            raise InvalidInput(
                f"{name} features have shape {features.shape}, expected finite (n, D), at least two rows"
            )
    if source.shape[1] != target.shape[1]:
        raise InvalidInput(f"features have {source.shape[1]} and {target.shape[1]} columns, expected as many")
    return source.astype(np.float64), target.astype(np.float64)

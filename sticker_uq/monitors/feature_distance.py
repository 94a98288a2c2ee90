# SPDX-License-Identifier: Apache-2.0
"""Later monitors of out-of-distribution objects on the same activations: relative Mahalanobis, nearest neighbours.

Own code: pytorch-ood has both, but keeps what was fitted in objects that only pickle can store, and inverts
covariances of few objects without shrinkage.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist

from sticker_uq.monitors.interface import Arrays, Monitor
from sticker_uq.monitors.objects import Objects
from sticker_uq.scene import FloatArray

_JITTER = 1e-9  # relative to the mean variance: activations that never vary leave the covariance singular


def factor(centred: FloatArray) -> FloatArray:
    """Lower Cholesky factor (F, F) of the Ledoit-Wolf covariance of vectors (N, F) whose mean was taken off."""
    from sklearn.covariance import (
        ledoit_wolf,  # takes a second to load, and only a monitor that learns needs it
    )

    covariance, _ = ledoit_wolf(centred, assume_centered=True)
    level = float(np.trace(covariance)) / len(covariance)
    return np.linalg.cholesky(covariance + (_JITTER * level + 1e-300**0.5) * np.eye(len(covariance)))


def whiten(vectors: FloatArray, lower: FloatArray) -> FloatArray:
    """Vectors (N, F) in coordinates in which ``lower @ lower.T`` is the identity, (N, F); NaN where they are."""
    return np.asarray(solve_triangular(lower, vectors.T, lower=True, check_finite=False)).T


def squared_norm(vectors: FloatArray) -> FloatArray:
    """Squared Euclidean norms (N,) of vectors (N, F)."""
    return np.einsum("nf,nf->n", vectors, vectors)


_CHUNK = 512


class RelativeMahalanobis(Monitor):
    """Smallest squared Mahalanobis distance to a class minus that to all objects (Ren et al. 2021).

    The classes share one covariance; classes are the labels where ``fit`` gets them, else the predicted ones.
    """

    name = "relative_mahalanobis"
    needs = ("probabilities", "features")

    def _fit(self, objects: Objects) -> Arrays:
        vectors = np.asarray(objects.features, np.float64)
        classes = objects.predicted if objects.labels is None else objects.labels
        labels, place = np.unique(classes, return_inverse=True)
        means = np.stack([vectors[classes == label].mean(axis=0) for label in labels])
        everything = vectors.mean(axis=0)
        return {
            "means": means,
            "lower": factor(vectors - means[place]),
            "all_mean": everything,
            "all_lower": factor(vectors - everything),
        }

    def _score(self, objects: Objects) -> FloatArray:
        vectors, known = np.asarray(objects.features, np.float64), self._learned
        lower = known["lower"]
        white = whiten(
            np.concatenate([vectors, known["means"]]), lower
        )  # one way through a large matrix, not two
        squared = cdist(white[: len(vectors)], white[len(vectors) :], "sqeuclidean")
        background = squared_norm(whiten(vectors - known["all_mean"], known["all_lower"]))
        return squared.min(axis=1) - background


class NearestNeighbours(Monitor):
    """Distance to the k-th nearest training activation, all scaled to length 1 (Sun et al. 2022).

    ``k`` is lowered to the number of training objects where there are fewer.
    """

    name = "knn"
    needs = ("features",)

    def __init__(self, k: int = 10) -> None:
        super().__init__(k=k)

    def _fit(self, objects: Objects) -> Arrays:
        return {"known": _unit(objects.features)}

    def _score(self, objects: Objects) -> FloatArray:
        vectors, known = _unit(objects.features), self._learned["known"]
        place = min(self._options["k"], len(known)) - 1
        parts = [
            np.partition(cdist(vectors[start : start + _CHUNK], known), place, axis=1)[:, place]
            for start in range(0, len(vectors), _CHUNK)
        ]
        return np.concatenate(parts)


def _unit(vectors: FloatArray | None) -> FloatArray:
    values = np.asarray(vectors, np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)

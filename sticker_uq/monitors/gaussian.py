# SPDX-License-Identifier: Apache-2.0
"""A Gaussian for monitors, with a covariance that can be inverted however few the vectors are."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

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

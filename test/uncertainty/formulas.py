# SPDX-License-Identifier: Apache-2.0
"""The five metrics as Lu et al. write them (eq 2-11), for the boxes or class vectors of one object: the reference of tests."""

import numpy as np
import shapely
from scipy.special import xlogy

CORNERS = ((0, 1), (2, 1), (0, 3), (2, 3))


def distributions(probabilities: np.ndarray) -> np.ndarray:
    vectors = probabilities.astype(np.float64)
    return vectors / vectors.sum(axis=1, keepdims=True)


def entropy(vectors: np.ndarray) -> np.ndarray:
    return -xlogy(vectors, vectors).sum(axis=-1) / np.log(2.0) + 0.0


def variation_ratio(probabilities: np.ndarray) -> float:
    labels = distributions(probabilities).argmax(axis=1)
    return float(1.0 - np.bincount(labels).max() / len(labels))


def shannon_entropy(probabilities: np.ndarray) -> float:
    return float(entropy(distributions(probabilities).mean(axis=0)))


def mutual_information(probabilities: np.ndarray) -> float:
    vectors = distributions(probabilities)
    return max(0.0, float(entropy(vectors.mean(axis=0)) - entropy(vectors).mean()))


def box_covariance(boxes: np.ndarray) -> np.ndarray:
    centred = boxes.astype(np.float64) - boxes.astype(np.float64).mean(axis=0)
    return centred.T @ centred / len(centred)


def total_variance(boxes: np.ndarray) -> float:
    return float(np.trace(box_covariance(boxes)))


def hulls(boxes: np.ndarray) -> list[shapely.Geometry]:
    return [shapely.MultiPoint(boxes[:, list(corner)].astype(np.float64)).convex_hull for corner in CORNERS]


def predictive_surface(boxes: np.ndarray) -> float:
    return float(np.mean([hull.area for hull in hulls(boxes)]))

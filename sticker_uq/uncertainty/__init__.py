"""Clustering of the boxes of the stochastic passes into objects, and five uncertainty metrics (S000). NumPy only."""

from sticker_uq.uncertainty.cluster import NOISE, ClusterSettings, cluster
from sticker_uq.uncertainty.metrics import (
    box_covariance,
    corner_hulls,
    mutual_information,
    predictive_surface,
    shannon_entropy,
    total_variance,
    variation_ratio,
)
from sticker_uq.uncertainty.observe import image_uncertainty, observe
from sticker_uq.uncertainty.overlap import iou_matrix

__all__ = [
    "NOISE",
    "ClusterSettings",
    "box_covariance",
    "cluster",
    "corner_hulls",
    "image_uncertainty",
    "iou_matrix",
    "mutual_information",
    "observe",
    "predictive_surface",
    "shannon_entropy",
    "total_variance",
    "variation_ratio",
]

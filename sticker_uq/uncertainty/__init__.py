"""Clustering of the boxes of the stochastic passes into objects, and the five uncertainty metrics (S000) by entropy, variance
and overlap. NumPy only.
"""

from sticker_uq.uncertainty.cluster import NOISE, ClusterSettings, cluster
from sticker_uq.uncertainty.observe import image_uncertainty, observe
from sticker_uq.uncertainty.overlap import iou_matrix

__all__ = [
    "NOISE",
    "ClusterSettings",
    "cluster",
    "image_uncertainty",
    "iou_matrix",
    "observe",
]

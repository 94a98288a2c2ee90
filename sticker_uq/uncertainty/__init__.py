# SPDX-License-Identifier: Apache-2.0
"""Uncertainty of objects (S000, Lu et al.): boxes of the stochastic passes clustered by overlap, and five metrics: VR, SE and
MI (entropy), TV, PS (corner hulls).

NumPy only: neither torch nor ROS.
"""

from sticker_uq.uncertainty.cluster import NOISE, ClusterSettings, TooManyBoxes, cluster
from sticker_uq.uncertainty.observe import image_uncertainty, observe
from sticker_uq.uncertainty.overlap import iou_matrix

__all__ = [
    "NOISE",
    "ClusterSettings",
    "TooManyBoxes",
    "cluster",
    "image_uncertainty",
    "iou_matrix",
    "observe",
]

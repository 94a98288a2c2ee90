# SPDX-License-Identifier: Apache-2.0
"""How far a scene as a whole lies from the pictures that novelty detection was trained on."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SceneReference(nn.Module):
    """Novelty of a scene: a Gaussian over the mean activations of the training pictures (Lee et al. 2018).

    Distances are Mahalanobis distances relative to that of an unusual picture of the same kind: 1 is the farthest that such
    pictures are expected to lie. Until :meth:`set` all distances are NaN, and a file cannot be written.
    """

    mean: Tensor
    root: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((channels,), torch.nan))
        self.register_buffer("root", torch.full((channels, channels), torch.nan))

    def set(self, mean: Tensor, root: Tensor) -> None:
        """Set the novelty reference: ``mean`` (C,), and ``root`` (C, C) of the inverse covariance over the distance that
        counts as 1.
        """
        self.mean.copy_(mean)
        self.root.copy_(root)

    def distance(self, activations: Tensor) -> float:
        """Distance of a scene with mean ``activations`` (C,) from the novelty reference."""
        return float(torch.linalg.vector_norm(self.root @ (activations - self.mean)))

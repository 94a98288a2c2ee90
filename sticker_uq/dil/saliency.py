# SPDX-License-Identifier: Apache-2.0
"""Objectness saliency: class activation maps of the summed objectness on the maps that enter its heads.

The maps come without dropout from the features that the stochastic passes use too, and the gradient ends at them, so this
costs about one pass through the heads instead of one through the whole network and back. Unlike pytorch-grad-cam the levels
are not min-max scaled each: that would subtract a different background from every level and change BL / CL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sticker_uq.detection import DeterministicPass, Features
from sticker_uq.detection.kernels.devices import float32_products, to_device
from sticker_uq.dil.settings import Technique
from sticker_uq.scene import FloatArray, IntArray

_EPSILON = 1e-6  # as in pytorch-grad-cam, so that Grad-CAM++ compares


def objectness_saliency(deterministic: DeterministicPass, technique: Technique = "layercam") -> FloatArray:
    """Objectness saliency of an image, (H, W) float32 >= 0, px of the original image (DiL paper, 3.1).

    Every level's map is enlarged bilinearly to the image, and the levels are summed. The unit is arbitrary; only ratios
    within one image mean something. A gradient can be asked of a pass only once.
    """
    return enlarge(activation_maps(deterministic, technique), deterministic.features)


def activation_maps(deterministic: DeterministicPass, technique: Technique = "layercam") -> list[Tensor]:
    """Class activation map of the summed objectness of every level (DiL), (h, w) >= 0 each, fine to coarse."""
    gradients = objectness_gradients(deterministic)
    return [
        activation_map(m.detach(), g, technique)[0]
        for m, g in zip(deterministic.maps, gradients, strict=True)
    ]


def objectness_gradients(deterministic: DeterministicPass) -> Sequence[Tensor]:
    """The gradients (1, C, h, w) of :func:`summed_objectness` to the maps of ``deterministic``."""
    with torch.enable_grad(), float32_products(deterministic.tf32, deterministic.anchors.device):
        total = summed_objectness(deterministic.objectness, deterministic.two_stage)
        return torch.autograd.grad(total, deterministic.maps)


def summed_objectness(objectness: Sequence[Tensor], two_stage: bool) -> Tensor:
    """The scalar that DiL differentiates, from the objectness (n, A, h, w) of every level.

    One-stage detectors: the sum over everything (DiL paper, eq 1). Two-stage ones: the sum over all places of the largest
    objectness of the boxes there (eq 2).
    """
    levels = [level.amax(dim=1) if two_stage else level for level in objectness]
    return torch.stack([level.sum() for level in levels]).sum()


def activation_map(activations: Tensor, gradients: Tensor, technique: Technique) -> Tensor:
    """DiL's class activation maps of one level, (n, h, w) >= 0, from its activations and gradients (n, C, h, w).

    "gradcam": a channel's weight is its mean gradient (Selvaraju et al. 2017, eq 1-2); "gradcam++": its positive gradients
    weighted by their share (Chattopadhay et al. 2018, eq 19 with an exponential as the last activation); "layercam": every
    element has the weight of its own positive gradient (Jiang et al. 2021, eq 4-6).
    """
    if technique == "layercam":
        return gradients.relu().mul_(activations).sum(dim=1).relu_()
    if technique == "gradcam":
        weights = gradients.mean(dim=(2, 3))
    else:
        square = gradients**2
        share = square / (2 * square + activations.sum(dim=(2, 3), keepdim=True) * gradients**3 + _EPSILON)
        weights = (share.masked_fill(gradients == 0, 0.0) * gradients.relu()).sum(dim=(2, 3))
    return torch.einsum("nc,nchw->nhw", weights, activations).relu()


def enlarge(levels: Sequence[Tensor], features: Features) -> FloatArray:
    """DiL's saliency: the sum of the maps (h, w) of all ``levels``, each enlarged bilinearly to the image, (H, W) float32.

    A map covers the padded input of the network; its part over the padding is left out. Places between the outermost cell
    centres and the edge take the value of the outermost cell.
    """
    width, height = features.image_size
    across, down = _extents(features)
    # Bilinear interpolation is rows x map x columns. Joined along the inner dimension the products of all levels, and their
    # sum, are a single matrix product.
    kind, device = levels[0].dtype, levels[0].device
    down_weights = torch.cat([_interpolation(height, level.shape[0], down) for level in levels], dim=1)
    rows = to_device(down_weights.to(kind), device)
    columns = torch.cat(
        [
            level @ to_device(_interpolation(width, level.shape[1], across).to(kind), device).T
            for level in levels
        ]
    )
    saliency: FloatArray = (rows @ columns).cpu().numpy()
    return saliency


def cell_sums(
    levels: Sequence[Tensor], features: Features, row_edges: IntArray, column_edges: IntArray
) -> FloatArray:
    """Sums of DiL's enlarged saliency over cells between pixel edges, (R, C) float64 for R + 1 and C + 1 rising edges.

    What :func:`enlarge` would give, summed, without making it: an image has a million pixels, and CL and BL are sums.
    """
    shapes = tuple(tuple(level.shape) for level in levels)
    rows, columns = _cumulated(features.image_size, _extents(features), shapes)
    rows, columns = np.diff(rows[row_edges], axis=0), np.diff(columns[column_edges], axis=0)
    values = torch.cat([level.flatten() for level in levels]).cpu().numpy()
    # the levels side by side along a diagonal: one product for all
    diagonal = np.zeros((rows.shape[1], columns.shape[1]))
    first, top, left = 0, 0, 0
    for height, width in shapes:
        part = values[first : first + height * width].reshape(height, width)
        diagonal[top : top + height, left : left + width] = part
        first, top, left = first + height * width, top + height, left + width
    total: FloatArray = rows @ diagonal @ columns.T
    return np.maximum(total, 0.0)


@lru_cache(maxsize=16)
def _cumulated(
    image_size: tuple[int, int], extents: tuple[float, float], shapes: tuple[tuple[int, int], ...]
) -> tuple[FloatArray, FloatArray]:
    """Sums of the weights of the first 0, 1, ... pixels, all levels of ``shapes`` (h, w) side by side.

    Of the rows (H + 1, sum of h) and of the columns (W + 1, sum of w).
    """
    (width, height), (across, down) = image_size, extents
    rows = torch.cat([_interpolation(height, h, down) for h, _ in shapes], dim=1).numpy()
    columns = torch.cat([_interpolation(width, w, across) for _, w in shapes], dim=1).numpy()
    return _sums_from_zero(rows), _sums_from_zero(columns)


def _sums_from_zero(weights: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights, axis=0)])


def _extents(features: Features) -> tuple[float, float]:
    """Width and height of the padded input of the network in pixels of the original image."""
    width, height = features.image_size
    return width * features.padded[1] / features.resized[1], height * features.padded[0] / features.resized[0]


def _interpolation(pixels: int, cells: int, extent: float) -> Tensor:
    """Weights (pixels, cells) of linear interpolation at pixel centres when ``cells`` equal cells span ``extent`` pixels."""
    position = np.clip((np.arange(pixels) + 0.5) * cells / extent - 0.5, 0.0, cells - 1.0)
    below = np.minimum(position.astype(np.int64), max(cells - 2, 0))
    weights = np.zeros((pixels, cells))
    weights[np.arange(pixels), below] = 1.0 - (position - below)
    if cells > 1:
        weights[np.arange(pixels), below + 1] = position - below
    return torch.from_numpy(weights)

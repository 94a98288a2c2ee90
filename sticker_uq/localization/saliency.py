"""Where the detector feels objects: Grad-CAM of the summed objectness on the maps that enter its heads.

The maps come without dropout from the features that the stochastic passes use too, and only the heads are differentiated, so
this costs one pass through the heads and back instead of one through the whole network. Unlike pytorch-grad-cam the levels
are not min-max scaled each: that would subtract a different background from every level and change BL / CL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sticker_uq.detection import Features, StochasticDetector
from sticker_uq.localization.settings import Technique
from sticker_uq.scene import FloatArray

_EPSILON = 1e-6  # as in pytorch-grad-cam, so that Grad-CAM++ compares


def objectness_saliency(
    detector: StochasticDetector, features: Features, technique: Technique = "gradcam"
) -> FloatArray:
    """Objectness saliency of one image, (H, W) float32 >= 0 in pixels of the original image (DiL paper, section 3.1).

    Every level's map is enlarged bilinearly to the image, and the levels are summed. The unit is arbitrary; only ratios
    within one image mean something.
    """
    return enlarge(activation_maps(detector, features, technique), features)


def activation_maps(
    detector: StochasticDetector, features: Features, technique: Technique = "gradcam"
) -> list[Tensor]:
    """Class activation map of the summed objectness of every level, (h, w) >= 0 each, fine to coarse."""
    maps = [level.detach().requires_grad_(True) for level in detector.head_maps(features)]
    with torch.enable_grad():
        total = summed_objectness(detector.objectness(maps), two_stage=detector.name.startswith("fasterrcnn"))
        gradients = torch.autograd.grad(total, maps)
    return [activation_map(m.detach()[0], g[0], technique) for m, g in zip(maps, gradients, strict=True)]


def summed_objectness(objectness: Sequence[Tensor], two_stage: bool) -> Tensor:
    """The scalar that is differentiated, from the objectness (A, h, w) of every level.

    One-stage detectors: the sum over everything (DiL paper, eq 1). Two-stage ones: the sum over all places of the largest
    objectness of the boxes there (eq 2).
    """
    levels = [level.amax(dim=0) if two_stage else level for level in objectness]
    return torch.stack([level.sum() for level in levels]).sum()


def activation_map(activations: Tensor, gradients: Tensor, technique: Technique) -> Tensor:
    """Class activation map of one level, (h, w) >= 0, from its activations and gradients (C, h, w).

    "gradcam": a channel's weight is its mean gradient (Selvaraju et al. 2017, eq 1-2); "gradcam++": its positive gradients
    weighted by their share (Chattopadhay et al. 2018, eq 19 with an exponential as the last activation).
    """
    if technique == "gradcam":
        weights = gradients.mean(dim=(1, 2))
    else:
        square = gradients**2
        share = square / (2 * square + activations.sum(dim=(1, 2), keepdim=True) * gradients**3 + _EPSILON)
        weights = (torch.where(gradients != 0, share, 0.0) * gradients.relu()).sum(dim=(1, 2))
    return torch.tensordot(weights, activations, dims=1).relu()


def enlarge(levels: Sequence[Tensor], features: Features) -> FloatArray:
    """The sum of the maps (h, w) of all ``levels``, each enlarged bilinearly to the original image, (H, W) float32.

    A map covers the padded input of the network; its part over the padding is left out. Places between the outermost cell
    centres and the edge take the value of the outermost cell.
    """
    width, height = features.image_size
    across, down = (
        width * features.padded[1] / features.resized[1],
        height * features.padded[0] / features.resized[0],
    )
    # Bilinear interpolation is rows x map x columns. Joined along the inner dimension the products of all levels, and their
    # sum, are a single matrix product.
    rows = torch.cat([_interpolation(height, level.shape[0], down).to(level) for level in levels], dim=1)
    columns = torch.cat(
        [level @ _interpolation(width, level.shape[1], across).to(level).T for level in levels]
    )
    return (rows @ columns).cpu().numpy()


def _interpolation(pixels: int, cells: int, extent: float) -> Tensor:
    """Weights (pixels, cells) of linear interpolation at pixel centres when ``cells`` equal cells span ``extent`` pixels."""
    position = np.clip((np.arange(pixels) + 0.5) * cells / extent - 0.5, 0.0, cells - 1.0)
    below = np.minimum(position.astype(np.int64), max(cells - 2, 0))
    weights = np.zeros((pixels, cells))
    weights[np.arange(pixels), below] = 1.0 - (position - below)
    if cells > 1:
        weights[np.arange(pixels), below + 1] = position - below
    return torch.from_numpy(weights)

# SPDX-License-Identifier: Apache-2.0
"""The novelty head: whether something lies in a place that the detector was never shown, from maps that it computes anyway.

Objectness tells what resembles the trained classes; a hand over a sticker or a coin need not. This head learns from clean
scenes on which shapes of no particular kind were laid (outlier exposure, Hendrycks et al. 2019) which activations only such
places have. The detector stays as it is, and every score of it too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.weights import load_weights, save_weights
from sticker_uq.novelty.network import (
    NETWORK_ROLE,
    NoveltyNetwork,
    file_metadata,
    load_network,
    quality_of,
)
from sticker_uq.novelty.quality import NoveltyQuality
from sticker_uq.novelty.reference import SceneReference
from sticker_uq.scene import InvalidInput

STRIDE = 16
"""Px of the network's input per cell: the two finest maps from here on are read."""
STRONGEST = 4
"""Cells whose mean is the novelty of an image."""
ROLE = "novelty"
_HIDDEN = 64


class NoveltyHead(nn.Module):
    """Novelty head: takes activations (N, C) of cells to logits (N,) that something novel covers them.

    ``reference``: of the mean over the cells; ``quality``: as measured after training, None where it was not.
    """

    quality: NoveltyQuality | None = None
    mean: Tensor
    scale: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))
        self.layers = nn.Sequential(
            nn.Linear(channels, _HIDDEN), nn.GELU(), nn.Dropout(0.2), nn.Linear(_HIDDEN, 1)
        )
        self.reference = SceneReference(channels)

    def forward(self, cells: Tensor) -> Tensor:
        """The novelty head's logits (N,) that something novel covers each cell."""
        return torch.as_tensor(self.layers((cells - self.mean) / self.scale)[:, 0])


def novelty_map(head: NoveltyHead, cells: Tensor) -> Tensor:
    """Novelty head: the probability that something novel covers each of ``cells`` (n, C, h, w), (n, h, w)."""
    with torch.inference_mode():
        flat = head(cells.permute(0, 2, 3, 1).flatten(0, 2))
    return torch.sigmoid(flat).unflatten(0, (cells.shape[0], *cells.shape[2:]))


def novelty(probabilities: Tensor) -> float:
    """Novelty of one image from the head's map (h, w): the mean of the STRONGEST cells, 0..1."""
    return float(probabilities.flatten().topk(min(STRONGEST, probabilities.numel())).values.mean())


def save_head(head: NoveltyHead, detector: StochasticDetector, path: str | os.PathLike[str]) -> None:
    """Write the novelty ``head``, its quality, and the hash of the weights of ``detector`` that it reads.

    OSError when the disk fails, InvalidInput for a head without a reference.
    """
    save_weights(head, path, file_metadata(ROLE, detector, head.quality), half=True)


def load_head(detector: StochasticDetector, path: str | os.PathLike[str]) -> NoveltyHead:
    """The novelty head for run time in file ``path``; InvalidInput if it holds none, or one for other weights."""
    state, metadata = load_weights(path)
    if metadata.get("role") != ROLE:
        raise InvalidInput(f"{path}: is no novelty head, expected a file that `sticker-uq dil learn` wrote")
    if metadata.get("detector") != detector.weights_hash:
        raise InvalidInput(
            f"{path}: was learned on weights {str(metadata.get('detector'))[:16]}, expected {detector.weights_hash[:16]}"
        )
    head = NoveltyHead(len(state["mean"]))
    head.load_state_dict(state)
    head.quality = quality_of(metadata, path)
    return head.eval().requires_grad_(False).to(detector.device)


def load_novelty_model(
    detector: StochasticDetector, path: str | os.PathLike[str]
) -> NoveltyNetwork | NoveltyHead:
    """The novelty network, or the head of ``detector``, for run time from file ``path``; InvalidInput if it holds neither."""
    _, metadata = load_weights(path)
    if metadata.get("role") == NETWORK_ROLE:
        return load_network(path, detector.device)
    return load_head(detector, path)


def cells_of(maps: Sequence[Tensor], padded: tuple[int, int]) -> Tensor:
    """The novelty head's cells: the two finest maps of at least STRIDE px per cell as one (n, C, h, w), the coarser one enlarged.

    ``maps``: those that enter the detector's heads, (n, C, h, w) per level, for an input of ``padded`` (H, W) px.
    """
    coarse = [m.detach() for m in maps if m.shape[-1] * STRIDE <= padded[1] + STRIDE - 1]
    first = coarse[0]
    others = [F.interpolate(m, first.shape[-2:], mode="bilinear", align_corners=False) for m in coarse[1:2]]
    return torch.cat([first, *others], dim=1).float()

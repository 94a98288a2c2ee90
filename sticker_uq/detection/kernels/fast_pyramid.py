# SPDX-License-Identifier: Apache-2.0
"""The stochastic part of the feature pyramid with few passes over memory; same masks, same result as ``pyramid.py``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.features import Features
from sticker_uq.detection.kernels.winograd import use_winograd
from sticker_uq.detection.models.pyramid import coarser_maps


class FastPyramid:
    """The FPN of a frozen model from the outputs of its inner convolutions on, for one dropout rate.

    The factor 1 / (1 - rate) is part of the weights, so that a mask is one multiplication.
    """

    def __init__(self, fpn: Any, rate: float) -> None:
        self._fpn = fpn
        self._keep = 1.0 - rate
        self._layers = [_scaled(_convolution(block), 1 / self._keep) for block in fpn.layer_blocks]

    def maps(self, features: Features, dropout: Dropout) -> list[Tensor]:
        scaled = features.derive("scaled", lambda: [m / self._keep for m in features.maps])
        merged = dropout.masks(scaled[-1]).mul_(scaled[-1])
        maps = [self._layer(-1, merged, dropout)]
        for level in reversed(range(len(scaled) - 1)):
            coarse, merged = merged, dropout.masks(scaled[level]).mul_(scaled[level])
            _add_enlarged(merged, coarse)
            maps.insert(0, self._layer(level, merged, dropout))
        return maps + coarser_maps(self._fpn.extra_blocks, features, maps[-1])

    def _layer(self, level: int, merged: Tensor, dropout: Dropout) -> Tensor:
        made: Tensor = self._layers[level](merged)
        return made.mul_(dropout.masks(made))


def _convolution(block: nn.Module) -> nn.Conv2d:
    (found,) = (m for m in block.modules() if isinstance(m, nn.Conv2d))
    return found


def _scaled(conv: nn.Conv2d, factor: float) -> nn.Conv2d:
    made = nn.Conv2d(conv.in_channels, conv.out_channels, 3, padding=1, device="meta")
    made.weight = nn.Parameter(conv.weight * factor, requires_grad=False)
    made.bias = None if conv.bias is None else nn.Parameter(conv.bias * factor, requires_grad=False)
    use_winograd(made)
    return made


def _add_enlarged(fine: Tensor, coarse: Tensor) -> None:
    """Add ``coarse``, enlarged to the size of ``fine`` by repeating its elements, to ``fine`` in place."""
    n, channels, height, width = fine.shape
    if coarse.shape[-2:] != (height / 2, width / 2):
        fine.add_(F.interpolate(coarse, size=(height, width), mode="nearest"))
        return
    doubled = fine.permute(0, 2, 3, 1).view(n, height // 2, 2, width // 2, 2, channels)
    doubled.add_(coarse.permute(0, 2, 3, 1)[:, :, None, :, None])


def rows_of(output: Tensor, columns: int) -> Tensor:
    """For fast heads: output (n, A * columns, h, w) as rows (n, h * w * A, columns) in torchvision's order, as float32."""
    return output.permute(0, 2, 3, 1).reshape(len(output), -1, columns).to(torch.float32)

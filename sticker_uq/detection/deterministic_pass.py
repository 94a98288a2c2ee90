# SPDX-License-Identifier: Apache-2.0
"""One forward pass of a detector without dropout, with everything that distinctive localization reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sticker_uq.detection.features import Features
from sticker_uq.scene import Detections


@dataclass(frozen=True)
class DeterministicPass:
    """A pass without dropout over an image, before anything was suppressed.

    ``maps``: the maps (1, C, h, w) that enter the heads, per level, fine to coarse; ``objectness``: (1, A, h, w) per level: the
    objectness head's logits of a ``two_stage`` detector, else a score 0..1 of each anchor that it holds any object;
    ``detections``: by falling score. ``anchors``: (N, 4) reference boxes px of the resized image, in the order of :func:`flat`;
    ``decode_boxes(rows)``: the boxes (K, 4) px of the resized image that the detector makes of the anchors ``rows`` (K,).
    ``objectness`` is a function of ``maps`` that autograd can differentiate once. ``tf32``: a GPU computed in TF32, and is to
    differentiate so.
    """

    features: Features
    maps: tuple[Tensor, ...]
    objectness: tuple[Tensor, ...]
    two_stage: bool
    anchors: Tensor
    decode_boxes: Callable[[Tensor], Tensor]
    detections: Detections
    tf32: bool = False

    def probability(self) -> Tensor:
        """Objectness of every anchor as a probability, (N,)."""
        values = flat([level.detach() for level in self.objectness])[0]
        return torch.sigmoid(values) if self.two_stage else values


def leaves(maps: Sequence[Tensor]) -> list[Tensor]:
    """``maps`` as leaves of a graph of their own, sharing memory, so that a gradient ends there."""
    return [m.detach().requires_grad_(True) for m in maps]


def flat(levels: Sequence[Tensor]) -> Tensor:
    """``levels`` (n, A, h, w) as (n, sum of h * w * A), in torchvision's order of anchors."""
    return torch.cat([level.permute(0, 2, 3, 1).flatten(1) for level in levels], dim=1)


def by_level(
    scores: Tensor, maps: Sequence[Tensor], anchors_per_location: Sequence[int]
) -> tuple[Tensor, ...]:
    """``scores`` (n, sum of h * w * A), in torchvision's order of anchors, as (n, A, h, w) per level of ``maps``."""
    shapes = [(*m.shape[-2:], a) for m, a in zip(maps, anchors_per_location, strict=True)]
    levels = scores.split([h * w * a for h, w, a in shapes], dim=1)
    pairs = zip(levels, shapes, strict=True)
    return tuple(level.unflatten(1, shape).permute(0, 3, 1, 2) for level, shape in pairs)

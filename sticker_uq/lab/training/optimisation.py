# SPDX-License-Identifier: Apache-2.0
"""Optimiser, learning rate schedule and weight averaging of a training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sticker_uq.lab.training.settings import Frozen

_WEIGHT_DECAY = 0.02
_WARM_UP = 300  # steps, or a tenth of the training if that is less
_AVERAGE = 0.998  # weight of the past in the averaged weights, reached gradually


def learning_rate(highest: float, step: int, steps: int) -> float:
    """Training's rate of step number ``step`` of ``steps``, from 0: linear warm-up, then half a cosine down to a hundredth."""
    warm_up = min(_WARM_UP, steps // 10)
    if step < warm_up:
        return highest * (step + 1) / warm_up
    part = (step - warm_up) / max(1, steps - warm_up)
    return highest * (0.01 + 0.99 * (1 + math.cos(math.pi * part)) / 2)


def averaging(step: int) -> float:
    """Training's weight of the past in the averaged weights after step number ``step``: lower at the beginning."""
    return min(_AVERAGE, (1 + step) / (10 + step))


def build_optimizer(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """Training's optimiser AdamW (Loshchilov and Hutter 2019) over all parameters, decaying matrices and filters only."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]  # of biases and normalisation: no decay
    groups = [
        {"params": matrices, "weight_decay": _WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


def freeze(model: Any, what: Frozen) -> None:
    """Keep ``what`` of ``model``, which is being trained, from changing.

    Batch normalisation then uses its stored statistics, as in the detector: statistics from a few hundred
    pictures would replace them long before the weights have adapted.
    """
    if what == "nothing":
        return
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    if what == "backbone":
        model.backbone.requires_grad_(False)


def float_tensors(averaged: nn.Module, current: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and batch statistics of both trained models, in the same order."""
    latest = current.state_dict()
    pairs = [(t, latest[name]) for name, t in averaged.state_dict().items() if t.is_floating_point()]
    return [mean for mean, _ in pairs], [now for _, now in pairs]

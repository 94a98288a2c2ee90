# SPDX-License-Identifier: Apache-2.0
"""Initial weights for a network without normalisation: every layer has unit output variance on the data.

VGG's layers keep the variance of their input, and the input of torchvision's SSD300 is grey levels of about 100: random weights
then give logits of about 100 and gradients to match. Scaling each layer on a batch of the data is layer-sequential unit variance
(Mishkin and Matas, "All you need is a good init", ICLR 2016, without their orthogonal filters).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

_LEAST = 1e-12  # lowest variance of a layer that is scaled
_Result = TypeVar("_Result")


def scale_to_variance(part: nn.Module, run: Callable[[], _Result], deviation: float = 1.0) -> _Result:
    """Before training, scale each convolution of ``part`` to outputs with standard deviation ``deviation``, bias 0.

    Returns what ``run`` does.

    ``run`` passes a batch through ``part``. Convolutions are scaled in the order in which they are reached, each on what the
    scaled ones before it give. One whose output is constant keeps its filters.
    """
    scaled: set[nn.Module] = set()

    def scale(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        assert isinstance(layer, nn.Conv2d)
        if layer in scaled:
            return None
        scaled.add(layer)
        if layer.bias is not None:
            output = output - layer.bias.view(-1, 1, 1)
            layer.bias.zero_()
        variance = output.var(correction=0)
        if not variance > _LEAST:
            return output
        factor = deviation * variance.rsqrt()
        layer.weight.mul_(factor)
        return output * factor

    hooks = [m.register_forward_hook(scale) for m in part.modules() if isinstance(m, nn.Conv2d)]
    try:
        with torch.no_grad():
            return run()
    finally:
        for hook in hooks:
            hook.remove()

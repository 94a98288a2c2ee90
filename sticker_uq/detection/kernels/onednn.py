# SPDX-License-Identifier: Apache-2.0
"""Convolutions that oneDNN computes in any case, and their gradient to the input as a convolution of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, groups: int = 1) -> Tensor:
    """oneDNN's convolution of ``x`` (n, C, H, W) in steps of one place, with ``padding`` zeros around the map."""
    if x.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return F.conv2d(x, weight, bias, padding=padding, groups=groups)
    # with one thread torch would leave some to a matrix product of MKL
    made: Tensor = torch.mkldnn_convolution(x, weight, bias, (padding, padding), (1, 1), (1, 1), groups)
    return made


def gradient_filters(weight: Tensor) -> Tensor:
    """Filters (C, O, k, k), channels last, of a convolution that gives the input's gradient of one with ``weight`` (O, C,
    k, k).
    """
    return weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)


class OneDnn(nn.Conv2d):
    """A convolution with zeros around the map that oneDNN computes in any case. Its weights do not change any more."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if input.device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return super()._conv_forward(input, weight, bias)
        if self._turns and torch.is_grad_enabled() and input.requires_grad:
            made: Tensor = _Convolved.apply(input, self)
            return made
        return self.forward_only(input)

    def forward_only(self, x: Tensor) -> Tensor:
        """oneDNN's convolution of ``x`` without a trace for autograd, on a processor."""
        made: Tensor = torch.mkldnn_convolution(
            x,
            self.weight,
            self.bias,
            cast(Sequence[int], self.padding),
            self.stride,
            self.dilation,
            self.groups,
        )
        return made

    def input_gradient(self, gradient: Tensor) -> Tensor:
        """A convolution's gradient to the input from the ``gradient`` to the output, by oneDNN."""
        return convolved(gradient, self._turned, None, self.kernel_size[0] - 1 - int(self.padding[0]))

    @property
    def _turns(self) -> bool:
        """Whether the gradient is a convolution of the same kind; autograd knows the others itself."""
        square = self.kernel_size[0] == self.kernel_size[1] and self.padding[0] == self.padding[1]
        plain = self.stride == self.dilation == (1, 1) and self.groups == 1
        return square and plain and int(self.padding[0]) < self.kernel_size[0]

    @cached_property
    def _turned(self) -> Tensor:
        return gradient_filters(self.weight)


class _Convolved(torch.autograd.Function):
    """The convolution with its gradient to the input; the weights have none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: OneDnn) -> Tensor:
        ctx.module = module
        return module.forward_only(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.module.input_gradient(gradients[0]), None

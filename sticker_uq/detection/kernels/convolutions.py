# SPDX-License-Identifier: Apache-2.0
"""Convolutions on a processor: what oneDNN computes in any case, with their gradient to the input, and Winograd's filtering."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, padding: int, groups: int = 1) -> Tensor:
    """oneDNN's convolution of ``x`` (n, C, H, W) in steps of one place, with ``padding`` zeros around the map."""
    if x.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return F.conv2d(x, weight, bias, padding=padding, groups=groups)
    # with one thread torch would leave some to a matrix product of MKL
    made: Tensor = torch.mkldnn_convolution(x, weight, bias, (padding, padding), (1, 1), (1, 1), groups)
    return made


def gradient_filters(weight: Tensor) -> Tensor:
    """Filters (C, O, k, k), channels last, of the convolution that is the input gradient of one with ``weight`` (O, C, k, k)."""
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
        """The convolution of ``x`` without a trace for autograd, on a processor."""
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
        return convolve(gradient, self._gradient_weight, None, self.kernel_size[0] - 1 - int(self.padding[0]))

    @property
    def _turns(self) -> bool:
        """Whether the gradient is a convolution of the same kind; autograd knows the others itself."""
        square = self.kernel_size[0] == self.kernel_size[1] and self.padding[0] == self.padding[1]
        plain = self.stride == self.dilation == (1, 1) and self.groups == 1
        return square and plain and int(self.padding[0]) < self.kernel_size[0]

    @cached_property
    def _gradient_weight(self) -> Tensor:
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


# 3x3 convolutions on a processor by Winograd's minimal filtering, F(4x4, 3x3): a quarter of the multiplications.
# Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016; points as in Barabasz et al., Error Analysis and
# Improving the Accuracy of Winograd Convolution for Deep Neural Networks, ACM TOMS 2020. Tiles of 6x6 places make 4x4 results:
# both transforms are products with small constant matrices, and the filter becomes 36 products of (tiles, channels) matrices,
# which oneDNN computes as one grouped 1x1 convolution. Done for so many tiles at once as the caches hold.
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
"""Where the polynomials are evaluated, beside infinity: half the rounding error of the usual 0, 1, -1, 2, -2."""


def _matrices() -> tuple[Tensor, Tensor, Tensor]:
    """The transforms of data (6, 6), filter (6, 3) and result (4, 6), Toom and Cook's for ``_POINTS``."""
    data, filters, result = (torch.zeros(shape, dtype=torch.float64) for shape in ((6, 6), (6, 3), (4, 6)))
    for row, point in enumerate(_POINTS):
        others = [p for p in _POINTS if p != point]
        scale = math.prod(point - p for p in others)
        data[row, :5] = torch.from_numpy(np.poly(others)[::-1].copy())
        filters[row] = torch.tensor([point**k / scale for k in range(3)])
        result[:, row] = torch.tensor([point**k for k in range(4)])
    data[5] = torch.from_numpy(np.poly(_POINTS)[::-1].copy())
    filters[5, 2] = result[3, 5] = 1.0
    return data, filters, result


_DATA, _FILTER, _RESULT = _matrices()
_DATA_2D = torch.kron(_DATA, _DATA).float()
_RESULT_2D = torch.kron(_RESULT, _RESULT).float()

_TILES_AT_ONCE = 300
"""11 MB of 256 channels: more leave the cache, fewer make small products."""
_LEAST_TILES = 64
_LEAST_CHANNELS = 128
_MOST_WASTE = 1.2
"""Computed over wanted places: maps of 7x7 are padded to 8x8 and not worth it."""


class Winograd(OneDnn):
    """A 3x3 convolution that is computed by minimal filtering where that is faster.

    Which way is taken depends on the shape alone, so that the same image gives the same bits on the same machine. Results
    differ from the exact sum 1.6 times as much as those of a direct convolution.
    """

    def forward_only(self, x: Tensor) -> Tensor:
        if not _worth_it(x):
            return super().forward_only(x)
        return _filter(x, self.transformed_weight, self.bias)

    def input_gradient(self, gradient: Tensor) -> Tensor:
        """As of :class:`OneDnn`; the gradient is filtered like the input."""
        if not _worth_it(gradient):
            return super().input_gradient(gradient)
        return _filter(gradient, self._transformed_gradient_weight, None)

    # made when first needed: small maps never do
    @cached_property
    def transformed_weight(self) -> Tensor:
        return _transform(self.weight)

    @cached_property
    def _transformed_gradient_weight(self) -> Tensor:
        return _transform(gradient_filters(self.weight))


def use_winograd(module: nn.Module) -> None:
    """Make ``module``, if it is a convolution that gains by it, a :class:`Winograd`. Its weights must not change any more."""
    if (
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (3, 3)
        and module.stride == module.padding == module.dilation == (1, 1)
        and module.groups == 1
        and min(module.in_channels, module.out_channels) >= _LEAST_CHANNELS
        and module.weight.dtype == torch.float32
        and module.weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
    ):
        module.__class__ = Winograd


def _worth_it(x: Tensor) -> bool:
    count, _, height, width = x.shape
    down, across = -(-height // 4), -(-width // 4)
    return count * down * across >= _LEAST_TILES and 16 * down * across <= _MOST_WASTE * height * width


def _transform(weight: Tensor) -> Tensor:
    """The filters (O, C, 3, 3) as weights (36 * O, C, 1, 1) of the grouped convolution."""
    parts = torch.einsum("ij,ocjk,lk->iloc", _FILTER, weight.double(), _FILTER)
    return parts.reshape(36 * weight.shape[0], weight.shape[1], 1, 1).float()


def _filter(x: Tensor, transformed: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution (n, O, H, W), channels last, of ``x`` (n, C, H, W) padded by one place."""
    count, _, height, width = x.shape
    down, across = -(-height // 4), -(-width // 4)
    rows_last = x.permute(0, 2, 3, 1)
    shape = (count, len(transformed) // 36, height, width)
    out = torch.empty(shape, dtype=x.dtype, memory_format=torch.channels_last)
    out_rows = out.permute(0, 2, 3, 1)
    images = max(1, _TILES_AT_ONCE // (down * across))
    rows = max(1, min(down, _TILES_AT_ONCE // across))
    for image in range(0, count, images):
        some = rows_last[image : image + images]
        for row in range(0, down, rows):
            wanted = out_rows[image : image + images, 4 * row : 4 * (row + rows)]
            tiles = _tiles(some, row, min(rows, down - row), across)
            made = _products(tiles, transformed)[:, : wanted.shape[1], :width]
            if bias is None:
                wanted.copy_(made)
            else:
                torch.add(made, bias, out=wanted)
    return out


def _tiles(x: Tensor, row: int, rows: int, across: int) -> Tensor:
    """The tiles (n, rows, across, 6, 6, C) of ``x`` (n, H, W, C) from row ``row`` of tiles on; they overlap in memory."""
    count, height, width, channels = x.shape
    above, below = 4 * row - 1, 4 * (row + rows) + 1
    first, last = max(above, 0), min(below, height)
    padded = x.new_zeros((count, below - above, 4 * across + 2, channels))
    padded[:, first - above : last - above, 1 : width + 1] = x[:, first:last]
    image, line, place, channel = padded.stride()
    strides = (image, 4 * line, 4 * place, line, place, channel)
    return padded.as_strided((count, rows, across, 6, 6, channels), strides)


def _products(tiles: Tensor, transformed: Tensor) -> Tensor:
    """The results (n, 4 * rows, 4 * across, O) of ``tiles``, without a bias."""
    count, rows, across, _, _, channels = tiles.shape
    number = count * rows * across
    data = torch.matmul(_DATA_2D, tiles.reshape(number, 36, channels))
    data = data.view(1, number, 1, -1).permute(0, 3, 1, 2)
    made = torch.mkldnn_convolution(data, transformed, None, (0, 0), (1, 1), (1, 1), 36)
    made = torch.matmul(_RESULT_2D, made.permute(0, 2, 3, 1).reshape(number, 36, -1))
    made = made.view(count, rows, across, 4, 4, -1).transpose(2, 3)
    return made.reshape(count, 4 * rows, 4 * across, made.shape[-1])

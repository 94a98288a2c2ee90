"""A detector's modules as inference wants them: batch normalisation folded into convolutions, channels last."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torchvision.ops.misc import FrozenBatchNorm2d


def frozen(model: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A copy of ``model`` in evaluation mode that computes the same faster, with weights of type ``dtype``.

    Every batch normalisation that follows a convolution is folded into it, and the convolutions' weights lie
    channels last. The transform, which has no weights, is shared with ``model``: its sizes stay one thing.
    """
    model.eval()  # only then a batch normalisation is a fixed affine map
    memo = {id(model.transform): model.transform}
    fast = copy.deepcopy(model, memo).requires_grad_(False)
    for module in fast.modules():
        _fold(module)
        if type(module) is nn.Conv2d and module.kernel_size == (1, 1) and dtype == torch.float32:
            module.__class__ = Pointwise
    return fast.to(dtype=dtype, memory_format=torch.channels_last)


class Pointwise(nn.Conv2d):
    """A 1x1 convolution that oneDNN computes in any case."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return pointwise(input, weight, bias, self.stride, self.groups)  # type: ignore[arg-type]


def pointwise(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int] = (1, 1), groups: int = 1
) -> Tensor:
    """``x`` (n, C, h, w) through a 1x1 convolution, on a processor by oneDNN.

    With one thread torch gives these to a matrix product of MKL, which takes twice as long on AMD processors.
    """
    if x.device.type == "cpu" and torch.backends.mkldnn.is_available():
        return torch.mkldnn_convolution(x, weight, bias, (0, 0), stride, (1, 1), groups)
    return F.conv2d(x, weight, bias, stride, groups=groups)


def _fold(parent: nn.Module) -> None:
    """Fold the normalisations among the children of ``parent``, whose order is the order of computation in torchvision."""
    before: nn.Conv2d | None = None
    for name, child in list(parent.named_children()):
        if before is not None and isinstance(child, nn.BatchNorm2d | FrozenBatchNorm2d):
            before.weight, before.bias = _folded(before, child)
            setattr(parent, name, nn.Identity())
        before = child if isinstance(child, nn.Conv2d) else None


def _folded(conv: nn.Conv2d, norm: Any) -> tuple[nn.Parameter, nn.Parameter]:
    weight, bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    return nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)

# SPDX-License-Identifier: Apache-2.0
"""A detector's modules as inference wants them: batch normalisation folded into convolutions, channels last."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torchvision.ops.misc import Conv2dNormActivation, FrozenBatchNorm2d

from sticker_uq.detection.kernels.convolutions import OneDnn, use_winograd


def freeze(model: Any, dtype: torch.dtype = torch.float32) -> Any:
    """A copy of ``model`` in evaluation mode that computes the same faster, with weights of type ``dtype``.

    Every batch normalisation that follows a convolution is folded into it, and the convolutions' weights lie channels last.
    """
    fast = copy_model(model)  # in evaluation mode: only then a batch normalisation is a fixed affine map
    for module in fast.modules():
        _fold(module)
    if hasattr(fast, "roi_heads"):
        heads = fast.roi_heads
        heads.box_head = BoxHead(heads.box_head, heads.box_roi_pool.output_size[0])
    for module in fast.modules():
        if type(module) is nn.Conv2d and module.groups == 1 and dtype == torch.float32:
            module.__class__ = OneDnn
    fast = fast.to(dtype=dtype, memory_format=torch.channels_last)
    for module in fast.modules():
        use_winograd(module)
    return fast


def copy_model(model: Any) -> Any:
    """A copy of ``model`` in evaluation mode. The transform, which has no weights, is shared: its sizes stay one thing."""
    held = (v for module in model.modules() for v in vars(module).values())
    # the nine that each module has for hooks would take longest to copy
    memo: dict[int, Any] = {id(v): OrderedDict() for v in held if type(v) is OrderedDict and not v}
    return copy.deepcopy(model.eval(), memo | {id(model.transform): model.transform}).requires_grad_(False)


class BoxHead(nn.Module):
    """A box head of torchvision's Faster R-CNN for pooled features that lie channels last, dense layers as 1x1 convolutions.

    oneDNN's convolution is up to twice as fast as MKL's product of the same matrices on AMD processors.
    """

    def __init__(self, head: nn.Module, bins: int) -> None:
        super().__init__()
        convolutions = (m for m in head.children() if isinstance(m, Conv2dNormActivation))
        self.convolutions = nn.Sequential(*convolutions)
        linears = [m for m in head.modules() if isinstance(m, nn.Linear)]
        self.dense = nn.ModuleList(_as_convolution(m, bins if m is linears[0] else 1) for m in linears)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors (R, D) of pooled features (R, C, bins, bins)."""
        x = self.convolutions(x)
        x = x.permute(0, 2, 3, 1).reshape(1, len(x), 1, -1).permute(0, 3, 1, 2)
        for layer in self.dense:
            x = layer(x).relu_()
        return x[0, :, :, 0].T


def _as_convolution(layer: nn.Linear, bins: int) -> nn.Conv2d:
    """A convolution that computes ``layer`` for rows whose ``bins`` x ``bins`` places come before the channels."""
    weight = layer.weight.view(len(layer.weight), -1, bins, bins).permute(0, 2, 3, 1).flatten(1)
    made = nn.Conv2d(weight.shape[1], len(weight), 1, device="meta")
    made.weight = nn.Parameter(weight[:, :, None, None], requires_grad=False)
    made.bias = layer.bias
    return made


def _fold(parent: nn.Module) -> None:
    """Fold the normalisations among the children of ``parent``, whose order is the order of computation in torchvision."""
    before: nn.Conv2d | None = None
    for name, child in list(parent.named_children()):
        if before is not None and isinstance(child, nn.BatchNorm2d | FrozenBatchNorm2d):
            before.weight, before.bias = _fold_norm(before, child)
            setattr(parent, name, nn.Identity())
        before = child if isinstance(child, nn.Conv2d) else None


def _fold_norm(conv: nn.Conv2d, norm: Any) -> tuple[nn.Parameter, nn.Parameter]:
    weight, bias = fuse_conv_bn_weights(
        conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    return nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)

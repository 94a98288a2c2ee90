# SPDX-License-Identifier: Apache-2.0
"""The feature pyramid (FPN) of four of the models, cut at its first dropout."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.image_list import ImageList
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.settings import DetectorSettings


class PyramidModel:
    """What families with a feature pyramid share: its backbone before the first dropout, and its maps with dropout."""

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        self._model = model

    def encode(self, images: ImageList, image_size: tuple[int, int]) -> Features:
        return encode_pyramid(self._model.backbone, images, image_size)

    def head_maps(self, features: Features, dropout: Dropout) -> Maps:
        return pyramid_maps(self._model.backbone.fpn, features, dropout)


def encode_pyramid(backbone: Any, images: ImageList, image_size: tuple[int, int]) -> Features:
    """Backbone and inner 1x1 convolutions of the FPN for images of one size.

    ``maps`` of the result are the outputs of the inner convolutions; ``extra`` is (P6, P7) where the model
    computes them from the backbone's last map (RetinaNet v2), and empty where they come after dropout.
    """
    body = list(backbone.body(images.tensors).values())
    fpn = backbone.fpn
    maps = tuple(inner(x) for inner, x in zip(fpn.inner_blocks, body, strict=True))
    top = fpn.extra_blocks
    extra = () if isinstance(top, LastLevelMaxPool) or top.use_P5 else _p6_p7(top, body[-1])
    return Features(image_size, tuple(images.image_sizes[0]), tuple(images.tensors.shape[-2:]), maps, extra)


def pyramid_maps(fpn: Any, features: Features, dropout: Dropout) -> Maps:
    """The pyramid's maps, fine to coarse, with ``dropout`` on the output of every inner and every layer convolution.

    Masks are drawn in the order in which torchvision calls the convolutions: inner and layer of the coarsest
    level, inner and layer of the next one, down to the finest.
    """
    levels = list(zip(features.maps, fpn.layer_blocks, strict=True))
    merged = dropout(features.maps[-1])
    maps = [dropout(levels[-1][1](merged))]
    for lateral, layer in reversed(levels[:-1]):
        dropped = dropout(lateral)
        merged = dropped + F.interpolate(merged, size=dropped.shape[-2:], mode="nearest")
        maps.insert(0, dropout(layer(merged)))
    return maps + _coarser_maps(fpn.extra_blocks, features, maps[-1])


def _coarser_maps(top: Any, features: Features, last: Tensor) -> Maps:
    """The maps beyond the coarsest level of the pyramid, from ``last`` or from what no dropout reaches."""
    if isinstance(top, LastLevelMaxPool):
        return [F.max_pool2d(last, kernel_size=1, stride=2, padding=0)]
    if top.use_P5:
        return list(_p6_p7(top, last))
    return [m.expand(len(last), -1, -1, -1) for m in features.extra]


def _p6_p7(top: Any, source: Tensor) -> tuple[Tensor, Tensor]:
    p6 = top.p6(source)
    return p6, top.p7(F.relu(p6))

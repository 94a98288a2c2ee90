# SPDX-License-Identifier: Apache-2.0
"""SSD300 and SSDLite320: dropout in the detection head, on its inputs or on its outputs."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSDFeatureExtractorVGG

from sticker_uq.detection.deterministic_pass import by_level
from sticker_uq.detection.dropout import Dropout
from sticker_uq.detection.features import Features, Maps
from sticker_uq.detection.models.family import (
    HeadOutputs,
    anchor_candidates,
    anchor_outputs,
    anchors_of,
    take_deltas,
)
from sticker_uq.detection.selection import Rows, all_finite, softmax_distribution
from sticker_uq.detection.settings import DetectorSettings


class Ssd:
    """For ssd300_vgg16 and ssdlite320_mobilenet_v3_large.

    ``site`` "in" (Lu et al.): dropout on each feature map that enters the head, one mask per map and pass that the regression and
    the classification branch share, drawn from the finest level to the coarsest. ``site`` "out" (a later revision of the
    published code): dropout on the output of the head's last convolution of each level, drawn for the regression branch and then
    for the classification branch, from the finest level to the coarsest.
    """

    two_stage = False

    def __init__(self, model: Any, settings: DetectorSettings) -> None:
        self._model = model
        self._site = settings.dropout_site

    def encode(self, images: ImageList, image_size: tuple[int, int]) -> Features:
        """The whole backbone; with site "out" the head's convolutions as well, their outputs in ``extra``."""
        maps = tuple(backbone_maps(self._model.backbone, images.tensors))
        extra = tuple(self._convolutions(list(maps))) if self._site == "out" else ()
        resized, padded = tuple(images.image_sizes[0]), tuple(images.tensors.shape[-2:])
        return Features(image_size, resized, padded, maps, extra)

    def head_maps(self, features: Features, dropout: Dropout) -> Maps:
        return [dropout(m) if self._site == "in" else m for m in features.maps]

    def candidates(self, features: Features, maps: Maps, dropout: Dropout, score_floor: float) -> Rows:
        on_outputs = self._site == "out"
        outputs = [dropout(m) for m in features.extra] if on_outputs else self._convolutions(maps)
        levels, head = len(maps), self._model.head
        deltas = head_columns(outputs[:levels], head.regression_head.num_columns)
        logits = head_columns(outputs[levels:], head.classification_head.num_columns)
        probabilities = softmax_distribution(logits)
        return anchor_candidates(self._model, features, maps, probabilities, deltas, score_floor)

    def head_outputs(self, features: Features, maps: Maps, score_floor: float) -> HeadOutputs:
        """Objectness is the probability that a default box is not background."""
        head, generator = self._model.head, self._model.anchor_generator
        with torch.enable_grad():
            outputs = _branch(head.classification_head, maps)
            probabilities = softmax_distribution(head_columns(outputs, head.classification_head.num_columns))
            # not one minus the background: where that is nearly certain, nothing of a slope would be left
            scores = probabilities[..., 1:].sum(dim=-1)
            objectness = by_level(scores, maps, generator.num_anchors_per_location())
        plain = probabilities.detach()
        counts = [level[0].numel() for level in objectness]
        deltas, *known = self._deltas([m.detach() for m in maps], counts)
        anchors, finite = anchors_of(self._model, features, maps), all_finite(plain, *known)
        return anchor_outputs(self._model, objectness, anchors, plain, deltas, finite, score_floor)

    def _deltas(self, maps: Maps, counts: list[int]) -> tuple[Any, ...]:
        """The box deltas of the heads, as :func:`anchor_outputs` asks for them, and those that are known already.

        ``counts``: default boxes per level.
        """
        head = self._model.head.regression_head
        deltas = head_columns(_branch(head, maps), head.num_columns)
        return take_deltas(deltas), deltas

    def _convolutions(self, maps: Maps) -> Maps:
        """Outputs (n, A * columns, h, w) of the head per level: first all of the regression, then the classification."""
        head = self._model.head
        return _branch(head.regression_head, maps) + _branch(head.classification_head, maps)


def backbone_maps(backbone: Any, images: Tensor) -> Maps:
    """The maps (n, C, h, w) of ``backbone``, fine to coarse: six for pictures of the model's own size.

    VGG's last levels do not pad. A picture in training may be smaller than SSD300's 300 px; it has no map where a filter is
    larger than what it would see, and the default boxes of that level, as large as the picture, take no part.
    """
    if not isinstance(backbone, SSDFeatureExtractorVGG):
        return list(backbone(images).values())
    reached = backbone.features(images)
    maps = [backbone.scale_weight.view(1, -1, 1, 1) * functional.normalize(reached)]
    for block in backbone.extra:
        last: Any = [layer for layer in block.modules() if isinstance(layer, nn.Conv2d)][-1]
        if min(reached.shape[2:]) + 2 * last.padding[0] < last.kernel_size[0]:
            break
        reached = block(reached)
        maps.append(reached)
    return maps


def _branch(branch: Any, maps: Maps) -> Maps:
    # a small picture has fewer maps than the head has levels
    return [block(m) for block, m in zip(branch.module_list, maps, strict=False)]


def head_columns(outputs: Maps, columns: int) -> Tensor:
    """Per-level head outputs (n, A * columns, h, w) as one tensor (n, sum of h * w * A, columns), torchvision's order."""
    parts = [o.unflatten(1, (-1, columns)).permute(0, 3, 4, 1, 2).flatten(1, 3) for o in outputs]
    return torch.cat(parts, dim=1)

# SPDX-License-Identifier: Apache-2.0
"""How each family of detectors is trained: loss, learning rate, input sizes and first weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.dropout import Dropout, no_dropout
from sticker_uq.detection.models.ssd import backbone_maps
from sticker_uq.detection.registry import detector_entry
from sticker_uq.lab.training.augmentation import Sample
from sticker_uq.lab.training.ssd_loss import ssd_loss
from sticker_uq.lab.training.unit_variance import scale_to_variance

Targets = list[dict[str, Tensor]]
Loss = Callable[[Any, Sequence[Sample], Targets, torch.device, Dropout], Tensor]

_FIRST_LOGITS = 0.1
"""Standard deviation of the first logits of a network without normalisation: nearly nothing."""


def _own_losses(
    model: Any, samples: Sequence[Sample], targets: Targets, device: torch.device, dropout: Dropout
) -> Tensor:
    """The sum of the losses that a torchvision detector computes in training mode."""
    images = [
        torch.from_numpy(np.ascontiguousarray(s.image[..., ::-1])).to(device).permute(2, 0, 1).float() / 255
        for s in samples
    ]
    with ExitStack() as stack:
        if dropout is not no_dropout:
            # where the passes drop: the outputs of the pyramid's convolutions
            fpn = model.backbone.fpn
            for block in (*fpn.inner_blocks, *fpn.layer_blocks):
                hook = block.register_forward_hook(lambda _module, _inputs, output: dropout(output))
                stack.callback(hook.remove)
        losses: dict[str, Tensor] = model(images, targets)
    return torch.stack(list(losses.values())).sum()


def _ssd_losses(
    model: Any, samples: Sequence[Sample], targets: Targets, device: torch.device, dropout: Dropout
) -> Tensor:
    """SSD on pictures of one size, without torchvision's picture by picture preparation."""
    images = ssd_input(model, samples, device)
    maps = [dropout(m) for m in backbone_maps(model.backbone, images)]
    outputs = model.head(maps)
    size = (images.shape[2], images.shape[3])
    anchors = model.anchor_generator(ImageList(images, [size] * len(samples)), maps)[0]
    return ssd_loss(outputs["bbox_regression"], outputs["cls_logits"], anchors, targets)


@dataclass(frozen=True)
class Recipe:
    """How a family is trained.

    ``learning_rate``: the highest one; ``loss``: of a batch, a scalar; ``smaller_sizes``: until which part of the training a
    detector with a fixed input size gets pictures of which size px, before those of its own size (progressive resizing, Tan
    and Le 2021, EfficientNetV2: a step takes a third of the time, default boxes are relative to the picture); ``unit_variance``:
    whether random weights are scaled on the data, for a network without normalisation; ``replicas``: whether a step is divided
    among replicas on a processor; ``min_batch``: smallest batch that batch normalisation can be trained with.
    """

    learning_rate: float = 1e-4
    loss: Loss = _own_losses
    smaller_sizes: tuple[tuple[float, int], ...] = ()
    unit_variance: bool = False
    replicas: bool = False
    min_batch: int = 1


RECIPES = {
    "ssd": Recipe(2e-4, _ssd_losses, ((0.7, 128), (0.9, 208)), unit_variance=True, replicas=True),
    # the last map is one pixel, of which batch normalisation needs two
    "ssdlite": Recipe(2e-3, _ssd_losses, ((0.5, 192), (0.75, 256)), replicas=True, min_batch=2),
}
"""Recipes by the family in a detector's registry entry; all others are trained like torchvision's FPN models."""


def recipe_of(name: str) -> Recipe:
    """The training recipe of the detector ``name``."""
    return RECIPES.get(detector_entry(name).family, Recipe())


def input_size(name: str, model: Any, progress: float = 1.0) -> tuple[int, int] | None:
    """(width, height) to resize training pictures to when a part ``progress`` (0..1) of the training is done.

    None where the model resizes by itself.
    """
    if not detector_entry(name).fixed_input_size:
        return None
    for end, size in recipe_of(name).smaller_sizes:
        if progress < end:
            return size, size
    width, height = model.transform.fixed_size
    return width, height


def batch_loss(
    name: str,
    model: Any,
    samples: Sequence[Sample],
    device: torch.device,
    dropout: Dropout = no_dropout,
) -> Tensor:
    """The sum of the trained model's losses on ``samples``, a scalar, with ``dropout`` where the stochastic passes drop."""
    targets = [
        {
            "boxes": torch.from_numpy(sample.boxes).to(device),
            "labels": torch.from_numpy(sample.labels).to(device),
        }
        for sample in samples
    ]
    return recipe_of(name).loss(model, samples, targets, device, dropout)


def prepare_random(name: str, model: Any, samples: Sequence[Sample], device: torch.device) -> None:
    """Before training, scale the random weights of an SSD without batch normalisation on ``samples`` of its own size."""
    if not recipe_of(name).unit_variance:
        return
    images = ssd_input(model, samples, device)
    maps = scale_to_variance(model.backbone, lambda: backbone_maps(model.backbone, images))
    scale_to_variance(model.head, lambda: model.head(maps), _FIRST_LOGITS)


def ssd_input(model: Any, samples: Sequence[Sample], device: torch.device) -> Tensor:
    """What enters an SSD's backbone in training: the pictures of ``samples``, all of one size, normalised, (n, 3, H, W)."""
    batch = torch.from_numpy(np.stack([sample.image[..., ::-1] for sample in samples])).to(device)
    # (n, H, W, 3) in memory is already what channels_last means
    images = batch.permute(0, 3, 1, 2).float()
    mean = images.new_tensor(model.transform.image_mean).view(1, 3, 1, 1)
    std = images.new_tensor(model.transform.image_std).view(1, 3, 1, 1)
    return (images / 255 - mean) / std

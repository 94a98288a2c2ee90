"""The training loss of each model family on a batch of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.models.networks import is_ssd
from sticker_uq.detection.models.ssd import backbone_maps
from sticker_uq.lab.training.augmentation import Sample
from sticker_uq.lab.training.ssd_loss import ssd_loss
from sticker_uq.lab.training.unit_variance import scale_to_variance

_SMALLER = {
    "ssdlite320_mobilenet_v3_large": ((0.5, 192), (0.75, 256)),
    "ssd300_vgg16": ((0.7, 128), (0.9, 208)),
}
"""Progressive resizing of SSDs: (progress up to which, input size) before their own size."""


def input_size(name: str, model: Any, progress: float = 1.0) -> tuple[int, int] | None:
    """(width, height) to resize pictures to at ``progress`` (0..1) of the training.

    None if the model resizes. SSDs start with small pictures: a step takes a third of the time,
    and their default boxes are relative to the picture (progressive resizing, Tan and Le 2021, EfficientNetV2).
    """
    if not is_ssd(name):
        return None
    height, width = model.transform.fixed_size[::-1]
    for end, size in _SMALLER[name]:
        if progress < end:
            return size, size
    return width, height


def batch_loss(name: str, model: Any, samples: Sequence[Sample], device: torch.device) -> Tensor:
    """The sum of the model's losses on ``samples``, a scalar."""
    targets = [
        {
            "boxes": torch.from_numpy(sample.boxes).to(device),
            "labels": torch.from_numpy(sample.labels).to(device),
        }
        for sample in samples
    ]
    if is_ssd(name):
        return _ssd(model, samples, targets, device)
    images = [
        torch.from_numpy(np.ascontiguousarray(s.image[..., ::-1])).to(device).permute(2, 0, 1).float() / 255
        for s in samples
    ]
    losses: dict[str, Tensor] = model(images, targets)
    return torch.stack(list(losses.values())).sum()


def _ssd(
    model: Any, samples: Sequence[Sample], targets: list[dict[str, Tensor]], device: torch.device
) -> Tensor:
    """SSD loss on pictures of one size, without torchvision's per-picture preparation."""
    images = ssd_input(model, samples, device)
    maps = backbone_maps(model.backbone, images)
    outputs = model.head(maps)
    size = (images.shape[2], images.shape[3])
    anchors = model.anchor_generator(ImageList(images, [size] * len(samples)), maps)[0]
    return ssd_loss(outputs["bbox_regression"], outputs["cls_logits"], anchors, targets)


_FIRST_LOGITS = 0.1
"""Initial standard deviation of the head outputs of a network without normalisation."""


def prepare_random(name: str, model: Any, samples: Sequence[Sample], device: torch.device) -> None:
    """Scale the random weights of a model without batch normalisation, SSD300, on ``samples`` of its own size."""
    if not is_ssd(name) or any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return
    images = ssd_input(model, samples, device)
    maps = scale_to_variance(model.backbone, lambda: backbone_maps(model.backbone, images))
    scale_to_variance(model.head, lambda: model.head(maps), _FIRST_LOGITS)


def ssd_input(model: Any, samples: Sequence[Sample], device: torch.device) -> Tensor:
    """Input of an SSD backbone: the pictures of ``samples``, all of one size, normalised, (n, 3, H, W)."""
    batch = torch.from_numpy(np.stack([sample.image[..., ::-1] for sample in samples])).to(device)
    # (n, H, W, 3) in memory is already what channels_last means
    images = batch.permute(0, 3, 1, 2).float()
    mean = images.new_tensor(model.transform.image_mean).view(1, 3, 1, 1)
    std = images.new_tensor(model.transform.image_std).view(1, 3, 1, 1)
    return (images / 255 - mean) / std

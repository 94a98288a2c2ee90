"""The six sticker detection models as torchvision builds them, with three classes and random weights."""

from __future__ import annotations

from typing import cast

from torch import nn
from torchvision.models import get_model

from sticker_uq.detection.settings import MODEL_NAMES
from sticker_uq.scene import CLASS_COUNT, InvalidInput

_LONG_SIDE = 1333 / 800  # torchvision's ratio between the longest and the shortest side of a resized image

__all__ = ["MODEL_NAMES", "build_model", "is_ssd"]


def is_ssd(name: str) -> bool:
    """Whether ``name`` is one of the two SSDs (fixed input size, dropout in the head), not an FPN model."""
    return name.startswith("ssd")


def build_model(name: str, *, min_size: int = 480, num_classes: int = CLASS_COUNT) -> nn.Module:
    """The torchvision detector ``name`` with random weights, in training mode, all parameters trainable.

    ``min_size``: shorter side of the resized image in px, FPN models only (the SSDs resize to 300x300 and
    320x320); ``num_classes`` counts the background. Without pretrained weights torchvision gives the ResNets
    ordinary batch normalisation instead of frozen one, so the model can be trained from scratch; the
    parameter names are those of torchvision's own weights. Raises InvalidInput for an unknown name.
    """
    if name not in MODEL_NAMES:
        raise InvalidInput(f"unknown model {name!r}, expected one of {', '.join(MODEL_NAMES)}")
    size = {} if is_ssd(name) else {"min_size": min_size, "max_size": round(min_size * _LONG_SIDE)}
    model = get_model(name, weights=None, weights_backbone=None, num_classes=num_classes, **size)
    return cast(nn.Module, model)

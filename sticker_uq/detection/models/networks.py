"""The six sticker detection models as torchvision builds them, with three classes and random weights."""

from __future__ import annotations

from typing import cast

from torch import nn
from torchvision.models import get_model

from sticker_uq.detection.settings import MODEL_NAMES
from sticker_uq.scene import CLASS_COUNT, InvalidInput

_LONG_SIDE = 1333 / 800  # torchvision's ratio between the longest and the shortest side of a resized image
_FEW_OBJECTS = {
    "rpn_pre_nms_top_n_train": 500,
    "rpn_post_nms_top_n_train": 200,
    "box_batch_size_per_image": 40,
}
"""Faster R-CNN in training: a lid bears a few objects, so torchvision's 2000 proposals and 512 samples are waste."""

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
    size: dict[str, int] = (
        {} if is_ssd(name) else {"min_size": min_size, "max_size": round(min_size * _LONG_SIDE)}
    )
    if name.startswith("fasterrcnn"):
        size |= _FEW_OBJECTS
    model = get_model(name, weights=None, weights_backbone=None, num_classes=num_classes, **size)
    return cast(nn.Module, model)

"""The look of a torchvision detector that is none of the six."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sticker_uq.detection.deterministic_pass import DeterministicPass, leaves
from sticker_uq.detection.features import Features
from sticker_uq.scene import Detections


class Heads(NamedTuple):
    """What the heads of a detector say about its maps, as :class:`DeterministicPass` holds it."""

    objectness: tuple[Tensor, ...]
    anchors: Tensor
    decode: Callable[[int, Tensor], Tensor]


def custom_deterministic_pass(
    model: Any,
    image: NDArray[np.uint8],
    heads: Callable[[Features, list[Tensor]], Heads],
    detections: Detections,
    two_stage: bool = False,
) -> DeterministicPass:
    """The look of ``model``, a torchvision detector with ``transform`` and ``backbone``, at ``image`` (H, W, 3) uint8 BGR.

    ``heads``: takes the maps that enter the heads, with gradients on, to objectness, anchors and their boxes (see
    docs/dil.md for one of FCOS); ``detections``: what the model itself says about the image; ``two_stage``: objectness is
    the logit of an objectness head. The model must be in evaluation mode.
    """
    rgb = torch.from_numpy(cv2.cvtColor(image, cv2.COLOR_BGR2RGB)).to(next(model.parameters()).device)
    with torch.no_grad():
        images, _ = model.transform([rgb.permute(2, 0, 1).to(torch.float32).div_(255)])
        levels = model.backbone(images.tensors)
    maps = leaves(list(levels.values()) if isinstance(levels, dict) else [levels])
    features = Features(
        image_size=(image.shape[1], image.shape[0]),
        resized=tuple(images.image_sizes[0]),
        padded=tuple(images.tensors.shape[-2:]),
        maps=tuple(m.detach() for m in maps),
    )
    with torch.enable_grad():
        objectness, anchors, decode = heads(features, maps)
    return DeterministicPass((features,), tuple(maps), objectness, two_stage, anchors, decode, (detections,))

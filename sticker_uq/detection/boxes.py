# SPDX-License-Identifier: Apache-2.0
"""Boxes from the deltas to anchors that a detector's head predicts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.models.detection._utils import BoxCoder


def decoded(coder: Any, deltas: Tensor, anchors: Tensor) -> Tensor:
    """A detector's boxes (N, 4), as torchvision's ``coder`` makes them of ``deltas`` (N, 4) to ``anchors`` (N, 4), bit for bit.

    The ``decode_single`` of torchvision's ``BoxCoder`` copies the number 0.5 to a GPU twice in every call, and waits for it. Any
    other coder, such as that of FCOS, decodes itself.
    """
    if not isinstance(coder, BoxCoder):
        boxes: Tensor = coder.decode(deltas, anchors)
        return boxes
    anchors = anchors.to(deltas.dtype)
    low, high = [], []
    for axis in (0, 1):
        sizes = anchors[:, 2 + axis] - anchors[:, axis]
        centres = anchors[:, axis] + 0.5 * sizes
        middle = deltas[:, axis] / coder.weights[axis] * sizes + centres
        growth = (deltas[:, 2 + axis] / coder.weights[2 + axis]).clamp(max=coder.bbox_xform_clip)
        half = 0.5 * (torch.exp(growth) * sizes)
        low.append(middle - half)
        high.append(middle + half)
    return torch.stack([*low, *high], dim=1)

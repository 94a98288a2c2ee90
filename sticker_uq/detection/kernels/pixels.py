# SPDX-License-Identifier: Apache-2.0
"""From camera pixels to the network's input, touching only the pixels that the resized image is made of."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.transfer import to_device

_PROCESSOR = torch.device("cpu")


def network_input(transform: Any, image: NDArray[np.uint8], device: torch.device = _PROCESSOR) -> ImageList:
    """The network's input: torchvision's ``transform`` of ``image`` (H, W, 3) uint8 BGR on ``device``, but for rounding;
    channels last.

    Bilinear interpolation without antialiasing reads at most four pixels per resized pixel. Those alone are converted and
    normalised here, where torchvision first does so with all pixels of the camera. To a device go the bytes, a quarter of what
    floats would be, without waiting for it.
    """
    height, width = resized_size(transform, image.shape[0], image.shape[1])
    rows, row_share = _samples(image.shape[0], height)
    columns, column_share = _samples(image.shape[1], width)
    # NumPy takes the rows: an image may be read-only, which torch does not know
    part = torch.from_numpy(image[rows.numpy()]).index_select(1, columns)
    taken = to_device(part, device).to(torch.float32)
    upper, lower = taken.view(height, 2, 2 * width, 3).unbind(1)
    mixed = torch.lerp(upper, lower, to_device(row_share, device)[:, None, None])
    left, right = mixed.view(height, width, 2, 3).unbind(2)
    rgb = torch.lerp(left, right, to_device(column_share, device)[:, None]).flip(-1)
    mean, deviation = (
        to_device(torch.tensor(v, dtype=torch.float32), device)
        for v in (transform.image_mean, transform.image_std)
    )
    normal = torch.addcmul(-mean / deviation, rgb, 1 / (255 * deviation))
    step = transform.size_divisible
    padded = -(-height // step) * step, -(-width // step) * step
    if padded != (height, width):
        canvas = normal.new_zeros((*padded, 3))
        canvas[:height, :width] = normal
        normal = canvas
    return ImageList(normal[None].permute(0, 3, 1, 2), [(height, width)])


def rgb_input(image: NDArray[np.uint8], device: torch.device = _PROCESSOR) -> Tensor:
    """``image`` (H, W, 3) uint8 BGR as torchvision's detectors take it, (3, H, W) float32 RGB 0..1 on ``device``.

    To a device go the bytes, without waiting. The division is made there: a GPU multiplies by 1 / 255, which rounds differently.
    """
    rgb = torch.from_numpy(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
    return to_device(rgb, device).permute(2, 0, 1).contiguous().div(255)


def resized_size(transform: Any, height: int, width: int) -> tuple[int, int]:
    """Height and width that torchvision's ``transform`` resizes an image to."""
    if transform.fixed_size is not None:
        return int(transform.fixed_size[1]), int(transform.fixed_size[0])
    short, long = min(height, width), max(height, width)
    scale = min(transform.min_size[-1] / short, transform.max_size / long)
    return int(height * scale), int(width * scale)


@lru_cache(maxsize=64)
def _samples(source: int, target: int) -> tuple[Tensor, Tensor]:
    """Pairs of source indices (2 * target,) and the share of the second of each pair (target,), as torch interpolates."""
    position = ((torch.arange(target, dtype=torch.float64) + 0.5) * (source / target) - 0.5).clamp_min(0)
    first = position.to(torch.int64).clamp_max(source - 1)
    second = (first + 1).clamp_max(source - 1)
    return torch.stack([first, second], dim=1).flatten(), (position - first).to(torch.float32)

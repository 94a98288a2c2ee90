# SPDX-License-Identifier: Apache-2.0
"""From camera pixels to the network's input, touching only the pixels that the resized image is made of."""

from functools import lru_cache
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from sticker_uq.detection.transfer import to_device
from sticker_uq.scene import FloatArray, IntArray

_PROCESSOR = torch.device("cpu")


def network_input(transform: Any, image: NDArray[np.uint8], device: torch.device = _PROCESSOR) -> ImageList:
    """torchvision's ``transform`` of ``image`` (H, W, 3) uint8 BGR on ``device``, but for rounding; channels last.

    Bilinear interpolation without antialiasing reads at most four pixels per resized pixel. Those alone are converted and
    normalised here, where torchvision first does so with all pixels of the camera. To a device go the bytes, a quarter of what
    floats would be, without waiting for it.
    """
    height, width = resized_size(transform, image.shape[0], image.shape[1])
    corners, row_share, column_share = _samples(image.shape[:2], (height, width))
    part = torch.from_numpy(np.take(np.ascontiguousarray(image).reshape(-1, 3), corners, axis=0))
    upper, lower = to_device(part, device).to(torch.float32)
    left, right = upper.lerp_(lower, to_device(row_share, device))
    rgb = left.lerp_(right, to_device(column_share, device)).flip(-1)
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


@lru_cache(maxsize=4)
def _samples(source: tuple[int, int], target: tuple[int, int]) -> tuple[IntArray, Tensor, Tensor]:
    """As torch interpolates from ``source`` to ``target`` (height, width): the numbers (2, 2, height, width) of the pixels left
    and right of each place, in the upper and the lower row; the shares (height, 1, 1) of the lower row and (width, 1) of the
    right column.
    """
    (first, second, down), (left, right, across) = map(_along, source, target)
    rows, columns = np.stack([first, second]), np.stack([left, right])
    corners = rows[:, None, :, None] * source[1] + columns[None, :, None]
    return corners, torch.from_numpy(down)[:, None, None], torch.from_numpy(across)[:, None]


def _along(source: int, target: int) -> tuple[IntArray, IntArray, FloatArray]:
    position = ((np.arange(target) + 0.5) * (source / target) - 0.5).clip(min=0)
    first = position.astype(np.int64).clip(max=source - 1)
    return first, (first + 1).clip(max=source - 1), (position - first).astype(np.float32)

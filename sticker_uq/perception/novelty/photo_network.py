# SPDX-License-Identifier: Apache-2.0
"""A network that has seen photographs: what its features say of a part of a picture.

A MobileNetV2 (Sandler et al. 2018) that began as the backbone of an SSD trained on Open Images, read by
``scripts/photo_start.py``, and was trained on by ``scripts/photo_weights.py``.
"""

import math
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sticker_uq.detection.models.mobilenet_v2 import MAP_16, photo_blocks
from sticker_uq.detection.weights import COUNTERS, Unfilled, load_weights, save_weights
from sticker_uq.perception.novelty.network import fuse
from sticker_uq.scene import FloatArray, InvalidInput

ROLE = "photo network"
SIDE = 160
"""Px of the input, which is square, for a crop."""
CHANNELS = (192, 576, 1280)
"""Of the maps with 8, 16 and 32 px per cell."""
FEATURES = 2 * sum(CHANNELS)
EXPANDED = (7, MAP_16)
"""Blocks whose expansion is the map of 8 and of 16 px per cell; the last layer has the third."""
_AROUND = 4.0
"""Px around a box, so that a small one has some context."""
_MODEL = "ssdlite320_mobilenet_v3_large"  # weights files name a model of the registry
PACKAGED = Path(__file__).parent / "weights" / "photo.safetensors"


class PhotoNetwork(nn.Module):
    """Maps pictures (n, 3, H, W) from :func:`photo_input` to three maps of CHANNELS; ``hash``: of the weights in its file."""

    hash: str = ""

    def __init__(self) -> None:
        super().__init__()
        self.features = photo_blocks()

    def forward(self, pictures: Tensor) -> list[Tensor]:
        maps, now = [], pictures
        for number, block in enumerate(self.features):
            if number in EXPANDED:
                maps.append(block.conv[0](now))
                now = block.conv[1:](maps[-1])
            else:
                now = block(now)
        return [*maps, now]


def photo_input(crops: NDArray[np.uint8]) -> Tensor:
    """Input (n, 3, H, W) for ``crops`` (n, H, W, 3) uint8 BGR."""
    rgb = torch.from_numpy(crops[..., ::-1].copy()).permute(0, 3, 1, 2)
    return rgb.float().contiguous(memory_format=torch.channels_last) / 127.5 - 1


def photo_crop(
    image: NDArray[np.uint8], box: FloatArray, side: int = SIDE, room: float = 1.0
) -> NDArray[np.uint8]:
    """The square (side, side, 3) of ``image`` (H, W, 3) with the middle of ``box`` (4,) px in its own.

    It shows twice the longer side of the box, times ``room``; beyond the image its edge is repeated.
    """
    x1, y1, x2, y2 = (float(edge) for edge in box)
    half = max(room * (max(x2 - x1, y2 - y1) + _AROUND), 1.0)
    height, width = image.shape[:2]
    left, top = math.floor((x1 + x2) / 2 - half), math.floor((y1 + y2) / 2 - half)
    across = max(round(2 * half), 1)
    wide = min(max(left, 0), width - 1), min(max(left + across, 1), width)
    high = min(max(top, 0), height - 1), min(max(top + across, 1), height)
    part = image[high[0] : high[1], wide[0] : wide[1]]
    above, below = max(high[0] - top, 0), max(top + across - high[1], 0)
    before, behind = max(wide[0] - left, 0), max(left + across - wide[1], 0)
    part = np.pad(part, ((above, below), (before, behind), (0, 0)), mode="edge")
    method = cv2.INTER_AREA if len(part) > side else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(part, (side, side), interpolation=method), np.uint8)


def pool_maps(maps: list[Tensor]) -> Tensor:
    """Means (n, FEATURES) of ``maps`` over the whole crop, and over its middle half in both directions, the thing itself."""
    means = []
    for found in maps:
        edge = found.shape[-1] // 4
        middle = found[:, :, edge : found.shape[-2] - edge, edge : found.shape[-1] - edge]
        means += [found.mean((2, 3)), middle.mean((2, 3))]
    return torch.cat(means, dim=1)


def save_photo_network(network: PhotoNetwork, path: str | os.PathLike[str], **metadata: Any) -> None:
    """Write ``network`` in half precision, with ``metadata``: where it comes from."""
    save_weights(network, path, {"model": _MODEL, "role": ROLE, **metadata}, half=True)


def read_photo_network(path: str | os.PathLike[str] = PACKAGED) -> PhotoNetwork:
    """The network in file ``path`` as it was saved; InvalidInput if it holds none."""
    state, metadata = load_weights(path)
    if metadata.get("role") != ROLE:
        raise InvalidInput(f"{path}: is no photo network, expected a file of scripts/photo_weights.py")
    with Unfilled():
        network = PhotoNetwork()
    own = {name: value.shape for name, value in network.state_dict().items() if not name.endswith(COUNTERS)}
    if own != {name: value.shape for name, value in state.items()}:
        raise InvalidInput(f"{path}: has other layers than a photo network of this version")
    network.load_state_dict(state, strict=False)
    network.hash = str(metadata["checksum"])
    return network.eval()


def load_photo_network(
    path: str | os.PathLike[str] = PACKAGED, device: torch.device | str = "cpu"
) -> PhotoNetwork:
    """The network in file ``path``, ready for run time."""
    network = read_photo_network(path).requires_grad_(False)
    fuse(network)
    return network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]

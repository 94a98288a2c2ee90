# SPDX-License-Identifier: Apache-2.0
"""Whether a hand or a gripper is in front of the laptop: by a head on the photo network's maps of a small picture."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.names import DEFAULT_MODEL
from sticker_uq.detection.transfer import to_device
from sticker_uq.detection.weights import COUNTERS, beside_weights, load_weights, save_weights
from sticker_uq.perception.novelty.photo_network import (
    CHANNELS,
    PhotoNetwork,
    load_photo_network,
    photo_input,
)
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import InvalidInput

ROLE = "front head"
PIXELS = 192 * 160
"""Of the photo network's input."""
_STEP = 8
"""Px of which its sides are multiples."""
FEW = 3
"""Cells that a hand or a gripper covers at least: so many have to show it."""
_WIDTH = 32


class FrontHead(nn.Module):
    """Maps (n, sum of CHANNELS, h, w) of :func:`front_maps` to logits (n, 1, h, w) that a cell shows a hand or a gripper.

    ``network``: hash of the photo network that has these maps.
    """

    network: str = ""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = nn.BatchNorm2d(sum(CHANNELS), affine=False)
        self.layers = nn.Sequential(
            nn.Conv2d(sum(CHANNELS), _WIDTH, 1),
            nn.ReLU(),
            nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(_WIDTH, 1, 1),
        )

    def forward(self, maps: Tensor) -> Tensor:
        return torch.as_tensor(self.layers(self.scaled(maps)))


def front_picture(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """``image`` (H, W, 3) of about PIXELS px, in its own shape as nearly as steps of 8 px allow."""
    height, width = image.shape[:2]
    scale = (PIXELS / (width * height)) ** 0.5 / _STEP
    size = max(1, round(width * scale)) * _STEP, max(1, round(height * scale)) * _STEP
    method = cv2.INTER_AREA if size[0] < width else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=method), np.uint8)


def front_maps(network: PhotoNetwork, picture: NDArray[np.uint8]) -> Tensor:
    """The maps of ``network`` for a ``picture`` (H, W, 3) of :func:`front_picture`, side by side, (1, sum of CHANNELS, h, w)."""
    device = next(network.parameters()).device
    with torch.inference_mode():
        fine, middle, coarse = network(to_device(photo_input(picture[None]), device))
        size = middle.shape[-2:]
        larger = functional.interpolate(coarse, size, mode="bilinear", align_corners=False)
        return torch.cat([functional.adaptive_avg_pool2d(fine, size), middle, larger], dim=1)


@dataclass(frozen=True)
class FrontLook:
    """The photo network and the head on its maps; ``hash``: of both, SHA-256, hex."""

    network: PhotoNetwork
    head: FrontHead
    hash: str

    @classmethod
    def of(cls, settings: PerceptionSettings, detector: StochasticDetector) -> FrontLook | None:
        """That in NAME_front.safetensors beside the weights of ``settings``, of which ``detector`` was made; None without one.

        Raises :class:`InvalidInput` for a file that holds no such head, or one for another photo network.
        """
        file = beside_weights(settings.model, settings.weights, "front", detector.weights_hash)
        if file is None or not file.is_file():
            return None
        head, network = read_front_head(file), load_photo_network(device=detector.device)
        if head.network != network.hash:
            raise InvalidInput(
                f"{file}: is for photo network {head.network[:12]}, this version has {network.hash[:12]}; train it again"
            )
        both = f"{network.hash}:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        return cls(network, head.to(detector.device), hashlib.sha256(both.encode()).hexdigest())

    def obstruction(self, image: NDArray[np.uint8]) -> float:
        """How probably a hand or a gripper is in front in ``image`` (H, W, 3) uint8 BGR."""
        with torch.inference_mode():
            cells = self.head(front_maps(self.network, front_picture(image)))
            return front_probability(cells.float().cpu())


def front_probability(cells: Tensor) -> float:
    """The probability that FEW cells reach, of all with logits ``cells``; of all there are where these are fewer."""
    return float(cells.detach().flatten().sort().values[-min(FEW, cells.numel())].sigmoid())


def save_front_head(head: FrontHead, path: str | os.PathLike[str], **metadata: Any) -> None:
    """Write ``head``, with ``metadata``: what it learned from."""
    found = {"model": DEFAULT_MODEL, "role": ROLE, "network": head.network, **metadata}
    save_weights(head, path, found, half=True)


def read_front_head(path: str | os.PathLike[str]) -> FrontHead:
    """The head in file ``path``; InvalidInput if it holds none."""
    state, metadata = load_weights(path)
    head = FrontHead()
    own = {name: value.shape for name, value in head.state_dict().items() if not name.endswith(COUNTERS)}
    if metadata.get("role") != ROLE or own != {name: value.shape for name, value in state.items()}:
        raise InvalidInput(
            f"{path}: is no front head of this version, expected a file of scripts/front_head.py"
        )
    head.load_state_dict(state, strict=False)
    head.network = str(metadata.get("network", ""))
    return head.eval().requires_grad_(False)

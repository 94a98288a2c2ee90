# SPDX-License-Identifier: Apache-2.0
"""A second opinion about every object by a network that has seen photographs: a linear head on its features of the crop.

The network is the packaged one, whatever the detector; the head is fitted to labels and lies beside the detector's weights.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.transfer import to_device
from sticker_uq.detection.weights import beside_weights, load_weights, save_weights
from sticker_uq.perception.novelty.photo_network import (
    FEATURES,
    PACKAGED,
    PhotoNetwork,
    load_photo_network,
    photo_crop,
    photo_input,
    pool_maps,
)
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import CLASS_COUNT, FloatArray, InvalidInput, ObjectClass, ObservedObject

ROLE = "photo head"
AT_ONCE = 16
"""Crops in a pass."""
_LEAST = 0.02
"""Mean probability of sticker from which an object is looked at, as for a close-up."""
_FARTHEST = 5.0
"""Standard deviations beyond which a feature counts no more."""


class PhotoHead(nn.Module):
    """Maps features (n, FEATURES) to logits of background, logo and sticker (n, 3); ``network``: hash of that which has them."""

    mean: Tensor
    spread: Tensor
    network: str = ""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("spread", torch.ones(FEATURES))
        self.linear = nn.Linear(FEATURES, CLASS_COUNT)

    def forward(self, features: Tensor) -> Tensor:
        return torch.as_tensor(self.linear(self.scale_features(features)))

    def scale_features(self, features: Tensor) -> Tensor:
        """``features`` in standard deviations of those that the head was fitted to."""
        return ((features - self.mean) / self.spread).clamp(-_FARTHEST, _FARTHEST)


def photo_features(
    network: PhotoNetwork, image: NDArray[np.uint8], boxes: FloatArray | Sequence[FloatArray]
) -> Tensor:
    """Features (N, FEATURES) of ``boxes`` (N, 4) px of ``image`` (H, W, 3) uint8 BGR."""
    device, found = next(network.parameters()).device, [torch.zeros(0, FEATURES)]
    with torch.inference_mode():
        for start in range(0, len(boxes), AT_ONCE):
            crops = np.stack([photo_crop(image, box) for box in boxes[start : start + AT_ONCE]])
            found.append(pool_maps(network(to_device(photo_input(crops), device))).float().cpu())
    return torch.cat(found)


@dataclass(frozen=True)
class PhotoLook:
    """The network and the head that look at the objects; ``hash``: of both, SHA-256, hex."""

    network: PhotoNetwork
    head: PhotoHead
    hash: str

    @classmethod
    def of(cls, settings: PerceptionSettings, detector: StochasticDetector) -> "PhotoLook":
        """Those for ``detector``, which ``settings`` describe; :class:`InvalidInput` where there is no head, or one for another
        network.
        """
        file = photo_file(settings, detector.weights_hash)
        if file is None:
            raise InvalidInput(
                f"photo is on, but there is no photo head beside the weights {settings.weights or 'of the package'} (NAME_photo."
                "safetensors): make one with `sticker-uq train --photo-head`, or switch it off"
            )
        head, network = read_photo_head(file), load_photo_network(PACKAGED, detector.device)
        if head.network != network.hash:
            raise InvalidInput(
                f"{file}: is for photo network {head.network[:12]}, this version has {network.hash[:12]}; train it again"
            )
        both = f"{network.hash}:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        return cls(network, head, hashlib.sha256(both.encode()).hexdigest())

    def on(self, objects: tuple[ObservedObject, ...], image: NDArray[np.uint8]) -> tuple[ObservedObject, ...]:
        """``objects`` of ``image`` (H, W, 3); those that may be a sticker have the probability that the head gives it."""
        doubtful = [one for one in objects if one.over_all_passes[ObjectClass.STICKER] >= _LEAST]
        found = self.probabilities(image, [one.box for one in doubtful])[:, ObjectClass.STICKER].tolist()
        seen = {one.id: float(score) for one, score in zip(doubtful, found, strict=True)}
        return tuple(replace(one, photo=seen[one.id]) if one.id in seen else one for one in objects)

    def probabilities(self, image: NDArray[np.uint8], boxes: FloatArray | Sequence[FloatArray]) -> FloatArray:
        """Of background, logo and sticker, (N, 3) float32, at ``boxes`` (N, 4) px."""
        with torch.inference_mode():
            found = self.head(photo_features(self.network, image, boxes)).softmax(dim=1)
        return np.asarray(found.numpy(), np.float32)


_SUFFIX = "photo"


def photo_file(settings: PerceptionSettings, used: str) -> Path | None:
    """``NAME_photo.safetensors`` beside the weights, None where there is none; ``used``: their checksum."""
    path = beside_weights(settings.model, settings.weights, _SUFFIX, used)
    return path if path and path.is_file() else None


def save_photo_head(head: PhotoHead, model: str, path: str | os.PathLike[str], **metadata: Any) -> None:
    """Write ``head`` for the detector ``model``, with ``metadata``: what it was fitted to."""
    save_weights(head, path, {"model": model, "role": ROLE, "network": head.network, **metadata})


def read_photo_head(path: str | os.PathLike[str]) -> PhotoHead:
    """The head in file ``path``; InvalidInput if it holds none."""
    state, metadata = load_weights(path)
    head = PhotoHead()
    shapes = {name: value.shape for name, value in head.state_dict().items()}
    if metadata.get("role") != ROLE or shapes != {name: value.shape for name, value in state.items()}:
        raise InvalidInput(f"{path}: is no photo head, expected a file of `sticker-uq train --photo-head`")
    head.load_state_dict(state)
    head.network = str(metadata.get("network", ""))
    return head.eval().requires_grad_(False)

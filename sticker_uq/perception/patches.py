# SPDX-License-Identifier: Apache-2.0
"""Whether patches of the image show a sticker that no box shows, by a small head on maps that the detector has computed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sticker_uq.detection import StochasticDetector
from sticker_uq.detection.features import Features
from sticker_uq.detection.weights import COUNTERS, beside_weights, load_weights, save_weights
from sticker_uq.perception.settings import PerceptionSettings
from sticker_uq.scene import (
    FloatArray,
    InvalidInput,
    Localization,
    ObjectClass,
    ObservedObject,
    UnexplainedRegion,
)

ROLE = "patch head"
_WIDTH = 48
_GROWN = 0.5
"""Patches by which the box of a known object is larger than drawn: its edge shows in the patches beside it."""
_KNOWN = 0.5
"""Mean probability of its class over all passes from which an object explains the patches in its box."""
_MOST_PLACES = 4


class PatchHead(nn.Module):
    """Maps the two finest maps (n, C, h, w) each, to logits (n, 1, h, w) of a sticker in the cells of the finest."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        self.scaled = nn.ModuleList(nn.BatchNorm2d(count, affine=False) for count in channels)
        self.reduce = nn.ModuleList(nn.Conv2d(count, _WIDTH, 1) for count in channels)
        self.mix = nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1)
        self.tell = nn.Conv2d(_WIDTH, 1, 1)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        size = fine.shape[-2:]
        larger = functional.interpolate(
            self.reduce[1](self.scaled[1](coarse)), size, mode="bilinear", align_corners=False
        )
        joined = functional.relu(self.reduce[0](self.scaled[0](fine)) + larger)
        return torch.as_tensor(self.tell(functional.relu(self.mix(joined))))


@dataclass(frozen=True)
class Patches:
    """Probabilities (h, w) that patches show a ``sticker`` or part of one; a patch is ``size`` (width, height) px."""

    sticker: FloatArray
    size: tuple[float, float]

    def unexplained_map(self, objects: Sequence[ObservedObject]) -> FloatArray:
        """``sticker`` outside of the logos and stickers that the passes are sure of, 0 in them, (h, w)."""
        left = self.sticker.copy()
        rows, columns = (
            (np.arange(n) + 0.5) * side for n, side in zip(left.shape, self.size[::-1], strict=True)
        )
        across, down = (_GROWN * side for side in self.size)
        for one in objects:
            if one.label is ObjectClass.BACKGROUND or one.over_all_passes[one.label] < _KNOWN:
                continue
            x1, y1, x2, y2 = one.box.tolist()
            inside_y = (rows > y1 - down) & (rows < y2 + down)
            left[inside_y[:, None] & ((columns > x1 - across) & (columns < x2 + across))[None]] = 0.0
        return left

    def places(self, left: FloatArray, floor: float) -> tuple[UnexplainedRegion, ...]:
        """Connected patches of ``left``, as :meth:`unexplained_map` gives it, from ``floor`` on, the surest first."""
        count, numbers, found, _ = cv2.connectedComponentsWithStats((left >= floor).astype(np.uint8))
        regions = []
        for place in range(1, count):
            x, y, w, h = found[place][:4].tolist()
            box = np.array([x, y, x + w, y + h], np.float32) * np.array([*self.size, *self.size], np.float32)
            regions.append(UnexplainedRegion(box, float(left[numbers == place].max()), 0.0))
        return tuple(sorted(regions, key=lambda one: -one.objectness)[:_MOST_PLACES])


@dataclass(frozen=True)
class PatchLook:
    """The head that looks at the maps of ``detector``.

    ``hash``: of its file, SHA-256, hex; ``floor``: probability of a sticker from which a place is shown.
    """

    detector: StochasticDetector
    head: PatchHead
    hash: str
    floor: float

    @classmethod
    def of(cls, settings: PerceptionSettings, detector: StochasticDetector) -> PatchLook | None:
        """That in NAME_patches.safetensors beside the weights of ``settings``, of which ``detector`` was made; None without one.

        Raises :class:`InvalidInput` for a file that holds no such head.
        """
        file = beside_weights(settings.model, settings.weights, "patches", detector.weights_hash)
        if file is None or not file.is_file():
            return None
        head = read_patch_head(file).to(detector.device)
        return cls(detector, head, hashlib.sha256(file.read_bytes()).hexdigest(), settings.region_objectness)

    def on(
        self, localization: Localization, features: Features, objects: Sequence[ObservedObject]
    ) -> Localization:
        """``localization`` of the image of ``features`` with what its patches show that ``objects`` do not explain."""
        patches = self.at(features)
        left = patches.unexplained_map(objects)
        missed = float(np.nanmax([float(left.max(initial=0.0)), localization.missed_sticker_probability]))
        places = patches.places(left, self.floor)
        return replace(
            localization,
            missed_sticker_probability=missed,
            unexplained=(*places, *localization.unexplained),
        )

    def at(self, features: Features) -> Patches:
        """What the patches of the image of ``features`` show."""
        fine, coarse = self.detector.head_maps(features)[:2]
        with torch.inference_mode():
            sticker = self.head(fine, coarse)[0, 0].sigmoid().float().cpu().numpy()
        height, width = sticker.shape
        across, down = features.image_size[0], features.image_size[1]
        whole = (
            across * features.padded[1] / features.resized[1],
            down * features.padded[0] / features.resized[0],
        )
        return Patches(sticker, (whole[0] / width, whole[1] / height))


def save_patch_head(head: PatchHead, model: str, path: str | os.PathLike[str], **metadata: Any) -> None:
    """Write ``head`` for the detector ``model``, with ``metadata``: what it learned from."""
    save_weights(head, path, {"model": model, "role": ROLE, **metadata}, half=True)


def read_patch_head(path: str | os.PathLike[str]) -> PatchHead:
    """The head in file ``path``; InvalidInput if it holds none."""
    state, metadata = load_weights(path)
    maps = [state.get(f"reduce.{level}.weight", torch.zeros(0)) for level in (0, 1)]
    if metadata.get("role") != ROLE or any(weight.ndim != 4 for weight in maps):
        raise InvalidInput(f"{path}: is no patch head, expected a file of scripts/patch_head.py")
    head = PatchHead([weight.shape[1] for weight in maps])
    own = {name: value.shape for name, value in head.state_dict().items() if not name.endswith(COUNTERS)}
    if own != {name: value.shape for name, value in state.items()}:
        raise InvalidInput(f"{path}: has other layers than this version's patch head")
    head.load_state_dict(state, strict=False)
    return head.eval().requires_grad_(False)

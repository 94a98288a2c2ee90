# SPDX-License-Identifier: Apache-2.0
"""A small convolutional classifier of crops: what the studies of monitors supervise, and what a task network is made of."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.scene import FloatArray

FEATURES = 64
_GRID = 4  # cells per side of the last map, whatever the size of the crops
_CHUNK = 512


@dataclass(frozen=True)
class CropTraining:
    """``epochs`` over the data in batches of ``batch`` crops with Adam at ``learning_rate``, which falls to 0 along a cosine if
    ``deep``. ``deep``: three normalised convolutions instead of two plain ones; ``augment``: crops are mirrored, shifted and
    differently bright in every epoch.
    """

    epochs: int = 50
    batch: int = 128
    learning_rate: float = 1e-3
    deep: bool = False
    augment: bool = False


class CropNetwork(nn.Module, ABC):
    """What the studies supervise, from crops (N, C, h, w) 0..1 to logits (N, K), with dropout before each linear layer."""

    last: nn.Linear

    @abstractmethod
    def activations(self, crops: Tensor, dropout: bool) -> tuple[Tensor, ...]:
        """Outputs (N, C, h, w) of the layers, and (N, D) of the last hidden one."""

    def forward(self, crops: Tensor, dropout: bool = False) -> Tensor:
        logits: Tensor = self.last(F.dropout(self.activations(crops, dropout)[-1], 0.5, dropout))
        return logits


class CropClassifier(CropNetwork):
    """Two convolutions and one hidden layer: the plain network of Weiss et al. 2022, made small.

    ``deep``: three convolutions with batch normalisation and pooling between them, which textures and print in colour need.
    """

    def __init__(self, shape: Sequence[int], classes: int, deep: bool = False) -> None:
        """``shape``: (C, h, w) of the crops."""
        super().__init__()
        self.deep = deep
        widths = (16, 32, 64) if deep else (16, 32)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, width, 3, padding=1, stride=1 if deep or number == 0 else 2)
            for number, (before, width) in enumerate(zip((shape[0], *widths), widths, strict=False))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if deep else nn.Identity() for width in widths)
        self.third = nn.Linear(widths[-1] * _GRID * _GRID, FEATURES)
        self.last = nn.Linear(FEATURES, classes)

    def activations(self, crops: Tensor, dropout: bool) -> tuple[Tensor, ...]:
        maps: list[Tensor] = []
        at = crops
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            at = F.relu(norm(convolution(at if not maps or not self.deep else F.max_pool2d(at, 2))))
            maps.append(at)
        pooled = F.adaptive_avg_pool2d(at, _GRID)
        maps[-1] = pooled
        hidden = F.relu(self.third(F.dropout(pooled.flatten(1), 0.25, dropout)))
        return (*maps, hidden)


N = TypeVar("N", bound=CropNetwork)


def train_classifier(
    crops: FloatArray, vectors: FloatArray, seed: int, training: CropTraining | None = None
) -> CropClassifier:
    training = CropTraining() if training is None else training
    return train_network(partial(CropClassifier, deep=training.deep), crops, vectors, seed, training)


@single_thread()
def train_network(
    build: Callable[[tuple[int, int, int], int], N],
    crops: FloatArray,
    vectors: FloatArray,
    seed: int,
    training: CropTraining,
) -> N:
    """What ``build`` makes for a shape (C, h, w) and a number of classes, trained as by :func:`train_classifier`."""
    pictures = torch.from_numpy(np.ascontiguousarray(crops, np.float32))
    targets = torch.from_numpy(np.ascontiguousarray(vectors, np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        channels, height, width = pictures.shape[1:]
        model = build((channels, height, width), targets.shape[1]).train()
        optimizer = torch.optim.Adam(model.parameters(), training.learning_rate)
        for epoch in range(training.epochs):
            if training.deep:
                share = (1 + math.cos(math.pi * epoch / training.epochs)) / 2
                optimizer.param_groups[0]["lr"] = training.learning_rate * share
            for rows in torch.randperm(len(pictures)).split(training.batch):
                if len(rows) == 1 < len(pictures):  # batch normalisation has nothing to normalise
                    continue
                shown = _vary(pictures[rows]) if training.augment else pictures[rows]
                loss = F.cross_entropy(model(shown, dropout=True), targets[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return model.eval().requires_grad_(False)


def _vary(crops: Tensor) -> Tensor:
    """``crops`` mirrored, brighter or darker and shifted by up to an eighth, each by chance of its own."""
    count, side = len(crops), crops.shape[-1]
    found = crops.clone()
    for axis in (2, 3):
        chosen = torch.rand(count) < 0.5
        found[chosen] = found[chosen].flip(axis)
    gain, offset = 0.85 + 0.3 * torch.rand(count, 1, 1, 1), 0.2 * (torch.rand(count, 1, 1, 1) - 0.5)
    found = (found * gain + offset).clamp(0, 1)
    reach = max(1, side // 8)
    wide = F.pad(found, (reach,) * 4, mode="reflect")
    starts = torch.randint(2 * reach + 1, (count, 2)).tolist()
    return torch.stack(
        [one[:, y : y + crops.shape[-2], x : x + side] for one, (y, x) in zip(wide, starts, strict=True)]
    )


@single_thread()
@torch.no_grad()
def class_vectors(model: CropNetwork, crops: FloatArray) -> FloatArray:
    return np.concatenate([torch.softmax(model(part), dim=1).double().numpy() for part in parts_of(crops)])


def parts_of(crops: FloatArray) -> tuple[Tensor, ...]:
    """``crops`` (N, C, h, w) as tensors of a size that fits into memory with everything made of them."""
    return torch.from_numpy(np.ascontiguousarray(crops, np.float32)).split(_CHUNK)

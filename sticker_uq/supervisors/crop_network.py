"""A small convolutional classifier of crops: what the studies supervise, and what a task network is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sticker_uq.detection.threads import single_thread
from sticker_uq.scene import FloatArray

FEATURES = 64
_GRID = 4  # cells per side of the last map, whatever the size of the crops
_CHUNK = 512


@dataclass(frozen=True)
class Training:
    """``epochs`` over the data in batches of ``batch`` crops with Adam at ``learning_rate``."""

    epochs: int = 50
    batch: int = 128
    learning_rate: float = 1e-3


class CropClassifier(nn.Module):
    """Two convolutions, one hidden layer and dropout before both linear layers: the plain network of the paper, made small.

    Takes crops (N, C, h, w) 0..1 to logits (N, K).
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.third = nn.Linear(32 * _GRID * _GRID, FEATURES)
        self.last = nn.Linear(FEATURES, classes)

    def activations(self, crops: Tensor, dropout: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs of the two convolutions and of the hidden layer."""
        first = F.relu(self.first(crops))
        second = F.adaptive_avg_pool2d(F.relu(self.second(first)), _GRID)
        hidden = F.relu(self.third(F.dropout(second.flatten(1), 0.25, dropout)))
        return first, second, hidden

    def forward(self, crops: Tensor, dropout: bool = False) -> Tensor:
        """Logits (N, K) of crops (N, C, h, w)."""
        hidden = self.activations(crops, dropout)[2]
        return self.last(F.dropout(hidden, 0.5, dropout))


@single_thread()
def train_classifier(
    crops: FloatArray, vectors: FloatArray, seed: int, training: Training | None = None
) -> CropClassifier:
    """A classifier of ``crops`` (N, C, h, w) trained on probabilistic labels ``vectors`` (N, K) by cross entropy."""
    training = Training() if training is None else training
    pictures = torch.from_numpy(np.ascontiguousarray(crops, np.float32))
    targets = torch.from_numpy(np.ascontiguousarray(vectors, np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CropClassifier(pictures.shape[1], targets.shape[1])
        optimizer = torch.optim.Adam(model.parameters(), training.learning_rate)
        for _ in range(training.epochs):
            for rows in torch.randperm(len(pictures)).split(training.batch):
                loss = F.cross_entropy(model(pictures[rows], dropout=True), targets[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return model.eval().requires_grad_(False)


@single_thread()
@torch.no_grad()
def class_vectors(model: CropClassifier, crops: FloatArray) -> FloatArray:
    """The class vectors (N, K) of one pass without dropout."""
    return np.concatenate([torch.softmax(model(part), dim=1).double().numpy() for part in parts_of(crops)])


def parts_of(crops: FloatArray) -> tuple[Tensor, ...]:
    """``crops`` (N, C, h, w) as tensors of a size that fits into memory with everything that is made of them."""
    return torch.from_numpy(np.ascontiguousarray(crops, np.float32)).split(_CHUNK)

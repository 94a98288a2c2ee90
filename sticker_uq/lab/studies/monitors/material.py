# SPDX-License-Identifier: Apache-2.0
"""What a study of monitors is made on."""

from __future__ import annotations

from dataclasses import dataclass, field

from sticker_uq.lab.studies.ambiguity.raae import Pair, RaaeSettings
from sticker_uq.monitors.crop_network import Training
from sticker_uq.scene import FloatArray, IntArray, InvalidInput


@dataclass(frozen=True)
class Material:
    """Crops (N, C, h, w) float32 0..1 with classes (N,), to train with and to test with.

    ``invalid``: crops of none of the ``classes``; ``pairs``: classes that are made ambiguous, by autoencoders of ``raae``;
    ``training``: of its classifiers.
    """

    name: str
    classes: tuple[str, ...]
    train: FloatArray
    train_labels: IntArray
    test: FloatArray
    test_labels: IntArray
    invalid: FloatArray
    pairs: tuple[Pair, ...]
    raae: RaaeSettings
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        for crops, labels in ((self.train, self.train_labels), (self.test, self.test_labels)):
            if crops.ndim != 4 or len(crops) != len(labels) or not len(crops):
                raise InvalidInput(
                    f"{self.name}: crops {crops.shape} for {len(labels)} labels, expected (N, C, h, w), N >= 1"
                )

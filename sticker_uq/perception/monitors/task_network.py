# SPDX-License-Identifier: Apache-2.0
"""A network for one decision as a monitor: is the probability of a removable sticker above a threshold? (Ullah et al., V-C)"""

from typing import Any

import numpy as np
import torch

from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.perception.monitors.crop_network import (
    CropClassifier,
    CropTraining,
    class_vectors,
    train_classifier,
)
from sticker_uq.perception.monitors.interface import Arrays, Monitor, Objects
from sticker_uq.scene import FloatArray, InvalidInput


class TaskNetwork(Monitor):
    """1 - what a small network says of a crop, trained on whether the share who call it a sticker is above ``threshold``."""

    name = "task"
    needs = ("crops",)

    def __init__(self, threshold: float = 0.7, epochs: int = 30, seed: int = 0) -> None:
        if not 0 < threshold < 1:
            raise InvalidInput(
                f"threshold {threshold:g} of a task network: expected more than 0 and less than 1"
            )
        super().__init__(threshold=threshold, epochs=epochs, seed=seed)

    def _fit(self, objects: Objects) -> Arrays:
        if objects.fractions is None:
            raise InvalidInput(
                "a task network learns from fractions of annotators, which the objects do not have"
            )
        assert objects.crops is not None
        target = (objects.fractions > self._options["threshold"]).astype(np.float64)
        model = train_classifier(
            objects.crops,
            np.column_stack([1 - target, target]),
            self._options["seed"],
            CropTraining(epochs=self._options["epochs"], deep=True, augment=True),
        )
        learned: Arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
        return {**learned, "shape": np.array(objects.crops.shape[1:], np.int64)}

    @single_thread()
    def _score(self, objects: Objects) -> FloatArray:
        assert objects.crops is not None
        shape = tuple(self._learned["shape"].tolist())
        if objects.crops.shape[1:] != shape:
            raise InvalidInput(
                f"crops have shape {objects.crops.shape[1:]}, the task network was fitted on {shape}"
            )
        return 1 - class_vectors(self._network(), objects.crops)[:, 1]

    def _network(self) -> CropClassifier:
        model = CropClassifier(self._learned["shape"].tolist(), 2, deep=True)
        state: dict[str, Any] = {
            name: torch.from_numpy(np.array(self._learned[name])) for name in model.state_dict()
        }
        model.load_state_dict(state)
        return model.eval().requires_grad_(False)

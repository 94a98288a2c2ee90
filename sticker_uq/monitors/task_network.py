# SPDX-License-Identifier: Apache-2.0
"""A network for one decision as a monitor: is the probability of a removable sticker above a threshold? (Ullah et al., V-C)"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from sticker_uq.detection.kernels.devices import single_thread
from sticker_uq.monitors.crop_network import CropClassifier, Training, class_vectors, train_classifier
from sticker_uq.monitors.interface import Arrays, Monitor
from sticker_uq.monitors.objects import Objects
from sticker_uq.scene import NO_STICKER, TASK_CASCADE, FloatArray, InvalidInput

Kind = Literal["task", "probabilistic"]
KINDS: tuple[Kind, ...] = ("task", "probabilistic")


class TaskNetwork(Monitor):
    """Task network monitor: 1 - what a small network says of a crop, trained on the share of annotators who call it a sticker.

    ``kind``: a "task" network learns whether that share is above ``threshold``, a "probabilistic" one learns the share itself.
    The two share everything else: network, first weights, order, ``epochs``, ``seed``. In a panel its limit is calibrated as
    that of the others; its own decision is at ``limit``.
    """

    name = "task"
    needs = ("crops",)

    def __init__(self, threshold: float = 0.7, kind: Kind = "task", epochs: int = 30, seed: int = 0) -> None:
        if not 0 < threshold < 1:
            raise InvalidInput(
                f"threshold {threshold:g} of a task network: expected more than 0 and less than 1"
            )
        if kind not in KINDS:
            raise InvalidInput(f"kind {kind!r} of a task network: expected one of {', '.join(KINDS)}")
        super().__init__(threshold=threshold, kind=kind, epochs=epochs, seed=seed)

    @property
    def score_limit(self) -> float:
        """The task network monitor's highest score for a probability of a removable sticker above the threshold."""
        return 0.5 if self._options["kind"] == "task" else 1.0 - float(self._options["threshold"])

    def _fit(self, objects: Objects) -> Arrays:
        if objects.fractions is None:
            raise InvalidInput(
                "a task network learns from fractions of annotators, which the objects do not have"
            )
        assert objects.crops is not None
        target = np.asarray(objects.fractions, np.float64)
        if self._options["kind"] == "task":
            target = (target > self._options["threshold"]).astype(np.float64)
        model = train_classifier(
            objects.crops,
            np.column_stack([1 - target, target]),
            self._options["seed"],
            Training(epochs=self._options["epochs"], deep=True, augment=True),
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
        model = CropClassifier(int(self._learned["shape"][0]), 2, deep=True)
        state: dict[str, Any] = {
            name: torch.from_numpy(np.array(self._learned[name])) for name in model.state_dict()
        }
        model.load_state_dict(state)
        return model.eval().requires_grad_(False)


class TaskCascade(Monitor):
    """Monitor of two task networks with three answers about an object's crop (Ullah et al., V-C): remove, ask or keep.

    ``remove`` and ``keep``: their thresholds on the share of annotators who call it a sticker; ``remove_kind`` and ``keep_kind``
    as :class:`TaskNetwork` has them, and ``epochs`` and ``seed`` of both. The score is that of the network of ``remove`` where
    the network of ``keep`` sees a share above its threshold, and more than ``scene.NO_STICKER`` where neither of them does. Where
    the two contradict each other it is ``scene.NO_STICKER``: a person must look.
    """

    name = TASK_CASCADE
    needs = ("crops",)

    def __init__(
        self,
        remove: float = 0.7,
        keep: float = 0.3,
        remove_kind: Kind = "task",
        keep_kind: Kind = "task",
        epochs: int = 30,
        seed: int = 0,
    ) -> None:
        if not keep < remove:
            raise InvalidInput(f"threshold {keep:g} to keep an object: expected less than {remove:g}")
        self._networks = {
            "remove": TaskNetwork(remove, remove_kind, epochs, seed),
            "keep": TaskNetwork(keep, keep_kind, epochs, seed),
        }
        super().__init__(
            remove=remove, keep=keep, remove_kind=remove_kind, keep_kind=keep_kind, epochs=epochs, seed=seed
        )

    @classmethod
    def of(cls, remove: TaskNetwork, keep: TaskNetwork) -> TaskCascade:
        """The monitor that is a cascade of two task networks, which were fitted with the same epochs and seed."""
        one, other = remove.settings(), keep.settings()
        made = cls(
            one["threshold"], other["threshold"], one["kind"], other["kind"], one["epochs"], one["seed"]
        )
        made.restore(_named({"remove": remove, "keep": keep}))
        return made

    def restore(self, arrays: Arrays) -> None:
        super().restore(arrays)
        for role, network in self._networks.items():
            own = {n.removeprefix(f"{role}."): a for n, a in arrays.items() if n.startswith(f"{role}.")}
            network.restore(own)

    def _fit(self, objects: Objects) -> Arrays:
        for network in self._networks.values():
            network.fit(objects)
        return _named(self._networks)

    def _score(self, objects: Objects) -> FloatArray:
        removes, keeps = (self._networks[role] for role in ("remove", "keep"))
        against, against_both = removes.score(objects), keeps.score(objects)
        above = against_both <= keeps.score_limit
        contradicting = ~above & (against <= removes.score_limit)
        return np.where(above, against, np.where(contradicting, NO_STICKER, NO_STICKER + against_both))


def _named(networks: dict[str, TaskNetwork]) -> Arrays:
    return {f"{role}.{name}": array for role, one in networks.items() for name, array in one.arrays().items()}

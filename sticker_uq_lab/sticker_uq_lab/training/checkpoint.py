# SPDX-License-Identifier: Apache-2.0
"""Checkpoint of a training and its table of epochs."""

import csv
import math
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from sticker_uq.io.files import atomic_write
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.training.settings import EpochResult

STATE = "state.pt"
METRICS = "metrics.csv"
_PARTS = ("model", "average", "optimizer")
_DAMAGED = (RuntimeError, OSError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError)


@dataclass
class Position:
    step: int = 0
    loss: float = math.nan
    epoch_loss: float = 0.0  # sum over the steps of the current epoch
    seconds: float = 0.0  # spent on the current epoch
    best: tuple[int, float] = (0, 0.0)
    """Input size of the weights in best.safetensors, which counts first, and their wrongful removals, negative."""
    initial: str = ""  # description of the initial weights
    history: list[EpochResult] = field(default_factory=list)

    def smooth(self, loss: float) -> None:
        self.epoch_loss += loss
        self.loss = loss if math.isnan(self.loss) else 0.98 * self.loss + 0.02 * loss


def save_state(
    out: Path, fingerprint: Mapping[str, Any], position: Position, parts: Mapping[str, Any]
) -> None:
    """Write the checkpoint, of ``parts`` by name, and the table of epochs. OSError when the disk fails."""
    if position.history:
        with atomic_write(out / METRICS, "w") as stream:
            writer = csv.DictWriter(stream, [f.name for f in fields(EpochResult)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(asdict, position.history))
    states = {name: part.state_dict() for name, part in parts.items()}
    content = {"fingerprint": dict(fingerprint), "position": asdict(position), **states}
    with atomic_write(out / STATE) as stream:
        torch.save(content, stream)


def saved_network(out: Path, input_size: int, anchor_scales: Sequence[float]) -> dict[str, Any]:
    """Input size and default boxes as given, else as saved in ``out``; {} for those of the model."""
    saved = _content(out)["fingerprint"]
    network = {
        "input_size": input_size or saved.get("input_size", 0),
        "anchor_scales": list(anchor_scales or saved.get("anchor_scales", ())),
    }
    return network if any(network.values()) else {}


def load_state(
    out: Path, fingerprint: Mapping[str, Any], parts: Mapping[str, Any], device: torch.device
) -> Position:
    path = out / STATE
    content = _content(out, device)
    found = content["fingerprint"]
    changed = {name: value for name, value in fingerprint.items() if found.get(name) != value}
    differing = [_difference(name, found.get(name), value) for name, value in changed.items()]
    if differing:
        raise InvalidInput(f"{path}: belongs to a training with other settings: {'; '.join(differing)}")
    for name, part in parts.items():
        part.load_state_dict(content[name])
    return content["position"]


def _content(out: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    path = out / STATE
    if not path.is_file():
        raise InvalidInput(f"{path}: no such file; expected the state of a training to resume")
    try:
        content = torch.load(path, map_location=device, weights_only=True)
        position = dict(content["position"])
        position["history"] = [EpochResult(**row) for row in position["history"]]
        position["best"] = tuple(position["best"])
        kept = {name: content[name] for name in (*_PARTS, "fingerprint")}
        return kept | {"position": Position(**position)}
    except _DAMAGED as error:
        raise InvalidInput(
            f"{path}: not the complete state of a training ({type(error).__name__})"
        ) from error


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "data":
        return "--data has other images or labels now; expected the same folders, unchanged and in the same order"
    return f"--{name.replace('_', '-')} is {now}, was {before}; give --{name.replace('_', '-')} {before}"

# SPDX-License-Identifier: Apache-2.0
"""What a monitor may look at: the same fields for the crops of a classifier and the objects of a detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.scene import FloatArray, IntArray, InvalidInput


@dataclass(frozen=True)
class Objects:
    """N objects of K classes, with whatever is known about them; a monitor says what it needs.

    ``probabilities`` (N, K): class vectors of the deterministic network; ``logits`` (N, K): before the softmax;
    ``samples`` (T, N, K): class vectors of T stochastic passes, a row of NaN where a pass did not see the object;
    ``members`` (M, N, K): class vectors of the members of an ensemble; ``features`` (N, F): activations of the last layer
    before the classes; ``layers``: activations (N, F_l) of several layers, in their order; ``crops`` (N, C, h, w):
    pictures of the objects, 0..1. Read by ``fit`` alone: ``labels`` (N,), true classes, and ``fractions`` (N,), shares of
    annotators who call an object a sticker that may be removed.
    """

    probabilities: FloatArray
    logits: FloatArray | None = None
    samples: FloatArray | None = None
    members: FloatArray | None = None
    features: FloatArray | None = None
    layers: tuple[FloatArray, ...] | None = None
    crops: FloatArray | None = None
    labels: IntArray | None = None
    fractions: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.probabilities.ndim != 2 or self.probabilities.shape[1] < 2:
            raise InvalidInput(
                f"probabilities have shape {self.probabilities.shape}, expected (N, K) with K >= 2"
            )
        n, k = self.probabilities.shape
        _expect("logits", self.logits, self.logits is None or self.logits.shape == (n, k), f"({n}, {k})")
        for name in ("samples", "members"):
            value = getattr(self, name)
            fits = value is None or (value.ndim == 3 and value.shape[1:] == (n, k) and len(value) > 0)
            _expect(name, value, fits, f"(T, {n}, {k}) with T >= 1")
        for name, dimensions in (("features", 2), ("crops", 4), ("labels", 1), ("fractions", 1)):
            value = getattr(self, name)
            fits = value is None or (value.ndim == dimensions and len(value) == n)
            _expect(name, value, fits, f"{dimensions} dimensions, {n} objects first")
        for layer in self.layers or ():
            _expect("a layer", layer, layer.ndim == 2 and len(layer) == n, f"({n}, F)")

    def __len__(self) -> int:
        return len(self.probabilities)

    @property
    def predicted(self) -> IntArray:
        return self.probabilities.argmax(axis=1)

    def __getitem__(self, rows: slice | IntArray | NDArray[np.bool_]) -> Objects:
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                found[field.name] = None
            elif field.name == "layers":
                found[field.name] = tuple(layer[rows] for layer in value)
            elif field.name in ("samples", "members"):
                found[field.name] = value[:, rows]
            else:
                found[field.name] = value[rows]
        return Objects(**found)


def concatenate(parts: Sequence[Objects]) -> Objects:
    """The monitors' objects of ``parts`` in one; a field that one of them lacks is absent. InvalidInput without any part."""
    if not parts:
        raise InvalidInput("no objects to concatenate, expected at least one set")
    found: dict[str, Any] = {}
    for field in fields(Objects):
        values = [getattr(part, field.name) for part in parts]
        if any(value is None for value in values):
            found[field.name] = None
        elif field.name == "layers":
            found[field.name] = tuple(np.concatenate(level) for level in zip(*values, strict=True))
        else:
            found[field.name] = np.concatenate(values, axis=1 if field.name in ("samples", "members") else 0)
    return Objects(**found)


def _expect(name: str, value: Any, fits: bool, shape: str) -> None:
    if not fits:
        raise InvalidInput(f"{name} of objects has shape {value.shape}, expected {shape}")

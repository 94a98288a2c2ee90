# SPDX-License-Identifier: Apache-2.0
"""The one interface of all monitors, and what they may look at: the same fields for crops and for a detector's objects."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg  # noqa: F401  # its BLAS must be there before the threads are counted
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

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
    """``parts`` in one; a field that one of them lacks is absent. InvalidInput without any part."""
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


Arrays = dict[str, NDArray[Any]]
# a handful of objects is too little work for several threads, which cost ten times the work itself where others compute too; and
# the last bits depend on their number
_BLAS = ThreadpoolController()


class Monitor(ABC):
    """Says how little each object can be trusted: higher is less, on a scale of its own.

    ``name``: as a file or a parameter names it; ``needs``: fields of :class:`Objects` that it reads; ``learns``: it must be
    fitted; ``cost_ms``: milliseconds of :meth:`score` per object, NaN until :func:`measure_cost` measured it. What makes its
    inputs (T passes, an ensemble) is not in it.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    learns: ClassVar[bool] = True
    cost_ms: float = math.nan

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._learned: Arrays = {}

    def fit(self, objects: Objects) -> Self:
        """Fit to ``objects`` and return itself. InvalidInput when there is none or a field is missing."""
        self._check(objects)
        if len(objects) == 0:
            raise InvalidInput(f"{self.name}: no objects to fit on, expected at least one")
        if self.learns:
            self._learned = self._fit(objects)
        return self

    def score(self, objects: Objects) -> FloatArray:
        """How little each object can be trusted, (N,) float64. InvalidInput when a field is missing or it was not fitted."""
        self._check(objects)
        if self.learns and not self._learned:
            raise InvalidInput(f"monitor {self.name} was not fitted: expected fit() or a file before score()")
        if len(objects) == 0:
            return np.zeros(0)
        with _BLAS.limit(limits=1, user_api="blas"):
            return np.asarray(self._score(objects), np.float64)

    def settings(self) -> dict[str, Any]:
        """What it was constructed with, as JSON can hold it."""
        return dict(self._options)

    def arrays(self) -> Arrays:
        """What it has learned; empty for one that learns nothing."""
        return dict(self._learned)

    def restore(self, arrays: Arrays) -> None:
        """Take over ``arrays``, which another monitor of the same name and settings has learned."""
        self._learned = dict(arrays)

    def _fit(self, objects: Objects) -> Arrays:
        """What there is to learn of at least one object."""
        return {}

    @abstractmethod
    def _score(self, objects: Objects) -> FloatArray:
        """Score at least one object."""

    def _check(self, objects: Objects) -> None:
        missing = [name for name in self.needs if getattr(objects, name) is None]
        if missing:
            raise InvalidInput(
                f"monitor {self.name} needs {', '.join(missing)} of the objects, which are not there"
            )


def measure_cost(monitor: Monitor, objects: Objects, repeats: int = 3) -> float:
    """Milliseconds per object, of the fastest of ``repeats`` calls of ``score``; kept in ``monitor.cost_ms``.

    InvalidInput without an object.
    """
    if len(objects) == 0:
        raise InvalidInput("no objects to measure the cost on, expected at least one")
    durations = []
    for _ in range(repeats):
        started = time.perf_counter()
        monitor.score(objects)
        durations.append(time.perf_counter() - started)
    monitor.cost_ms = 1e3 * min(durations) / len(objects)
    return monitor.cost_ms

# SPDX-License-Identifier: Apache-2.0
"""The one interface of all monitors."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg  # noqa: F401  # its BLAS must be there before the threads are counted
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from sticker_uq.monitors.objects import Objects
from sticker_uq.scene import FloatArray, InvalidInput

Arrays = dict[str, NDArray[Any]]
# a handful of objects is too little work for several threads, which cost ten times the work itself where others compute too; and
# the last bits depend on their number
_BLAS = ThreadpoolController()


class Monitor(ABC):
    """A misclassification monitor: says how little each object can be trusted: higher is less, in a scale of its own.

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
        """Fit the monitor to ``objects``, and return itself. InvalidInput when there is none or a field is missing."""
        self._check(objects)
        if len(objects) == 0:
            raise InvalidInput(f"{self.name}: no objects to fit on, expected at least one")
        if self.learns:
            self._learned = self._fit(objects)
        return self

    def score(self, objects: Objects) -> FloatArray:
        """The monitor's score, how little each object can be trusted, (N,) float64.

        InvalidInput when a field is missing or it was not fitted.
        """
        self._check(objects)
        if self.learns and not self._learned:
            raise InvalidInput(f"monitor {self.name} was not fitted: expected fit() or a file before score()")
        if len(objects) == 0:
            return np.zeros(0)
        with _BLAS.limit(limits=1, user_api="blas"):
            return np.asarray(self._score(objects), np.float64)

    def settings(self) -> dict[str, Any]:
        """What the monitor was constructed with, as JSON can hold it."""
        return dict(self._options)

    def arrays(self) -> Arrays:
        """What the monitor has learned; empty for one that learns nothing."""
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
    """A monitor's milliseconds per object, of the fastest of ``repeats`` calls of ``score``; kept in ``monitor.cost_ms``.

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

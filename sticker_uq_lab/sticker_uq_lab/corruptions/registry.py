# SPDX-License-Identifier: Apache-2.0
"""The registry of corruptions by name."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from sticker_uq.scene import InvalidInput
from sticker_uq_lab.corruptions.labelled_picture import LabelledPicture

Parameter = float | str
Function = Callable[..., LabelledPicture]
"""picture, strength, generator, and the parameters by name."""

CONTENT, POSE, COVER, LIGHT, LENS, SENSOR, CODING = range(7)
"""Stage of image formation, from workpiece to file; combined transformations are applied in this order."""


@dataclass(frozen=True)
class Transformation:
    """``ladder``: strengths in ``unit`` from mild to severe; ``limits``: the valid ones; ``parameters``: with their defaults."""

    name: str
    unit: str
    strength: str
    stage: int
    ladder: tuple[float, ...]
    limits: tuple[float, float]
    function: Function
    parameters: dict[str, Parameter] = field(default_factory=dict)

    def __call__(
        self, picture: LabelledPicture, strength: float, seed: int, **parameters: Parameter
    ) -> LabelledPicture:
        self.check(strength, parameters)
        rng = np.random.default_rng(seed)
        return self.function(picture, float(strength), rng, **(self.parameters | parameters))

    def check(self, strength: float, parameters: dict[str, Parameter] | None = None) -> None:
        low, high = self.limits
        if not (math.isfinite(strength) and low <= strength <= high):
            raise InvalidInput(
                f"{self.name}: strength {strength:g}: expected {low:g} to {high:g} {self.unit}"
            )
        for name, value in (parameters or {}).items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise InvalidInput(f"{self.name}: unknown parameter {name!r}; known: {known}")
            default = self.parameters[name]
            if isinstance(default, str) != isinstance(value, str):
                raise InvalidInput(f"{self.name}: {name} = {value!r}: expected a value like {default!r}")


TRANSFORMATIONS: dict[str, Transformation] = {}


def transformation(
    unit: str,
    strength: str,
    stage: int,
    ladder: tuple[float, ...],
    limits: tuple[float, float],
    **parameters: Parameter,
) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        name = function.__name__
        TRANSFORMATIONS[name] = Transformation(
            name, unit, strength, stage, ladder, limits, function, parameters
        )
        return function

    return register

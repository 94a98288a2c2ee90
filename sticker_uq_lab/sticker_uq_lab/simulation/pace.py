# SPDX-License-Identifier: Apache-2.0
"""How fast a simulated cell may go on this machine: rate of the camera, age at which a scene still counts, number of laptops."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sticker_uq_lab.simulation.simulated_cell import SimulatedCell, SimulationSettings

if TYPE_CHECKING:
    from sticker_uq.perception.pipeline import Perception

BESIDE_OTHERS = 1.5
"""An image takes about so many times as long in the cell, where camera, page, recorder and arm compute too, on two cores."""
IMAGES_PER_LAPTOP = 30
"""Images that a hard laptop takes where they are slow; fast ones are seen more often, 45 times in a recording of the demo."""
SCENES_AT_ONCE = 3.0
"""A scene must count until the next one has come, and that one may come late."""
SLOWEST_HZ, OLDEST_S = 0.1, 60.0
"""What the simulated camera and the gate still take."""


@dataclass(frozen=True)
class Pace:
    """``image_s``: time of an image in the cell, s; ``rate`` Hz; ``laptops``: how many fit into the time that was given."""

    image_s: float
    rate: float
    max_scene_age_s: float
    laptops: int


def measure_pace(perception: Perception, settings: SimulationSettings, images: int = 3) -> float:
    """Time of one image on this machine as it is now, alone, s; the last of ``images``, of which the first warm up."""
    cell = SimulatedCell(settings)
    took = 0.0
    for number in range(images):
        picture = cell.picture()
        began = time.perf_counter()
        perception.assess(picture, number + 1, settings.frame_id)
        took = time.perf_counter() - began
    return took


def pace_for(alone_s: float, settings: SimulationSettings, max_scene_age_s: float, budget_s: float) -> Pace:
    """The pace of a cell of ``settings`` in which an image takes ``alone_s`` without it.

    Never faster and never stricter than ``settings`` and ``max_scene_age_s`` say; of ``settings.laptops`` as many as ``budget_s``
    is enough for, at least one; all where it is infinite.
    """
    image_s = BESIDE_OTHERS * alone_s
    age_s = max(max_scene_age_s, math.ceil(2 * SCENES_AT_ONCE * image_s) / 2)
    laptops = max(1.0, min(settings.laptops, budget_s / (IMAGES_PER_LAPTOP * image_s)))
    rate = min(settings.rate, max(SLOWEST_HZ, 1 / image_s))
    return Pace(image_s, rate, min(age_s, OLDEST_S), int(laptops))

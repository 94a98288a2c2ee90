# SPDX-License-Identifier: Apache-2.0
"""The pace of a simulated cell fits the machine."""

import math

from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate.settings import GateSettings
from sticker_uq_lab.simulation.pace import BESIDE_OTHERS, IMAGES_PER_LAPTOP, measure_pace, pace_for
from sticker_uq_lab.simulation.simulated_cell import SimulationSettings

SIX = SimulationSettings(laptops=6, width_px=320, height_px=240)


def test_a_quick_machine_changes_nothing():
    pace = pace_for(0.1, SIX, 2.0, 330.0)
    assert (pace.rate, pace.max_scene_age_s, pace.laptops) == (4.0, 2.0, 6)


@given(
    alone=st.floats(0.001, 600.0), age=st.floats(0.05, 60.0), budget=st.floats(1.0, 1e4) | st.just(math.inf)
)
def test_the_next_scene_comes_while_the_last_one_counts(alone, age, budget):
    pace = pace_for(alone, SIX, age, budget)
    SimulationSettings(rate=pace.rate, laptops=pace.laptops)  # the nodes take it
    GateSettings(max_scene_age_s=pace.max_scene_age_s)
    assert pace.rate <= SIX.rate
    assert pace.max_scene_age_s >= min(age, 60.0)
    assert 1 <= pace.laptops <= SIX.laptops
    if pace.max_scene_age_s < 60.0:
        assert pace.max_scene_age_s >= 3 * BESIDE_OTHERS * alone
    if budget == math.inf:
        assert pace.laptops == SIX.laptops
    elif pace.laptops > 1:
        assert pace.laptops * IMAGES_PER_LAPTOP * pace.image_s <= budget


def test_the_time_is_that_of_an_image_after_the_warm_up():
    seen = []

    class Perception:
        def assess(self, picture, stamp_ns, frame_id):
            seen.append((*picture.shape, stamp_ns))

    assert measure_pace(Perception(), SIX, images=3) >= 0.0
    assert seen == [(240, 320, 3, n) for n in (1, 2, 3)]

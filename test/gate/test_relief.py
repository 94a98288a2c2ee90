# SPDX-License-Identifier: Apache-2.0
"""The second measurement: where it is required nothing opens the gate but a sticker that stands out, or a person."""

import numpy as np
import pytest

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase
from sticker_uq.gate.events import GoalAccepted, OpenIntervention, ReliefReceived, SendGoal, WorkpieceChanged
from sticker_uq.gate.relief import height_mm
from sticker_uq.gate.state import Relief
from sticker_uq.scene import FloatArray
from sticker_uq.testing.scenes import HERE, SECOND, SIZE, THERE, object_at
from test.helpers.gate import STICKER, Cell, K, answer, codes, finish, running, set_to

REQUIRED = set_to(min_relief_mm=0.05, max_relief_age_s=2.0)
FLAT, RAISED = 0.01, 0.1


def heights(height_mm: float, *places: tuple[tuple[float, ...], float]) -> FloatArray:
    """A map of one height, and of others at ``places``."""
    values = np.full(SIZE[::-1], 1e-3 * height_mm)
    for (x1, y1, x2, y2), value in places:
        values[int(y1) : int(y2), int(x1) : int(x2)] = 1e-3 * value
    return values


def measure(cell: Cell, values: FloatArray | None, age: float = 0.0, frame_id: str = "camera") -> Cell:
    stamp_ns = cell.now - round(age * SECOND)
    cell.send(ReliefReceived(None if values is None else Relief(stamp_ns, frame_id, values)))
    return cell


def asked(cell: Cell) -> list[tuple[tuple[float, ...], list[str]]]:
    """The places of the last question, and why each is asked."""
    return [(tuple(v.object.box), codes(v.reasons)) for v in cell.sent(OpenIntervention)[-1].objects]


def test_a_raised_sticker_is_permitted_and_a_flat_one_asked_about():
    assert measure(running(REQUIRED).wait(0.1), heights(RAISED)).scene(STICKER, times=K).state.open
    cell = measure(running(REQUIRED).wait(0.1), heights(FLAT)).scene(STICKER, times=K)
    assert cell.phase is Phase.INTERVENTION
    assert asked(cell) == [(HERE, ["relief_flat"])]
    assert answer(cell, OperatorAnswer(Answer.REMOVE, HERE))
    assert cell.scene(STICKER, times=K).state.open


def test_what_is_raised_goes_first_and_all_else_is_one_question():
    unsure = object_at((500.0, 300.0, 560.0, 360.0), shannon_entropy=1.5)
    lid = (STICKER, object_at(THERE), object_at((300.0, 300.0, 400.0, 380.0)), unsure)
    cell = running(REQUIRED).scene(*lid, times=K)
    assert cell.phase is Phase.MONITORING
    values = heights(FLAT, (THERE, RAISED), ((300.0, 300.0, 400.0, 380.0), np.nan))
    cell = measure(cell, values).scene(*lid, times=K)
    assert cell.sent(SendGoal)[-1].target.box == THERE
    cell.send(GoalAccepted(cell.goal))
    finish(cell).scene(STICKER, *lid[2:], times=K)
    cell = measure(cell, values).scene(STICKER, *lid[2:], times=K)
    reasons = ["relief_flat", "relief_unmeasured", "above_limit"]
    assert [said for _, said in asked(cell)] == [[reason] for reason in reasons]


@pytest.mark.parametrize(
    ("values", "how", "reason"),
    [
        (None, {}, "relief_missing"),
        (heights(RAISED), {"age": 3.0}, "relief_missing"),
        (heights(RAISED), {"age": -1.0}, "relief_missing"),
        (heights(RAISED), {"frame_id": "other"}, "relief_elsewhere"),
        (heights(RAISED)[:240, :320], {}, "relief_elsewhere"),
        (heights(RAISED, (HERE, np.nan)), {}, "relief_unmeasured"),
        (heights(RAISED, (HERE, np.inf)), {}, "relief_unmeasured"),
        (heights(RAISED, (HERE, 1e3 * RAISED)), {}, "relief_unmeasured"),
        (heights(FLAT, (THERE, RAISED)), {}, "relief_flat"),
        (heights(-RAISED), {}, "relief_flat"),
    ],
)
def test_nothing_else_opens_and_a_person_is_asked_when_none_comes_in_time(values, how, reason):
    cell = running(REQUIRED).wait(5.0)
    for _ in range(4):
        measure(cell.scene(STICKER), values, **how)
    if reason != "relief_flat":
        assert (cell.phase, cell.state.reasons) == (Phase.MONITORING, BlockReason.UNCERTAIN)
        assert cell.details == [reason]
        for _ in range(20):
            measure(cell.scene(STICKER), values, **how)
    assert cell.phase is Phase.INTERVENTION
    assert asked(cell) == [(HERE, [reason])]
    assert not cell.sent(SendGoal)


def test_one_from_before_the_laptop_came_or_the_arm_moved_is_of_another_scene():
    cell = measure(running(REQUIRED).wait(0.1), heights(RAISED))
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    assert cell.scene(STICKER, times=K).details == ["relief_missing"]
    assert measure(cell, heights(RAISED)).scene(STICKER, times=K).state.open
    finish(cell).scene(times=K)
    assert cell.scene(object_at(THERE), times=K).details == ["relief_missing"]


def test_a_flat_one_revokes_a_permit_that_the_arm_has_not_taken_yet():
    cell = measure(running(REQUIRED).wait(0.1), heights(RAISED)).scene(STICKER, times=K)
    assert measure(cell, heights(np.nan)).state.open
    assert measure(cell, heights(FLAT)).state.reasons & BlockReason.CONTRADICTED
    cell = measure(running(REQUIRED).wait(0.1), heights(RAISED)).scene(STICKER, times=K)
    cell.send(GoalAccepted(cell.goal))
    assert measure(cell, heights(FLAT)).state.open


def test_without_the_setting_a_relief_changes_nothing():
    cell = measure(running().wait(0.1), heights(FLAT)).scene(STICKER, times=K)
    assert measure(cell, heights(FLAT)).state.open


def test_the_height_is_that_of_the_middle_as_far_as_it_was_measured():
    turned = heights(0.0, ((120.0, 115.0, 160.0, 145.0), RAISED))
    assert height_mm(Relief(0, "camera", turned), HERE) == pytest.approx(RAISED)
    for part, known in ((125.0, True), (145.0, False)):
        values = heights(RAISED, ((100.0, 100.0, part, 160.0), np.nan))
        assert np.isfinite(height_mm(Relief(0, "camera", values), HERE)) == known
    for box in ((700.0, 100.0, 780.0, 160.0), (np.nan, 100.0, 180.0, 160.0), (180.0, 160.0, 100.0, 100.0)):
        assert np.isnan(height_mm(Relief(0, "camera", turned), box))

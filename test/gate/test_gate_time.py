# SPDX-License-Identifier: Apache-2.0
"""The gate and time at its limits, an assumption that is broken, and what is asked, tried and declared only once."""

from dataclasses import replace
from typing import Any

from sticker_uq.gate import BlockReason, Phase, SceneAnswer
from sticker_uq.gate.events import (
    AssumptionBroken,
    CancelGoal,
    DeclareDone,
    Escalate,
    Hold,
    Log,
    OpenIntervention,
    RemovalCode,
    Tick,
    WorkpieceChanged,
)
from sticker_uq.scene import Reason, Status
from sticker_uq.testing.scenes import HERE, THERE, observed
from test.helpers.gate import SETTINGS, STICKER, Cell, K, answer, finish, removing, running, set_to

BROKEN = AssumptionBroken(Reason.of("drift", "sharpness", count=9, rate=0.01))


# --- the clock --------------------------------------------------------------------------------------------------------------


def test_a_tick_without_a_steady_clock_tells_no_jump() -> None:
    cell = removing().tick()
    cell.wait(SETTINGS.tick_period_s)
    cell.send(Tick())
    assert cell.state.open, cell.details
    assert cell.tick().state.open, "nor does the first one after it"


def test_an_arm_that_was_to_stop_before_a_leap_gets_no_further_time() -> None:
    cell = removing().tick()
    cell.send(Hold())
    cell.tick(3).leap(100.0).tick()
    assert not cell.sent(Escalate)
    cell.tick(2)
    assert len(cell.sent(Escalate)) == 1


def test_a_leap_between_two_ticks_is_known_before_the_next_event_is_timed_by_it() -> None:
    """Else all waiting would seem to be over: an arm that has just been told to stop would be a fault."""
    cell = removing().tick()
    assert not cell.core.clock_has_jumped(cell.now, cell.steady)
    cell.send(Hold())
    cell.leap(SETTINGS.max_clock_jump_s - 1e-9)
    assert not cell.core.clock_has_jumped(cell.now, cell.steady)
    cell.leap(1e-9)
    assert cell.core.clock_has_jumped(cell.now, cell.steady)
    cell.send(Tick(cell.steady))
    assert not cell.core.clock_has_jumped(cell.now, cell.steady)
    finish(cell, RemovalCode.OPERATOR_ABORT)
    assert cell.phase is Phase.BLOCKED
    assert not cell.sent(Escalate)


def test_a_clock_that_goes_back_between_two_ticks_is_told_by_how_much() -> None:
    cell = removing().tick().wait(-5.0)
    cell.scene(STICKER)
    assert cell.state.reasons & BlockReason.CLOCK
    assert (Reason.of("clock_back", seconds=4.9),) in [e.reasons for e in cell.sent(Log)]


# --- the assumption ---------------------------------------------------------------------------------------------------------


def test_before_anything_was_seen_nobody_can_be_asked() -> None:
    cell = running()
    cell.send(BROKEN)
    assert cell.state.reasons == BlockReason.ASSUMPTION | BlockReason.NO_SCENE
    assert not cell.sent(OpenIntervention)
    cell.scene(STICKER)
    assert len(cell.sent(OpenIntervention)) == 1


def test_a_person_is_asked_though_no_scene_was_usable() -> None:
    cell = running().scene(status=Status.FAILED)
    cell.send(BROKEN)
    assert cell.phase is Phase.INTERVENTION
    assert cell.state.request is not None
    assert cell.state.request.source == ()


def test_an_assumption_is_asked_about_again_only_if_nobody_has_answered() -> None:
    cell = running().scene(STICKER)
    cell.send(BROKEN)
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    assert [e.workpiece_id for e in cell.sent(OpenIntervention)] == ["laptop-1", "laptop-2"]
    assert answer(cell, scene=SceneAnswer.RESCAN)
    cell.send(WorkpieceChanged("laptop-3", cell.now))
    assert len(cell.sent(OpenIntervention)) == 2


def test_another_question_that_nobody_has_answered_brings_back_no_answered_one() -> None:
    cell = running(set_to(max_attempts=1)).scene(STICKER, times=K)
    cell.send(BROKEN)
    assert answer(cell, scene=SceneAnswer.RESCAN)
    finish(cell, RemovalCode.MOTION_FAILED)
    assert len(cell.sent(OpenIntervention)) == 2
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    assert cell.state.request is None
    assert len(cell.sent(OpenIntervention)) == 2


# --- once only --------------------------------------------------------------------------------------------------------------


def test_a_removal_that_fails_while_a_person_is_asked_opens_no_second_request() -> None:
    cell = running(set_to(max_attempts=1)).scene(STICKER, times=K)
    cell.send(BROKEN)
    assert cell.state.request is not None
    first = cell.state.request
    finish(cell, RemovalCode.MOTION_FAILED)
    assert cell.state.request == first
    assert len(cell.sent(OpenIntervention)) == 1


def test_an_arm_that_was_told_to_stop_is_not_told_again_when_the_workpiece_changes() -> None:
    cell = removing()
    cell.send(Hold())
    cell.tick(2)
    revoked = cell.state.permit
    assert revoked is not None
    cell.send(WorkpieceChanged("laptop-2", cell.now))
    assert cell.state.permit == replace(revoked, foreign=True)
    assert cell.sent(CancelGoal) == [CancelGoal(1)]


def test_a_workpiece_that_is_done_is_not_declared_again_when_a_person_takes_it() -> None:
    cell = running().scene(times=K)
    cell.send(BROKEN)
    assert answer(cell, scene=SceneAnswer.SKIP_LAPTOP)
    assert [e.clean for e in cell.sent(DeclareDone)] == [True]


def failing(cell: Cell, *objects: Any) -> Cell:
    """The arm tries the first of these objects and fails."""
    return finish(cell.scene(*objects, times=K), RemovalCode.MOTION_FAILED)


def test_attempts_are_counted_for_each_place() -> None:
    cell = failing(running(), STICKER)
    cell = failing(cell.wait(0.1), observed(THERE))
    assert cell.state.attempts == ((HERE, 1), (THERE, 1))
    failing(cell, STICKER)
    assert cell.state.attempts == ((THERE, 1), (HERE, 2))


def test_a_verified_removal_forgets_what_was_tried_there_and_nowhere_else() -> None:
    cell = failing(failing(running(), STICKER), observed(THERE))
    finish(cell.scene(STICKER, times=K)).scene(times=K)
    assert cell.state.attempts == ((THERE, 1),)

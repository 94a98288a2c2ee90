# SPDX-License-Identifier: Apache-2.0
"""When the gate opens, for what and how long; what does not close it; time at its limits; what is asked, tried and said once."""

from dataclasses import replace
from typing import Any

import pytest

from sticker_uq.gate import BlockReason, Phase, Policy, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.scene import InvalidInput, Reason, Status
from sticker_uq.testing.scenes import HERE, SECOND, THERE, object_at
from test.helpers.gate import (
    NEARBY,
    SETTINGS,
    STICKER,
    Cell,
    K,
    answer,
    finish,
    permitted,
    removing,
    running,
    set_to,
    verifying,
)


def test_k_agreeing_scenes_open_for_one_object_and_send_one_goal():
    cell = running()
    assert (cell.phase, cell.state.reasons) == (Phase.BLOCKED, BlockReason.NO_SCENE)
    cell.scene(STICKER, object_at(THERE), times=K - 1)
    assert (cell.phase, cell.state.reasons) == (Phase.MONITORING, BlockReason.INCONSISTENT)
    assert cell.scene(NEARBY, object_at(THERE)).phase is Phase.PERMITTED
    gate, goal = cell.last[:2]
    assert isinstance(gate, ev.PublishGate)
    assert isinstance(goal, ev.SendGoal)
    assert gate.state.open
    assert gate.state.permit.target == goal.target
    assert goal.target.box == (105.0, 103.0, 185.0, 163.0)
    assert goal.target.decision_id == cell.state.decision.decision_id
    assert goal.target.image_stamp_ns == cell.state.scene.stamp_ns
    assert gate.state.permit.valid_until_ns == cell.now + round(SETTINGS.lease_s * SECOND)
    cell.scene(STICKER, object_at(THERE), times=4)
    assert len(cell.sent(ev.SendGoal)) == 1


def test_images_from_before_the_workpiece_came_do_not_count():
    cell = running()
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    cell.scene(STICKER, times=3, age=0.4)
    assert cell.state.streak.count == 0
    assert cell.state.decision.workpiece_id == ""
    cell.scene(STICKER)
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED
    assert cell.state.decision.workpiece_id == "laptop-2"
    cell.send(ev.WorkpieceChanged("laptop-2", cell.state.announced_ns))
    assert cell.phase is Phase.PERMITTED, "it is the same announcement"


def test_ticks_renew_the_lease_only_while_the_scene_is_fresh():
    cell = permitted()
    stamp = cell.state.scene.stamp_ns
    for _ in range(3):
        cell.tick()
        gate = cell.last[0]
        assert isinstance(gate, ev.PublishGate)
        assert gate.state.permit.valid_until_ns == cell.now + round(SETTINGS.lease_s * SECOND)
    cell.send(ev.GoalAccepted(cell.goal))
    cell.tick(5)
    assert cell.last[0].state.permit.valid_until_ns == stamp + SECOND
    assert cell.tick(2).phase is Phase.BLOCKED
    assert cell.state.reasons & BlockReason.STALE_SCENE


def test_an_image_stamped_ahead_of_the_clock_is_fresh_no_longer_than_any_other():
    cell = running().scene(STICKER, age=-0.04)
    cell.tick(9)
    assert not cell.state.reasons & BlockReason.STALE_SCENE
    cell.tick()
    assert cell.state.reasons & BlockReason.STALE_SCENE


def test_a_removal_that_takes_too_long_is_stopped():
    cell = removing()
    for _ in range(49):
        cell.scene(STICKER)
    assert cell.phase is Phase.REMOVING
    cell.scene(STICKER, times=2)
    assert cell.state.reasons & BlockReason.ARM_FAILED


def test_settings_and_policy_are_frozen_while_a_permit_is_out():
    cell = permitted()
    before = cell.core.policy
    with pytest.raises(InvalidInput, match="hold the gate first"):
        cell.core.configure(Policy(max_dil=1.0, max_dil_clean=1.0), SETTINGS)
    assert cell.core.policy == before
    finish(cell.tick(), ev.RemovalCode.STALE_PERMIT)
    cell.scene(STICKER, times=K - 1)
    cell.core.configure(Policy(min_probability=0.9), SETTINGS)
    cell.scene(STICKER)
    assert cell.state.reasons & BlockReason.MODEL_CHANGED
    cell.scene(STICKER, times=K - 1)
    assert not cell.state.open
    assert cell.scene(STICKER).phase is Phase.PERMITTED


# --- what is said, and when -------------------------------------------------------------------------------------------------


def test_what_does_not_change_is_neither_logged_nor_said_again():
    cell = removing()
    cell.scene(STICKER)
    assert not [e for e in cell.last if isinstance(e, ev.Log | ev.PublishGate)]
    cell.tick()
    assert [type(e) for e in cell.last] == [ev.PublishGate]


def test_the_first_fault_is_the_one_that_is_told():
    cell = running()
    first = (Reason.of("internal_error", detail="first"),)
    cell.send(ev.Fault(first))
    cell.send(ev.Fault((Reason.of("internal_error", detail="second"),)))
    assert cell.state.fault == first
    cell = running()
    cell.send(ev.Fault())
    assert cell.state.fault == (Reason("internal_error"),)


def test_enough_agreeing_scenes_are_enough_though_the_arm_is_missing():
    cell = running()
    cell.send(ev.ArmReady(False))
    cell.scene(STICKER, times=K)
    assert cell.state.reasons == BlockReason.ARM_FAILED


def test_what_closes_the_gate_begins_a_verification_anew():
    cell = verifying().scene(times=K - 1)
    cell.send(ev.Hold())
    cell.send(ev.Release())
    assert cell.scene(times=K - 1).phase is Phase.VERIFYING
    assert cell.scene().phase is Phase.MONITORING


BROKEN = ev.AssumptionBroken(Reason.of("drift", "sharpness", count=9, rate=0.01))


# --- the clock --------------------------------------------------------------------------------------------------------------


def test_a_tick_without_a_steady_clock_tells_no_jump():
    cell = removing().tick()
    cell.wait(SETTINGS.tick_period_s)
    cell.send(ev.Tick())
    assert cell.state.open, cell.details
    assert cell.tick().state.open, "nor does the first one after it"


def test_an_arm_that_was_to_stop_before_a_leap_gets_no_further_time():
    cell = removing().tick()
    cell.send(ev.Hold())
    cell.tick(3).leap(100.0).tick()
    assert not cell.sent(ev.Escalate)
    cell.tick(2)
    assert len(cell.sent(ev.Escalate)) == 1


def test_a_leap_between_two_ticks_is_known_before_the_next_event_is_timed_by_it():
    """Else all waiting would seem to be over: an arm that has just been told to stop would be a fault."""
    cell = removing().tick()
    assert not cell.core.clock_has_jumped(cell.now, cell.steady)
    cell.send(ev.Hold())
    cell.leap(SETTINGS.max_clock_jump_s - 1e-9)
    assert not cell.core.clock_has_jumped(cell.now, cell.steady)
    cell.leap(1e-9)
    assert cell.core.clock_has_jumped(cell.now, cell.steady)
    cell.send(ev.Tick(cell.steady))
    assert not cell.core.clock_has_jumped(cell.now, cell.steady)
    assert finish(cell, ev.RemovalCode.OPERATOR_ABORT).phase is Phase.BLOCKED
    assert not cell.sent(ev.Escalate)


def test_a_clock_that_goes_back_between_two_ticks_is_told_by_how_much():
    cell = removing().tick().wait(-5.0)
    cell.scene(STICKER)
    assert cell.state.reasons & BlockReason.CLOCK
    assert (Reason.of("clock_back", seconds=4.9),) in [e.reasons for e in cell.sent(ev.Log)]


# --- the assumption ---------------------------------------------------------------------------------------------------------


def test_before_anything_was_seen_nobody_can_be_asked():
    cell = running()
    cell.send(BROKEN)
    assert cell.state.reasons == BlockReason.ASSUMPTION | BlockReason.NO_SCENE
    assert not cell.sent(ev.OpenIntervention)
    cell.scene(STICKER)
    assert len(cell.sent(ev.OpenIntervention)) == 1


def test_a_person_is_asked_though_no_scene_was_usable():
    cell = running().scene(status=Status.FAILED)
    cell.send(BROKEN)
    assert cell.phase is Phase.INTERVENTION
    assert cell.state.request.source == ()


def test_an_assumption_is_asked_about_again_only_if_nobody_has_answered():
    cell = running().scene(STICKER)
    cell.send(BROKEN)
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert [e.workpiece_id for e in cell.sent(ev.OpenIntervention)] == ["laptop-1", "laptop-2"]
    assert answer(cell, scene=SceneAnswer.RESCAN)
    cell.send(ev.WorkpieceChanged("laptop-3", cell.now))
    assert len(cell.sent(ev.OpenIntervention)) == 2


def test_another_question_that_nobody_has_answered_brings_back_no_answered_one():
    cell = running(set_to(max_attempts=1)).scene(STICKER, times=K)
    cell.send(BROKEN)
    assert answer(cell, scene=SceneAnswer.RESCAN)
    finish(cell, ev.RemovalCode.MOTION_FAILED)
    assert len(cell.sent(ev.OpenIntervention)) == 2
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert cell.state.request is None
    assert len(cell.sent(ev.OpenIntervention)) == 2


# --- once only --------------------------------------------------------------------------------------------------------------


def test_a_removal_that_fails_while_a_person_is_asked_opens_no_second_request():
    cell = running(set_to(max_attempts=1)).scene(STICKER, times=K)
    cell.send(BROKEN)
    assert cell.state.request is not None
    first = cell.state.request
    finish(cell, ev.RemovalCode.MOTION_FAILED)
    assert cell.state.request == first
    assert len(cell.sent(ev.OpenIntervention)) == 1


def test_an_arm_that_was_told_to_stop_is_not_told_again_when_the_workpiece_changes():
    cell = removing()
    cell.send(ev.Hold())
    cell.tick(2)
    revoked = cell.state.permit
    assert revoked is not None
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert cell.state.permit == replace(revoked, foreign=True)
    assert cell.sent(ev.CancelGoal) == [ev.CancelGoal(1)]


def test_a_workpiece_that_is_done_is_not_declared_again_when_a_person_takes_it():
    cell = running().scene(times=K)
    cell.send(BROKEN)
    assert answer(cell, scene=SceneAnswer.SKIP_LAPTOP)
    assert [e.clean for e in cell.sent(ev.DeclareDone)] == [True]


def failing(cell: Cell, *objects: Any) -> Cell:
    """The arm tries the first of these objects and fails."""
    return finish(cell.scene(*objects, times=K), ev.RemovalCode.MOTION_FAILED)


def test_attempts_are_counted_for_each_place():
    cell = failing(running(), STICKER)
    cell = failing(cell.wait(0.1), object_at(THERE))
    assert cell.state.attempts == ((HERE, 1), (THERE, 1))
    failing(cell, STICKER)
    assert cell.state.attempts == ((THERE, 1), (HERE, 2))


def test_a_verified_removal_forgets_what_was_tried_there_and_nowhere_else():
    cell = failing(failing(running(), STICKER), object_at(THERE))
    finish(cell.scene(STICKER, times=K)).scene(times=K)
    assert cell.state.attempts == ((THERE, 1),)

# SPDX-License-Identifier: Apache-2.0
"""The gate and the arm: ends of goals, verification, attempts, an arm that does not stop, faults."""

from dataclasses import replace

import pytest

from sticker_uq.gate import Answer, BlockReason, OperatorAnswer, Phase, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.scene import Reason
from sticker_uq.testing.scenes import ELSEWHERE, HERE, assessment, object_at
from test.helpers.gate import (
    CANCELLED,
    NEARBY,
    SETTINGS,
    STICKER,
    UNSURE,
    K,
    answer,
    asking,
    codes,
    faulted,
    finish,
    permitted,
    removing,
    running,
    verifying,
)


def test_a_removal_is_verified_on_images_taken_after_it():
    cell = verifying()
    end = cell.now
    cell.scene(times=2, stamp_ns=end)
    assert cell.state.verification.gone == 0
    cell.scene(times=K - 1)
    assert not cell.sent(ev.RemovalVerified)
    cell.scene()
    assert [e.target.box for e in cell.sent(ev.RemovalVerified)] == [HERE]
    assert cell.phase is Phase.MONITORING
    assert cell.state.attempts == ()


def test_scenes_must_agree_in_a_row_that_it_is_gone():
    cell = verifying()
    for _ in range(4):
        cell.scene()
        cell.scene(STICKER)
    assert cell.phase is Phase.VERIFYING
    assert cell.scene(NEARBY).phase is Phase.INTERVENTION


def test_a_sticker_that_stays_is_asked_about_and_tried_once_more_for_each_answer():
    cell = verifying().scene(STICKER, times=K)
    for tried in (1, 2):
        assert cell.phase is Phase.INTERVENTION
        request = cell.sent(ev.OpenIntervention)[-1]
        assert codes(request.reasons) == ["sticker_still_there", "objects_to_decide"]
        assert [v.object.box.tolist() for v in request.objects] == [list(HERE)]
        assert answer(cell, scene=SceneAnswer.RESCAN)
        assert cell.scene(NEARBY, times=K).phase is Phase.INTERVENTION
        assert len(cell.sent(ev.SendGoal)) == tried
        assert answer(cell, OperatorAnswer(Answer.REMOVE, as_box(NEARBY.box)))
        assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED
        cell.send(ev.GoalAccepted(cell.goal))
        finish(cell).scene(STICKER, times=K)


def test_what_comes_back_where_a_removal_was_verified_is_asked_about():
    """A print that the scenes lose for a moment is not a second sticker; the next workpiece has none of its places."""
    cell = verifying().scene(times=K)
    assert cell.sent(ev.RemovalVerified)
    assert cell.scene(object_at(ELSEWHERE), times=K).phase is Phase.PERMITTED
    cell.send(ev.GoalAccepted(cell.goal))
    finish(cell, ev.RemovalCode.MOTION_FAILED).scene(STICKER, times=K)
    assert codes(cell.sent(ev.OpenIntervention)[0].reasons)[0] == "sticker_still_there"
    cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED


def test_a_doubtful_verification_becomes_a_question():
    cell = verifying()
    for _ in range(16):
        cell.scene()
        cell.scene(STICKER)
    assert cell.phase is Phase.INTERVENTION
    assert "removal_unverified" in codes(cell.sent(ev.OpenIntervention)[0].reasons)


@pytest.mark.parametrize(
    "code", sorted(set(ev.RemovalCode) - {ev.RemovalCode.NONE, ev.RemovalCode.NOT_STOPPED, CANCELLED})
)
def test_failures_are_retried_a_bounded_number_of_times(code):
    cell = finish(removing(), code)
    assert cell.phase is Phase.MONITORING
    cell.scene(NEARBY)
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED
    assert finish(cell, code).phase is Phase.INTERVENTION
    assert Reason("arm_reported", code.name.lower()) in cell.sent(ev.OpenIntervention)[0].reasons
    cell.scene(STICKER, times=20)
    assert len(cell.sent(ev.OpenIntervention)) == 1
    assert len(cell.sent(ev.SendGoal)) == 2


def test_an_arm_that_somebody_else_stopped_calls_a_person_at_once():
    cell = finish(removing(), CANCELLED)
    assert cell.phase is Phase.INTERVENTION
    assert "arm_stopped" in codes(cell.sent(ev.OpenIntervention)[0].reasons)


def test_a_goal_that_we_cancelled_is_a_failure_unless_a_person_held_the_gate():
    cell = removing().scene(UNSURE)
    finish(cell, CANCELLED)
    assert cell.state.attempts == ((HERE, 1),)
    assert cell.logged[-2][:3] == ["attempt_failed", "removal_stopped", "object_not_removable"]
    cell = removing()
    cell.send(ev.Hold())
    finish(cell, CANCELLED)
    assert cell.state.attempts == ()
    assert cell.phase is Phase.BLOCKED


def test_an_arm_that_does_not_stop_is_a_fault_and_is_escalated_once():
    cell = removing()
    cell.send(ev.Hold())
    assert cell.tick(7).phase is Phase.FAULT
    (escalation,) = cell.sent(ev.Escalate)
    assert escalation.reason == Reason.of("arm_does_not_stop", goal=1, seconds=SETTINGS.cancel_timeout_s)
    cell.tick(20)
    assert len(cell.sent(ev.Escalate)) == 1


def test_an_arm_that_says_that_it_could_not_stop_is_escalated_at_once():
    cell = removing()
    cell.send(ev.Hold())
    cell.send(ev.RemovalFinished(cell.goal, ev.RemovalCode.NOT_STOPPED, "brake"))
    assert cell.phase is Phase.FAULT
    assert cell.state.stop_demanded
    (escalation,) = cell.sent(ev.Escalate)
    assert escalation.reason == Reason.of("arm_not_stopped", goal=1, detail="brake")
    cell.send(ev.Release())
    assert cell.scene(STICKER, times=K + 1).phase is Phase.FAULT
    cell.send(ev.Reset())
    assert not cell.state.stop_demanded
    assert cell.scene(STICKER, times=K + 1).phase is Phase.PERMITTED
    assert len(cell.sent(ev.Escalate)) == 1


def test_a_fault_of_another_kind_does_not_hide_an_arm_that_does_not_stop():
    cell = faulted().tick(7)
    assert len(cell.sent(ev.Escalate)) == 1
    assert cell.state.details[0] == Reason("internal_error")


def test_a_removal_that_ended_well_after_it_was_revoked_is_verified_too():
    cell = removing().scene(UNSURE)
    assert finish(cell).phase is Phase.VERIFYING


def test_an_arm_that_starts_too_late_is_stopped_again():
    cell = permitted()
    cell.send(ev.Hold())
    cell.send(ev.GoalAccepted(cell.goal))
    assert cell.sent(ev.CancelGoal) == [ev.CancelGoal(1), ev.CancelGoal(1)]
    finish(cell, CANCELLED)
    cell.send(ev.GoalAccepted(1))
    assert len(cell.sent(ev.CancelGoal)) == 3


def test_words_of_the_arm_about_another_goal_change_nothing():
    cell = removing()
    before = replace(cell.state, now_ns=0)
    finish(cell)
    verified = replace(cell.state, now_ns=0)
    assert before != verified
    finish(cell, ev.RemovalCode.MOTION_FAILED)  # answers twice
    cell.send(ev.GoalRejected(cell.goal))
    cell.send(ev.RemovalFinished(99, ev.RemovalCode.NONE))
    assert replace(cell.state, now_ns=0) == verified


def test_a_goal_of_the_workpiece_before_counts_for_nothing():
    for code in (ev.RemovalCode.NONE, ev.RemovalCode.MOTION_FAILED):
        cell = removing()
        cell.send(ev.WorkpieceChanged("laptop-2", cell.now))
        finish(cell, code)
        assert cell.state.verification is None
        assert cell.state.attempts == ()


def test_reset_leaves_nothing_but_a_fault():
    for make in (running, permitted, removing, verifying, asking):
        cell = make()
        phase = cell.phase
        cell.send(ev.Reset())
        assert not cell.reply().accepted
        assert cell.phase is phase


def test_a_reset_while_the_arm_has_not_stopped_stays_closed():
    cell = faulted().tick(7)
    cell.send(ev.Reset())
    assert cell.reply().accepted
    assert cell.phase is Phase.BLOCKED
    assert cell.sent(ev.CancelGoal) == [ev.CancelGoal(1), ev.CancelGoal(1)]
    assert cell.scene(STICKER, times=3).phase is Phase.BLOCKED
    assert cell.tick(4).phase is Phase.FAULT
    assert len(cell.sent(ev.Escalate)) == 2
    cell.send(ev.Reset())
    finish(cell, CANCELLED)
    assert cell.scene(STICKER, times=K + 1).phase is Phase.PERMITTED


def test_a_goal_that_was_lost_with_the_arm_is_given_up_by_a_reset():
    cell = removing()
    cell.send(ev.ArmLost())
    assert not cell.state.open
    assert cell.logged[-2] == ["permit_revoked", "arm_server_lost"]
    assert cell.tick(7).phase is Phase.FAULT
    cell.send(ev.ArmReady(True))
    assert cell.phase is Phase.FAULT
    cell.send(ev.Reset())
    assert codes(cell.reply().reasons) == ["fault_reset", "goal_given_up"]
    assert cell.scene(STICKER, times=K).phase is Phase.PERMITTED
    assert cell.goal == 2


def test_a_reset_waits_for_an_arm_that_fell_silent():
    cell = removing()
    cell.send(ev.ArmReady(False))
    cell.tick(7)
    cell.send(ev.Reset())
    assert codes(cell.reply().reasons) == ["fault_reset", "goal_awaited"]
    cell.send(ev.ArmReady(True))
    assert cell.scene(STICKER, times=K + 1).phase is Phase.BLOCKED


def test_a_scene_of_odd_numbers_closes_until_the_next_ones():
    cell = permitted()
    cell.wait(0.1)
    cell.assess(replace(assessment(STICKER), objects=(replace(STICKER, box=STICKER.box[:3]),)))
    assert cell.phase is Phase.BLOCKED
    assert BlockReason.FAILED_SCENE in cell.state.reasons
    assert cell.details[0] == "scene_not_judged"


def test_a_failure_of_the_judge_itself_is_a_fault(monkeypatch):
    def failing(*_: object) -> None:
        raise RuntimeError("in the judge")

    cell = permitted()
    cell.wait(0.1)
    monkeypatch.setattr("sticker_uq.gate.controller.judge", failing)
    cell.assess(assessment(STICKER))
    assert cell.phase is Phase.FAULT
    assert cell.details[0] == "scene_not_judged"


# --- at the limits of each rule ---------------------------------------------------------------------------------------------


def test_a_goal_rejected_after_a_hold_is_no_failed_attempt():
    cell = permitted()
    cell.send(ev.Hold())
    cell.send(ev.GoalRejected(cell.goal))
    assert cell.state.attempts == ()


def test_a_lease_ends_to_the_nanosecond():
    cell = removing().wait(SETTINGS.lease_s)
    cell.now -= 1
    cell.send(ev.Tick())
    assert cell.state.open
    cell = removing().wait(SETTINGS.lease_s)
    cell.send(ev.Tick())
    assert not cell.state.open
    assert cell.logged[-2] == ["permit_revoked", "permit_not_renewed"]

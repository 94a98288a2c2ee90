# SPDX-License-Identifier: Apache-2.0
"""What an arm does with driver, goals and permits, and what it says meanwhile; every end of a motion has its own result."""

import threading
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from rclpy.action import GoalResponse
from rclpy.action.server import ServerGoalHandle

from sticker_uq.gate.permit import Lease
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.nodes.arm.client import MotionFailed, MotionStep
from sticker_uq.testing.arm import (
    APPROACH,
    DECISION,
    OBJECT,
    PEEL,
    RETREAT,
    UNTIL_STOPPED,
    ArmBench,
    Feedback,
    Result,
)
from sticker_uq.testing.bench import PATIENCE_S
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import ArmStatus, GateState, ObservedObject


@pytest.mark.parametrize("state", [GateState.STATE_PERMITTED, GateState.STATE_REMOVING])
def test_under_a_permit_all_steps_are_done(rig, state, monkeypatch):
    # taken where the arm says it: a reader that is matched late misses the first feedback
    told: list[Feedback] = []
    monkeypatch.setattr(ServerGoalHandle, "publish_feedback", lambda _, feedback: told.append(feedback))
    rig.gate.permit(state=state)
    status, code, _ = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
    assert rig.motion.started == [APPROACH.phase, PEEL.phase, RETREAT.phase]
    assert rig.motion.stops == 0
    rig.bench.until(lambda: len(told) == 3, "the feedback, which may come after the result")
    assert [(f.phase, f.progress) for f in told] == [(s.phase, s.progress) for s in (APPROACH, PEEL, RETREAT)]


@pytest.mark.parametrize(
    ("error", "expected", "expected_text"),
    [
        (MotionFailed("the blade slipped"), Result.ERROR_MOTION_FAILED, "the blade slipped"),
        (
            MotionFailed("at the pendant", Result.ERROR_OPERATOR_ABORT),
            Result.ERROR_OPERATOR_ABORT,
            "at the pendant",
        ),
        (KeyError("axis 4"), Result.ERROR_UNKNOWN, "KeyError('axis 4')"),
        (TimeoutError("no answer"), Result.ERROR_UNKNOWN, "TimeoutError('no answer')"),
    ],
)
def test_a_driver_that_raises_ends_the_goal_and_not_the_arm(rig, error, expected, expected_text):
    rig.motion.script = [APPROACH, error]
    rig.gate.permit()
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, expected, expected_text)
    assert rig.motion.stops == 1
    rig.assert_usable()


def test_a_driver_that_cannot_stop_ends_the_goal_too(rig):
    rig.motion.script = [APPROACH, MotionFailed("the blade slipped")]
    rig.motion.stop_error = OSError("brake")
    rig.gate.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_NOT_STOPPED)
    assert text == "the blade slipped; the arm did not stop: OSError('brake')"
    rig.assert_usable()


def test_a_motion_that_takes_too_long_is_stopped(bench):
    with ArmBench(bench, timeout_s=2.0) as rig:
        rig.motion.script = [UNTIL_STOPPED, RETREAT]
        rig.gate.permit()
        status, code, text = rig.result(rig.send())
        assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_TIMEOUT)
        assert text == "the motion took more than 2 s"
        assert rig.motion.stops == 1
        assert rig.motion.started == [UNTIL_STOPPED.phase]


def test_a_piece_lasts_until_the_driver_says_that_it_is_finished(rig):
    asked: list[bool] = []

    def finished() -> bool:
        asked.append(True)
        return len(asked) == 3

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, finished), RETREAT]
    rig.gate.permit()
    assert rig.result(rig.send())[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
    assert len(asked) == 3
    assert rig.motion.started == [APPROACH.phase, RETREAT.phase]


def test_a_piece_that_is_never_finished_times_out(rig):
    rig.motion.script = [MotionStep(Feedback.PHASE_PEEL, 0.1, 0.8, lambda: False), RETREAT]
    rig.gate.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_TIMEOUT)
    assert text == "phase 3 took more than 0.1 s"
    assert rig.motion.started == [PEEL.phase]
    assert rig.motion.stops == 1


def test_a_gate_that_closes_between_two_pieces_starts_no_other(rig):
    def close_and_finish() -> bool:
        rig.arm._watch.update(None)
        return True

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, close_and_finish), RETREAT]
    rig.gate.permit()
    _, code, _ = rig.result(rig.send())
    assert code == Result.ERROR_PERMIT_REVOKED
    assert rig.motion.started == [APPROACH.phase]


def test_an_arm_says_that_it_is_there_also_while_it_moves(rig):
    said = rig.bench.collect(ArmStatus, "arm/status")
    rig.start_motion()
    heard = len(said)
    rig.bench.until(lambda: len(said) >= heard + 5, "more of what it says")
    assert len({message.arm for message in said}) == 1
    assert said[0].arm
    stamps = [stamp_to_ns(message.header.stamp) for message in said]
    assert stamps == sorted(set(stamps))


def test_an_arm_that_was_started_again_is_another_one(bench):
    said = bench.collect(ArmStatus, "arm/status")
    for number in (1, 2):
        with ArmBench(bench):
            bench.until(lambda n=number: len({message.arm for message in said}) == n, "what it says")


def test_a_motion_that_failed_cannot_count_as_done():
    with pytest.raises(ValueError, match="cannot end with ERROR_NONE: the blade slipped"):
        MotionFailed("the blade slipped", Result.ERROR_NONE)


def cancel(rig: ArmBench, handle: Any) -> None:
    future = handle.cancel_goal_async()
    rig.bench.until(future.done, "an answer to the cancellation")
    assert len(future.result().goals_canceling) == 1


def test_a_cancelled_goal_stops_the_motion(rig):
    handle = rig.start_motion()
    cancel(rig, handle)
    status, code, _ = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_a_goal_cancelled_before_its_permit_never_moves(rig):
    handle = rig.send()
    cancel(rig, handle)
    rig.gate.permit()
    status, code, _ = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    assert rig.motion.started == []


def test_a_goal_that_waits_for_its_permit_makes_way_for_a_newer_one(rig):
    # the first one's sender may have been killed: its permit will never come
    waiting = rig.send(decision_id="of a supervisor that died")
    rig.gate.permit()
    newer = rig.send()
    assert newer.accepted
    status, code, text = rig.result(waiting)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert "a newer goal replaced" in text
    assert rig.result(newer)[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)


def test_a_second_goal_is_rejected_while_the_arm_moves(rig):
    handle = rig.start_motion()
    assert not rig.send().accepted
    rig.gate.close()
    assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_goals_accepted_at_the_same_moment_do_not_share_the_arm(rig):
    handle = rig.start_motion()
    rig.arm._server.register_goal_callback(lambda _: GoalResponse.ACCEPT)
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, Result.ERROR_UNKNOWN, "the arm is busy")
    assert rig.motion.stops == 0
    rig.gate.close()
    assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()


def test_a_goal_whose_client_went_away_before_the_answer_does_not_block_the_arm(rig):
    # rclpy never executes a goal that was accepted but whose answer could not be sent
    assert rig.arm._on_goal(RemoveSticker.Goal()) == GoalResponse.ACCEPT
    rig.assert_usable()


@pytest.mark.parametrize(
    "changes",
    [{"label": ObservedObject.LABEL_LOGO}, {"label": 77}, {"decision_id": ""}],
    ids=["logo", "unknown_label", "no_decision"],
)
def test_a_goal_that_names_no_sticker_of_a_decision_is_invalid(rig, changes):
    rig.gate.permit()
    status, code, text = rig.result(rig.send(**changes))
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_INVALID_GOAL)
    assert "is not a sticker" in text
    assert rig.motion.started == []


def test_a_supervisor_that_dies_takes_its_permit_along(rig):
    """However long it was given for; the next supervisor begins anew."""
    handle = rig.start_motion()
    rig.gate.disappear()
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    assert text == "the supervisor has died or gone"
    rig.assert_stopped_before_the_last_step()
    rig.gate.appear()
    rig.assert_usable()


def test_what_a_dead_supervisor_said_last_does_not_let_the_arm_go_on(rig, monkeypatch):
    """It may be read after the news of the death."""
    handle = rig.start_motion()
    lose = rig.arm._watch.lose

    def lose_and_hear() -> None:
        lose()
        rig.arm._watch.update(Lease(DECISION, OBJECT, 2**62))

    monkeypatch.setattr(rig.arm._watch, "lose", lose_and_hear)
    rig.gate.disappear()
    assert rig.result(handle)[1:] == (Result.ERROR_PERMIT_REVOKED, "the supervisor has died or gone")


def test_a_middleware_that_blocks_does_not_delay_the_stop(rig, monkeypatch):
    """The thread that watches over the permit publishes nothing."""
    go = threading.Event()
    monkeypatch.setattr(ServerGoalHandle, "publish_feedback", lambda *_: go.wait(PATIENCE_S))
    try:
        rig.motion.script = [APPROACH, UNTIL_STOPPED, RETREAT]
        rig.gate.permit()
        handle = rig.send()
        rig.bench.until(lambda: len(rig.motion.started) == 2, "the arm moves")
        rig.gate.close()
        assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
        assert not go.is_set()
        rig.assert_stopped_before_the_last_step()
    finally:
        go.set()


def test_without_a_permit_nothing_moves(hasty):
    status, code, text = hasty.result(hasty.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert text == "the gate is closed"
    assert hasty.motion.started == []
    hasty.arm._permit_wait_s = 60.0
    hasty.assert_usable()


NAMED = {"decision_id": DECISION, "object_id": OBJECT}
ENDS = {
    "blocked": (lambda gate: gate.close(), Result.ERROR_PERMIT_REVOKED, "the gate is closed"),
    "open in a closed state": (
        lambda gate: gate.close(open=True, state=GateState.STATE_VERIFYING, **NAMED),
        Result.ERROR_PERMIT_REVOKED,
        "the gate is closed",
    ),
    "not open": (
        lambda gate: gate.close(open=False, state=GateState.STATE_REMOVING, **NAMED),
        Result.ERROR_PERMIT_REVOKED,
        "the gate is closed",
    ),
    "of another object": (lambda gate: gate.permit(object_id=OBJECT + 1), Result.ERROR_PERMIT_REVOKED, ""),
    "run out": (lambda gate: gate.permit(lease_s=0.2), Result.ERROR_STALE_PERMIT, "expired"),
}
"""What ends a permit while the arm moves, with the code and the words of the result."""


@pytest.mark.parametrize("end", ENDS)
def test_a_permit_that_ends_stops_the_motion(rig, end):
    happens, expected, said = ENDS[end]
    handle = rig.start_motion()
    happens(rig.gate)
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, expected)
    assert said in text
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()

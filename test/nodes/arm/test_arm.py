# SPDX-License-Identifier: Apache-2.0
"""What an arm does with its driver, and what it says meanwhile; every end of a motion has its own result."""

from __future__ import annotations

import pytest
from action_msgs.msg import GoalStatus
from rclpy.action.server import ServerGoalHandle

from sticker_uq.nodes.arm.client import MotionFailed, MotionStep
from sticker_uq.nodes.common.conversions import stamp_to_ns
from sticker_uq.testing.arm import APPROACH, PEEL, RETREAT, UNTIL_STOPPED, ArmBench, Feedback, Result
from sticker_uq.testing.bench import Bench
from sticker_uq_msgs.msg import ArmStatus, GateState


@pytest.mark.parametrize("state", [GateState.STATE_PERMITTED, GateState.STATE_REMOVING])
def test_under_a_permit_all_steps_are_done(
    rig: ArmBench, state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_driver_that_raises_ends_the_goal_and_not_the_arm(
    rig: ArmBench, error: Exception, expected: int, expected_text: str
) -> None:
    rig.motion.script = [APPROACH, error]
    rig.gate.permit()
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, expected, expected_text)
    assert rig.motion.stops == 1
    rig.assert_usable()


def test_a_driver_that_cannot_stop_ends_the_goal_too(rig: ArmBench) -> None:
    rig.motion.script = [APPROACH, MotionFailed("the blade slipped")]
    rig.motion.stop_error = OSError("brake")
    rig.gate.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_NOT_STOPPED)
    assert text == "the blade slipped; the arm did not stop: OSError('brake')"
    rig.assert_usable()


def test_a_motion_that_takes_too_long_is_stopped(bench: Bench) -> None:
    with ArmBench(bench, timeout_s=2.0) as rig:
        rig.motion.script = [UNTIL_STOPPED, RETREAT]
        rig.gate.permit()
        status, code, text = rig.result(rig.send())
        assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_TIMEOUT)
        assert text == "the motion took more than 2 s"
        assert rig.motion.stops == 1
        assert rig.motion.started == [UNTIL_STOPPED.phase]


def test_a_piece_lasts_until_the_driver_says_that_it_is_finished(rig: ArmBench) -> None:
    asked: list[bool] = []

    def finished() -> bool:
        asked.append(True)
        return len(asked) == 3

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, finished), RETREAT]
    rig.gate.permit()
    assert rig.result(rig.send())[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
    assert len(asked) == 3
    assert rig.motion.started == [APPROACH.phase, RETREAT.phase]


def test_a_piece_that_is_never_finished_times_out(rig: ArmBench) -> None:
    rig.motion.script = [MotionStep(Feedback.PHASE_PEEL, 0.1, 0.8, lambda: False), RETREAT]
    rig.gate.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_TIMEOUT)
    assert text == "phase 3 took more than 0.1 s"
    assert rig.motion.started == [PEEL.phase]
    assert rig.motion.stops == 1


def test_a_motion_that_fails_on_its_way_says_so(rig: ArmBench) -> None:
    def finished() -> bool:
        raise MotionFailed("no plan")

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, finished), RETREAT]
    rig.gate.permit()
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, Result.ERROR_MOTION_FAILED, "no plan")
    assert rig.motion.stops == 1


def test_a_gate_that_closes_between_two_pieces_starts_no_other(rig: ArmBench) -> None:
    def close_and_finish() -> bool:
        rig.arm._watch.update(None)
        return True

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, close_and_finish), RETREAT]
    rig.gate.permit()
    _, code, _ = rig.result(rig.send())
    assert code == Result.ERROR_PERMIT_REVOKED
    assert rig.motion.started == [APPROACH.phase]


def test_an_arm_says_that_it_is_there_also_while_it_moves(rig: ArmBench) -> None:
    said = rig.bench.collect(ArmStatus, "arm/status")
    rig.moving()
    heard = len(said)
    rig.bench.until(lambda: len(said) >= heard + 5, "more of what it says")
    assert len({message.arm for message in said}) == 1
    assert said[0].arm
    stamps = [stamp_to_ns(message.header.stamp) for message in said]
    assert stamps == sorted(set(stamps))


def test_an_arm_that_was_started_again_is_another_one(bench: Bench) -> None:
    said = bench.collect(ArmStatus, "arm/status")
    for number in (1, 2):
        with ArmBench(bench):
            bench.until(lambda n=number: len({message.arm for message in said}) == n, "what it says")


def test_a_motion_that_failed_cannot_count_as_done() -> None:
    with pytest.raises(ValueError, match="cannot end with ERROR_NONE: the blade slipped"):
        MotionFailed("the blade slipped", Result.ERROR_NONE)

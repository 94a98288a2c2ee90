# SPDX-License-Identifier: Apache-2.0
"""Goals that are cancelled, come too soon or name no sticker."""

from __future__ import annotations

from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from rclpy.action import GoalResponse

from sticker_uq.testing.arm import ArmBench, Result
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import ObservedObject


def cancel(rig: ArmBench, handle: Any) -> None:
    future = handle.cancel_goal_async()
    rig.bench.until(future.done, "an answer to the cancellation")
    assert len(future.result().goals_canceling) == 1


def test_a_cancelled_goal_stops_the_motion(rig: ArmBench) -> None:
    handle = rig.moving()
    cancel(rig, handle)
    status, code, _ = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_a_goal_cancelled_before_its_permit_never_moves(rig: ArmBench) -> None:
    handle = rig.send()
    cancel(rig, handle)
    rig.gate.permit()
    status, code, _ = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    assert rig.motion.started == []


def test_a_goal_that_waits_for_its_permit_makes_way_for_a_newer_one(rig: ArmBench) -> None:
    # the first one's sender may have been killed: its permit will never come
    waiting = rig.send(decision_id="of a supervisor that died")
    rig.gate.permit()
    newer = rig.send()
    assert newer.accepted
    status, code, text = rig.result(waiting)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert "a newer goal replaced" in text
    assert rig.result(newer)[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)


def test_a_second_goal_is_rejected_while_the_arm_moves(rig: ArmBench) -> None:
    handle = rig.moving()
    assert not rig.send().accepted
    rig.gate.close()
    assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_goals_accepted_at_the_same_moment_do_not_share_the_arm(rig: ArmBench) -> None:
    handle = rig.moving()
    rig.arm._server.register_goal_callback(lambda _: GoalResponse.ACCEPT)
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, Result.ERROR_UNKNOWN, "the arm is busy")
    assert rig.motion.stops == 0
    rig.gate.close()
    assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()


def test_a_goal_whose_client_went_away_before_the_answer_does_not_block_the_arm(rig: ArmBench) -> None:
    # rclpy never executes a goal that was accepted but whose answer could not be sent
    assert rig.arm._on_goal(RemoveSticker.Goal()) == GoalResponse.ACCEPT
    rig.assert_usable()


@pytest.mark.parametrize(
    "changes",
    [{"label": ObservedObject.LABEL_LOGO}, {"label": 77}, {"decision_id": ""}],
    ids=["logo", "unknown_label", "no_decision"],
)
def test_a_goal_that_names_no_sticker_of_a_decision_is_invalid(
    rig: ArmBench, changes: dict[str, Any]
) -> None:
    rig.gate.permit()
    status, code, text = rig.result(rig.send(**changes))
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_INVALID_GOAL)
    assert "is not a sticker" in text
    assert rig.motion.started == []

# SPDX-License-Identifier: Apache-2.0
"""An arm moves only while a living supervisor permits it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from rclpy.action.server import ServerGoalHandle

from sticker_uq.gate.permit import Lease
from sticker_uq.testing.arm import APPROACH, DECISION, OBJECT, RETREAT, UNTIL_STOPPED, ArmBench, Result
from sticker_uq.testing.bench import PATIENCE_S
from sticker_uq_msgs.msg import GateState


def test_a_supervisor_that_dies_takes_its_permit_along(rig: ArmBench) -> None:
    """However long it was given for; the next supervisor begins anew."""
    handle = rig.moving()
    rig.gate.disappear()
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    assert text == "the supervisor has died or gone"
    rig.assert_stopped_before_the_last_step()
    rig.gate.appear()
    rig.assert_usable()


def test_what_a_dead_supervisor_said_last_does_not_let_the_arm_go_on(
    rig: ArmBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be read after the news of the death."""
    handle = rig.moving()
    lose = rig.arm._watch.lose

    def lose_and_hear() -> None:
        lose()
        rig.arm._watch.update(Lease(DECISION, OBJECT, 2**62))

    monkeypatch.setattr(rig.arm._watch, "lose", lose_and_hear)
    rig.gate.disappear()
    assert rig.result(handle)[1:] == (Result.ERROR_PERMIT_REVOKED, "the supervisor has died or gone")


def test_a_middleware_that_blocks_does_not_delay_the_stop(
    rig: ArmBench, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_without_a_permit_nothing_moves(hasty: ArmBench) -> None:
    status, code, text = hasty.result(hasty.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert text == "the gate is closed"
    assert hasty.motion.started == []
    hasty.arm._permit_wait_s = 60.0
    hasty.assert_usable()


def test_a_permit_for_another_object_is_none(hasty: ArmBench) -> None:
    hasty.gate.permit(object_id=OBJECT + 1)
    hasty.bench.until(lambda: not hasty.arm._watch.refusal(DECISION, OBJECT + 1), "the permit has arrived")
    status, code, text = hasty.result(hasty.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert text == f"the permit is for object {OBJECT + 1} of decision {DECISION}"
    assert hasty.motion.started == []


def test_a_permit_that_has_expired_before_is_none(hasty: ArmBench) -> None:
    hasty.gate.permit(lease_s=-1.0)
    hasty.bench.until(lambda: hasty.arm._watch.expired(DECISION, OBJECT), "the permit has arrived")
    _, code, text = hasty.result(hasty.send())
    assert code == Result.ERROR_STALE_PERMIT
    assert "expired" in text
    assert hasty.motion.started == []


@pytest.mark.parametrize(
    "closed",
    [
        {},
        {"open": True, "state": GateState.STATE_VERIFYING, "decision_id": DECISION, "object_id": OBJECT},
        {"open": False, "state": GateState.STATE_REMOVING, "decision_id": DECISION, "object_id": OBJECT},
    ],
    ids=["blocked", "open_in_a_closed_state", "not_open"],
)
def test_a_gate_that_closes_stops_the_motion(rig: ArmBench, closed: dict[str, Any]) -> None:
    handle = rig.moving()
    rig.gate.close(**closed)
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    assert text == "the gate is closed"
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_a_permit_that_goes_to_another_object_stops_the_motion(rig: ArmBench) -> None:
    handle = rig.moving()
    rig.gate.permit(object_id=OBJECT + 1)
    _, code, _ = rig.result(handle)
    assert code == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()


def test_a_lease_that_runs_out_stops_the_motion(rig: ArmBench) -> None:
    handle = rig.moving()
    rig.gate.permit(lease_s=0.2)
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert "expired" in text
    rig.assert_stopped_before_the_last_step()

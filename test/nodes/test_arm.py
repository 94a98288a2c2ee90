"""The arm moves only under a valid permit, and every end of a motion has its own result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import rclpy
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.duration import Duration

from sticker_uq.nodes import qos
from sticker_uq.nodes.arm import ArmClient, MotionFailed, MotionStep
from sticker_uq.nodes.arm_executor import ArmExecutor
from sticker_uq.nodes.conversions import stamp_to_ns
from sticker_uq.nodes.permit import Permit
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import ArmStatus, GateState, ObservedObject
from test.helpers.ros import PATIENCE_S, Bench

Result = RemoveSticker.Result
Feedback = RemoveSticker.Feedback
DECISION, OBJECT = "decision-1", 3
APPROACH = MotionStep(Feedback.PHASE_APPROACH, 0.0, 0.4)
PEEL = MotionStep(Feedback.PHASE_PEEL, 0.0, 0.8)
RETREAT = MotionStep(Feedback.PHASE_RETREAT, 0.0, 1.0)
UNTIL_STOPPED = MotionStep(Feedback.PHASE_PEEL, 600.0, 0.8)


class ScriptedMotion:
    """Does the steps of ``script`` one after the other and raises the exceptions in it."""

    def __init__(self) -> None:
        self.script: list[MotionStep | Exception] = [APPROACH, PEEL, RETREAT]
        self.started: list[int] = []
        self.stops = 0
        self.stop_error: Exception | None = None

    def steps(self, goal: RemoveSticker.Goal) -> Iterator[MotionStep]:
        assert goal.decision_id == DECISION
        for step in self.script:
            if isinstance(step, Exception):
                raise step
            self.started.append(step.phase)
            yield step

    def stop(self) -> None:
        self.stops += 1
        if self.stop_error is not None:
            raise self.stop_error


class Rig:
    """An arm in threads of its own, a gate and a client on the bench's probe."""

    def __init__(self, bench: Bench, **arguments: float) -> None:
        self.bench = bench
        self.motion = ScriptedMotion()
        self.node = rclpy.create_node("arm", enable_rosout=False)
        # patient, because a busy machine may deliver a permit late
        self.arm = ArmClient(self.node, self.motion, **{"permit_wait_s": 60.0, **arguments})
        self._executor = ArmExecutor()
        self._executor.add_node(self.node)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()
        self._client = ActionClient(bench.probe, RemoveSticker, "remove_sticker")
        try:
            self._gate = bench.publisher_matched(GateState, "gate", qos.GATE)
            bench.until(self._client.server_is_ready, "the action server")
        except BaseException:
            self.close()
            raise

    def _spin(self) -> None:
        while not self._closing.is_set():
            self._executor.spin_once()

    def close(self) -> None:
        self.arm._watch.update(None)  # a motion that a failed test left under way ends here
        self._client.destroy()
        self._closing.set()
        self._executor.wake()
        self._thread.join()
        self._executor.shutdown()
        self.arm.destroy()
        self.node.destroy_node()

    def permit(
        self, lease_s: float = 600.0, object_id: int = OBJECT, state: int = GateState.STATE_REMOVING
    ) -> None:
        """Open the gate for one object."""
        message = GateState(state=state, open=True, decision_id=DECISION, object_id=object_id)
        message.valid_until = (self.node.get_clock().now() + Duration(seconds=lease_s)).to_msg()
        self._gate.publish(message)

    def close_gate(self, **changes: Any) -> None:
        """Say that the gate is closed."""
        self._gate.publish(GateState(**{"state": GateState.STATE_BLOCKED, "open": False, **changes}))

    def send(self, **changes: Any) -> Any:
        """The client's handle of a goal that was answered."""
        values = {
            "decision_id": DECISION,
            "object_id": OBJECT,
            "label": ObservedObject.LABEL_STICKER,
            **changes,
        }
        future = self._client.send_goal_async(RemoveSticker.Goal(**values))
        self.bench.until(future.done, "an answer to the goal")
        return future.result()

    def result(self, handle: Any) -> tuple[int, int, str]:
        """Status, code and text of the goal's end."""
        assert handle.accepted
        future = handle.get_result_async()
        self.bench.until(future.done, "the result")
        answer = future.result()
        return answer.status, answer.result.error_code, answer.result.error_text

    def moving(self) -> Any:
        """The handle of a goal whose motion goes on until it is stopped."""
        self.motion.script = [APPROACH, UNTIL_STOPPED, RETREAT]
        self.permit()
        handle = self.send()
        self.bench.until(lambda: len(self.motion.started) == 2, "the arm moves")
        return handle

    def assert_stopped_before_the_last_step(self) -> None:
        assert self.motion.stops == 1
        assert self.motion.started == [APPROACH.phase, UNTIL_STOPPED.phase]

    def assert_usable(self) -> None:
        """A new goal under a new permit is done."""
        self.motion.script, self.motion.started = [APPROACH, RETREAT], []
        self.permit()
        assert self.result(self.send())[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
        assert self.motion.started == [APPROACH.phase, RETREAT.phase]


@pytest.fixture
def rig(bench: Bench) -> Iterator[Rig]:
    made = Rig(bench)
    yield made
    made.close()


@pytest.fixture
def hasty(bench: Bench) -> Iterator[Rig]:
    """An arm that hardly waits for a permit."""
    made = Rig(bench, permit_wait_s=0.05)
    yield made
    made.close()


@pytest.mark.parametrize("state", [GateState.STATE_PERMITTED, GateState.STATE_REMOVING])
def test_under_a_permit_all_steps_are_done(rig: Rig, state: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # taken where the arm says it: a reader that is matched late misses the first feedback
    told: list[Feedback] = []
    monkeypatch.setattr(ServerGoalHandle, "publish_feedback", lambda _, feedback: told.append(feedback))
    rig.permit(state=state)
    status, code, _ = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
    assert rig.motion.started == [APPROACH.phase, PEEL.phase, RETREAT.phase]
    assert rig.motion.stops == 0
    rig.bench.until(lambda: len(told) == 3, "the feedback, which may come after the result")
    assert [(f.phase, f.progress) for f in told] == [(s.phase, s.progress) for s in (APPROACH, PEEL, RETREAT)]


def test_a_supervisor_that_dies_takes_its_permit_along(rig: Rig) -> None:
    """However long it was given for; the next supervisor begins anew."""
    handle = rig.moving()
    rig.bench.probe.destroy_publisher(rig._gate)
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    assert text == "the supervisor has died or gone"
    rig.assert_stopped_before_the_last_step()
    rig._gate = rig.bench.publisher_matched(GateState, "gate", qos.GATE)
    rig.assert_usable()


def test_what_a_dead_supervisor_said_last_does_not_let_the_arm_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be read after the news of the death."""
    handle = rig.moving()
    lose = rig.arm._watch.lose

    def lose_and_hear() -> None:
        lose()
        rig.arm._watch.update(Permit(DECISION, OBJECT, 2**62))

    monkeypatch.setattr(rig.arm._watch, "lose", lose_and_hear)
    rig.bench.probe.destroy_publisher(rig._gate)
    assert rig.result(handle)[1:] == (Result.ERROR_PERMIT_REVOKED, "the supervisor has died or gone")


def test_a_middleware_that_blocks_does_not_delay_the_stop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that watches over the permit publishes nothing."""
    go = threading.Event()
    monkeypatch.setattr(ServerGoalHandle, "publish_feedback", lambda *_: go.wait(PATIENCE_S))
    try:
        rig.motion.script = [APPROACH, UNTIL_STOPPED, RETREAT]
        rig.permit()
        handle = rig.send()
        rig.bench.until(lambda: len(rig.motion.started) == 2, "the arm moves")
        rig.close_gate()
        assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
        assert not go.is_set()
        rig.assert_stopped_before_the_last_step()
    finally:
        go.set()


def test_without_a_permit_nothing_moves(hasty: Rig) -> None:
    status, code, text = hasty.result(hasty.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert text == "the gate is closed"
    assert hasty.motion.started == []
    hasty.arm._permit_wait_s = 60.0
    hasty.assert_usable()


def test_a_permit_for_another_object_is_none(hasty: Rig) -> None:
    hasty.permit(object_id=OBJECT + 1)
    hasty.bench.until(lambda: not hasty.arm._watch.refusal(DECISION, OBJECT + 1), "the permit has arrived")
    status, code, text = hasty.result(hasty.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert text == f"the permit is for object {OBJECT + 1} of decision {DECISION}"
    assert hasty.motion.started == []


def test_a_permit_that_has_expired_before_is_none(hasty: Rig) -> None:
    hasty.permit(lease_s=-1.0)
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
def test_a_gate_that_closes_stops_the_motion(rig: Rig, closed: dict[str, Any]) -> None:
    handle = rig.moving()
    rig.close_gate(**closed)
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_PERMIT_REVOKED)
    assert text == "the gate is closed"
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_a_permit_that_goes_to_another_object_stops_the_motion(rig: Rig) -> None:
    handle = rig.moving()
    rig.permit(object_id=OBJECT + 1)
    _, code, _ = rig.result(handle)
    assert code == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()


def test_a_lease_that_runs_out_stops_the_motion(rig: Rig) -> None:
    handle = rig.moving()
    rig.permit(lease_s=0.2)
    status, code, text = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert "expired" in text
    rig.assert_stopped_before_the_last_step()


def cancel(rig: Rig, handle: Any) -> None:
    future = handle.cancel_goal_async()
    rig.bench.until(future.done, "an answer to the cancellation")
    assert len(future.result().goals_canceling) == 1


def test_a_cancelled_goal_stops_the_motion(rig: Rig) -> None:
    handle = rig.moving()
    cancel(rig, handle)
    status, code, _ = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_a_goal_cancelled_before_its_permit_never_moves(rig: Rig) -> None:
    handle = rig.send()
    cancel(rig, handle)
    rig.permit()
    status, code, _ = rig.result(handle)
    assert (status, code) == (GoalStatus.STATUS_CANCELED, Result.ERROR_OPERATOR_ABORT)
    assert rig.motion.started == []


def test_a_goal_that_waits_for_its_permit_makes_room_for_a_newer_one(rig: Rig) -> None:
    # the first one's sender may have been killed: its permit will never come
    waiting = rig.send(decision_id="of a supervisor that died")
    rig.permit()
    newer = rig.send()
    assert newer.accepted
    status, code, text = rig.result(waiting)
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_STALE_PERMIT)
    assert "a newer goal came" in text
    assert rig.result(newer)[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)


def test_a_second_goal_is_rejected_while_the_arm_moves(rig: Rig) -> None:
    handle = rig.moving()
    assert not rig.send().accepted
    rig.close_gate()
    assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()
    rig.assert_usable()


def test_goals_accepted_at_the_same_moment_do_not_share_the_arm(rig: Rig) -> None:
    handle = rig.moving()
    rig.arm._server.register_goal_callback(lambda _: GoalResponse.ACCEPT)
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, Result.ERROR_UNKNOWN, "the arm is busy")
    assert rig.motion.stops == 0
    rig.close_gate()
    assert rig.result(handle)[1] == Result.ERROR_PERMIT_REVOKED
    rig.assert_stopped_before_the_last_step()


def test_a_goal_whose_client_went_away_before_the_answer_does_not_block_the_arm(rig: Rig) -> None:
    # rclpy never executes a goal that was accepted but whose answer could not be sent
    assert rig.arm._on_goal(RemoveSticker.Goal()) == GoalResponse.ACCEPT
    rig.assert_usable()


@pytest.mark.parametrize(
    "changes",
    [{"label": ObservedObject.LABEL_LOGO}, {"label": 77}, {"decision_id": ""}],
    ids=["logo", "unknown_label", "no_decision"],
)
def test_a_goal_that_names_no_sticker_of_a_decision_is_invalid(rig: Rig, changes: dict[str, Any]) -> None:
    rig.permit()
    status, code, text = rig.result(rig.send(**changes))
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_INVALID_GOAL)
    assert "is not a sticker" in text
    assert rig.motion.started == []


@pytest.mark.parametrize(
    ("error", "expected", "expected_text"),
    [
        (MotionFailed("the blade slipped"), Result.ERROR_MOTION_FAILED, "the blade slipped"),
        (KeyError("axis 4"), Result.ERROR_UNKNOWN, "KeyError('axis 4')"),
        (TimeoutError("no answer"), Result.ERROR_UNKNOWN, "TimeoutError('no answer')"),
    ],
)
def test_a_driver_that_raises_ends_the_goal_and_not_the_arm(
    rig: Rig, error: Exception, expected: int, expected_text: str
) -> None:
    rig.motion.script = [APPROACH, error]
    rig.permit()
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, expected, expected_text)
    assert rig.motion.stops == 1
    rig.assert_usable()


def test_a_driver_that_cannot_stop_ends_the_goal_too(rig: Rig) -> None:
    rig.motion.script = [APPROACH, MotionFailed("the blade slipped")]
    rig.motion.stop_error = OSError("brake")
    rig.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_UNKNOWN)
    assert text == "the blade slipped; the arm did not stop: OSError('brake')"
    rig.assert_usable()


def test_a_motion_that_takes_too_long_is_stopped(bench: Bench) -> None:
    rig = Rig(bench, timeout_s=0.2)
    try:
        rig.motion.script = [UNTIL_STOPPED, RETREAT]
        rig.permit()
        status, code, text = rig.result(rig.send())
        assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_TIMEOUT)
        assert text == "the motion took more than 0.2 s"
        assert rig.motion.stops == 1
        assert rig.motion.started == [UNTIL_STOPPED.phase]
    finally:
        rig.close()


def test_a_piece_lasts_until_the_driver_says_that_it_is_finished(rig: Rig) -> None:
    asked: list[bool] = []

    def finished() -> bool:
        asked.append(True)
        return len(asked) == 3

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, finished), RETREAT]
    rig.permit()
    assert rig.result(rig.send())[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
    assert len(asked) == 3
    assert rig.motion.started == [APPROACH.phase, RETREAT.phase]


def test_a_piece_that_is_never_finished_times_out(rig: Rig) -> None:
    rig.motion.script = [MotionStep(Feedback.PHASE_PEEL, 0.1, 0.8, lambda: False), RETREAT]
    rig.permit()
    status, code, text = rig.result(rig.send())
    assert (status, code) == (GoalStatus.STATUS_ABORTED, Result.ERROR_TIMEOUT)
    assert text == "phase 3 took more than 0.1 s"
    assert rig.motion.started == [PEEL.phase]
    assert rig.motion.stops == 1


def test_a_motion_that_fails_on_its_way_says_so(rig: Rig) -> None:
    def finished() -> bool:
        raise MotionFailed("no plan")

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, finished), RETREAT]
    rig.permit()
    assert rig.result(rig.send()) == (GoalStatus.STATUS_ABORTED, Result.ERROR_MOTION_FAILED, "no plan")
    assert rig.motion.stops == 1


def test_a_gate_that_closes_between_two_pieces_starts_no_other(rig: Rig) -> None:
    def close_and_finish() -> bool:
        rig.arm._watch.update(None)
        return True

    rig.motion.script = [MotionStep(Feedback.PHASE_APPROACH, 600.0, 0.4, close_and_finish), RETREAT]
    rig.permit()
    _, code, _ = rig.result(rig.send())
    assert code == Result.ERROR_PERMIT_REVOKED
    assert rig.motion.started == [APPROACH.phase]


def test_an_arm_says_that_it_is_there_also_while_it_moves(rig: Rig) -> None:
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
        rig = Rig(bench)
        try:
            bench.until(lambda n=number: len({message.arm for message in said}) == n, "what it says")
        finally:
            rig.close()

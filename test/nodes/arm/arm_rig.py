"""An arm with a scripted driver, a gate and a client of its action."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import rclpy
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.duration import Duration

from sticker_uq.nodes.arm.client import ArmClient, MotionStep
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common import qos
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import GateState, ObservedObject
from test.helpers.ros import Bench

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

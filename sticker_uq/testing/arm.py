# SPDX-License-Identifier: Apache-2.0
"""An arm driver under test: its node spins in a thread of its own, with a gate and an action client on the bench."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import rclpy
from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.duration import Duration
from rclpy.node import Node

from sticker_uq.nodes.arm.client import ArmClient, Motion, MotionStep
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import Bench
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import GateState, ObservedObject

DECISION, OBJECT = "decision-1", 3
"""What permits are given for unless the test says otherwise."""


class GatePublisher:
    """Publishes on ``gate`` what a supervisor would; its messages are not repeated, a permit lasts as long as its lease."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.appear()

    def appear(self) -> None:
        self._publisher = self._bench.publisher_matched(GateState, "gate", qos.GATE)

    def disappear(self) -> None:
        """Destroy the publisher: to the arm the supervisor has died."""
        self._bench.probe.destroy_publisher(self._publisher)

    def permit(
        self, lease_s: float = 600.0, object_id: int = OBJECT, state: int = GateState.STATE_REMOVING
    ) -> None:
        """Open the gate for one object of :data:`DECISION`, for ``lease_s`` seconds from now."""
        message = GateState(state=state, open=True, decision_id=DECISION, object_id=object_id)
        message.valid_until = (self._bench.probe.get_clock().now() + Duration(seconds=lease_s)).to_msg()
        self._publisher.publish(message)

    def close(self, **fields: Any) -> None:
        self._publisher.publish(GateState(**{"state": GateState.STATE_BLOCKED, "open": False, **fields}))


Result = RemoveSticker.Result
Feedback = RemoveSticker.Feedback
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


class ArmBench:
    """An :class:`ArmClient` around ``motion`` (default: a :class:`ScriptedMotion`), a gate and an action client.

    ``motion`` is a driver or makes one from the arm's node. Waits patiently for a permit unless ``permit_wait_s`` says
    otherwise, because a busy machine may deliver one late. Use as a context manager.
    """

    def __init__(
        self, bench: Bench, motion: Motion | Callable[[Node], Motion] | None = None, **arguments: float
    ) -> None:
        self.bench = bench
        self.node = rclpy.create_node("arm", enable_rosout=False)
        self.motion: Any = motion(self.node) if callable(motion) else motion or ScriptedMotion()
        self.arm = ArmClient(self.node, self.motion, **{"permit_wait_s": 60.0, **arguments})
        self._executor = ArmExecutor()
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._executor.spin)
        self._thread.start()
        self._client = ActionClient(bench.probe, RemoveSticker, "remove_sticker")
        try:
            self.gate = GatePublisher(bench)
            bench.until(self._client.server_is_ready, "the action server")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ArmBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.arm._watch.update(None)
        self._client.destroy()
        self._executor.shutdown()
        self._thread.join()
        self.arm.destroy()
        self.node.destroy_node()

    def send(self, **changes: Any) -> Any:
        """Send a goal that :meth:`GatePublisher.permit` permits, except for ``changes``; returns its handle."""
        goal = {"decision_id": DECISION, "object_id": OBJECT, "label": ObservedObject.LABEL_STICKER}
        future = self._client.send_goal_async(RemoveSticker.Goal(**(goal | changes)))
        self.bench.until(future.done, "an answer to the goal")
        return future.result()

    def result(self, handle: Any) -> tuple[int, int, str]:
        """Status (``GoalStatus.STATUS_*``), ``error_code`` and ``error_text`` of the end of the goal."""
        assert handle.accepted
        future = handle.get_result_async()
        self.bench.until(future.done, "the result")
        answer = future.result()
        return answer.status, answer.result.error_code, answer.result.error_text

    def start_motion(self) -> Any:
        """The handle of a goal whose motion goes on until it is stopped."""
        self.motion.script = [APPROACH, UNTIL_STOPPED, RETREAT]
        self.gate.permit()
        handle = self.send()
        self.bench.until(lambda: len(self.motion.started) == 2, "the arm moves")
        return handle

    def assert_stopped_before_the_last_step(self) -> None:
        """Assert that the arm stopped the motion of :meth:`start_motion` once and never reached its last step."""
        assert self.motion.stops == 1
        assert self.motion.started == [APPROACH.phase, UNTIL_STOPPED.phase]

    def assert_usable(self) -> None:
        self.motion.script, self.motion.started = [APPROACH, RETREAT], []
        self.gate.permit()
        assert self.result(self.send())[:2] == (GoalStatus.STATUS_SUCCEEDED, Result.ERROR_NONE)
        assert self.motion.started == [APPROACH.phase, RETREAT.phase]

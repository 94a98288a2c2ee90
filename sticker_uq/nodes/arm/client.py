# SPDX-License-Identifier: Apache-2.0
"""The action server of the arm, which moves only while it holds a valid permit.

:class:`ArmClient` is the part that every arm shares: goals, permits, cancellation, result codes. A cell's own driver implements
:class:`Motion` (how to move, how to stop); the simulated arm does too, and examples/sticker_uq_moveit_driver for MoveIt 2.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.time import Time

from sticker_uq.gate.permit import Lease, PermitWatch
from sticker_uq.nodes.common.diagnostics import steady_timer
from sticker_uq.nodes.common.liveliness import subscribe_with_liveliness
from sticker_uq.nodes.common.qos import ARM_STATUS, GATE_SUBSCRIPTION
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import ArmStatus, GateState, ObservedObject

Result = RemoveSticker.Result
_End = tuple[int, str]
"""Code and text of a result."""
CHECK_PERIOD_S = 0.05
"""Longest interval between two checks of the permit while the arm moves (20 Hz)."""
HANDOVER_S = 0.2
"""Longest wait of a new goal for an older one that still waits for its permit."""
STATUS_PERIOD_S = 0.05
"""Period of the heartbeat; without it the gate closes."""


@dataclass(frozen=True)
class MotionStep:
    """A step of a motion: its phase (``RemoveSticker.Feedback.PHASE_*``), duration in s, and progress 0..1 after it.

    ``finished``, if given, is polled at 20 Hz and ends the step when it returns True; ``duration_s`` is then its timeout, after
    which the removal ends with ERROR_TIMEOUT. It may raise :class:`MotionFailed`.
    """

    phase: int
    duration_s: float
    progress: float
    finished: Callable[[], bool] | None = None


class MotionFailed(RuntimeError):
    """The arm could not do what was asked; the message says why.

    ``code``: what the goal's result says, ``RemoveSticker.Result.ERROR_*``. Raises ValueError for ERROR_NONE.
    """

    def __init__(self, message: str, code: int = Result.ERROR_MOTION_FAILED) -> None:
        if code == Result.ERROR_NONE:
            raise ValueError(f"a motion that failed cannot end with ERROR_NONE: {message}")
        super().__init__(message)
        self.code = code


class Motion(Protocol):
    def steps(self, goal: RemoveSticker.Goal) -> Iterator[MotionStep]:
        """Start the next step each time the iterator is advanced; raises :class:`MotionFailed`."""
        ...

    def stop(self) -> None:
        """Stop the arm at once and stay away from the lid; called whenever a motion ends before its last step."""
        ...


class ArmClient:
    """Serves ``remove_sticker`` on ``node``; one goal at a time, each only under a valid permit of the topic ``gate``.

    Publishes a heartbeat on ``arm/status`` at 20 Hz from the executor that serves the goals.
    A cancellation is accepted at once. A goal that still waits for its permit is replaced by a newer one, because its client
    may have died. The permit is checked before each step of the motion and at 20 Hz during it; ``motion`` is stopped as soon
    as the permit ends. ``permit_wait_s``: how long a goal may wait for its permit; ``timeout_s``:
    longest duration of one removal. Spin the node with :class:`~sticker_uq.nodes.arm.executor.ArmExecutor`.
    """

    def __init__(
        self, node: Node, motion: Motion, *, permit_wait_s: float = 1.0, timeout_s: float = 30.0
    ) -> None:
        self._node = node
        self._motion = motion
        self._permit_wait_s = permit_wait_s
        self._timeout_s = timeout_s
        self._taken = threading.Lock()
        self._waits = False
        self._newest: ServerGoalHandle | None = None
        self._watch = PermitWatch(lambda: node.get_clock().now().nanoseconds)
        # goals, cancellations and the gate must be served while a motion is under way
        self._group = ReentrantCallbackGroup()
        heard = self._on_gate, GATE_SUBSCRIPTION, self._watch.lose
        self._subscription = subscribe_with_liveliness(
            node, GateState, "gate", *heard, callback_group=self._group
        )
        on = {
            "goal_callback": self._on_goal,
            "cancel_callback": self._on_cancel,
            "callback_group": self._group,
        }
        self._server = ActionServer(node, RemoveSticker, "remove_sticker", self._execute, **on)
        self._feedback = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feedback")
        self._identity = uuid.uuid4().hex
        self._status = node.create_publisher(ArmStatus, "arm/status", ARM_STATUS)
        own = MutuallyExclusiveCallbackGroup()
        self._status_timer = steady_timer(node, STATUS_PERIOD_S, self._publish_status, callback_group=own)

    def destroy(self) -> None:
        self._feedback.shutdown(cancel_futures=True)
        self._node.destroy_timer(self._status_timer)
        self._node.destroy_publisher(self._status)
        self._server.destroy()

    def _publish_status(self) -> None:
        message = ArmStatus(arm=self._identity)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._status.publish(message)

    def _on_gate(self, message: GateState) -> None:
        open_states = (GateState.STATE_PERMITTED, GateState.STATE_REMOVING)
        active = not message.reasons & GateState.REASON_NOT_ACTIVE
        if message.open and active and message.state in open_states:
            valid_until = Time.from_msg(message.valid_until).nanoseconds
            lease_s = (valid_until - Time.from_msg(message.header.stamp).nanoseconds) / 1e9
            permit = Lease(message.decision_id, message.object_id, valid_until, lease_s)
            self._watch.update(permit, message.supervisor, active)
        else:
            self._watch.update(None, message.supervisor, active)

    def _on_goal(self, goal: RemoveSticker.Goal) -> GoalResponse:
        # checked here but acquired in _execute: rclpy drops an accepted goal whose client has disconnected meanwhile
        if self._taken.locked() and not self._waits:
            self._node.get_logger().warning(f"goal for object {goal.object_id} rejected: the arm is busy")
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _on_cancel(self, _: ServerGoalHandle) -> CancelResponse:
        self._watch.wake()
        return CancelResponse.ACCEPT

    def _execute(self, handle: ServerGoalHandle) -> RemoveSticker.Result:
        self._newest = handle
        self._watch.wake()
        if not self._taken.acquire(timeout=HANDOVER_S):
            handle.abort()
            return Result(error_code=Result.ERROR_UNKNOWN, error_text="the arm is busy")
        try:
            code, text = self._remove_or_stop(handle)
        finally:
            self._taken.release()
        if code == Result.ERROR_NONE:
            handle.succeed()
        elif handle.is_cancel_requested:
            handle.canceled()
        else:
            handle.abort()
        return Result(error_code=code, error_text=text)

    def _remove_or_stop(self, handle: ServerGoalHandle) -> tuple[int, str]:
        """Code and text of the result; the goal ends whatever the driver raises."""
        try:
            code, text = self._remove(handle)
        except MotionFailed as error:
            code, text = error.code, str(error)
        except Exception as error:  # noqa: BLE001
            self._node.get_logger().error(f"the arm failed: {error!r}")
            code, text = Result.ERROR_UNKNOWN, repr(error)
        if code != Result.ERROR_NONE:
            try:
                self._motion.stop()
            except Exception as error:  # noqa: BLE001
                self._node.get_logger().fatal(f"the arm did not stop: {error!r}")
                return Result.ERROR_NOT_STOPPED, f"{text}; the arm did not stop: {error!r}"
        return code, text

    def _remove(self, handle: ServerGoalHandle) -> tuple[int, str]:
        goal: RemoveSticker.Goal = handle.request
        if goal.label != ObservedObject.LABEL_STICKER or not goal.decision_id:
            text = f"label {goal.label} of decision {goal.decision_id!r} is not a sticker"
            return Result.ERROR_INVALID_GOAL, text
        losses = self._watch.losses
        self._waits = True
        try:
            refusal = self._watch.wait_until_allowed(
                goal.decision_id,
                goal.object_id,
                self._permit_wait_s,
                given_up=lambda: handle.is_cancel_requested or self._newest is not handle,
            )
        finally:
            self._waits = False
        if handle.is_cancel_requested:
            return Result.ERROR_OPERATOR_ABORT, "cancelled"
        if refusal and self._newest is not handle:
            refusal = f"a newer goal replaced this one while it waited: {refusal}"
        if refusal:
            return Result.ERROR_STALE_PERMIT, refusal
        started = time.monotonic()
        steps = self._motion.steps(goal)
        reason = partial(self._stop_reason, handle, goal, started, losses)
        while True:
            # before each step, because advancing the iterator starts it
            if (stopped := reason()) is not None:
                return stopped
            step = next(steps, None)
            if step is None:
                return Result.ERROR_NONE, "peeled"
            # in another thread: publishing may block when a subscriber has just died, and this thread checks the permit
            feedback = RemoveSticker.Feedback(phase=step.phase, progress=step.progress)
            self._feedback.submit(self._publish_feedback, handle, feedback)
            if (stopped := self._wait_for_step(step, reason)) is not None:
                return stopped

    def _publish_feedback(self, handle: ServerGoalHandle, feedback: RemoveSticker.Feedback) -> None:
        try:
            handle.publish_feedback(feedback)
        except Exception as error:  # noqa: BLE001 - the result of this thread's work is not read
            self._node.get_logger().warning(
                f"feedback could not be published: {type(error).__name__}: {error}"
            )

    def _wait_for_step(self, step: MotionStep, reason: Callable[[], _End | None]) -> _End | None:
        """Wait for the end of one step: code and text of what ended it early, None when it is done."""
        end = time.monotonic() + step.duration_s
        while True:
            if (stopped := reason()) is not None:
                return stopped
            if step.finished is not None and step.finished():
                return None
            left = end - time.monotonic()
            if left <= 0 and step.finished is not None:
                return Result.ERROR_TIMEOUT, f"phase {step.phase} took more than {step.duration_s:g} s"
            if left <= 0:
                return None
            self._watch.wait(min(left, CHECK_PERIOD_S))

    def _stop_reason(
        self, handle: ServerGoalHandle, goal: RemoveSticker.Goal, started: float, losses: int
    ) -> tuple[int, str] | None:
        if self._watch.losses != losses:
            return Result.ERROR_PERMIT_REVOKED, "the supervisor has died or gone"
        if handle.is_cancel_requested:
            return Result.ERROR_OPERATOR_ABORT, "cancelled"
        refusal = self._watch.refusal(goal.decision_id, goal.object_id)
        if refusal:
            expired = self._watch.has_expired(goal.decision_id, goal.object_id)
            code = Result.ERROR_STALE_PERMIT if expired else Result.ERROR_PERMIT_REVOKED
            return code, refusal
        if time.monotonic() - started > self._timeout_s:
            return Result.ERROR_TIMEOUT, f"the motion took more than {self._timeout_s:g} s"
        return None

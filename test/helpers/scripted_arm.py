# SPDX-License-Identifier: Apache-2.0
"""An arm that reports every step and fails as the topic ``arm/script`` says: ``python -m test.helpers.scripted_arm``.

``move``: moves in small steps until ``finish``. ``mute``: never answers a goal. ``deaf``: takes a goal, does not move, and
never ends, whatever it is told.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rclpy.action import CancelResponse, GoalResponse
from rclpy.node import Node
from rclpy.time import Time
from std_msgs.msg import Header, String

from sticker_uq.gate.permit import Lease
from sticker_uq.nodes.arm.client import ArmClient, MotionStep
from sticker_uq.nodes.arm.executor import ArmExecutor
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.lifecycle import exit_process, run_node
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import GateState

STEP_S = 0.08
HEARTBEAT_NS = 200_000_000  # an arm's own is four times as fast, and wakes the supervisor each time


class _Script:
    """What the arm shall do now; waiting for a change of it is possible."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text = "move"

    def set(self, text: str) -> None:
        with self._changed:
            self._text = text
            self._changed.notify_all()

    def get(self) -> str:
        with self._changed:
            return self._text

    def wait_while(self, text: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._text != text)


class ReportingMotion:
    """Publishes every step as a gate message: which permit it used, until when that was valid, and when it began."""

    def __init__(self, node: Node, script: _Script) -> None:
        self._node = node
        self._script = script
        self._steps = node.create_publisher(GateState, "arm/step", qos.IMAGES)
        self._publishing = ThreadPoolExecutor(max_workers=1)
        self._stops = node.create_publisher(Header, "arm/stopped", qos.RELIABLE)
        self.lease: Callable[[], Lease | None] = lambda: None

    def steps(self, goal: RemoveSticker.Goal) -> Iterator[MotionStep]:
        while self._script.get() != "finish":
            step = GateState(decision_id=goal.decision_id, object_id=goal.object_id, text="step")
            step.header.stamp = self._node.get_clock().now().to_msg()
            lease = self.lease()
            if lease and (lease.decision_id, lease.object_id) == (goal.decision_id, goal.object_id):
                step.valid_until = Time(nanoseconds=lease.valid_until_ns).to_msg()
            # a real arm does not wait for the middleware either
            self._publishing.submit(self._steps.publish, step)
            yield MotionStep(RemoveSticker.Feedback.PHASE_PEEL, STEP_S, 0.5)

    def stop(self) -> None:
        self._stops.publish(Header(stamp=self._node.get_clock().now().to_msg()))


class ScriptedArm(Node):
    def __init__(self) -> None:
        super().__init__("arm")
        self._script = _Script()
        self.create_subscription(String, "arm/script", self._on_script, qos.LATCHED)
        motion = ReportingMotion(self, self._script)
        self._arm = ArmClient(self, motion, timeout_s=600.0)
        motion.lease = lambda: self._arm._watch._permit
        self._arm._status_timer.timer_period_ns = HEARTBEAT_NS
        server = self._arm._server
        obedient_goal, obedient_execute = self._arm._on_goal, self._arm._execute

        def on_goal(goal: RemoveSticker.Goal) -> GoalResponse:
            self._script.wait_while("mute")
            return obedient_goal(goal)

        def execute(handle: object) -> RemoveSticker.Result:
            self._script.wait_while("deaf")
            return obedient_execute(handle)

        server.register_goal_callback(on_goal)
        server.register_execute_callback(execute)
        server.register_cancel_callback(lambda _: CancelResponse.ACCEPT)

    def _on_script(self, message: String) -> None:
        self._script.set(message.data)


def main() -> None:
    exit_process(run_node(ScriptedArm, executor=ArmExecutor))


if __name__ == "__main__":
    main()

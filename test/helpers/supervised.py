# SPDX-License-Identifier: Apache-2.0
"""A supervisor as a node under test, with a camera, an arm and subscriptions to all it publishes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.task import Future

from sticker_uq.gate import BlockReason
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import box_to_msg, scene_to_msg
from sticker_uq.nodes.supervisor.node import SupervisorNode
from sticker_uq.scene import ObservedObject
from sticker_uq.testing.bench import Bench, overrides
from sticker_uq.testing.scenes import HERE, assessment, object_at
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import (
    ArmStatus,
    GateState,
    InterventionAnswer,
    InterventionRequest,
    ObjectAnswer,
    SceneAssessment,
    SceneDecision,
    Workpiece,
    WorkpieceDone,
)
from sticker_uq_msgs.srv import ResolveIntervention

STICKER = object_at()
UNSURE = object_at(probabilities=(0.3, 0.1, 0.6), shannon_entropy=1.5)
Result = RemoveSticker.Result


class Camera:
    """Publishes a scene of ``objects`` 20 times a second, as if the detector had just seen it; None: nothing."""

    def __init__(self, bench: Bench) -> None:
        self.objects: Sequence[ObservedObject] | None = None
        self.changes: dict[str, Any] = {}
        self._node = bench.probe
        self._publisher = bench.publisher_matched(SceneAssessment, "scene", qos.RELIABLE)
        self._node.create_timer(0.05, self._publish)

    def message(self) -> SceneAssessment:
        stamp = self._node.get_clock().now().nanoseconds
        return scene_to_msg(assessment(*(self.objects or ()), stamp_ns=stamp, **self.changes))

    def _publish(self) -> None:
        if self.objects is not None:
            self._publisher.publish(self.message())

    def publish(self, message: SceneAssessment) -> None:
        self._publisher.publish(message)


class Arm:
    """An arm that does what the test says: it holds each goal until ``finish``."""

    def __init__(self, bench: Bench) -> None:
        self.goals: list[RemoveSticker.Goal] = []
        self.cancelled = 0
        self.accepts = True
        self.text = "as the test said"
        self._end = Future()
        self._bench = bench
        self._status = bench.publisher(ArmStatus, "arm/status", qos.ARM_STATUS)
        self._timer = bench.probe.create_timer(0.05, lambda: self._status.publish(ArmStatus(arm="arm")))
        self._server = ActionServer(
            bench.probe,
            RemoveSticker,
            "remove_sticker",
            execute_callback=self._execute,
            goal_callback=lambda goal: GoalResponse.ACCEPT if self.accepts else GoalResponse.REJECT,
            cancel_callback=self._on_cancel,
        )

    async def _execute(self, handle: Any) -> RemoveSticker.Result:
        self.goals.append(handle.request)
        self._end = Future()
        code = await self._end
        if handle.is_cancel_requested:
            handle.canceled()
        elif code == Result.ERROR_NONE:
            handle.succeed()
        else:
            handle.abort()
        return Result(error_code=code, error_text=self.text)

    def _on_cancel(self, _: Any) -> CancelResponse:
        self.cancelled += 1
        return CancelResponse.ACCEPT

    def finish(self, code: int = Result.ERROR_NONE) -> None:
        self._end.set_result(code)

    def close(self) -> None:
        self._bench.probe.destroy_timer(self._timer)
        self._server.destroy()


class Cell:
    """An active supervisor with a camera, an arm and subscriptions to all it publishes."""

    def __init__(self, bench: Bench, arm: bool = True, **parameters: Any) -> None:
        # patient, because a busy machine may stop this process for a while
        patient = {"consecutive_scenes": 2, "max_scene_age_s": 10.0, "lease_s": 5.0, "accept_timeout_s": 10.0}
        values = {**patient, "arm_heartbeat_timeout_s": 5.0, "discovery_time_s": 0.1}
        values |= {"allow_uncalibrated": True, "hold_unknown_start": False, **parameters}
        self.bench = bench
        self.node: SupervisorNode = bench.add(SupervisorNode(parameter_overrides=overrides(**values)))
        self.arm = Arm(bench) if arm else None
        self.gates = bench.collect(GateState, "gate", qos.LATCHED)
        self.decisions = bench.collect(SceneDecision, "decision")
        self.requests = bench.collect(InterventionRequest, "intervention/request", qos.LATCHED)
        self.answers = bench.collect(InterventionAnswer, "intervention/answer")
        self.done = bench.collect(WorkpieceDone, "workpiece/done", qos.LATCHED)
        assert self.node.start(), self.node.last_failure
        self.camera = Camera(bench)
        self._workpieces = bench.publisher_matched(Workpiece, "workpiece", qos.LATCHED)
        self.workpiece("laptop-1")

    def workpiece(self, name: str) -> None:
        message = Workpiece(id=name)
        message.header.stamp = self.bench.probe.get_clock().now().to_msg()
        self._workpieces.publish(message)
        self.until(lambda: self.node._core.state.workpiece_id == name, "the workpiece is known")

    def until(self, condition: Any, what: str | Callable[[], str]) -> Any:
        return self.bench.until(condition, what)

    def until_gate(self, state: int, reasons: BlockReason = BlockReason.NONE) -> GateState:
        """The newest gate message, once it is in this state with at least these reasons."""

        def newest() -> GateState | None:
            gate = self.gates[-1] if self.gates else None
            return gate if gate and gate.state == state and gate.reasons & reasons == reasons else None

        return self.until(newest, lambda: f"gate {state} {reasons!r}; last: {self.gates[-1:]}")

    def shows(self, *objects: ObservedObject) -> None:
        self.camera.objects = objects

    def goal(self, number: int) -> RemoveSticker.Goal:
        """The ``number``-th goal, once the arm works on it or on a later one and the gate says so."""
        assert self.arm is not None
        arm = self.arm
        self.until(lambda: len(arm.goals) >= number, lambda: f"goal {number}; last: {self.gates[-1:]}")
        self.until_gate(GateState.STATE_REMOVING)
        return self.arm.goals[number - 1]

    def resolve(self, **fields: Any) -> ResolveIntervention.Response:
        asked = self.requests[-1]
        request = ResolveIntervention.Request(
            request_id=asked.request_id, person="Ada", image_stamp=asked.header.stamp
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.bench.call(ResolveIntervention, "intervention/resolve", request)


def answer(kind: int, box: Sequence[float] = HERE) -> ObjectAnswer:
    return ObjectAnswer(answer=kind, box=box_to_msg(np.array(box)))

# SPDX-License-Identifier: Apache-2.0
"""The supervisor as a node and its arm: goals, silence, the cell's own stop."""

from typing import Any

import pytest
from action_msgs.msg import GoalStatus
from std_msgs.msg import Bool
from std_srvs.srv import SetBool, Trigger

from sticker_uq.gate import BlockReason
from sticker_uq.gate.events import RemovalCode
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.supervisor.node import SupervisorNode
from sticker_uq.nodes.supervisor.removal_client import removal_code
from sticker_uq.testing.bench import Bench, overrides
from sticker_uq_msgs.msg import GateState
from test.helpers.supervised import STICKER, Arm, Cell, Result


class StopServer:
    """The cell's own stop: refuses ``refusals`` times, then stops the arm."""

    def __init__(self, bench: Bench, kind: type, arm: Arm, refusals: int) -> None:
        self.asked: list[Any] = []
        self._arm = arm
        self._refusals = refusals
        bench.probe.create_service(kind, "robot/stop", self._on_stop)

    def _on_stop(self, request: Any, response: Any) -> Any:
        self.asked.append(request)
        response.success = len(self.asked) > self._refusals
        if response.success:
            self._arm.finish(Result.ERROR_OPERATOR_ABORT)
        return response


@pytest.mark.parametrize(("kind", "name"), [(Trigger, "trigger"), (SetBool, "set_bool")])
def test_an_arm_that_ignores_its_cancellation_is_stopped_by_the_cells_own_means(bench, kind, name):
    stop = {"stop_service": "robot/stop", "stop_service_type": name, "stop_topic": "robot/locked"}
    cell = Cell(bench, cancel_timeout_s=0.3, **stop)
    locked = bench.collect(Bool, "robot/locked", qos.LATCHED)
    stopped = bench.diagnostics()
    cell.shows(STICKER)
    cell.goal(1)
    bench.until(lambda: locked and not locked[-1].data, "nothing is locked")
    # the service comes late and refuses at first: it is asked until it has stopped the arm
    assert bench.call(SetBool, "hold", SetBool.Request(data=True)).success
    cell.until_gate(GateState.STATE_FAULT, BlockReason.FAULT | BlockReason.HELD)
    bench.until(lambda: locked[-1].data, "the lock")
    bench.until(lambda: stopped.value("supervisor: gate", "stop") == "demanded", "a stop nobody confirmed")
    server = StopServer(bench, kind, cell.arm, refusals=1)
    bench.until(lambda: stopped.value("supervisor: gate", "stop") == "confirmed", "a confirmed stop")
    assert len(server.asked) == 2
    assert all(getattr(request, "data", True) for request in server.asked)
    assert cell.arm.cancelled == 1
    # the arm stands, and nothing begins again before a person has said so
    assert bench.call(SetBool, "hold", SetBool.Request(data=False)).success
    cell.until_gate(GateState.STATE_FAULT)
    assert locked[-1].data
    assert bench.call(Trigger, "reset", Trigger.Request()).success
    cell.goal(2)
    bench.until(lambda: not locked[-1].data, "the lock is off")
    assert len(server.asked) == 2


def test_an_arm_is_stopped_though_the_supervisor_was_deactivated(bench):
    cell = Cell(bench, cancel_timeout_s=0.3, stop_topic="robot/locked")
    locked = bench.collect(Bool, "robot/locked", qos.LATCHED)
    cell.shows(STICKER)
    cell.goal(1)
    assert bench.transition("supervisor", "deactivate")
    bench.until(lambda: locked and locked[-1].data, "the lock")
    cell.until_gate(GateState.STATE_FAULT, BlockReason.FAULT | BlockReason.NOT_ACTIVE)


def test_a_stop_that_ros_cannot_name_is_refused(bench):
    for name in ("stop_service", "stop_topic"):
        node = bench.add(SupervisorNode(parameter_overrides=overrides(**{name: "no name!"})))
        assert not node.start()
        assert "is not a valid ROS name" in node.last_failure
        node.destroy_node()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (GoalStatus.STATUS_SUCCEEDED, 0, RemovalCode.NONE),
        (GoalStatus.STATUS_SUCCEEDED, 6, RemovalCode.MOTION_FAILED),
        (GoalStatus.STATUS_ABORTED, 0, RemovalCode.UNKNOWN),  # a result that nobody filled
        (GoalStatus.STATUS_UNKNOWN, 0, RemovalCode.UNKNOWN),
        (GoalStatus.STATUS_CANCELED, 0, RemovalCode.OPERATOR_ABORT),
        (GoalStatus.STATUS_ABORTED, 2, RemovalCode.PERMIT_REVOKED),
        (GoalStatus.STATUS_ABORTED, 999, RemovalCode.UNKNOWN),
    ],
)
def test_only_status_and_code_together_mean_success(status, code, expected):
    assert removal_code(status, code) is expected

# SPDX-License-Identifier: Apache-2.0
"""The supervisor as a process of a cell: other gate publishers, lifecycle, parameters, clock, plain mirrors."""

from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from std_msgs.msg import Bool, Float64, String

from sticker_uq.gate import BlockReason
from sticker_uq.nodes.supervisor.node import SupervisorNode
from sticker_uq.testing.bench import overrides
from sticker_uq_msgs.msg import GateState
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, Cell


def test_it_is_listened_for_other_supervisors_before_anything_is_permitted(bench):
    cell = Cell(bench, discovery_time_s=60.0)
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_BLOCKED, BlockReason.UNKNOWN_GATE_PUBLISHER)
    cell.until(lambda: len(cell.decisions) > 10, "decisions that would have been enough")
    assert codes(cell.gates[-1].details) == ["listening_first"]
    assert cell.arm.goals == []
    cell.node._gate_watch._listened_s = 0.0  # the time is over
    cell.goal(1)


def test_thresholds_cannot_change_while_a_permit_is_out(bench):
    cell = Cell(bench)

    def change(name: str, value: Any) -> Any:
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        return bench.call(SetParameters, "supervisor/set_parameters", request).results[0]

    assert change("consecutive_scenes", 3).successful
    assert not change("lease_s", 99.0).successful
    cell.shows(STICKER)
    cell.goal(1)
    refused = change("consecutive_scenes", 1)
    assert not refused.successful
    assert "hold the gate first" in refused.reason
    assert cell.node._core.settings.consecutive_scenes == 3


def test_monitors_mirror_gate_and_numbers_in_plain_types(bench):
    cell = Cell(bench)
    opened = bench.collect(Bool, "monitor/gate_open")
    states = bench.collect(String, "monitor/state")
    dil = bench.collect(Float64, "monitor/dil")
    uncertainty = bench.collect(Float64, "monitor/uncertainty")
    cell.shows(STICKER)
    cell.goal(1)
    bench.until(lambda: any(m.data for m in opened), "an open gate")
    bench.until(lambda: any(m.data == "REMOVING" for m in states), "the state in words")
    bench.until(lambda: dil and uncertainty, "numbers")
    assert dil[-1].data == pytest.approx(0.1)
    assert np.isnan(uncertainty[-1].data)


def test_a_policy_without_guarantee_opens_the_gate_only_where_that_is_allowed(bench):
    cell = Cell(bench, allow_uncalibrated=False)
    cell.shows(STICKER)
    gate = cell.until_gate(GateState.STATE_BLOCKED, BlockReason.UNCALIBRATED)
    bench.until(lambda: len(cell.decisions) > 5, "more decisions than it takes to open")
    assert not any(gate.open for gate in cell.gates)
    assert cell.arm.goals == []
    assert "no permit on policy" in gate.text
    entries: list[DiagnosticArray] = bench.collect(DiagnosticArray, "/diagnostics")
    bench.until(
        lambda: [s.message for m in entries for s in m.status if s.name == "supervisor: policy" and s.level],
        "a warning about the policy",
    )
    assert bench.transition("supervisor", "deactivate")
    cell.node.set_parameters([Parameter("allow_uncalibrated", value=True)])
    assert bench.transition("supervisor", "activate")
    cell.goal(1)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"policy": "/nowhere/policy.yaml"}, "policy /nowhere/policy.yaml: no such file"),
        ({"lease_s": 0.15}, "lease_s = 0.15 must be at least twice tick_period_s"),
    ],
)
def test_bad_parameters_stop_configure_with_the_reason(bench, values, reason):
    node = bench.add(SupervisorNode(parameter_overrides=overrides(**values)))
    assert not node.start()
    assert reason in node.last_failure
    assert node.state == "unconfigured"


def test_diagnostics_tell_the_lifecycle_apart_from_the_gate(bench, tmp_path):
    node = bench.add(SupervisorNode(parameter_overrides=overrides(policy=str(tmp_path / "missing.yaml"))))
    parts = bench.diagnostics()
    status = bench.until(lambda: parts.get("supervisor: lifecycle"), "the lifecycle before configuration")
    assert status.message == "unconfigured"
    assert parts["supervisor: gate"].message == "not configured"
    assert not node.start()
    bench.until(lambda: parts["supervisor: lifecycle"].level == b"\x02", "the failure")
    assert "missing.yaml" in parts["supervisor: lifecycle"].message

# SPDX-License-Identifier: Apache-2.0
"""The supervisor as a process of a cell: other gate publishers, lifecycle, parameters, clock, plain mirrors."""

from typing import Any

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Bool, Float64, Header, String

from sticker_uq.gate import BlockReason
from sticker_uq.geometry.simulated_cell import sim_camera
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.geometry_source import camera_to_msg
from sticker_uq.nodes.supervisor.node import MOST_BYTES, SupervisorNode
from sticker_uq.testing.bench import overrides
from sticker_uq_msgs.msg import GateState, ObservedObject, Workpiece
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, Cell, Result


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


def test_a_workpiece_of_another_node_is_refused_and_named_and_the_cell_goes_on(bench):
    """It would be done in the place of the one that lies there, and nobody would bring the next."""
    cell = Cell(bench)
    cell.shows(STICKER)
    cell.goal(1)
    intruder = bench.add(Node("intruder", enable_rosout=False))
    spoof = intruder.create_publisher(Workpiece, "workpiece", qos.LATCHED)
    spoof.publish(Workpiece(id="x"))
    second = BlockReason.SECOND_SCENE_PUBLISHER
    cell.until(
        lambda: "/intruder, /probe" in cell.gates[-1].text and cell.gates[-1].reasons & second, "it named"
    )
    cell.arm.finish(Result.ERROR_PERMIT_REVOKED)
    said, gone_ns = len(cell.gates), bench.probe.get_clock().now().nanoseconds
    intruder.destroy_publisher(spoof)
    cell.until(lambda: len(cell.arm.goals) > 1, "the next goal, once it is gone")
    assert cell.node._core.state.workpiece_id == "laptop-1"
    assert not cell.gates[said].open
    cell.until(lambda: any(gate.open for gate in cell.gates[said:]), "an open gate")
    opened = next(gate for gate in cell.gates[said:] if gate.open)
    assert (
        stamp_to_ns(opened.header.stamp) - gone_ns > 0.5e9
    )  # however busy the machine is, which only adds to it


def test_a_calibration_that_nothing_can_be_computed_with_is_no_fault(bench):
    cell = Cell(bench, camera_pose="0.4 0.0 1.0 1 0 0 0", lid_plane="0 0 1 -0.2", require_pose=True)
    infos = bench.publisher_matched(CameraInfo, "camera_info")
    true = camera_to_msg(sim_camera(640, 480), Header(frame_id="camera"))
    singular = camera_to_msg(sim_camera(640, 480), Header(frame_id="camera"))
    singular.k = [1.0] * 9

    def show(info: CameraInfo) -> None:
        info.header.stamp = bench.probe.get_clock().now().to_msg()
        infos.publish(info)

    cell.shows(STICKER)
    timer = bench.probe.create_timer(0.1, lambda: show(singular))
    cell.until(lambda: cell.gates and "K is singular" in cell.gates[-1].text, "why there is no pose")
    assert cell.gates[-1].reasons & BlockReason.POSE
    assert not any(gate.state == GateState.STATE_FAULT for gate in cell.gates)
    bench.probe.destroy_timer(timer)
    bench.probe.create_timer(0.1, lambda: show(true))
    cell.goal(1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objects", [ObservedObject()] * 5000),
        ("status_text", "x" * 10_000_000),
        ("image_digest", "x" * 2_000_000),
    ],
    ids=["objects", "text", "digest"],
)
def test_a_scene_that_is_too_large_is_refused_before_it_is_decoded(bench, monkeypatch, field, value):
    decoded: list[int] = []
    module = "sticker_uq.nodes.common.one_publisher.deserialize_message"
    monkeypatch.setattr(
        module, lambda data, kind: decoded.append(len(data)) or deserialize_message(data, kind)
    )
    cell = Cell(bench)
    cell.shows(STICKER)
    cell.goal(1)
    large = cell.camera.message()
    cell.camera.objects = None
    setattr(large, field, value)
    cell.camera.publish(large)
    cell.until(lambda: any("expected at most" in gate.text for gate in cell.gates), "a refusal")
    assert max(decoded) <= MOST_BYTES
    assert not cell.gates[-1].open


def test_what_the_arm_says_is_cut(bench):
    cell = Cell(bench)
    cell.arm.text = "x" * 5_000_000
    cell.shows(STICKER)
    cell.goal(1)
    cell.arm.finish(Result.ERROR_NOT_STOPPED)
    gate = cell.until_gate(GateState.STATE_FAULT)
    assert "x" * 400 in gate.text
    assert len(gate.text) < 2000

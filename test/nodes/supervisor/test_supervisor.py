# SPDX-License-Identifier: Apache-2.0
"""The supervisor as a node: scenes that speak over ROS make it open, close and ask."""

import itertools
from typing import Any

import pytest
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header

from sticker_uq.gate import BlockReason
from sticker_uq.geometry.simulated_cell import sim_camera
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.nodes.common.geometry_source import camera_to_msg
from sticker_uq.testing.scenes import THERE, object_at
from sticker_uq_msgs.msg import GateState, WorkpieceDone
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, Cell


def test_a_laptop_from_the_first_scene_to_the_last(bench):
    cell = Cell(bench)
    assert cell.until_gate(GateState.STATE_BLOCKED, BlockReason.NO_SCENE).text
    cell.shows(STICKER, object_at(THERE))
    goal = cell.goal(1)
    gate = cell.gates[-1]
    assert gate.open
    assert (gate.decision_id, gate.object_id, gate.box) == (goal.decision_id, goal.object_id, goal.box)
    assert gate.image_stamp == goal.image_stamp
    assert gate.reasons == 0
    assert stamp_to_ns(gate.valid_until) > stamp_to_ns(gate.header.stamp)
    assert gate.header.frame_id == "camera"
    assert gate.policy_hash == cell.node.settings.load_policy().hash
    decided = next(d for d in cell.decisions if d.decision_id == goal.decision_id)
    assert [v.verdict for v in decided.verdicts] == [1, 1]
    assert decided.workpiece_id == "laptop-1"
    for number, left in ((1, [object_at(THERE)]), (2, [])):
        cell.goal(number)
        cell.arm.finish()
        closed = cell.until_gate(GateState.STATE_VERIFYING)
        assert not closed.open
        assert (closed.decision_id, stamp_to_ns(closed.valid_until)) == ("", 0)
        cell.shows(*left)
    done = cell.until(lambda: cell.done and cell.done[-1], "the laptop is clean")
    assert (done.workpiece_id, done.result) == ("laptop-1", WorkpieceDone.RESULT_CLEAN)
    assert len(cell.arm.goals) == 2
    assert cell.arm.cancelled == 0
    assert not any(request.request_id for request in cell.requests)
    active = [gate.sequence for gate in cell.gates if not gate.reasons & BlockReason.NOT_ACTIVE]
    assert all(later > earlier for earlier, later in itertools.pairwise(active))


def test_goals_and_decisions_carry_the_place_of_the_object(bench):
    cell = Cell(bench, camera_pose="0.4 0 1 1 0 0 0", lid_plane="0 0 1 -0.2", require_pose=True)
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_BLOCKED, BlockReason.POSE)
    assert "camera_info_missing" in codes(cell.gates[-1].details)
    cell.until(lambda: cell.decisions, "a decision")
    assert not cell.decisions[-1].verdicts[0].pose_valid
    infos = bench.publisher_matched(CameraInfo, "camera_info")

    def tell() -> None:
        header = Header(stamp=bench.probe.get_clock().now().to_msg(), frame_id="camera")
        infos.publish(camera_to_msg(sim_camera(640, 480), header))

    bench.probe.create_timer(0.2, tell)  # as a camera does: an old one is not believed
    goal = cell.goal(1)
    assert goal.pose_valid
    assert goal.frame_id == "base_link"
    assert goal.pose.pose.position.z == pytest.approx(0.2)
    assert goal.pose.covariance[0] > 0
    decided = cell.until(
        lambda: next((d for d in cell.decisions if d.decision_id == goal.decision_id), None), "its decision"
    )
    assert decided.pose_frame == "base_link"
    assert decided.verdicts[0].pose == goal.pose


def test_an_effect_that_fails_is_a_fault(bench, monkeypatch):
    cell = Cell(bench)

    def fail(decision: Any, poses: Any) -> None:
        raise RuntimeError("no words")

    monkeypatch.setattr(cell.node._out, "decision", fail)
    cell.shows(STICKER)
    assert "internal error: RuntimeError: no words" in cell.until_gate(GateState.STATE_FAULT).text

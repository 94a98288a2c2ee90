# SPDX-License-Identifier: Apache-2.0
"""The simulated cell as a node."""

import threading
from typing import Any

import numpy as np
import pytest
import rclpy
from rclpy.clock import ClockType
from rclpy.parameter import Parameter

from sticker_uq.geometry import CellGeometry, Plane, Transform, locate
from sticker_uq.geometry.simulated_cell import ARM_FRAME, CAMERA_POSE, LID_PLANE, sim_camera
from sticker_uq.nodes.arm.client import MotionFailed
from sticker_uq.nodes.common.conversions import box_to_msg, pose_to_msg
from sticker_uq.nodes.common.diagnostics import cell_timer
from sticker_uq.nodes.common.qos import LATCHED, RELIABLE
from sticker_uq.scene import inner_regions
from sticker_uq.testing.bench import overrides
from sticker_uq.testing.scenes import object_at
from sticker_uq_lab.nodes.cell_sim import CellSim, SimulatedMotion, SimulatedOperator
from sticker_uq_lab.simulation.simulated_cell import SimulatedCell, SimulationSettings
from sticker_uq_msgs.action import RemoveSticker
from sticker_uq_msgs.msg import InterventionRequest, SceneDecision, Verdict
from sticker_uq_msgs.srv import ResolveIntervention


def test_the_simulated_operator_names_what_looks_like_a_sticker_and_says_it_again_where_it_was_refused(bench):
    cell = SimulatedCell(SimulationSettings(seed=2, width_px=320, height_px=240, person_delay_s=0.0))
    for box in cell.missed_stickers([]):
        cell.peel(box)
    asked, reflection = (box_to_msg(np.array([x, 5.0, x + 20.0, 25.0])) for x in (5.0, 50.0))
    said: list[ResolveIntervention.Request] = []
    decisions = bench.probe.create_publisher(SceneDecision, "decision", RELIABLE)
    requests = bench.probe.create_publisher(InterventionRequest, "intervention/request", LATCHED)

    def resolve(
        request: ResolveIntervention.Request, response: ResolveIntervention.Response
    ) -> ResolveIntervention.Response:
        said.append(request)
        response.accepted = reflection in request.not_stickers
        if not response.accepted:
            decisions.publish(SceneDecision(decision_id="b", verdicts=[Verdict(box=reflection)]))
        return response

    bench.probe.create_service(ResolveIntervention, "intervention/resolve", resolve)
    node = bench.add(rclpy.create_node("cell_sim", enable_rosout=False))
    operator = SimulatedOperator(node, cell, threading.Lock())
    bench.until(operator._client.service_is_ready, "the supervisor's service")
    bench.until(lambda: decisions.get_subscription_count(), "the decisions are read")
    requests.publish(InterventionRequest(request_id="r1", decision_id="a", objects=[Verdict(box=asked)]))
    bench.until(lambda: said and reflection in said[-1].not_stickers, "the answer is accepted")
    assert all(asked in request.not_stickers for request in said)
    assert {request.scene_answer for request in said} == {ResolveIntervention.Request.SCENE_CLEAN}


@pytest.mark.parametrize("simulated", [False, True])
def test_a_clock_that_is_put_back_stops_no_timer_of_the_cell_and_simulated_time_leads_it(bench, simulated):
    time = Parameter("use_sim_time", value=simulated)
    node = bench.add(rclpy.create_node("cell_sim", enable_rosout=False, parameter_overrides=[time]))
    kind = ClockType.ROS_TIME if simulated else ClockType.STEADY_TIME
    assert cell_timer(node, 1.0, lambda: None).clock.clock_type == kind


def test_the_simulated_arm_goes_nowhere_else_than_its_box(bench):
    cell = SimulatedCell(SimulationSettings(seed=2, width_px=320, height_px=240, failure_rate=0.0))
    node = bench.add(rclpy.create_node("cell_sim", enable_rosout=False))
    motion = SimulatedMotion(node, cell, threading.Lock())
    geometry = CellGeometry(
        ARM_FRAME,
        sim_camera(320, 240),
        Transform.of(CAMERA_POSE, "camera_pose"),
        Plane.of(LID_PLANE, "lid_plane"),
    )
    here, there = cell.missed_stickers([])[:2]

    def goal(box: np.ndarray, seen: np.ndarray, **changes: Any) -> RemoveSticker.Goal:
        pose = locate(object_at(seen), geometry)
        values = {"pose_valid": True, "frame_id": ARM_FRAME, "pose": pose_to_msg(pose), **changes}
        return RemoveSticker.Goal(box=box_to_msg(box), region=box_to_msg(inner_regions(box, 0.1)), **values)

    with pytest.raises(MotionFailed, match="outside the box of the goal"):
        next(motion.steps(goal(here, there)))
    with pytest.raises(MotionFailed, match="frame 'world'"):
        next(motion.steps(goal(here, here, frame_id="world")))
    assert len(list(motion.steps(goal(here, here)))) == 4
    assert cell.record.removed == 1


def test_the_simulated_cell_tells_which_laptop_it_holds(bench):
    reports = bench.diagnostics()
    bench.add(CellSim(parameter_overrides=overrides(width_px=160, height_px=120, seed=7)))
    bench.until(lambda: reports.value("cell_sim: cell", "laptop") == "laptop-7-1", "the cell's diagnostics")
    assert reports.value("cell_sim: cell", "wrongly_touched") == "0"

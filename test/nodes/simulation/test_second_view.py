# SPDX-License-Identifier: Apache-2.0
"""A second view over ROS: supervisor and simulated cell as processes; the test stands in for the detector.

It tells from the pixels of each image how the laptop lies, and reports the stickers there as the test says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sensor_msgs.msg import Image

from sticker_uq.gate import BlockReason
from sticker_uq.gate.audit import entries
from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.second_view import Places
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import box_from_msg, scene_to_msg, stamp_to_ns
from sticker_uq.nodes.common.images import bgr_from_msg
from sticker_uq.scene import FloatArray, ObservedObject
from sticker_uq.simulation.simulated_cell import SimulatedCell, SimulationSettings
from sticker_uq.testing.bench import Bench, NodeProcess
from sticker_uq.testing.scenes import assessment, observed
from sticker_uq_msgs.msg import GateState, InterventionRequest, SceneAssessment, SceneDecision, WorkpieceDone
from test.helpers.gate import codes

pytestmark = pytest.mark.timeout(300)

SIZE = (320, 240)
SIMULATION = {"seed": 2, "width_px": SIZE[0], "height_px": SIZE[1], "failure_rate": 0.0, "motion_s": 0.2}
PATIENT = {"max_scene_age_s": 10.0, "lease_s": 5.0, "arm_heartbeat_timeout_s": 5.0, "accept_timeout_s": 10.0}


@dataclass(frozen=True)
class Pose:
    """How the laptop looks and where its stickers are, before or after the turn."""

    picture: FloatArray
    stickers: Sequence[FloatArray]


class Detector:
    """Publishes a scene of every image: the stickers of the laptop, sure of all of them or not of the first one."""

    def __init__(self, bench: Bench, sure: dict[str, bool]) -> None:
        cell = SimulatedCell(SimulationSettings.model_validate(SIMULATION))
        self.workpiece = cell.record.workpiece_id
        self.poses = {"straight": _pose(cell)}
        self.places = Places.of(cell.change_view("turn", self.workpiece))
        self.poses["turned"] = _pose(cell)
        self._sure = sure
        self._scenes = bench.publisher_matched(SceneAssessment, "scene", qos.RELIABLE)
        self.seen: list[str] = []
        bench.probe.create_subscription(Image, "image", self._see, qos.IMAGES)

    def _see(self, image: Image) -> None:
        picture = bgr_from_msg(image).astype(float)
        name = min(self.poses, key=lambda name: float(np.abs(self.poses[name].picture - picture).mean()))
        self.seen.append(name)
        stamp = stamp_to_ns(image.header.stamp)
        scene = assessment(
            *self._objects(name, picture), stamp_ns=stamp, image_size=SIZE, image_digest=f"{stamp:032x}"
        )
        self._scenes.publish(scene_to_msg(replace(scene, frame_id=image.header.frame_id)))

    def _objects(self, name: str, picture: FloatArray) -> list[ObservedObject]:
        """The first sticker alone, as long as the picture shows it."""
        pose = self.poses[name]
        x1, y1, x2, y2 = pose.stickers[0].astype(int)
        here = (slice(y1, y2), slice(x1, x2))
        if np.abs(pose.picture[here] - picture[here]).mean() > 8.0:
            return []
        return [observed(pose.stickers[0].tolist(), shannon_entropy=0.2 if self._sure[name] else 1.5)]


def _pose(cell: SimulatedCell) -> Pose:
    return Pose(cell.picture().astype(float), cell.missed([]))


def _parameters(values: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "asked"])
def test_the_cell_turns_the_laptop_before_it_asks(bench: Bench, tmp_path: Path, saved: bool) -> None:
    gates = bench.collect(GateState, "gate", qos.LATCHED)
    requests = bench.collect(InterventionRequest, "intervention/request", qos.LATCHED)
    decisions = bench.collect(SceneDecision, "decision")
    done = bench.collect(WorkpieceDone, "workpiece/done", qos.LATCHED)
    supervision = {
        **PATIENT,
        "autostart": True,
        "allow_uncalibrated": True,
        "consecutive_scenes": 2,
        "discovery_time_s": 0.1,
        "second_views": "turn",
        "second_view_timeout_s": 60.0,
        "audit_folder": tmp_path / "audit",
    }
    simulation = {**SIMULATION, "rate": 8.0, "laptops": 1}

    def asked() -> InterventionRequest | None:
        # scenes may reach the supervisor before it has heard of the laptop: of one without a name it asks at once
        mine = (r for r in requests if r.request_id and r.workpiece_id == detector.workpiece)
        return next(mine, None)

    with NodeProcess("sticker_uq.nodes.supervisor.node", _parameters(supervision)) as supervisor:
        # the laptop must arrive after the supervisor, which else cannot know that no second view was taken of it
        bench.until(
            lambda: gates and not gates[-1].reasons & BlockReason.NOT_ACTIVE, "the supervisor is active"
        )
        detector = Detector(bench, {"straight": False, "turned": saved})
        with NodeProcess("sticker_uq.nodes.simulation.cell_sim", _parameters(simulation)):
            bench.until(lambda: any(g.state == GateState.STATE_SECOND_VIEW for g in gates), "a second view")
            if saved:
                bench.until(lambda: done, lambda: f"the laptop is done; last: {gates[-1:]}")
            else:
                bench.until(asked, lambda: f"a question; last: {gates[-1:]}")
        assert {"straight", "turned"} == set(detector.seen)
        states = [gate.state for gate in gates]
        first = states.index(GateState.STATE_SECOND_VIEW)
        waited = [gate for gate in gates if gate.state == GateState.STATE_SECOND_VIEW]
        assert all(gate.reasons & BlockReason.SECOND_VIEW and not gate.open for gate in waited)
        assert not any(gate.open for gate in gates[:first])
        assert codes(waited[0].details) == ["second_view_asked"]
        turned = detector.poses["turned"].stickers[0]
        if saved:
            assert asked() is None
            opened = next(gate for gate in gates if gate.open)
            assert iou(as_box(box_from_msg(opened.box)), as_box(turned)) > 0.99
            assert done[-1].result == WorkpieceDone.RESULT_CLEAN
        else:
            assert not any(gate.open for gate in gates)
            question = asked()
            assert question is not None
            (thing,) = question.objects
            assert iou(as_box(box_from_msg(thing.box)), as_box(turned)) > 0.99
        supervisor.process.terminate()
        supervisor.wait()
    log = {entry.kind: entry.data for entry in entries(tmp_path / "audit")}
    joined = log["second_view_joined"]
    assert joined["first_decision_id"] == log["second_view"]["decision_id"]
    assert Places(tuple(log["second_view_taken"]["places"])).matrix == pytest.approx(detector.places.matrix)
    published = {decision.decision_id: stamp_to_ns(decision.header.stamp) for decision in decisions}
    for which in ("first_", ""):
        assert published[joined[f"{which}decision_id"]] == joined[f"{which}image_stamp_ns"]

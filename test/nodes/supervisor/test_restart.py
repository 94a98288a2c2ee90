# SPDX-License-Identifier: Apache-2.0
"""What was decided outlives the process of the supervisor, whatever ends it; camera and arm go on meanwhile."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from std_msgs.msg import Bool
from std_srvs.srv import SetBool, Trigger

from sticker_uq.console.app import Person, PersonsCommand
from sticker_uq.gate import BlockReason
from sticker_uq.gate.audit import entries
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.console.node import Console
from sticker_uq.testing.bench import Bench, NodeProcess, overrides
from sticker_uq.testing.scenes import THERE, observed
from sticker_uq_msgs.msg import GateState, InterventionRequest, ObjectAnswer, SceneDecision, Workpiece
from sticker_uq_msgs.srv import ResolveIntervention
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, UNSURE, Arm, Camera, Result, answer

PARAMETERS = {
    "autostart": "true", "consecutive_scenes": "2", "max_scene_age_s": "10.0", "lease_s": "5.0", "discovery_time_s": "0.1",
    "accept_timeout_s": "10.0", "arm_heartbeat_timeout_s": "5.0", "allow_uncalibrated": "true", "stop_topic": "arm_stop",
}  # fmt: skip
ALL_WAYS = ("kill", "interrupt", "cleanup", "deactivate")


class Supervised:
    """A supervisor in a process of its own, which the test ends and starts again; camera and arm are the test's."""

    def __init__(self, bench: Bench, folder: Path, **parameters: str) -> None:
        self.bench = bench
        self.audit = folder / "audit"
        self._parameters = PARAMETERS | {"audit_folder": str(self.audit), **parameters}
        self.gates = bench.collect(GateState, "gate", qos.LATCHED)
        self.stops = bench.collect(Bool, "arm_stop", qos.LATCHED)
        self.requests = bench.collect(InterventionRequest, "intervention/request", qos.LATCHED)
        self.decisions = bench.collect(SceneDecision, "decision")
        self.arm = Arm(bench)
        self._workpiece = bench.publisher(Workpiece, "workpiece", qos.LATCHED)
        self.process = self._started()
        self.camera = Camera(bench)
        self.announce("laptop-1")

    def _started(self) -> NodeProcess:
        return NodeProcess("test.nodes.supervisor.process", self._parameters)

    def announce(self, name: str) -> None:
        message = Workpiece(id=name)
        message.header.stamp = self.bench.probe.get_clock().now().to_msg()
        self._workpiece.publish(message)

        def known() -> bool:
            told = [entry.data["workpiece_id"] for entry in entries(self.audit) if entry.kind == "workpiece"]
            return told[-1:] == [name]

        self.bench.until(known, f"an entry of {name}")

    def restart(self, way: str, *between: str) -> None:
        """End the supervisor in this way and start it again; wait until it is published anew."""
        self.since = len(self.gates)
        if way in ("kill", "interrupt"):
            self.process.process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGINT)
            self.process.wait()
            self.since = len(self.gates)
            self.process = self._started()
        else:
            names = {"cleanup": ("deactivate", "cleanup", "configure", "activate")}
            for name in names.get(way, ("deactivate", "activate")):
                assert self.bench.transition("supervisor", name), name
        self.bench.until(lambda: len(self.gates) > self.since, "the gate after the restart")

    def closed_by(self, reasons: BlockReason) -> GateState:
        """The first gate after the restart that nothing but ``reasons`` keeps closed; none before it was open."""

        def found() -> GateState | None:
            assert not any(gate.open for gate in self.gates[self.since :]), "a restart opened the gate"
            return next((gate for gate in self.gates[self.since :] if gate.reasons == reasons), None)

        return self.bench.until(found, lambda: f"only {reasons!r}; last: {self.gates[-1:]}")

    def until_state(self, state: int) -> None:
        self.bench.until(
            lambda: self.gates and self.gates[-1].state == state, lambda: f"{state}: {self.gates[-1:]}"
        )

    def goal(self, number: int) -> None:
        self.bench.until(lambda: len(self.arm.goals) >= number, lambda: f"goal {number}: {self.gates[-1:]}")
        self.until_state(GateState.STATE_REMOVING)

    def hold(self, held: bool) -> bool:
        return bool(self.bench.call(SetBool, "hold", SetBool.Request(data=held)).success)

    def reset(self) -> bool:
        return bool(self.bench.call(Trigger, "reset", Trigger.Request()).success)

    def resolve(self, **fields: object) -> ResolveIntervention.Response:
        self.until_state(GateState.STATE_INTERVENTION)
        asked = self.bench.until(lambda: self.requests[-1].request_id and self.requests[-1], "a question")
        request = ResolveIntervention.Request(
            request_id=asked.request_id, image_stamp=asked.header.stamp, person="Ada", **fields
        )
        return self.bench.call(ResolveIntervention, "intervention/resolve", request)


@pytest.fixture
def cell(bench: Bench, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Supervised]:
    made = Supervised(bench, tmp_path, **getattr(request, "param", {}))
    yield made
    with made.process:
        made.process.process.send_signal(signal.SIGINT)
        made.process.wait()


def test_a_hold_outlasts_every_restart(cell):
    cell.camera.objects = [STICKER]
    cell.goal(1)
    assert cell.hold(True)
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)
    for way in ALL_WAYS:
        cell.restart(way)
        cell.closed_by(BlockReason.HELD)
    assert len(cell.arm.goals) == 1
    assert cell.hold(False)
    cell.goal(2)
    assert [entry.kind for entry in entries(cell.audit) if entry.kind in ("hold", "release")] == [
        "hold",
        "release",
    ]
    # the same process goes on with a folder that somebody has emptied meanwhile
    assert cell.hold(True)
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)
    for name in ("deactivate", "cleanup"):
        assert cell.bench.transition("supervisor", name), name
    shutil.rmtree(cell.audit)
    cell.since = len(cell.gates)
    for name in ("configure", "activate"):
        assert cell.bench.transition("supervisor", name), name
    cell.closed_by(BlockReason.HELD)


@pytest.mark.parametrize("cell", [{"cancel_timeout_s": "0.3"}], indirect=True)
def test_the_stop_of_an_arm_that_does_not_end_its_goal_outlasts_every_restart(cell):
    cell.camera.objects = [STICKER]
    cell.goal(1)
    assert cell.hold(True)
    cell.until_state(GateState.STATE_FAULT)
    assert cell.hold(False)
    for way in ALL_WAYS:
        cell.restart(way)
        told = len(cell.stops)
        gate = cell.closed_by(BlockReason.FAULT | BlockReason.ARM_FAILED)
        assert "arm_does_not_stop" in codes(gate.details)
        cell.bench.until(lambda told=told: len(cell.stops) > told + 2, "the stop, again and again")
        assert all(stop.data for stop in cell.stops[told:])
    # the arm still moves: a reset waits for it, and faults again
    cell.since = len(cell.gates)
    assert cell.reset()
    cell.until_state(GateState.STATE_FAULT)
    assert len(cell.arm.goals) == 1
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)
    cell.closed_by(BlockReason.FAULT)
    assert cell.reset()
    cell.goal(2)
    assert not cell.stops[-1].data


@pytest.mark.parametrize("cell", [{"cancel_timeout_s": "5.0"}], indirect=True)
def test_no_goal_is_sent_while_that_of_the_killed_supervisor_is_under_way(cell):
    """The next supervisor asks the arm for the end of the goal, and goes on by itself when the arm tells it."""
    cell.camera.objects = [STICKER]
    cell.goal(1)
    cell.restart("kill")
    gate = cell.closed_by(BlockReason.ARM_FAILED)
    assert "last_run_moved" in codes(gate.details)
    cell.bench.until(lambda: cell.arm.cancelled, "a goal that is cancelled by the next supervisor")
    assert len(cell.arm.goals) == 1
    cell.arm.finish(Result.ERROR_PERMIT_REVOKED)
    cell.goal(2)
    # an arm whose driver was started again, too, knows nothing of the goal: a person has to look
    cell.process.process.send_signal(signal.SIGSTOP)
    cell.arm.close()
    cell.arm = Arm(cell.bench)
    cell.restart("kill")
    cell.until_state(GateState.STATE_FAULT)
    assert cell.arm.goals == []
    assert cell.reset()
    cell.goal(1)


def test_what_a_person_said_about_the_laptop_outlasts_a_kill(cell):
    cell.camera.objects = [UNSURE]
    cell.until_state(GateState.STATE_INTERVENTION)
    cell.camera.objects = None
    assert cell.resolve(answers=[answer(ObjectAnswer.ANSWER_KEEP)]).accepted
    cell.restart("kill")
    cell.camera.objects = [STICKER]  # sure now, and left alone all the same
    cell.closed_by(BlockReason.NOTHING_TO_REMOVE)
    cell.announce("laptop-2")
    cell.camera.objects = [observed(THERE, probabilities=(0.3, 0.1, 0.6), shannon_entropy=1.5)]
    assert cell.resolve(scene_answer=ResolveIntervention.Request.SCENE_SKIP_LAPTOP).accepted
    cell.camera.objects = [STICKER]
    cell.restart("kill")
    gate = cell.closed_by(BlockReason.WAITING_FOR_OPERATOR)
    assert codes(gate.details) == ["workpiece_left"]
    # an open question is not answered by a restart either
    cell.announce("laptop-3")
    cell.camera.objects = [UNSURE]
    cell.until_state(GateState.STATE_INTERVENTION)
    cell.camera.objects = [STICKER]
    cell.restart("interrupt")
    assert codes(cell.closed_by(BlockReason.FAULT).details)[0] == "last_run_asked"
    assert cell.arm.goals == []
    assert cell.reset()
    cell.goal(1)


def test_another_camera_after_a_restart_is_held_where_something_was_to_be_left(cell):
    cell.camera.objects = [UNSURE]
    cell.until_state(GateState.STATE_INTERVENTION)
    cell.camera.objects = None
    assert cell.resolve(answers=[answer(ObjectAnswer.ANSWER_KEEP)]).accepted
    cell.camera.changes = {"image_size": (1280, 960)}
    cell.restart("kill")
    cell.camera.objects = [STICKER]
    assert codes(cell.closed_by(BlockReason.HELD).details) == ["places_lost"]
    cell.restart("kill")
    assert codes(cell.closed_by(BlockReason.HELD).details) == ["places_lost"]
    assert cell.arm.goals == []
    assert cell.hold(False)
    cell.goal(1)


def test_a_hold_on_the_page_while_the_supervisor_is_down_is_taken_by_the_next_one(cell):
    console = cell.bench.add(Console(parameter_overrides=overrides(port=0, answer_timeout_s=0.1)))
    cell.bench.until(console.supervisor.operations.service_is_ready, "the service")
    cell.process.process.send_signal(signal.SIGKILL)
    cell.process.wait()
    # discovery still knows the dead supervisor, so that the call goes nowhere
    assert not asyncio.run(console.command(PersonsCommand(command="hold"), Person("Ada", False))).accepted
    cell.process = cell._started()
    cell.bench.until(lambda: cell.gates[-1].reasons & BlockReason.HELD, "the hold")
    cell.camera.objects = [STICKER]
    cell.since = len(cell.gates)
    cell.closed_by(BlockReason.HELD)
    assert cell.arm.goals == []
    assert [entry.data["person"] for entry in entries(cell.audit) if entry.kind == "hold"] == ["Ada"]
    assert cell.hold(False)
    cell.goal(1)


def test_a_laptop_without_a_name_closes_and_the_same_name_again_is_another_laptop(cell):
    cell.camera.objects = [UNSURE]
    cell.until_state(GateState.STATE_INTERVENTION)
    assert cell.hold(True)
    assert cell.resolve(answers=[answer(ObjectAnswer.ANSWER_REMOVE)]).accepted
    cell.announce(" ")
    assert cell.hold(False)
    cell.since = len(cell.gates)
    assert codes(cell.closed_by(BlockReason.WAITING_FOR_OPERATOR).details) == ["workpiece_unnamed"]
    cell.restart("cleanup")
    assert codes(cell.closed_by(BlockReason.WAITING_FOR_OPERATOR).details) == ["workpiece_unnamed"]
    cell.announce("laptop-1")
    cell.until_state(
        GateState.STATE_INTERVENTION
    )  # what was approved on the laptop before is asked about again
    assert cell.arm.goals == []
    cell.announce("laptop-1")
    cell.camera.objects = [STICKER]
    cell.goal(1)

# SPDX-License-Identifier: Apache-2.0
"""What was decided outlives the process of the supervisor, whatever ends it; camera and arm go on meanwhile.

One cell for all tests, because processes take long to start: each test begins with another laptop.
"""

import asyncio
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from std_msgs.msg import Bool
from std_srvs.srv import SetBool, Trigger

from sticker_uq.cell.transport import free_domain
from sticker_uq.console.app import Person, PersonsCommand
from sticker_uq.gate import BlockReason
from sticker_uq.gate.audit import entries
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.console.node import Console
from sticker_uq.testing.bench import Bench, NodeProcess, local_environment, overrides, run_bench
from sticker_uq.testing.scenes import THERE, object_at
from sticker_uq_msgs.msg import GateState, InterventionRequest, ObjectAnswer, SceneDecision, Workpiece
from sticker_uq_msgs.srv import ResolveIntervention
from test.helpers.gate import codes
from test.helpers.supervised import STICKER, UNSURE, Arm, Camera, Result, answer

PARAMETERS = {
    "autostart": "true", "consecutive_scenes": "2", "max_scene_age_s": "10.0", "lease_s": "5.0", "discovery_time_s": "0.1",
    "accept_timeout_s": "10.0", "cancel_timeout_s": "5.0",
    "arm_heartbeat_timeout_s": "5.0", "allow_uncalibrated": "true", "stop_topic": "arm_stop",
}  # fmt: skip
ALL_WAYS = ("kill", "interrupt", "cleanup", "deactivate")


class Supervised:
    """A supervisor in a process of its own, which the test ends and starts again; camera and arm are the test's."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.audit = folder / "audit"
        self.since = self._laptops = 0
        self._parameters = dict(PARAMETERS)
        self.gates = bench.collect(GateState, "gate", qos.LATCHED)
        self.stops = bench.collect(Bool, "arm_stop", qos.LATCHED)
        self.requests = bench.collect(InterventionRequest, "intervention/request", qos.LATCHED)
        self.decisions = bench.collect(SceneDecision, "decision")
        self.arm = Arm(bench)
        self._workpiece = bench.publisher(Workpiece, "workpiece", qos.LATCHED)
        self.process = self._started()
        self.camera = Camera(bench)

    def _started(self) -> NodeProcess:
        return NodeProcess(
            "test.nodes.supervisor.process", self._parameters | {"audit_folder": str(self.audit)}
        )

    def fresh(self) -> None:
        """Another laptop that nothing is known of, no goal under way, nothing that holds the gate."""
        self.camera.objects, self.camera.changes = None, {}
        self.cancel_timeout("5.0")
        self.announce()
        self.arm.goals.clear()
        self.since = len(self.gates)

    def tidy(self) -> None:
        """End what a test has begun."""
        self.camera.objects = None
        assert self.hold(True)
        if self.arm.goals and not self.arm._end.done():
            self.arm.finish(Result.ERROR_OPERATOR_ABORT)
        free = self.until(lambda gate: not gate.reasons & BlockReason.ARM_FAILED)
        if free.reasons & BlockReason.FAULT:
            assert self.reset()
        assert self.hold(False)

    def cancel_timeout(self, seconds: str) -> None:
        """How long an arm may take to end its goal; no permit may be out."""
        self._parameters["cancel_timeout_s"] = seconds
        wanted = Parameter("cancel_timeout_s", value=float(seconds)).to_parameter_msg()
        request = SetParameters.Request(parameters=[wanted])
        given = self.call(SetParameters, "supervisor/set_parameters", request)
        assert given.results[0].successful, given

    def announce(self, name: str = "") -> None:
        self._laptops += 1
        name = name or f"laptop-{self._laptops}"
        message = Workpiece(id=name)
        message.header.stamp = self.bench.probe.get_clock().now().to_msg()
        self._workpiece.publish(message)

        def known() -> bool:
            told = [entry.data["workpiece_id"] for entry in entries(self.audit) if entry.kind == "workpiece"]
            return told[-1:] == [name]

        self.bench.until(known, f"an entry of {name}")

    def end(self, way: str) -> None:
        self.process.process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGINT)
        self.process.wait()

    def start(self) -> None:
        self.since = len(self.gates)
        self.process = self._started()
        self.bench.until(lambda: len(self.gates) > self.since, "the gate after the start")

    def restart(self, way: str) -> None:
        """End the supervisor in this way and start it again; wait until it is published anew."""
        self.since = len(self.gates)
        if way in ("kill", "interrupt"):
            self.end(way)
            self.start()
        else:
            self.bench.until(lambda: self.bench.probe.count_publishers("gate") == 1, "one supervisor")
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

    def until(self, wanted: Callable[[GateState], object]) -> GateState:
        """The newest gate, once it is as it is ``wanted``."""
        newest = self.gates[-1:]
        self.bench.until(
            lambda: self.gates and wanted(self.gates[-1]),
            lambda: f"another gate than {newest}, {self.gates[-1:]}",
        )
        return self.gates[-1]

    def until_state(self, state: int) -> None:
        self.until(lambda gate: gate.state == state)

    def stop_is_demanded(self) -> bool:
        """Whether the stop is demanded all the time, by what is told from now on."""
        told = len(self.stops)
        self.bench.until(lambda: len(self.stops) > told + 2, "the stop, again and again")
        return all(stop.data for stop in self.stops[told:])

    def goal(self, number: int) -> None:
        self.bench.until(lambda: len(self.arm.goals) >= number, lambda: f"goal {number}: {self.gates[-1:]}")
        self.until_state(GateState.STATE_REMOVING)

    def call(self, kind: type, name: str, request: object) -> Any:
        """The reply of the supervisor that is there: a call goes nowhere as long as discovery knows one that was killed."""
        self.bench.until(lambda: self.bench.probe.count_publishers("gate") == 1, "one supervisor")
        return self.bench.call(kind, name, request)

    def hold(self, held: bool) -> bool:
        return bool(self.call(SetBool, "hold", SetBool.Request(data=held)).success)

    def reset(self) -> bool:
        return bool(self.call(Trigger, "reset", Trigger.Request()).success)

    def resolve(self, **fields: object) -> ResolveIntervention.Response:
        self.until_state(GateState.STATE_INTERVENTION)
        asked = self.bench.until(lambda: self.requests[-1].request_id and self.requests[-1], "a question")
        request = ResolveIntervention.Request(
            request_id=asked.request_id, image_stamp=asked.header.stamp, person="Ada", **fields
        )
        return self.call(ResolveIntervention, "intervention/resolve", request)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    folder = tmp_path_factory.mktemp("restart")
    with pytest.MonkeyPatch.context() as patch, free_domain() as domain:
        for name, value in local_environment(domain, folder / "ros").items():
            patch.setenv(name, value)
        with run_bench() as bench:
            made = Supervised(bench, folder)
            # nobody knows what was decided before
            assert codes(made.closed_by(BlockReason.HELD | BlockReason.NO_SCENE).details)[0] == "first_start"
            assert made.hold(False)
            yield made
            with made.process:
                made.end("interrupt")


@pytest.fixture
def cell(shared: Supervised) -> Iterator[Supervised]:
    shared.fresh()
    yield shared
    shared.tidy()


def test_the_stop_of_an_arm_that_does_not_end_its_goal_and_a_hold_outlast_every_restart(cell):
    cell.cancel_timeout("0.3")
    cell.camera.objects = [STICKER]
    cell.goal(1)
    assert cell.hold(True)
    cell.until_state(GateState.STATE_FAULT)
    for way in ALL_WAYS:
        cell.restart(way)
        gate = cell.closed_by(BlockReason.HELD | BlockReason.FAULT | BlockReason.ARM_FAILED)
        assert "arm_does_not_stop" in codes(gate.details)
        assert cell.stop_is_demanded()
    # the arm still moves: a reset waits for it, and faults again
    cell.since = len(cell.gates)
    assert cell.hold(False)
    cell.closed_by(BlockReason.FAULT | BlockReason.ARM_FAILED)
    assert cell.reset()
    cell.until_state(GateState.STATE_FAULT)
    assert len(cell.arm.goals) == 1
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)
    cell.closed_by(BlockReason.FAULT)
    assert cell.hold(True)
    assert cell.reset()
    for way in ("kill", "cleanup", "deactivate"):  # a hold alone
        cell.restart(way)
        cell.closed_by(BlockReason.HELD)
    assert not cell.stops[-1].data
    assert len(cell.arm.goals) == 1
    assert cell.hold(False)
    cell.goal(2)


def test_the_same_process_goes_on_with_a_folder_that_somebody_has_emptied_meanwhile(cell):
    assert cell.hold(True)
    for name in ("deactivate", "cleanup"):
        assert cell.bench.transition("supervisor", name), name
    shutil.rmtree(cell.audit)
    cell.since = len(cell.gates)
    cell.camera.objects = [STICKER]
    for name in ("configure", "activate"):
        assert cell.bench.transition("supervisor", name), name
    gate = cell.closed_by(BlockReason.HELD | BlockReason.FAULT)
    assert "last_run_unreadable" in codes(gate.details)


def test_a_log_that_is_gone_or_damaged_is_held_and_stops_the_arm_until_a_person_has_looked(cell):
    cell.camera.objects = [STICKER]
    cell.end("kill")
    shutil.rmtree(cell.audit)
    cell.start()
    gate = cell.closed_by(BlockReason.HELD | BlockReason.FAULT)
    assert codes(gate.details) == ["last_run_unreadable"]
    assert cell.stop_is_demanded()
    assert cell.reset()
    assert cell.hold(False)
    cell.goal(1)
    cell.arm.finish()
    cell.end("kill")
    log = cell.audit / "audit-000001.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"state"', b'"stale"', 1))
    cell.start()
    gate = cell.closed_by(BlockReason.HELD | BlockReason.FAULT | BlockReason.AUDIT)
    assert "is damaged at line" in gate.text
    assert cell.stop_is_demanded()
    assert not cell.reset()
    assert not cell.hold(False)
    cell.end("interrupt")
    cell.audit = cell.audit.with_name("another")
    cell.start()
    assert codes(cell.closed_by(BlockReason.HELD).details) == ["first_start"]
    assert len(cell.arm.goals) == 1
    assert cell.hold(False)
    cell.goal(2)


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
    # with another camera nobody can find it again
    cell.camera.objects, cell.camera.changes = None, {"image_size": (1280, 960)}
    cell.restart("kill")
    cell.camera.objects = [STICKER]
    assert codes(cell.closed_by(BlockReason.HELD).details) == ["places_lost"]
    cell.restart("cleanup")
    assert codes(cell.closed_by(BlockReason.HELD).details) == ["places_lost"]
    assert cell.hold(False)
    cell.announce()
    cell.goal(1)
    cell.camera.objects, cell.camera.changes = None, {}
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)
    cell.announce()
    cell.camera.objects = [object_at(THERE, probabilities=(0.3, 0.1, 0.6), shannon_entropy=1.5)]
    assert cell.resolve(scene_answer=ResolveIntervention.Request.SCENE_SKIP_LAPTOP).accepted
    cell.camera.objects = [STICKER]
    cell.restart("kill")
    gate = cell.closed_by(BlockReason.WAITING_FOR_OPERATOR)
    assert codes(gate.details) == ["workpiece_left"]
    # an open question is not answered by a restart either
    cell.announce()
    cell.camera.objects = [UNSURE]
    cell.until_state(GateState.STATE_INTERVENTION)
    cell.camera.objects = [STICKER]
    cell.restart("interrupt")
    assert codes(cell.closed_by(BlockReason.FAULT).details)[0] == "last_run_asked"
    assert len(cell.arm.goals) == 1
    assert cell.reset()
    cell.goal(2)


def test_a_hold_on_the_page_while_the_supervisor_is_down_is_taken_by_the_next_one(cell):
    """However late the page says so: it is known from before, and the next supervisor waits for it."""
    console = cell.bench.add(Console(parameter_overrides=overrides(port=0, answer_timeout_s=0.1)))
    cell.bench.until(console.supervisor.operations.service_is_ready, "the service")

    def known() -> bool:
        states = [entry.data for entry in entries(cell.audit) if entry.kind == "state"]
        return bool(states[-1]["consoles"] == ["/console"])

    cell.bench.until(known, "a supervisor that knows the page")
    cell.end("kill")
    # discovery still knows the dead supervisor, so that the call goes nowhere
    assert not asyncio.run(console.command(PersonsCommand(command="hold"), Person("Ada", False))).accepted
    cell.bench.executor.remove_node(console)  # it hangs: nothing is known but what it said before
    cell.camera.objects = [STICKER]
    cell.start()
    # awaited at first, until what the page said has come
    assert codes(cell.closed_by(BlockReason.HELD).details) in (["console_awaited"], ["console_holds"])
    cell.until(lambda gate: codes(gate.details) == ["console_holds"])
    cell.bench.executor.add_node(console)

    def taken() -> bool:
        return "Ada" in [entry.data["person"] for entry in entries(cell.audit) if entry.kind == "hold"]

    cell.bench.until(taken, "the hold of the page")
    cell.until(lambda gate: "console_holds" not in codes(gate.details))
    assert cell.gates[-1].reasons & BlockReason.HELD
    assert cell.arm.goals == []
    assert cell.hold(False)
    cell.goal(1)
    # a page that is gone may have been pressed meanwhile
    cell.tidy()
    cell.end("kill")
    cell.bench.remove(console)
    cell.camera.objects = [STICKER]
    cell.start()
    assert codes(cell.closed_by(BlockReason.HELD).details) == ["console_awaited"]
    assert cell.hold(False)
    cell.goal(2)


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

"""The supervisor as a node: scenes, people and an arm that speak over ROS make it open, close and ask."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.parameter import Parameter
from rclpy.task import Future
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Bool, Float64, Header, String
from std_srvs.srv import SetBool, Trigger

from sticker_uq.nodes import qos
from sticker_uq.nodes.conversions import box_to_msg, scene_to_msg, stamp_to_ns
from sticker_uq.nodes.poses import camera_to_msg
from sticker_uq.nodes.removal_client import removal_code
from sticker_uq.nodes.sim_geometry import sim_camera
from sticker_uq.nodes.supervisor import SupervisorNode
from sticker_uq.scene import ObservedObject
from sticker_uq.supervision import Closed
from sticker_uq.supervision.audit import entries
from sticker_uq.supervision.events import RemovalCode
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
from sticker_uq_msgs.srv import OperateGate, ResolveIntervention
from test.helpers.assessments import HERE, THERE, assessment, observed
from test.helpers.ros import Bench, NodeProcess, overrides, values_of

STICKER = observed()
UNSURE = observed(shannon_entropy=1.5)
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
        scene = assessment(*(self.objects or ()), stamp_ns=stamp, **self.changes)
        return scene_to_msg(scene)

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
        self._end = Future()
        self._bench = bench
        self._status = bench.publisher(ArmStatus, "arm/status", qos.RELIABLE)
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
        return Result(error_code=code, error_text="as the test said")

    def _on_cancel(self, _: Any) -> CancelResponse:
        self.cancelled += 1
        return CancelResponse.ACCEPT

    def finish(self, code: int = Result.ERROR_NONE) -> None:
        self._end.set_result(code)

    def falls_silent(self) -> None:
        self._bench.probe.destroy_timer(self._timer)

    def close(self) -> None:
        self.falls_silent()
        self._server.destroy()


class Cell:
    """An active supervisor with a camera, an arm and ears for all it says."""

    def __init__(self, bench: Bench, arm: bool = True, **parameters: Any) -> None:
        # patient, because a busy machine may stop this process for a while
        patient = {"consecutive_scenes": 2, "max_scene_age": 10.0, "lease": 5.0, "accept_timeout": 10.0}
        values = {**patient, "arm_silence": 5.0, "listen_time": 0.1, **parameters}
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
        self.workpiece("laptop-1")

    def workpiece(self, name: str) -> None:
        message = Workpiece(id=name)
        message.header.stamp = self.bench.probe.get_clock().now().to_msg()
        self.bench.publisher_matched(Workpiece, "workpiece", qos.LATCHED).publish(message)
        self.until(lambda: self.node._core.state.workpiece_id == name, "the workpiece is known")  # type: ignore[union-attr]

    def until(self, condition: Any, what: str) -> Any:
        return self.bench.until(condition, what)

    def until_gate(self, state: int, reasons: Closed = Closed.NONE) -> GateState:
        """The newest gate message, once it is in this state with at least these reasons."""

        def newest() -> GateState | None:
            gate = self.gates[-1] if self.gates else None
            return gate if gate and gate.state == state and gate.reasons & reasons == reasons else None

        return self.until(newest, f"gate {state} {reasons!r}; last: {self.gates[-1:]}")

    def shows(self, *objects: ObservedObject) -> None:
        self.camera.objects = objects

    def goal(self, number: int) -> RemoveSticker.Goal:
        """The ``number``-th goal, once the arm works on it and the gate says so."""
        assert self.arm is not None
        self.until(lambda: len(self.arm.goals) == number, f"goal {number}")  # type: ignore[union-attr]
        self.until_gate(GateState.STATE_REMOVING)
        return self.arm.goals[-1]

    def resolve(self, **fields: Any) -> ResolveIntervention.Response:
        request = ResolveIntervention.Request(request_id=self.requests[-1].request_id, person="Ada")
        for name, value in fields.items():
            setattr(request, name, value)
        return self.bench.call(ResolveIntervention, "intervention/resolve", request)


def answer(kind: int, box: Sequence[float] = HERE) -> ObjectAnswer:
    return ObjectAnswer(answer=kind, box=box_to_msg(np.array(box)))


def test_a_laptop_from_the_first_scene_to_the_last(bench: Bench) -> None:
    cell = Cell(bench)
    assert cell.until_gate(GateState.STATE_BLOCKED, Closed.NO_SCENE).text
    cell.shows(STICKER, observed(THERE))
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
    for number, left in ((1, [observed(THERE)]), (2, [])):
        cell.goal(number)
        cell.arm.finish()  # type: ignore[union-attr]
        closed = cell.until_gate(GateState.STATE_VERIFYING)
        assert not closed.open
        assert (closed.decision_id, stamp_to_ns(closed.valid_until)) == ("", 0)
        cell.shows(*left)
    done = cell.until(lambda: cell.done and cell.done[-1], "the laptop is clean")
    assert (done.workpiece_id, done.result) == ("laptop-1", WorkpieceDone.RESULT_CLEAN)
    assert len(cell.arm.goals) == 2  # type: ignore[union-attr]
    assert cell.arm.cancelled == 0  # type: ignore[union-attr]
    assert not any(request.request_id for request in cell.requests)
    active = [gate.sequence for gate in cell.gates if not gate.reasons & Closed.NOT_ACTIVE]
    assert all(later > earlier for earlier, later in itertools.pairwise(active))


def test_silence_of_the_detector_closes_within_a_bounded_number_of_messages(bench: Bench) -> None:
    cell = Cell(bench, max_scene_age=1.0)
    cell.shows(STICKER)
    cell.goal(1)
    cell.camera.objects = None
    said = len(cell.gates)
    cell.until_gate(GateState.STATE_BLOCKED, Closed.STALE_SCENE)
    # 1 s of patience at 10 Hz, and one message that may have been under way
    assert len([gate for gate in cell.gates[said:] if gate.open]) <= 11
    cell.until(lambda: cell.arm.cancelled == 1, "the goal is cancelled")  # type: ignore[union-attr]
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)  # type: ignore[union-attr]
    cell.shows(STICKER)
    assert cell.goal(2).decision_id != cell.arm.goals[0].decision_id  # type: ignore[union-attr]


def test_an_arm_that_does_not_stop_is_a_fault_until_reset(bench: Bench) -> None:
    cell = Cell(bench, cancel_timeout=0.3)
    cell.shows(STICKER)
    cell.goal(1)
    held = bench.call(SetBool, "hold", SetBool.Request(data=True))
    assert held.success
    assert not cell.node._core.state.open  # type: ignore[union-attr]
    cell.until_gate(GateState.STATE_FAULT, Closed.FAULT | Closed.HELD)
    assert not bench.call(SetBool, "hold", SetBool.Request(data=False)).message.startswith("MONITORING")
    assert bench.call(Trigger, "reset", Trigger.Request()).success
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)  # type: ignore[union-attr]
    cell.goal(2)
    refused = bench.call(Trigger, "reset", Trigger.Request())
    assert not refused.success
    assert "no fault" in refused.message


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
def test_an_arm_that_ignores_its_cancellation_is_stopped_by_the_cells_own_means(
    bench: Bench, kind: type, name: str
) -> None:
    stop = {"stop_service": "robot/stop", "stop_service_type": name, "stop_topic": "robot/locked"}
    cell = Cell(bench, cancel_timeout=0.3, **stop)
    locked = bench.collect(Bool, "robot/locked", qos.LATCHED)
    stopped = bench.diagnostics()
    cell.shows(STICKER)
    cell.goal(1)
    bench.until(lambda: locked and not locked[-1].data, "nothing is locked")
    # the service comes late and refuses at first: it is asked until it has stopped the arm
    assert bench.call(SetBool, "hold", SetBool.Request(data=True)).success
    cell.until_gate(GateState.STATE_FAULT, Closed.FAULT | Closed.HELD)
    bench.until(lambda: locked[-1].data, "the lock")
    bench.until(lambda: stopped.value("supervisor: gate", "stop") == "demanded", "a stop nobody confirmed")
    server = StopServer(bench, kind, cell.arm, refusals=1)  # type: ignore[arg-type]
    bench.until(lambda: stopped.value("supervisor: gate", "stop") == "confirmed", "a confirmed stop")
    assert len(server.asked) == 2
    assert all(getattr(request, "data", True) for request in server.asked)
    assert cell.arm.cancelled == 1  # type: ignore[union-attr]
    # the arm stands, and nothing begins again before a person has said so
    assert bench.call(SetBool, "hold", SetBool.Request(data=False)).success
    cell.until_gate(GateState.STATE_FAULT)
    assert locked[-1].data
    assert bench.call(Trigger, "reset", Trigger.Request()).success
    cell.goal(2)
    bench.until(lambda: not locked[-1].data, "the lock is off")
    assert len(server.asked) == 2


def test_an_arm_is_stopped_though_the_supervisor_was_deactivated(bench: Bench) -> None:
    cell = Cell(bench, cancel_timeout=0.3, stop_topic="robot/locked")
    locked = bench.collect(Bool, "robot/locked", qos.LATCHED)
    cell.shows(STICKER)
    cell.goal(1)
    assert bench.transition("supervisor", "deactivate")
    bench.until(lambda: locked and locked[-1].data, "the lock")
    cell.until_gate(GateState.STATE_FAULT, Closed.FAULT | Closed.NOT_ACTIVE)


def test_a_stop_that_ros_cannot_name_is_refused(bench: Bench) -> None:
    for name in ("stop_service", "stop_topic"):
        node = bench.add(SupervisorNode(parameter_overrides=overrides(**{name: "no name!"})))
        assert not node.start()
        assert "is no name that ROS accepts" in node.last_failure
        node.destroy_node()


def test_goals_and_decisions_carry_the_place_of_the_object(bench: Bench) -> None:
    known = {"camera_pose": "0.4 0 1 1 0 0 0", "lid_plane": "0 0 1 -0.2", "require_pose": True}
    cell = Cell(bench, **known)
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_BLOCKED, Closed.POSE)
    assert "no CameraInfo was received" in cell.gates[-1].text
    cell.until(lambda: cell.decisions, "a decision")
    assert not cell.decisions[-1].verdicts[0].pose_valid
    infos = bench.publisher_matched(CameraInfo, "camera_info")
    header = Header(stamp=bench.probe.get_clock().now().to_msg(), frame_id="camera")
    infos.publish(camera_to_msg(sim_camera(640, 480), header))
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


def test_a_person_is_asked_and_answers(bench: Bench) -> None:
    cell = Cell(bench)
    cell.shows(UNSURE)
    cell.until_gate(GateState.STATE_INTERVENTION, Closed.WAITING_FOR_PERSON)
    request = cell.until(lambda: cell.requests[-1].request_id and cell.requests[-1], "a request")
    assert request.workpiece_id == "laptop-1"
    assert [v.object_id for v in request.objects] == [0]
    assert request.objects[0].reasons[0].metric == "shannon_entropy"
    # somebody who comes late finds the question, too
    late = bench.collect(InterventionRequest, "intervention/request", qos.LATCHED)
    bench.until(lambda: late, "the latched request")
    assert late[0].request_id == request.request_id
    for bad, message in (
        ({"request_id": "x"}, "not open"),
        ({"person": ""}, "person is empty"),
        ({"scene_answer": 99}, "scene_answer 99 is unknown"),
        ({"answers": [answer(77)]}, "UNKNOWN"),
        ({"answers": []}, "empty"),
    ):
        refused = cell.resolve(**{"answers": [answer(ObjectAnswer.ANSWER_REMOVE)], **bad})
        assert not refused.accepted
        assert message in refused.message
    assert cell.resolve(answers=[answer(ObjectAnswer.ANSWER_REMOVE)]).accepted
    cell.goal(1)
    assert cell.requests[-1].request_id == ""
    (told,) = cell.answers
    assert (told.request_id, told.person, told.workpiece_id) == (request.request_id, "Ada", "laptop-1")
    assert told.header.frame_id == "camera"
    assert told.answers[0].answer == ObjectAnswer.ANSWER_REMOVE


def test_a_laptop_left_to_people_is_done(bench: Bench) -> None:
    cell = Cell(bench)
    cell.shows(UNSURE)
    cell.until(lambda: cell.requests and cell.requests[-1].request_id, "a request")
    assert cell.resolve(scene_answer=ResolveIntervention.Request.SCENE_SKIP_LAPTOP).accepted
    done = cell.until(lambda: cell.done and cell.done[-1], "the laptop is done")
    assert done.result == WorkpieceDone.RESULT_LEFT_TO_PEOPLE
    cell.workpiece("laptop-2")
    cell.shows(STICKER)
    cell.goal(1)


def test_without_an_arm_nothing_opens_and_diagnostics_say_so(bench: Bench) -> None:
    cell = Cell(bench, arm=False)
    parts = bench.diagnostics()
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_MONITORING, Closed.ARM_FAILED)
    status = bench.until(
        lambda: (
            values_of(parts["supervisor: gate"]).get("phase") == "MONITORING" and parts["supervisor: gate"]
            if "supervisor: gate" in parts
            else None
        ),
        "diagnostics",
    )
    assert values_of(status)["arm_ready"] == "False"
    cell.arm = Arm(bench)
    cell.goal(1)


def test_an_arm_that_goes_away_closes_the_gate(bench: Bench) -> None:
    cell = Cell(bench, cancel_timeout=0.3)
    cell.shows(STICKER)
    cell.goal(1)
    cell.arm.close()  # type: ignore[union-attr]
    cell.until_gate(GateState.STATE_FAULT, Closed.FAULT)


def test_an_arm_that_falls_silent_closes_the_gate_though_its_server_is_there(bench: Bench) -> None:
    cell = Cell(bench, arm_silence=0.5, cancel_timeout=30.0)
    cell.shows(STICKER)
    cell.goal(1)
    cell.arm.falls_silent()  # type: ignore[union-attr]
    assert "the arm is silent" in cell.until_gate(GateState.STATE_BLOCKED, Closed.ARM_FAILED).text
    cell.until(lambda: cell.arm.cancelled == 1, "the goal is cancelled")  # type: ignore[union-attr]


def test_a_second_arm_that_speaks_closes_the_gate(bench: Bench) -> None:
    cell = Cell(bench, cancel_timeout=30.0)
    cell.shows(STICKER)
    cell.goal(1)
    other = bench.publisher_matched(ArmStatus, "arm/status", qos.RELIABLE)
    other.publish(ArmStatus(arm="another"))
    cell.until_gate(GateState.STATE_BLOCKED, Closed.ARM_FAILED)


def test_nothing_is_permitted_while_a_publisher_of_the_gate_is_not_heard(bench: Bench) -> None:
    """One whose quality of service does not fit is there and never heard; one that speaks is a second supervisor."""
    cell = Cell(bench)
    best_effort = bench.publisher(GateState, "gate", qos.NEWEST_IMAGE_BEST_EFFORT)
    cell.shows(STICKER)
    gate = cell.until_gate(GateState.STATE_BLOCKED, Closed.UNHEARD_SUPERVISOR)
    cell.until(lambda: "1 publisher of /gate besides this one not heard" in cell.gates[-1].text, "the reason")
    assert not gate.open
    assert cell.arm.goals == []  # type: ignore[union-attr]
    bench.probe.destroy_publisher(best_effort)
    cell.goal(1)
    silent = bench.publisher(GateState, "gate", qos.LATCHED)
    cell.until_gate(GateState.STATE_BLOCKED, Closed.UNHEARD_SUPERVISOR)
    silent.publish(GateState(supervisor="other", reasons=int(Closed.NOT_ACTIVE)))
    cell.until(lambda: not cell.gates[-1].reasons & Closed.UNHEARD_SUPERVISOR, "one that stands by is heard")
    silent.publish(GateState(supervisor="other"))
    cell.until_gate(GateState.STATE_BLOCKED, Closed.SECOND_SUPERVISOR)


def test_it_is_listened_for_other_supervisors_before_anything_is_permitted(bench: Bench) -> None:
    cell = Cell(bench, listen_time=60.0)
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_BLOCKED, Closed.UNHEARD_SUPERVISOR)
    cell.until(lambda: len(cell.decisions) > 10, "decisions that would have been enough")
    assert "it is listened for 60 s first" in cell.gates[-1].text
    assert cell.arm.goals == []  # type: ignore[union-attr]
    cell.node._listened_s = 0.0  # the time is over
    cell.goal(1)


def test_a_person_who_operates_the_gate_stands_in_the_audit_log(bench: Bench, tmp_path: Path) -> None:
    cell = Cell(bench, audit_folder=str(tmp_path / "audit"))
    known = OperateGate.Request

    def operate(command: int, person: str = "Ada") -> OperateGate.Response:
        return bench.call(OperateGate, "operate", known(command=command, person=person))

    assert operate(known.COMMAND_HOLD).accepted
    cell.until_gate(GateState.STATE_BLOCKED, Closed.HELD)
    assert "person is empty" in operate(known.COMMAND_RELEASE, person=" ").message
    assert "command 0 is unknown" in operate(known.COMMAND_UNKNOWN).message
    assert cell.gates[-1].reasons & Closed.HELD
    assert operate(known.COMMAND_RELEASE, "Grace").accepted
    assert operate(known.COMMAND_RESET).message == "there is no fault to reset"
    cell.until_gate(GateState.STATE_BLOCKED)
    assert cell.node._audit._log.flush(30.0)
    said = [(e.kind, e.data["person"]) for e in entries(tmp_path / "audit") if "person" in e.data]
    assert said == [("hold", "Ada"), ("release", "Grace"), ("reset", "Ada")]


def test_a_rejected_goal_is_tried_again_and_then_a_person_is_called(bench: Bench) -> None:
    cell = Cell(bench, max_attempts=2)
    cell.arm.accepts = False  # type: ignore[union-attr]
    cell.shows(STICKER)
    cell.until_gate(GateState.STATE_INTERVENTION)
    assert "rejected" in cell.until(lambda: cell.requests[-1].text, "the question")
    opened = {gate.decision_id for gate in cell.gates if gate.open}
    assert len(opened) <= 2


def test_an_unreadable_scene_closes_and_the_node_goes_on(bench: Bench) -> None:
    cell = Cell(bench)
    cell.shows(STICKER)
    cell.goal(1)
    broken = cell.camera.message()
    broken.objects[0].probabilities = [1.0]
    cell.camera.objects = None
    cell.camera.publish(broken)
    gate = cell.until_gate(GateState.STATE_BLOCKED, Closed.FAILED_SCENE)
    assert "1 probabilities" in gate.text
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)  # type: ignore[union-attr]
    cell.shows(STICKER)
    cell.goal(2)


def test_unknown_enumerations_close(bench: Bench) -> None:
    cell = Cell(bench)
    cell.shows(STICKER)
    cell.goal(1)
    odd = cell.camera.message()
    odd.status = 200
    cell.camera.objects = None
    cell.camera.publish(odd)
    cell.until_gate(GateState.STATE_BLOCKED, Closed.FAILED_SCENE)


def test_an_effect_that_fails_is_a_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell(bench)

    def fail(decision: Any, poses: Any) -> None:
        raise RuntimeError("no words")

    monkeypatch.setattr(cell.node._out, "decision", fail)
    cell.shows(STICKER)
    gate = cell.until_gate(GateState.STATE_FAULT)
    assert "no words" in gate.text


def test_deactivation_says_that_the_gate_is_closed(bench: Bench) -> None:
    cell = Cell(bench)
    cell.shows(STICKER)
    cell.goal(1)
    assert bench.transition("supervisor", "deactivate")
    cell.until_gate(GateState.STATE_BLOCKED, Closed.NOT_ACTIVE)
    cell.until(lambda: cell.arm.cancelled == 1, "the goal is cancelled")  # type: ignore[union-attr]
    cell.arm.finish(Result.ERROR_OPERATOR_ABORT)  # type: ignore[union-attr]
    assert bench.transition("supervisor", "activate")
    cell.goal(2)
    assert bench.transition("supervisor", "deactivate")
    assert bench.transition("supervisor", "cleanup")
    assert bench.state("supervisor") == "unconfigured"


def test_thresholds_cannot_change_while_a_permit_is_out(bench: Bench) -> None:
    cell = Cell(bench)

    def change(name: str, value: Any) -> Any:
        request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
        return bench.call(SetParameters, "supervisor/set_parameters", request).results[0]

    assert change("consecutive_scenes", 3).successful
    assert not change("lease", 99.0).successful
    cell.shows(STICKER)
    cell.goal(1)
    refused = change("consecutive_scenes", 1)
    assert not refused.successful
    assert "hold the gate first" in refused.reason
    assert cell.node._core.settings.consecutive_scenes == 3  # type: ignore[union-attr]


def test_monitors_mirror_gate_and_numbers_in_plain_types(bench: Bench) -> None:
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


def test_a_simulated_clock_that_has_not_started_keeps_the_gate_closed(bench: Bench) -> None:
    node: SupervisorNode = bench.add(SupervisorNode(parameter_overrides=overrides(use_sim_time=True)))
    gates = bench.collect(GateState, "gate", qos.LATCHED)
    assert node.start()
    arm = Arm(bench)
    camera = Camera(bench)
    camera.objects = [STICKER]
    bench.until(lambda: len(gates) > 15 and node._core.state.arm_ready, "gate messages")  # type: ignore[union-attr]
    assert not any(gate.open for gate in gates)
    assert gates[-1].reasons & Closed.CLOCK
    assert arm.goals == []


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
def test_only_status_and_code_together_mean_success(status: int, code: int, expected: RemovalCode) -> None:
    assert removal_code(status, code) is expected


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"policy": "/nowhere/policy.yaml"}, "policy /nowhere/policy.yaml cannot be read"),
        ({"lease": 0.15}, "lease = 0.15 must be at least twice tick_period"),
        ({"consecutive_scenes": 0}, "parameter consecutive_scenes = 0: expected an integer from 1 to 50"),
        ({"max_sene_age": 1.0}, "unknown parameter max_sene_age, did you mean max_scene_age?"),
    ],
)
def test_bad_parameters_stop_configure_with_the_reason(
    bench: Bench, values: dict[str, Any], reason: str
) -> None:
    node = bench.add(SupervisorNode(parameter_overrides=overrides(**values)))
    assert not node.start()
    assert reason in node.last_failure
    assert node.state == "unconfigured"


def test_a_bad_policy_file_stops_configure(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("max_dil: 7\n")
    node = bench.add(SupervisorNode(parameter_overrides=overrides(policy=str(path))))
    assert not node.start()
    assert "max_dil = 7" in node.last_failure


def test_the_process_starts_by_itself_says_what_it_is_and_ends_cleanly(ros_domain: int) -> None:
    with NodeProcess("sticker_uq.nodes.supervisor", {"autostart": "true"}) as process:
        process.wait_for("not a safety function")
        process.wait_for("activate: done")
        assert process.stop(signal.SIGINT) == 0
        assert "Traceback" not in process.output

# SPDX-License-Identifier: Apache-2.0
"""A cell of real processes for fault injection: supervisor, detector and arm die, hang, lie and come back.

The camera and the person are the test itself. Every gate message and every step of the arm is kept, and
:meth:`FaultCell.check_motion` says whether the arm ever moved without a permit or beyond the end of one.
"""

import contextlib
import itertools
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import Header, String
from std_srvs.srv import SetBool, Trigger

from sticker_uq.cell import runner
from sticker_uq.cell.processes import ProcessSpec
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.gate import BlockReason, Phase
from sticker_uq.gate.audit import Entry, entries, verify
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq.io.share import share_folder
from sticker_uq.nodes.common import qos
from sticker_uq.testing.bench import PATIENCE_S, Bench
from sticker_uq.testing.camera import ScriptedCamera
from sticker_uq.testing.scripted_detector import HANGS, Seen
from sticker_uq_msgs.msg import GateState, ImageCheck, InterventionRequest, SceneAssessment
from sticker_uq_msgs.srv import ResolveIntervention

K = 2
LEASE_S = 1.0
MAX_SCENE_AGE_S = 1.5
SLACK_S = 0.5
"""So long after the end of the last lease :meth:`FaultCell.stays_closed` goes on."""
PATIENT_S, HASTY_S = 20.0, 2.0
"""How long the supervisor waits for an answer of the arm before it faults: on a busy machine, and where the fault is tested."""
SUPERVISOR: dict[str, Any] = {
    "consecutive_scenes": K,
    "allow_uncalibrated": True,
    "hold_unknown_start": False,
    "max_scene_age_s": MAX_SCENE_AGE_S,
    "lease_s": LEASE_S,
    "accept_timeout_s": PATIENT_S,
    "cancel_timeout_s": PATIENT_S,
    "arm_heartbeat_timeout_s": 1.0,
    "verify_timeout_s": 600.0,
    "undecided_timeout_s": 3600.0,
    "removal_timeout_s": 600.0,
    "max_attempts": 10,
}
MANY = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=1000,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE,
)
OPEN_STATES = (GateState.STATE_PERMITTED, GateState.STATE_REMOVING)


@dataclass(frozen=True)
class ModuleProcess(ProcessSpec):
    module: str = ""

    def command(self, own_parameters: Path | None) -> list[str]:
        return [sys.executable, "-m", self.module, *self.ros_arguments(own_parameters)]


class FaultCell:
    """Supervisor, detector and arm as processes that are started again when they die. A context manager."""

    def __init__(
        self,
        bench: Bench,
        folder: Path,
        *,
        now_ns: Callable[[], int] | None = None,
        namespace: str = "",
        **parameters: Any,
    ) -> None:
        runner.RESPAWN_PAUSE_S = 0.05
        runner.STOP_TIMEOUT_S = 60.0  # busy machines end processes slowly
        self._namespace = namespace
        self._prefix = prefix = f"/{namespace}/" if namespace else "/"
        self.bench = bench
        self.folder = folder
        self.audit_folder = folder / "audit"
        self._sim_time = now_ns is not None
        self.now_ns = now_ns or (lambda: int(bench.probe.get_clock().now().nanoseconds))
        self._parameters = parameters
        self.lines: list[str] = []
        self.gates: list[GateState] = bench.collect(GateState, prefix + "gate", MANY)
        self.steps: list[GateState] = bench.collect(GateState, prefix + "arm/step", MANY)
        self.stopped: list[Header] = bench.collect(Header, prefix + "arm/stopped", MANY)
        self.scenes: list[SceneAssessment] = bench.collect(SceneAssessment, prefix + "scene", MANY)
        self.checks: list[ImageCheck] = bench.collect(ImageCheck, prefix + "image_check", MANY)
        self.requests: list[InterventionRequest] = bench.collect(
            InterventionRequest, prefix + "intervention/request", qos.LATCHED
        )
        self._script = bench.publisher(String, prefix + "arm/script", qos.LATCHED)
        self.camera = ScriptedCamera(bench, prefix + "image", self.now_ns)
        node = bench.probe
        self._hold = node.create_client(SetBool, prefix + "hold")
        self._reset = node.create_client(Trigger, prefix + "reset")
        self._parameters_of_supervisor = node.create_client(
            SetParameters, prefix + "supervisor/set_parameters"
        )
        self._resolve = node.create_client(ResolveIntervention, prefix + "intervention/resolve")
        self._stack = contextlib.ExitStack()

    # processes

    def __enter__(self) -> Self:
        specs = [self.supervisor(), self.node("detector"), self.node("arm")]
        self.group = self._stack.enter_context(ProcessGroup(specs, self.lines.append))
        threading.Thread(target=self.group.wait_for_exit, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.camera.close()  # another cell may follow on this bench, and would hear these
        self.bench.probe.destroy_publisher(self._script)

    def node(self, kind: str, name: str = "") -> ProcessSpec:
        parameters: dict[str, Any] = {"use_sim_time": self._sim_time}
        if kind == "detector":
            parameters["autostart"] = True
        module = f"{'test.helpers' if kind == 'arm' else 'sticker_uq.testing'}.scripted_{kind}"
        return ModuleProcess(
            kind, name or kind, self._namespace, _packaged(), parameters, respawn=True, module=module
        )

    def supervisor(self, name: str = "supervisor", audit: str = "audit") -> ProcessSpec:
        own = {
            "autostart": True,
            "use_sim_time": self._sim_time,
            "audit_folder": str(self.folder / audit),
            **SUPERVISOR,
            **self._parameters,
        }
        return ProcessSpec(
            "supervisor", name, self._namespace, _packaged(), own, respawn=name == "supervisor"
        )

    def gate_publisher(self, profile: QoSProfile) -> Any:
        return self.bench.publisher(GateState, self._prefix + "gate", profile)

    def another(self, spec: ProcessSpec) -> ProcessGroup:
        return ProcessGroup([spec], self.lines.append)

    def kill(self, name: str) -> None:
        os.kill(self.group.pid(name), signal.SIGKILL)

    def stop(self, name: str, stopped: bool) -> None:
        """Let a process hang: it runs no further until it is let go."""
        os.kill(self.group.pid(name), signal.SIGSTOP if stopped else signal.SIGCONT)

    def arm_servers(self) -> set[bytes]:
        found = self.bench.probe.get_publishers_info_by_topic(self._prefix + "remove_sticker/_action/status")
        return {bytes(info.endpoint_gid) for info in found}

    def disk_full(self, name: str, free_bytes: int | None, pid: int | None = None) -> None:
        """No file of a process may grow beyond ``free_bytes``, as on a full disk; None: there is space again."""
        limit = resource.RLIM_INFINITY if free_bytes is None else free_bytes
        resource.prlimit(pid or self.group.pid(name), resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    # what is waited for

    def until(self, condition: Callable[[], Any], what: str | Callable[[], str]) -> Any:
        """Wait for ``condition``; a failure shows what the processes said."""
        try:
            return self.bench.until(condition, what, PATIENCE_S)
        except AssertionError as error:
            gate = self.gates[-1:] and (self.gates[-1].state, self.gates[-1].text)
            raise AssertionError(f"{error}; gate {gate}\n" + "\n".join(self.lines[-60:])) from None

    def until_gate(
        self,
        *states: int,
        reason: BlockReason = BlockReason.NONE,
        code: str = "",
        repeating: Callable[[], None] = lambda: None,
    ) -> GateState:
        """The first state of the gate from now on: one of ``states`` (any closed one without) with this reason and detail.

        ``repeating`` is called until then: a message counts only once its publisher has been the only one for a while.
        """
        start = len(self.gates)

        def found() -> GateState | None:
            repeating()
            for gate in itertools.islice(self.gates, start, None):
                right = gate.state in states if states else not gate.open
                if (
                    right
                    and gate.reasons & reason == reason
                    and (not code or code in [one.code for one in gate.details])
                ):
                    return gate
            return None

        return self.until(found, f"gate in {states or 'a closed state'} for {reason!r} {code!r}")

    def until_moving(self) -> None:
        """Wait until the arm moves under a permit that was given from now on or goes on, as gates sent from now on say."""
        now_ns, said, done = self.now_ns(), len(self.gates), len(self.steps)

        def moving() -> bool:
            sent = (gate for gate in self.gates[said:] if stamp_to_ns(gate.header.stamp) >= now_ns)
            fresh = {gate.decision_id for gate in sent if gate.state == GateState.STATE_REMOVING}
            return sum(step.decision_id in fresh for step in self.steps[done:]) >= 2

        self.until(moving, "a permit and an arm that moves")

    def until_moving_on(self) -> None:
        """Wait until the arm moved a few steps more with the gate open; a busy machine may close it once."""
        said, done = len(self.gates), len(self.steps)

        def moved() -> bool:
            nonlocal said, done
            if not all(gate.open for gate in self.gates[said:]):
                said, done = len(self.gates), len(self.steps)
            return len(self.steps) >= done + 5 and len(self.gates) >= said + 3

        self.until(moved, "steps under a gate that stays open")

    def stays_closed(self) -> None:
        """The gate stays closed while camera and supervisor publish more, and to the end of the last lease.

        That the arm stands still after it is told by :meth:`check_motion`.
        """
        end = max((stamp_to_ns(gate.valid_until) for gate in self.gates if gate.open), default=0)
        said, scenes = len(self.gates), len(self.scenes)

        def enough() -> bool:
            over = self.now_ns() > end + SLACK_S * 1e9
            return over and len(self.gates) >= said + 10 and len(self.scenes) >= scenes + 10

        self.until(enough, "more scenes and gate messages")
        assert not any(gate.open for gate in self.gates[said:])
        self.check_motion()

    def until_no_scene_comes(self) -> None:
        """Wait until the gate was published a few times without a new scene: the detector hangs."""
        said, scenes = len(self.gates), len(self.scenes)

        def quiet() -> bool:
            nonlocal said, scenes
            if len(self.scenes) != scenes:
                said, scenes = len(self.gates), len(self.scenes)
            return len(self.gates) >= said + 5

        self.until(quiet, "a detector that says nothing more")

    # what is done

    @contextlib.contextmanager
    def hanging_detector(self) -> Iterator[None]:
        """A detector that hangs over a picture for ever.

        It is killed at the end, whatever happens: no other test could use it.
        """
        try:
            said = len(self.lines)
            self.camera.shows(Seen.HANG)
            self.until(lambda: any(HANGS in line for line in self.lines[said:]), "a detector that hangs")
            self.until_no_scene_comes()
            yield
        finally:
            self.camera.shows()
            self.kill("detector")

    def arm(self, script: str) -> None:
        self._script.publish(String(data=script))

    def settle(self) -> None:
        """Stop the camera and wait until its last picture was assessed: a single picture will be seen then."""
        self.camera.until_heard()
        self.camera.shows()
        said = len(self.gates)
        self.until(lambda: len(self.gates) >= said + 3, "time for the last picture to be looked at")

    def until_recorded(self, state: int) -> None:
        """Wait until the audit log says, on the disk, that the gate is in ``state``."""

        def recorded() -> bool:
            told = [entry.data["to"] for entry in entries(self.audit_folder) if entry.kind == "gate"]
            return bool(told) and told[-1] == Phase(state).name

        self.until(recorded, f"an entry of state {state}")

    @contextlib.contextmanager
    def in_place_of_detector(self) -> Iterator[Any]:
        """A publisher of scenes in the place of the detector, which is not configured meanwhile."""
        self.settle()
        detector = self._prefix + "detector"
        for name in ("deactivate", "cleanup"):
            assert self.bench.transition(detector, name)
        publisher = self.bench.publisher(SceneAssessment, self._prefix + "scene", qos.RELIABLE)
        said = len(self.gates)

        def alone() -> bool:
            heard = publisher.get_subscription_count() >= 2  # by the supervisor, beside the test
            several = self.gates[-1].reasons & BlockReason.SECOND_SCENE_PUBLISHER
            return heard and len(self.gates) >= said + 3 and not several

        try:
            self.until(alone, "a supervisor that hears no other scenes")
            yield publisher
        finally:
            self.bench.probe.destroy_publisher(publisher)
            for name in ("configure", "activate"):
                assert self.bench.transition(detector, name)

    def hold(self, held: bool) -> None:
        self._call(self._hold, SetBool.Request(data=held))

    def reset(self) -> Any:
        return self._call(self._reset, Trigger.Request())

    def answer(self, scene_answer: int, request_id: str | None = None, **fields: Any) -> Any:
        if request_id is None:
            request_id = self.until(lambda: self.requests and self.requests[-1].request_id, "a request")
        stamps = {asked.request_id: asked.header.stamp for asked in self.requests}
        request = ResolveIntervention.Request(
            request_id=request_id, person="Ada", scene_answer=scene_answer, **fields
        )
        request.image_stamp = stamps.get(request_id, request.image_stamp)
        return self._call(self._resolve, request)

    def arm_timeouts(self, seconds: float) -> None:
        """How long the supervisor waits for the arm's answer before it faults; no permit may be out."""
        names = ("accept_timeout_s", "cancel_timeout_s")
        wanted = [Parameter(name, value=seconds).to_parameter_msg() for name in names]
        answer = self._call(self._parameters_of_supervisor, SetParameters.Request(parameters=wanted))
        assert all(result.successful for result in answer.results), answer

    def _call(self, client: Any, request: Any) -> Any:
        """Call until somebody answers: a server that was killed does not, and is forgotten only after a while."""
        futures: list[Any] = []
        again_s = 0.0

        def answered() -> Any:
            nonlocal again_s
            done = [future for future in futures if future.done()]
            if not done and time.monotonic() >= again_s and client.service_is_ready():
                futures.append(client.call_async(request))
                again_s = time.monotonic() + 2.0
            return done and done[0].result()

        return self.until(answered, f"answer of {client.srv_name}")

    # states

    def bring(self, state: int) -> None:
        """Bring the gate from wherever it is into ``state``: permitted, removing with an arm that obeys, or intervention."""
        self.quiet()
        said = len(self.gates)
        self.arm("mute" if state == GateState.STATE_PERMITTED else "move")
        self.camera.shows(Seen.UNSURE if state == GateState.STATE_INTERVENTION else Seen.STICKER)
        self.hold(False)
        if state == GateState.STATE_REMOVING:
            self.until_moving()

        def there() -> bool:
            return any(gate.state == state for gate in self.gates[said:]) and self.gates[-1].state == state

        self.until(there, f"gate in {state}")

    def quiet(self) -> None:
        """Hold the gate, end a fault, and wait until no goal is under way."""
        self.arm("move")
        self.camera.shows(Seen.NOTHING)
        self.hold(True)

        def still() -> bool:
            gate = self.gates[-1] if self.gates else None
            if gate is not None and gate.state == GateState.STATE_FAULT:
                self.reset()
                return False
            held = gate is not None and bool(gate.reasons & BlockReason.HELD)
            return held and not gate.reasons & (BlockReason.ARM_FAILED | BlockReason.CONTRADICTED)

        self.until(still, "a held gate and no goal under way")

    def works(self) -> None:
        """Check that the cell works (again): a new permit is given and the arm moves under it."""
        self.camera.shows(Seen.STICKER)
        self.arm("move")
        self.until_moving()

    # what must always hold

    def check_motion(self) -> None:
        """Fail when the arm moved without a permit, or began a second step after the end of its last renewal.

        The arm checks its permit, then takes the time of the step: on a busy machine the time of one step may be late by any
        amount, but the check before the next one must stop it. A gate keeps its newest message only, so a busy machine loses
        renewals on their way here that reached the arm: a step says until when its permit was valid.
        """
        late: Counter[tuple[str, int]] = Counter()
        ends: dict[tuple[str, int], int] = {}
        for gate in self.gates:
            if gate.open:
                assert gate.state in OPEN_STATES
                key = (gate.decision_id, gate.object_id)
                ends[key] = max(ends.get(key, 0), stamp_to_ns(gate.valid_until))
        for step in self.steps:
            key = (step.decision_id, step.object_id)
            end = ends[key] = max(ends.get(key, 0), stamp_to_ns(step.valid_until))
            assert end, f"the arm moved for {step.decision_id} without any permit"
            late[key] += stamp_to_ns(step.header.stamp) > end
        assert all(count <= 1 for count in late.values()), f"steps after the end of their permit: {late}"

    def check_audit(self) -> list[Entry]:
        """Check the audit log: it must be whole and hold what the gate says it holds."""
        self.until(lambda: self.gates and self.gates[-1].audit_head, "a gate that names its log's head")
        head = self.gates[-1].audit_head

        def whole() -> bool:
            # a line may be under way while this reads
            return verify(self.audit_folder, head).whole

        self.until(whole, lambda: f"a whole audit log: {verify(self.audit_folder, head).findings}")
        return list(entries(self.audit_folder))


def _packaged() -> Path:
    return share_folder() / "config" / "cell.yaml"

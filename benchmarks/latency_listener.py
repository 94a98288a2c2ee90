# SPDX-License-Identifier: Apache-2.0
"""Who listens in :mod:`benchmarks.latency`: notes when scenes come and asks the busy detector things.

Per line of JSON on standard input it has the detector listen to raw or compressed images, says `ready`, waits for a line, and
prints what it noted, as JSON.
"""

import itertools
import json
import signal
import sys
import time
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter

from sticker_uq.io.messages import scene_from_msg, stamp_to_ns
from sticker_uq.nodes.common import qos
from sticker_uq_msgs.msg import SceneAssessment

ASK_EVERY_S = 0.1
COUNTS = ("received", "lost", "skipped", "dropped")
START_S = 90.0
FIRST_SCENE_S = 3.0
"""So long the first scene is waited for; where nothing arrives at all, that is measured too."""


class Listener:
    """Notes everything since :meth:`start`."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("listener", enable_rosout=False)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.node.create_subscription(SceneAssessment, "scene", self._on_scene, qos.RELIABLE)
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_report, qos.DIAGNOSTICS)
        self.parameters = self.node.create_client(GetParameters, "detector/get_parameters")
        self.state = self.node.create_client(GetState, "detector/get_state")
        self._change = self.node.create_client(ChangeState, "detector/change_state")
        self._set = self.node.create_client(SetParameters, "detector/set_parameters")
        self.scenes = 0
        self.active = False
        self.counts: dict[str, int] = {}
        self.reports: list[float] = []
        self.complained = False
        self.start()

    def start(self) -> None:
        """Forget what was noted."""
        self.ages: dict[int, float] = {}
        self.timings: list[dict[str, float]] = []
        self.overheads: list[str] = []
        self.before = dict(self.counts)
        self.reports = []
        self.complained = False

    def _on_scene(self, message: SceneAssessment) -> None:
        now, stamp = time.time_ns(), stamp_to_ns(message.header.stamp)
        self.scenes += 1
        self.ages[stamp] = (now - stamp) * 1e-6
        self.timings.append(dict(scene_from_msg(message).timings))

    def _on_report(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {pair.key: pair.value for pair in status.values}
            if status.name == "detector: lifecycle":
                self.active = values["state"] == "active"
            elif status.name == "detector: images":
                self.reports.append(time.monotonic())
                self.complained |= status.level != b"\x00"
                self.counts = {name: int(values[name]) for name in COUNTS if values[name] != "n/a"}
            elif status.name == "detector: perception":
                self.overheads.append(values["overhead_ms"])

    def listen_to(self, images: str) -> None:
        """Have the detector listen to raw or compressed ``images``, its counts at zero."""
        self._transition(Transition.TRANSITION_DEACTIVATE)
        wanted = Parameter("image_transport", value=images).to_parameter_msg()
        (result,) = self._answer(self._set, SetParameters.Request(parameters=[wanted])).results
        if not result.successful:
            sys.exit(f"image_transport {images}: {result.reason}")
        self._transition(Transition.TRANSITION_ACTIVATE)
        self.scenes = 0

    def count(self, name: str) -> int | None:
        """How much the count has grown since :meth:`start`; None where the detector cannot tell."""
        return self.counts[name] - self.before.get(name, 0) if name in self.counts else None

    def _transition(self, number: int) -> None:
        if not self._answer(self._change, ChangeState.Request(transition=Transition(id=number))).success:
            sys.exit(f"the detector refused the transition {number}")

    def _answer(self, client: Any, request: Any) -> Any:
        future, end = client.call_async(request), time.monotonic() + START_S
        while not future.done():
            if time.monotonic() > end:
                sys.exit(f"no answer of {client.srv_name}")
            self.executor.spin_once(timeout_sec=0.05)
        return future.result()

    def spin_until(self, end: float) -> None:
        """Hear until ``end`` of the monotonic clock."""
        while (left := end - time.monotonic()) > 0:
            self.executor.spin_once(timeout_sec=min(left, 0.05))

    def ask(self, client: Any, request: Any) -> float:
        """How long an answer takes, ms."""
        started = time.monotonic()
        future = client.call_async(request)
        while not future.done() and time.monotonic() - started < 10.0:
            self.executor.spin_once(timeout_sec=0.05)
        return (time.monotonic() - started) * 1e3


def main() -> None:
    """Wait for the detector, then note for so many seconds per line."""
    seconds, warm_up = map(float, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is that of standard input
    rclpy.init()
    listener = Listener()
    end = time.monotonic() + START_S
    while not listener.active:
        if time.monotonic() > end:
            sys.exit("the detector did not become active")
        listener.spin_until(time.monotonic() + 0.1)
    for line in sys.stdin:
        listener.listen_to(json.loads(line)["images"])
        print("ready", flush=True)
        sys.stdin.readline()
        end = time.monotonic() + FIRST_SCENE_S
        while not listener.scenes and time.monotonic() < end:
            listener.spin_until(time.monotonic() + 0.05)
        listener.spin_until(time.monotonic() + warm_up)
        print(json.dumps(_listen(listener, seconds)), flush=True)
    rclpy.try_shutdown()


def _listen(listener: Listener, seconds: float) -> dict[str, Any]:
    listener.ask(listener.parameters, GetParameters.Request(names=["passes"]))
    listener.ask(listener.state, GetState.Request())
    # the counts are those of the reports, so the window begins and ends with one
    _next_report(listener)
    listener.start()
    print("measuring", flush=True)
    first, end = time.time_ns(), time.monotonic() + seconds
    answers: dict[str, list[float]] = {"parameters_ms": [], "lifecycle_ms": []}
    while time.monotonic() < end:
        request = GetParameters.Request(names=["passes"])
        answers["parameters_ms"].append(listener.ask(listener.parameters, request))
        answers["lifecycle_ms"].append(listener.ask(listener.state, GetState.Request()))
        listener.spin_until(min(time.monotonic() + ASK_EVERY_S, end))
    _next_report(listener)
    last = time.time_ns()
    pauses = [b - a for a, b in itertools.pairwise(listener.reports)]
    heard = {
        "window": [first, last],
        **{name: listener.count(name) for name in COUNTS},
        "complained": listener.complained,
        "overheads": listener.overheads,
        "timings": listener.timings,
        "diagnostics_ms": (max(pauses, default=float("nan")) - 1.0) * 1e3,
        **answers,
    }
    # the last images are still being looked at
    listener.spin_until(time.monotonic() + 0.5)
    return heard | {"ages": listener.ages}


def _next_report(listener: Listener) -> None:
    before, end = len(listener.reports), time.monotonic() + 5.0
    while len(listener.reports) == before and time.monotonic() < end:
        listener.executor.spin_once(timeout_sec=0.05)


if __name__ == "__main__":
    main()

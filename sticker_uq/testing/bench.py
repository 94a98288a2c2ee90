# SPDX-License-Identifier: Apache-2.0
"""A test bench for nodes: one executor in the test's own thread, a probe node that talks to them, and waiting without sleeping.

:func:`run_bench` makes one; :class:`NodeProcess` starts a node as a process of its own.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from sticker_uq.cell.transport import transport_environment
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.lifecycle import init_ros

PATIENCE_S = 90.0
"""Only a failing test waits so long; a loaded machine starts a process in a minute."""
AFTER = {"configure": "inactive", "activate": "active", "deactivate": "inactive", "cleanup": "unconfigured"}
"""From a transition to the state that it ends in."""
TRIES = 3


def local_environment(domain: int, log_folder: Path) -> dict[str, str]:
    """Environment with which processes meet on ``domain`` over the loopback interface only, and write into ``log_folder``."""
    local = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    settings = transport_environment({**os.environ, **local})
    return (
        local
        | settings
        | {"ROS_DOMAIN_ID": str(domain), "ROS_LOG_DIR": str(log_folder), "ROS_HOME": str(log_folder)}
    )


class Reports(dict[str, Any]):
    """From a part (``detector: images``) to its newest DiagnosticStatus."""

    def value(self, part: str, key: str) -> str | None:
        return values_of(self[part])[key] if part in self else None


class Bench:
    """Spins the nodes under test and a probe node until what is waited for has happened."""

    def __init__(self) -> None:
        self.executor = SingleThreadedExecutor()
        self.probe = Node("probe", enable_rosout=False)
        self._nodes: list[Node] = []
        self.executor.add_node(self.probe)

    def add(self, node: Any) -> Any:
        self._nodes.append(node)
        self.executor.add_node(node)
        return node

    def remove(self, node: Any) -> None:
        """End a node that was added."""
        self._nodes.remove(node)
        self.executor.remove_node(node)
        node.destroy_node()

    def until(
        self, condition: Callable[[], Any], what: str | Callable[[], str], patience_s: float = PATIENCE_S
    ) -> Any:
        """Spin until ``condition()`` is true and return its value; fail with ``what`` (or its result) after ``patience_s``."""
        end = time.monotonic() + patience_s
        while not (value := condition()):
            if time.monotonic() >= end:
                told = what if isinstance(what, str) else what()
                raise AssertionError(f"did not happen within {patience_s:g} s: {told}")
            self.executor.spin_once(timeout_sec=0.05)
        return value

    def collect(self, message_type: type, topic: str, profile: QoSProfile = qos.RELIABLE) -> list[Any]:
        messages: list[Any] = []
        self.probe.create_subscription(message_type, topic, messages.append, profile)
        return messages

    def publisher(self, message_type: type, topic: str, profile: QoSProfile = qos.IMAGES) -> Any:
        return self.probe.create_publisher(message_type, topic, profile)

    def publisher_matched(self, message_type: type, topic: str, profile: QoSProfile = qos.IMAGES) -> Any:
        publisher = self.publisher(message_type, topic, profile)
        self.until(publisher.get_subscription_count, f"a subscriber of {topic}")
        return publisher

    def image_publisher(self, message_type: type = Image, topic: str = "image") -> Any:
        """A reliable image publisher of the probe that the detector receives; see :meth:`until_heard`."""
        publisher = self.publisher(message_type, topic)
        self.until_heard(publisher)
        return publisher

    def until_heard(self, publisher: Any) -> None:
        """Wait until every subscription of the publisher's topic is matched and has become reliable as it is."""

        def heard() -> bool:
            found = self.probe.get_subscriptions_info_by_topic(publisher.topic_name)
            reliable = [f.qos_profile.reliability == ReliabilityPolicy.RELIABLE for f in found]
            return bool(found) and all(reliable) and publisher.get_subscription_count() == len(found)

        self.until(heard, f"a reliable subscription of {publisher.topic_name}")

    def call(self, service_type: type, name: str, request: Any, patience_s: float = PATIENCE_S) -> Any:
        """The answer of a service; fails after ``patience_s`` without one."""
        client = self.probe.create_client(service_type, name)
        try:
            self.until(client.service_is_ready, f"service {name}")
            future = client.call_async(request)
            self.until(future.done, f"answer of {name}", patience_s)
            return future.result()
        finally:
            self.probe.destroy_client(client)

    def transition(self, node: str, name: str) -> bool:
        """Whether the node went through a transition.

        Request and answer are lost where the other side has not found this client yet, which happens on a busy machine: its
        state tells whether the request has to be sent again.
        """
        number = getattr(Transition, f"TRANSITION_{name.upper()}")
        request = ChangeState.Request(transition=Transition(id=number))
        for _ in range(TRIES):
            try:
                return bool(
                    self.call(ChangeState, f"{node}/change_state", request, PATIENCE_S / TRIES).success
                )
            except AssertionError:
                if self.state(node) == AFTER.get(name, "finalized"):
                    return True
        return False

    def state(self, node: str) -> str:
        return str(self.call(GetState, f"{node}/get_state", GetState.Request()).current_state.label)

    def diagnostics(self) -> Reports:
        newest = Reports()

        def take(message: DiagnosticArray) -> None:
            newest.update({status.name: status for status in message.status})

        self.probe.create_subscription(DiagnosticArray, "/diagnostics", take, qos.DIAGNOSTICS)
        return newest

    def close(self) -> None:
        for node in (*self._nodes, self.probe):
            self.executor.remove_node(node)
            node.destroy_node()
        self.executor.shutdown()


def values_of(status: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}


@contextmanager
def run_bench() -> Iterator[Bench]:
    """A bench in an initialised default context; the environment's ROS_DOMAIN_ID is used."""
    init_ros([])
    try:
        with closing(Bench()) as made:
            yield made
    finally:
        rclpy.try_shutdown()


def overrides(**values: Any) -> list[Parameter]:
    return [Parameter(name, value=value) for name, value in values.items()]


class NodeProcess:
    """A process ``python -m MODULE --ros-args -p name:=value ...`` whose output lines can be waited for."""

    def __init__(
        self, module: str, parameters: dict[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> None:
        given = [part for n, value in (parameters or {}).items() for part in ("-p", f"{n}:={value}")]
        command = [sys.executable, "-m", module, "--ros-args", *given, *arguments]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "RCUTILS_COLORIZED_OUTPUT": "0"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def wait_for(self, text: str, patience_s: float = PATIENCE_S) -> str:
        """The next line of the output that contains ``text``."""
        end = time.monotonic() + patience_s
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"no line with {text!r} within {patience_s:g} s:\n{self.output}"
                ) from None
            assert line is not None, f"the process ended without a line with {text!r}:\n{self.output}"
            self.lines.append(line)
            if text in line:
                return line

    def stop(self, number: signal.Signals) -> int:
        """Returns the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        """The exit status, once it has ended by itself; all its output is in :attr:`output` then."""
        status = self.process.wait(timeout=patience_s)
        self._reader.join(timeout=patience_s)
        while (line := self._queue.get(timeout=patience_s)) is not None:
            self.lines.append(line)
        return status

    @property
    def output(self) -> str:
        """What the process has written so far, as far as it was waited for."""
        return "\n".join(self.lines)

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join()

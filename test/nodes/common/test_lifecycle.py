# SPDX-License-Identifier: Apache-2.0
"""Transitions tell their failures, undo what they did, and a process ends with the right exit status."""

import signal
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from pydantic import BaseModel, ConfigDict, Field
from rcl_interfaces.msg import Log
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Int32
from std_srvs.srv import Trigger

from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.lifecycle import ManagedNode, request_exit, run_node
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.bench import Bench, NodeProcess, overrides, values_of


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True)

    size: int = Field(3, ge=1, le=9)
    source: str = "tape"
    trouble: str = ""


class Subject(ManagedNode[Settings]):
    """Counts what it acquired and released; ``trouble`` names the step that fails and how."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__("subject", Settings, locked_while_active=frozenset({"source"}), **arguments)
        self.log: list[str] = []
        self.create_service(Trigger, "burst", self._burst)
        self.create_service(Trigger, "leave", self._leave)

    def configure(self) -> None:
        self.output = self.create_managed_publisher(Int32, "number", qos.RELIABLE)
        self.acquire("configured", self.while_configured)

    def activate(self) -> None:
        self.acquire("active", self.while_active)
        self.output.publish(Int32(data=self.settings.size))
        self.while_active.callback(lambda: self.output.publish(Int32(data=-1)))

    def acquire(self, what: str, stack: Any) -> None:
        self.log.append(f"+{what}")
        stack.callback(self.log.append, f"-{what}")
        if self.settings.trouble == f"{what} input":
            raise InvalidInput("source tape: expected a disk")
        if self.settings.trouble == f"{what} bug":
            raise RuntimeError("index out of cheese")

    def settings_changed(self, old: Settings, new: Settings) -> None:
        if new.trouble == "change":
            raise RuntimeError("cannot change")

    def _burst(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        raise RuntimeError("burst")

    def _leave(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        request_exit(self, 3)
        return response


def subject(bench: Bench, **values: object) -> Subject:
    return bench.add(Subject(parameter_overrides=overrides(**values)))


def errors(bench: Bench) -> list[Log]:
    return bench.collect(Log, "/rosout", QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL))


def test_the_way_up_and_down(bench):
    node = subject(bench)
    numbers = bench.collect(Int32, "number")
    assert bench.state("subject") == "unconfigured"
    assert bench.transition("subject", "configure")
    bench.until(lambda: bench.probe.count_publishers("number"), "publisher")
    bench.until(lambda: node.output.get_subscription_count(), "match")
    assert bench.state("subject") == "inactive"
    assert bench.transition("subject", "activate")
    assert node.is_active
    assert bench.transition("subject", "deactivate")
    bench.until(lambda: len(numbers) == 2, "both numbers")
    assert [n.data for n in numbers] == [3, -1], "what is undone may still publish"
    node.output.publish(Int32(data=7))
    assert bench.transition("subject", "cleanup")
    assert bench.state("subject") == "unconfigured"
    assert node.log == ["+configured", "+active", "-active", "-configured"]
    assert bench.transition("subject", "configure")
    assert len(numbers) == 2, "an inactive publisher is silent"


@pytest.mark.parametrize(
    ("values", "transition", "reason", "state"),
    [
        ({"trouble": "configured input"}, "configure", "source tape: expected a disk", "unconfigured"),
        ({"trouble": "configured bug"}, "configure", "RuntimeError: index out of cheese", "unconfigured"),
        ({"trouble": "active input"}, "activate", "source tape: expected a disk", "inactive"),
        ({"trouble": "active bug"}, "activate", "RuntimeError: index out of cheese", "unconfigured"),
    ],
)
def test_a_failing_transition_is_told_and_undone(bench, values, transition, reason, state):
    log = errors(bench)
    node = subject(bench, **values)
    newest = bench.diagnostics()
    if transition == "activate":
        assert bench.transition("subject", "configure")
    assert bench.transition("subject", transition) is False
    assert bench.state("subject") == state
    expected = f"{transition} failed: {reason}"
    assert node.last_failure == expected
    bench.until(lambda: any(line.msg == expected for line in log), "the line of log")
    assert "Traceback" not in "".join(line.msg for line in log if line.level > 10)
    report = bench.until(lambda: newest.get("subject: lifecycle"), "diagnostics")
    bench.until(lambda: newest["subject: lifecycle"].message == expected, "the reason in /diagnostics")
    assert newest["subject: lifecycle"].level == b"\x02"
    assert values_of(newest["subject: lifecycle"])["state"] == state
    assert report.hardware_id == "/subject"
    up, down = [e for e in node.log if e[0] == "+"], [e for e in node.log if e[0] == "-"]
    kept = 1 if state == "inactive" else 0
    assert len(up) - len(down) == kept, "everything but the still configured part was released"


def test_a_transition_that_the_state_lacks_is_refused_and_the_node_goes_on(bench):
    subject(bench)
    assert bench.transition("subject", "activate") is False
    assert bench.transition("subject", "cleanup") is False
    assert bench.transition("subject", "configure")
    assert bench.transition("subject", "configure") is False
    assert bench.state("subject") == "inactive"
    for label, possible in (("configure", False), ("fly", False), ("activate", True)):
        request = ChangeState.Request(transition=Transition(label=label))
        assert bench.call(ChangeState, "subject/change_state", request).success is possible


def test_parameters_at_run_time(bench):
    node = subject(bench)
    assert node.start()
    request = SetParameters.Request(
        parameters=[Parameter(n, value=v).to_parameter_msg() for n, v in (("source", "disk"), ("size", 5))]
    )
    source, size = bench.call(SetParameters, "subject/set_parameters", request).results
    assert (source.successful, size.successful) == (False, True)
    assert "source cannot be changed while subject is active: deactivate it first" in source.reason
    assert (node.settings.source, node.settings.size) == ("tape", 5)
    assert bench.transition("subject", "deactivate")
    source, _ = bench.call(SetParameters, "subject/set_parameters", request).results
    assert source.successful
    assert node.settings.source == "disk"


def test_a_change_that_cannot_be_applied_does_not_end_the_node(bench):
    node = subject(bench)
    log = errors(bench)
    assert node.start()
    request = SetParameters.Request(parameters=[Parameter("trouble", value="change").to_parameter_msg()])
    bench.call(SetParameters, "subject/set_parameters", request)
    bench.until(lambda: any("RuntimeError: cannot change" in line.msg for line in log), "the line of log")
    assert bench.state("subject") == "active"


def test_a_broken_report_is_an_error_of_its_part_only(bench):
    subject(bench).diagnostics.add("broken", lambda: 1 / 0)
    newest = bench.diagnostics()
    broken = bench.until(lambda: newest.get("subject: broken"), "the broken report")
    assert broken.level == b"\x02"
    assert "ZeroDivisionError" in broken.message
    assert "subject: lifecycle" in newest


# Real processes: this file is its own node.
MODULE = "test.nodes.common.test_lifecycle"


def test_a_signal_ends_a_process_that_waits(ros_domain):
    with NodeProcess(MODULE, {"autostart": "false"}) as process:
        process.wait_for("not a safety function")
        process.wait_for("not configured: waiting for a configure transition (autostart is false)")
        assert process.stop(signal.SIGTERM) == 0
        assert "Traceback" not in process.output


def test_two_signals_at_once_end_the_process_cleanly(ros_domain):
    with NodeProcess(MODULE, {"autostart": "true"}) as process:
        process.wait_for("activate: done")
        process.process.send_signal(signal.SIGINT)
        assert process.stop(signal.SIGINT) == 0
        assert "Traceback" not in process.output
        assert "shut down: done" in process.output


@pytest.mark.parametrize(
    ("parameters", "arguments", "status", "reason"),
    [
        ({"size": "99"}, [], 1, "configure failed: parameter size = 99: expected an integer from 1 to 9"),
        ({}, ["--params-file", "/nowhere.yaml"], 2, "nowhere.yaml"),
    ],
)
def test_a_node_that_cannot_start_itself_dies_loudly(ros_domain, parameters, arguments, status, reason):
    with NodeProcess(MODULE, {"autostart": "true", **parameters}, arguments) as process:
        assert process.wait() == status
        assert reason in process.output
        assert "Traceback" not in process.output


@pytest.mark.parametrize(
    ("service", "status", "said"),
    [("burst", 1, "a callback failed, giving up: RuntimeError: burst"), ("leave", 3, "")],
)
def test_a_callback_ends_the_process_by_an_exception_or_by_its_wish(bench, service, status, said):
    with NodeProcess(MODULE, {"autostart": "true"}) as process:
        process.wait_for("activate: done")
        client = bench.probe.create_client(Trigger, service)
        bench.until(client.service_is_ready, f"service {service}")
        # nobody waits for the answer: the process may be gone before it is on the wire
        client.call_async(Trigger.Request())
        bench.until(lambda: process.process.poll() is not None, "end of the process")
        assert process.wait() == status
        assert said in process.output
        assert "Traceback" not in process.output


if __name__ == "__main__":
    raise SystemExit(run_node(Subject))

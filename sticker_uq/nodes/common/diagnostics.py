# SPDX-License-Identifier: Apache-2.0
"""A node's /diagnostics at 1 Hz (REP 107).

Stamps are the node's time, the period is wall time, so that a stopped simulated clock is reported too. A report has the same
keys in every state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.timer import Timer

from sticker_uq.nodes.common import qos

PERIOD_S = 1.0
NOT_AVAILABLE = "n/a"


class Level(IntEnum):
    """Severity of a report, the values of ``diagnostic_msgs/DiagnosticStatus``."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3


@dataclass(frozen=True)
class PartReport:
    """``values`` map a constant set of keys to numbers or strings; ``None`` becomes n/a."""

    level: Level
    message: str
    values: Mapping[str, object] = field(default_factory=dict)


def steady_timer(node: Node, period_s: float, callback: Callable[[], None], **more: Any) -> Timer:
    """A timer in wall time, which neither a simulated clock nor a jump of the clock stops."""
    return node.create_timer(period_s, callback, clock=Clock(clock_type=ClockType.STEADY_TIME), **more)


def cell_timer(node: Node, period_s: float, callback: Callable[[], None], **more: Any) -> Timer:
    """A timer in simulated time where the node has it, else as :func:`steady_timer`."""
    make = node.create_timer if node.get_parameter("use_sim_time").value else partial(steady_timer, node)
    return make(period_s, callback, **more)


class Diagnostics:
    """Publishes all registered reports on /diagnostics once per second, in every state of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._parts: dict[str, Callable[[], PartReport]] = {}
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        steady_timer(node, PERIOD_S, self.publish)

    def add(self, part: str, report: Callable[[], PartReport]) -> None:
        self._parts[part] = report

    def remove(self, part: str) -> None:
        self._parts.pop(part, None)

    def publish(self) -> None:
        """Publish all reports now. A report that raises becomes an error of its part."""
        message = DiagnosticArray()
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.status = [self._status(part, report) for part, report in list(self._parts.items())]
        self._publisher.publish(message)

    def _status(self, part: str, report: Callable[[], PartReport]) -> DiagnosticStatus:
        try:
            result = report()
        except Exception as error:  # noqa: BLE001 - a broken report must not end the node
            result = PartReport(Level.ERROR, f"the report itself failed: {type(error).__name__}: {error}")
        return DiagnosticStatus(
            level=bytes([result.level]),
            name=f"{self._node.get_name()}: {part}",
            message=result.message,
            hardware_id=self._node.get_fully_qualified_name(),
            values=[KeyValue(key=key, value=_text(value)) for key, value in result.values.items()],
        )


def _text(value: object) -> str:
    if value is None:
        return NOT_AVAILABLE
    return f"{value:.6g}" if isinstance(value, float) else str(value)

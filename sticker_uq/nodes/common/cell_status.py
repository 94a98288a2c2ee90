# SPDX-License-Identifier: Apache-2.0
"""How a cell is, heard from outside: its gate and /diagnostics, by a node that only listens."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from sticker_uq.cell.processes import absolute_namespace
from sticker_uq.messages import BLOCK_REASONS, BlockReason, text_of
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.conversions import reason_from_msg
from sticker_uq.nodes.common.diagnostics import PERIOD_S, Level
from sticker_uq.nodes.common.lifecycle import init_ros
from sticker_uq_msgs.msg import GateState

_STATES = {
    getattr(GateState, name): name.removeprefix("STATE_").lower()
    for name in dir(GateState)
    if name.startswith("STATE_")
}
_EVERY_PART_S = 1.5 * PERIOD_S
"""So long after the first report each node has sent one."""


@dataclass(frozen=True)
class PartStatus:
    """One entry of /diagnostics; ``node`` is the full name of who reports, ``level`` OK, WARN, ERROR or STALE."""

    node: str
    name: str
    level: str
    message: str
    values: dict[str, str]


@dataclass(frozen=True)
class GateStatus:
    """The newest message of a gate: ``reasons`` from the code of each block reason to its words, ``details`` in words,
    ``policy_hash`` and ``supervisor`` (the process) in hex.
    """

    state: str
    open: bool
    reasons: dict[str, str]
    details: list[str]
    policy_hash: str
    supervisor: str


@dataclass(frozen=True)
class CellStatus:
    """What was heard on ``topic`` in the ROS ``domain``: the gate (None: nobody), and the parts that sent diagnostics, by name.

    ``elsewhere``: the topics of gates in other namespaces of the domain.
    """

    domain: int
    topic: str
    gate: GateStatus | None
    diagnostics: list[PartStatus]
    elsewhere: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def listen(namespace: str, wait_s: float) -> CellStatus:
    """The status of the cell in ``namespace`` of the current ROS domain, after at most ``wait_s`` seconds.

    Earlier, when its gate and every node's diagnostics were heard. Raises what ``rclpy.init`` raises.
    """
    context = Context()
    init_ros([], context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node(
            f"status_{os.getpid()}",
            namespace=absolute_namespace(namespace),
            context=context,
            enable_rosout=False,
            start_parameter_services=False,
        )
        try:
            return _heard(node, context, wait_s)
        finally:
            node.destroy_node()
    finally:
        context.try_shutdown()


def _heard(node: Node, context: Context, wait_s: float) -> CellStatus:
    gates: list[GateState] = []
    parts: dict[tuple[str, str], PartStatus] = {}
    first_report = float("inf")

    def on_diagnostics(message: DiagnosticArray) -> None:
        nonlocal first_report
        first_report = min(first_report, time.monotonic())
        for status in message.status:
            part = PartStatus(
                status.hardware_id,
                status.name,
                Level(min(ord(status.level), Level.STALE)).name,
                status.message,
                {pair.key: pair.value for pair in status.values},
            )
            parts[part.node, part.name] = part

    gate = node.create_subscription(GateState, "gate", gates.append, qos.LATCHED)
    node.create_subscription(DiagnosticArray, "/diagnostics", on_diagnostics, qos.DIAGNOSTICS)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    end = time.monotonic() + wait_s
    try:
        while (now := time.monotonic()) < end and not (gates and now > first_report + _EVERY_PART_S):
            executor.spin_once(timeout_sec=min(0.1, end - now))
    finally:
        executor.shutdown()
    return CellStatus(
        context.get_domain_id(),
        gate.topic_name,
        _gate_status(gates[-1]) if gates else None,
        [parts[key] for key in sorted(parts)],
        sorted(
            name
            for name, types in node.get_topic_names_and_types()
            if "sticker_uq_msgs/msg/GateState" in types and name != gate.topic_name
        ),
    )


def _gate_status(message: GateState) -> GateStatus:
    return GateStatus(
        _STATES.get(message.state, "unknown"),
        message.open,
        {code: BLOCK_REASONS.get(code, code) for code in BlockReason(message.reasons).codes},
        [text_of(reason_from_msg(reason)) for reason in message.details],
        message.policy_hash,
        message.supervisor,
    )

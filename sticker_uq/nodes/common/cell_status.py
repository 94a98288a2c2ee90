# SPDX-License-Identifier: Apache-2.0
"""How a cell is, heard from outside: its gate and /diagnostics, by a node that only listens."""

import os
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from sticker_uq.cell.processes import absolute_namespace
from sticker_uq.io.messages import reason_from_msg
from sticker_uq.messages import BLOCK_REASONS, BlockReason, gate_state, text_of
from sticker_uq.nodes.common import qos
from sticker_uq.nodes.common.diagnostics import PERIOD_S, Level
from sticker_uq.nodes.common.lifecycle import init_ros
from sticker_uq_msgs.msg import GateState


def listen(namespace: str, wait_s: float) -> dict[str, Any]:
    """What the cell in ``namespace`` says within ``wait_s``; earlier, when its gate and every node's diagnostics were heard."""
    gates: list[GateState] = []
    parts: dict[tuple[str, str], dict[str, Any]] = {}
    complete = float("inf")

    def on_diagnostics(message: DiagnosticArray) -> None:
        nonlocal complete
        complete = min(complete, time.monotonic() + 1.5 * PERIOD_S)
        for status in message.status:
            parts[status.hardware_id, status.name] = {
                "node": status.hardware_id,
                "name": status.name,
                "level": Level(min(ord(status.level), Level.STALE)).name,
                "message": status.message,
                "values": {pair.key: pair.value for pair in status.values},
            }

    context = Context()
    init_ros([], context=context, signal_handler_options=SignalHandlerOptions.NO)
    options: dict[str, Any] = {"enable_rosout": False, "start_parameter_services": False, "context": context}
    node = Node(f"status_{os.getpid()}", namespace=absolute_namespace(namespace), **options)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        topic = node.create_subscription(GateState, "gate", gates.append, qos.LATCHED).topic_name
        node.create_subscription(DiagnosticArray, "/diagnostics", on_diagnostics, qos.DIAGNOSTICS)
        end = time.monotonic() + wait_s
        while (now := time.monotonic()) < end and not (gates and now > complete):
            executor.spin_once(timeout_sec=min(0.1, end - now))
        others, domain = node.get_topic_names_and_types(), context.get_domain_id()
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()
    return {
        "domain": domain,
        "topic": topic,
        "gate": _gate(gates[-1]) if gates else None,
        "diagnostics": [parts[key] for key in sorted(parts)],
        "elsewhere": sorted(
            n for n, kinds in others if "sticker_uq_msgs/msg/GateState" in kinds and n != topic
        ),
    }


def _gate(message: GateState) -> dict[str, Any]:
    return {
        "state": gate_state(message.state),
        "open": message.open,
        "reasons": {code: BLOCK_REASONS.get(code, code) for code in BlockReason(message.reasons).codes},
        "details": [text_of(reason_from_msg(reason)) for reason in message.details],
        "policy_hash": message.policy_hash,
        "supervisor": message.supervisor,
    }

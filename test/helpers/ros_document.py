# SPDX-License-Identifier: Apache-2.0
"""Writes the ROS interface into its document: what the nodes of a running cell offer, and every message with its comments.

    python -m test.helpers.ros_document docs/reference/ros.md

Starts the simulated cell with operator page and recorder and asks the ROS graph. Rates and meanings are from the tables below.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy

from sticker_uq.cell.domain import free_domain
from sticker_uq.cell.processes import CellOptions, cell_processes
from sticker_uq.cell.runner import ProcessGroup
from sticker_uq.io.files import atomic_write
from sticker_uq.testing.bench import Bench, local_environment, running_bench
from test.helpers.cell import CellWatch, write_parameters

BEGIN, END = "<!-- interface: begin -->", "<!-- interface: end -->"
NODES = ("detector", "supervisor", "cell_sim", "console", "recorder")
OF_EVERY_NODE = {"/rosout", "/parameter_events", "/diagnostics"}
WITH_VISION_MSGS = {"detections_2d", "label_info"}
SETTLED_S = 5.0
MESSAGES = Path(__file__).parents[2] / "sticker_uq_msgs"

TOPICS = {
    "image": ("camera", "Images of the lid, `bgr8`, `rgb8`, `mono8` or what cv_bridge converts to them"),
    "image/compressed": ("camera", "The same as JPEG or PNG, with `image_transport: compressed`"),
    "camera_info": ("camera", "Calibration of the camera, for poses of the stickers"),
    "image_check": ("image", "As soon as an image arrives, before perception: whether it can be used"),
    "scene": ("image", "All that perception says about one image; the only input of a judgement"),
    "detections": ("image", "The objects alone, without the scene's other values"),
    "uncertainty": ("image", "The uncertainty of the whole image"),
    "dil": ("image", "Distinctive localization of the image"),
    "annotated": ("image", "The image with its boxes; made only while somebody subscribes"),
    "saliency": ("image", "Saliency map of the image; made only while somebody subscribes"),
    "gate": ("10 Hz", "The permit: valid until `valid_until`, for one object; check the age of the message"),
    "decision": ("scene", "What the policy decides about each object, and why"),
    "intervention/request": (
        "change",
        "The open question to the operator; an empty `request_id` when there is none",
    ),
    "intervention/answer": ("answer", "Each answer that was accepted, and by whom"),
    "workpiece": ("laptop", "Another laptop lies in the cell; published by the cell's controller"),
    "workpiece/done": ("laptop", "The laptop is finished: clean, or left to a person"),
    "arm/status": ("20 Hz", "Heartbeat of the arm; its silence closes the gate"),
    "monitor/gate_open": ("10 Hz", "For plots: 1 while the gate is open"),
    "monitor/uncertainty": ("scene", "For plots: mean Shannon entropy of the objects, bits; NaN without any"),
    "monitor/dil": ("scene", "For plots: distinctive localization; NaN where it was not measured"),
    "monitor/drift": (
        "scene",
        "For plots: strongest evidence against the policy's assumption: 0 none, 1 closes the gate; NaN: not watched",
    ),
    "monitor/state": ("10 Hz", "For plots: the state of the gate, as in GateState"),
}
"""Topic: how often (or with what), and what it is."""
SERVICES = {
    "select_model": "Exchange the model of the detector while it runs; the gate closes until scenes of the new one agree",
    "hold": "Close the gate, or release it (`SetBool`)",
    "reset": "End a fault (`Trigger`)",
    "operate": "Hold, release or reset with the name of the person, as the operator page does",
    "intervention/resolve": "Answer the open question",
}
ACTIONS = {"remove_sticker": "Remove one sticker; the server checks the permit on `gate` before each motion"}


@dataclass(frozen=True, order=True)
class Endpoint:
    """What one node has on one name."""

    kind: str
    node: str
    name: str
    type: str
    quality: str = ""


def endpoints(probe: Node, nodes: Iterable[str], namespace: str = "/") -> set[Endpoint]:
    """What the ROS graph knows of ``nodes``: topics, services and actions without those that every node has."""
    found = set()
    prefix = namespace.rstrip("/") + "/"
    present = {name for name, where in probe.get_node_names_and_namespaces() if where == namespace}
    for node in set(nodes) & present:
        sides: tuple[tuple[str, Any, Any], ...] = (
            ("publishes", probe.get_publisher_names_and_types_by_node, probe.get_publishers_info_by_topic),
            (
                "subscribes",
                probe.get_subscriber_names_and_types_by_node,
                probe.get_subscriptions_info_by_topic,
            ),
        )
        for kind, of_node, of_topic in sides:
            for name, types in of_node(node, namespace):
                if name in OF_EVERY_NODE or "/_action/" in name or name.startswith(f"{prefix}{node}/"):
                    continue
                [profile, *_] = [info.qos_profile for info in of_topic(name) if info.node_name == node]
                found.add(Endpoint(kind, node, name.removeprefix(prefix), types[0], _words(profile)))
        for kind, of_node in (
            ("serves", probe.get_service_names_and_types_by_node),
            ("calls", probe.get_client_names_and_types_by_node),
        ):
            for name, types in of_node(node, namespace):
                action, _, part = name.removeprefix(prefix).partition("/_action/")
                if part == "send_goal":
                    goal = types[0].removesuffix("_SendGoal")
                    found.add(Endpoint(f"{kind} the action", node, action, goal))
                elif not part and not name.startswith((f"{prefix}{node}/", "/ros_discovery")):
                    found.add(Endpoint(kind, node, action, types[0]))
    return found


def _words(profile: QoSProfile) -> str:
    words = ["reliable" if profile.reliability == ReliabilityPolicy.RELIABLE else "best effort"]
    if profile.durability == DurabilityPolicy.TRANSIENT_LOCAL:
        words.append("transient local")
    lease_ns = profile.liveliness_lease_duration.nanoseconds
    if profile.liveliness == LivelinessPolicy.AUTOMATIC and 0 < lease_ns < 10**12:
        words.append(f"liveliness {lease_ns / 1e9:g} s")
    return ", ".join(words)


def interface(found: set[Endpoint]) -> str:
    """The tables of topics, services and actions. Raises KeyError for a name that has no description above."""
    lines = [
        "| topic | type | published by | read by | how often | what it is |",
        "|---|---|---|---|---|---|",
    ]
    topics = sorted({one.name for one in found if one.kind in ("publishes", "subscribes")} - WITH_VISION_MSGS)
    for name in topics:
        rate, meaning = TOPICS[name]
        kinds = sorted(
            {one.type for one in found if one.name == name and one.kind in ("publishes", "subscribes")}
        )
        sides = [_side(found, kind, name) for kind in ("publishes", "subscribes")]
        lines.append(
            f"| `{name}` | {', '.join(map(_code, kinds))} | {' | '.join(sides)} | {rate} | {meaning} |"
        )
    for title, kind, meanings in (("service", "", SERVICES), ("action", " the action", ACTIONS)):
        lines += ["", f"| {title} | type | served by | called by | what it does |", "|---|---|---|---|---|"]
        for name in sorted({one.name for one in found if one.kind in (f"serves{kind}", f"calls{kind}")}):
            [type_name] = {one.type for one in found if one.name == name}
            by = [_names(found, f"{side}{kind}", name) for side in ("serves", "calls")]
            lines.append(f"| `{name}` | {_code(type_name)} | {' | '.join(by)} | {meanings[name]} |")
    return "\n".join(lines)


def _side(found: set[Endpoint], kind: str, name: str) -> str:
    return "<br>".join(
        f"{one.node}: {one.quality}" for one in sorted(found) if (one.kind, one.name) == (kind, name)
    )


def _names(found: set[Endpoint], kind: str, name: str) -> str:
    return ", ".join(one.node for one in sorted(found) if (one.kind, one.name) == (kind, name))


def _code(type_name: str) -> str:
    return f"`{type_name}`"


def messages() -> str:
    """Every message, service and action of sticker_uq_msgs as its file defines it."""
    parts = []
    for kind in ("msg", "srv", "action"):
        for file in sorted((MESSAGES / kind).glob(f"*.{kind}")):
            parts.append(f"### {file.stem}\n\n```text\n{file.read_text(encoding='utf-8').strip()}\n```")
    return "\n\n".join(parts)


def with_interface(page: str, tables: str) -> str:
    """``page`` with what stands between its marks exchanged."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{tables}\n\n## Messages\n\n{messages()}\n{END}{after}"


def of_running_cell(bench: Bench) -> set[Endpoint]:
    """The interface of a cell that has come up, when nothing was added or matched for SETTLED_S."""
    known: set[Endpoint] = set()
    since = time.monotonic()

    def settled() -> bool:
        nonlocal known, since
        before, known = known, endpoints(bench.probe, NODES)
        if known != before:
            since = time.monotonic()
        return time.monotonic() > since + SETTLED_S

    bench.until(settled, "a cell whose topics no longer change")
    return known


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("document", type=Path)
    page = parser.parse_args().document
    with tempfile.TemporaryDirectory() as name, free_domain() as domain:
        folder = Path(name)
        os.environ.update(local_environment(domain, folder / "log"))
        with running_bench() as bench:
            watch = CellWatch(bench)
            with ProcessGroup(cell_processes(whole_cell(folder)), lambda line: None):
                watch.assert_comes_up()
                tables = interface(of_running_cell(bench))
    text = with_interface(page.read_text(encoding="utf-8"), tables)
    with atomic_write(page, "w") as file:
        file.write(text)
    return 0


def whole_cell(folder: Path, namespace: str = "") -> CellOptions:
    """The simulated cell with all of NODES."""
    return CellOptions(
        sim=True, console=True, console_port=0, namespace=namespace, record=str(folder / "bag"),
        audit=str(folder / "audit"), params_file=str(write_parameters(folder)),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

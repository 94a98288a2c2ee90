# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq status``: what a running cell says of itself, where there is no ``ros2 topic echo``."""

import json
from typing import Any

import typer

from sticker_uq.cli import option
from sticker_uq.messages import PHASES, printable


def command(
    namespace: str = option("", "ROS namespace of the cell."),
    wait: float = option(3.0, "Longest time to listen, s.", min=0.1, max=600.0),
    as_json: bool = option(False, "Print what was heard as JSON.", "--json"),
) -> None:
    """Print the gate of a running cell, why it is closed, its policy, and every entry of /diagnostics.

    Listens in the ROS domain of ROS_DOMAIN_ID; changes nothing. Exit status 1 when no gate was heard.
    """
    from sticker_uq.nodes.common.cell_status import listen

    heard = listen(namespace, wait)
    gate = heard["gate"]
    if as_json:
        typer.echo(json.dumps(heard, indent=2))
    else:
        of_gate = _gate_lines(heard["topic"], gate) if gate else []
        for line in (*of_gate, *_part_lines(heard["diagnostics"])):
            typer.echo(printable(line))
    if gate is None:
        found = ", ".join(heard["elsewhere"])
        elsewhere = f" (gates there: {found}; name the cell with --namespace)" if found else ""
        typer.echo(
            f"no gate heard on {heard['topic']} in ROS domain {heard['domain']} within {wait:g} s{elsewhere}: check that the "
            "cell runs, that ROS_DOMAIN_ID and ROS_AUTOMATIC_DISCOVERY_RANGE are those of the cell, and its namespace "
            "(--namespace)",
            err=True,
        )
        raise typer.Exit(1)


def _gate_lines(topic: str, gate: dict[str, Any]) -> list[str]:
    words = PHASES.get(gate["state"], gate["state"])
    state = gate["state"].upper() + (f" ({words})" if words != gate["state"] else "")
    return [
        f"{topic}: {state}, {'open' if gate['open'] else 'closed'}",
        *(f"  {code}: {words}" for code, words in gate["reasons"].items()),
        *(f"  - {detail}" for detail in gate["details"]),
        f"policy {gate['policy_hash'][:12] or 'unknown'}, supervisor {gate['supervisor'][:8] or 'unknown'}",
    ]


def _part_lines(parts: list[dict[str, Any]]) -> list[str]:
    width = max((len(part["name"]) for part in parts), default=0)
    return [f"{part['level']:5}  {part['name']:{width}}  {part['message']}" for part in parts]

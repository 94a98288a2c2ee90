# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq status``: what a running cell says of itself, where there is no ``ros2 topic echo``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from sticker_uq.cli.terminal import output
from sticker_uq.messages import PHASES, printable

if TYPE_CHECKING:
    from sticker_uq.nodes.common.cell_status import CellStatus, GateStatus

_COLOURS = {"OK": "green", "WARN": "yellow", "ERROR": "bold red", "STALE": "bold red"}


def command(
    namespace: Annotated[str, typer.Option(help="ROS namespace of the cell.")] = "",
    wait: Annotated[float, typer.Option(min=0.1, max=600.0, help="Longest time to listen, s.")] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was heard as JSON.")] = False,
) -> None:
    """Print the gate of a running cell, why it is closed, its policy, and every entry of /diagnostics.

    Listens in the ROS domain of ROS_DOMAIN_ID; changes nothing. Exit status 1 when no gate was heard.
    """
    from sticker_uq.nodes.common.cell_status import listen

    heard = listen(namespace, wait)
    if as_json:
        typer.echo(json.dumps(heard.as_dict(), indent=2))
    else:
        _print(heard)
    if heard.gate is None:
        typer.echo(_unheard(heard, wait), err=True)
        raise typer.Exit(1)


def _print(heard: CellStatus) -> None:
    if heard.gate is not None:
        for line in _gate_lines(heard.topic, heard.gate):
            typer.echo(line)
    if heard.diagnostics:
        output().print(_table(heard))


def _gate_lines(topic: str, gate: GateStatus) -> list[str]:
    words = PHASES[gate.state]
    state = gate.state.upper() + (f" ({words})" if words != gate.state else "")
    return [
        f"{topic}: {state}, {'open' if gate.open else 'closed'}",
        *(f"  {code}: {words}" for code, words in gate.reasons.items()),
        *(f"  - {printable(detail)}" for detail in gate.details),
        f"policy {printable(gate.policy_hash[:12]) or 'unknown'}, supervisor {printable(gate.supervisor[:8]) or 'unknown'}",
    ]


def _table(heard: CellStatus) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part in heard.diagnostics:
        colour = _COLOURS[part.level]
        table.add_row(
            f"[{colour}]{part.level}[/]", escape(printable(part.name)), escape(printable(part.message))
        )
    return table


def _unheard(heard: CellStatus, wait_s: float) -> str:
    found = ", ".join(heard.elsewhere)
    elsewhere = f" (gates there: {found}; name the cell with --namespace)" if found else ""
    return (
        f"no gate heard on {heard.topic} in ROS domain {heard.domain} within {wait_s:g} s{elsewhere}: check that the cell runs, "
        "that ROS_DOMAIN_ID and ROS_AUTOMATIC_DISCOVERY_RANGE are those of the cell, and its namespace (--namespace)"
    )

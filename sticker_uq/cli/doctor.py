# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq doctor``: checks the installation."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from sticker_uq.cli.doctor_checks import Check, Level, run_checks
from sticker_uq.cli.terminal import output

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check this machine, with advice on each finding. Exit status 1 when something does not work."""
    checks = list(run_checks())
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        output().print(_table(checks))
        counts = {level: sum(check.level is level for check in checks) for level in Level}
        typer.echo(
            f"{counts[Level.OK]} fine, {counts[Level.WARN]} with a restriction, {counts[Level.FAIL]} broken"
        )
    raise typer.Exit(int(any(check.level is Level.FAIL for check in checks)))


def _table(checks: list[Check]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        level = f"[{_COLOURS[check.level]}]{check.level}[/]"
        advice = f"\n[dim]-> {escape(check.advice)}[/]" if check.advice else ""
        table.add_row(level, check.name, escape(check.found) + advice)
    return table

# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq operator``: the named operators who may sign in to the operator's page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.console.access import (
    HashedSecret,
    checked_name,
    checked_secret,
    read_operators,
    write_operators,
)
from sticker_uq.scene import InvalidInput

app = typer.Typer(no_args_is_help=True, add_completion=False)
Name = Annotated[str, typer.Argument(help="Name of the operator, as the audit log shows it.")]
File = Annotated[
    Path, typer.Option("--file", help="File of operators (parameter operators_file of the console).")
]


@app.callback()
def _about() -> None:
    """Named operators with a secret each, so that the audit log proves who answered."""


@app.command()
def add(name: Name, file: File) -> None:
    """Add an operator, or give one another secret, which is asked for. The file holds only its hash."""
    name = checked_name(name)
    operators = read_operators(file) if file.exists() else {}
    secret = typer.prompt(f"Secret of {name}", hide_input=True, confirmation_prompt=True)
    renewed = name in operators
    write_operators(file, {**operators, name: HashedSecret.of(checked_secret(secret))})
    typer.echo(f"{name} has another secret now" if renewed else f"{name} was added to {file}")


@app.command()
def remove(name: Name, file: File) -> None:
    """Remove an operator, who can answer no longer."""
    operators = read_operators(file)
    if name not in operators:
        raise InvalidInput(f"{file}: no operator {name!r}, it has {', '.join(operators) or 'none'}")
    write_operators(file, {other: entry for other, entry in operators.items() if other != name})
    typer.echo(f"{name} was removed from {file}")


@app.command("list")
def show(file: File) -> None:
    """Print the names in a file."""
    for name in read_operators(file):
        typer.echo(name)

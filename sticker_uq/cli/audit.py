# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq audit``: is the audit log whole, and what does it say."""

import json
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli import option
from sticker_uq.gate.audit import GENESIS, Entry, entries, verify
from sticker_uq.gate.audit.chain import log_files
from sticker_uq.messages import printable, text_of
from sticker_uq.scene import InvalidInput, Reason

app = typer.Typer(no_args_is_help=True, add_completion=False)
_REASON_FIELDS = {field.name for field in fields(Reason)}
Folder = Annotated[Path, typer.Argument(help="Folder of the log (parameter audit_folder of the supervisor).")]


@app.callback()
def _about() -> None:
    """The log of what the gate did and why: each entry carries the hash of the one before it."""


@app.command("verify")
def check(
    folder: Folder,
    head: str = option(
        "", "Hash that was published last (gate, /diagnostics, a recording): it must be there."
    ),
    since: str = option(GENESIS, "Hash of the last entry of older files that were taken away."),
) -> None:
    """Check every entry; exits with 1 when something was changed, removed, added or exchanged."""
    found = verify(folder, _hash("--head", head), _hash("--since", since))
    for finding in found.findings:
        typer.echo(printable(f"NOT WHOLE  {finding}"))
    typer.echo(
        f"{found.entries} entries in {found.files} files, {found.seals} torn by a crash and sealed, "
        f"{found.gaps} gaps in which nothing could be written"
    )
    typer.echo(f"last entry {found.number}, hash {found.head}")
    if not found.ended:
        typer.echo(
            "the log does not end with a stop: the supervisor runs, was killed, or the end was cut off"
        )
    if not head and found.whole:
        typer.echo("whole as far as it goes; only --head shows whether its end was cut off")
    raise typer.Exit(0 if found.whole else 1)


@app.command()
def show(
    folder: Folder,
    kind: list[str] | None = option(None, "Only entries of this kind, e.g. permit; may be repeated."),
    last: int = option(0, "Only so many of the newest; 0: all.", min=0),
) -> None:
    """Print the entries, one per line: number, time (UTC), kind, what happened."""
    if not log_files(folder):
        raise InvalidInput(f"{folder} holds no audit log")
    chosen: Iterable[Entry] = (e for e in entries(folder) if not kind or e.kind in kind)
    for entry in deque(chosen, last) if last else chosen:
        told = ", ".join(f"{name}={_short(value)}" for name, value in entry.data.items())
        typer.echo(printable(f"{entry.number:>7} {entry.time[:23]}Z {entry.kind:<14} {told}"))


def _short(value: object) -> str:
    """``value`` of an entry in one line; reasons are codes and values there, and words here."""
    if isinstance(value, str):
        return value
    with suppress(RecursionError):  # what another program wrote must not hide the other entries
        value = _in_words(value)
    return json.dumps(value, ensure_ascii=False)


def _in_words(value: object) -> object:
    if isinstance(value, dict):
        if isinstance(value.get("code"), str) and value.keys() <= _REASON_FIELDS:
            with suppress(
                TypeError, ValueError, AttributeError, LookupError
            ):  # what another program wrote is shown as it is
                return text_of(Reason.from_dict(value))
        return {k: _in_words(v) for k, v in value.items()}
    return [_in_words(item) for item in value] if isinstance(value, list) else value


def _hash(option: str, text: str) -> str:
    if text and (len(text) != len(GENESIS) or set(text.lower()) - set("0123456789abcdef")):
        raise InvalidInput(f"{option} {text!r}: expected {len(GENESIS)} hexadecimal digits")
    return text.lower()

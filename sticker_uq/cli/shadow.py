# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq shadow``: what a candidate beside the cell would have decided differently."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import output_file
from sticker_uq.evaluation.reporting.shadow_report import shadow_report
from sticker_uq.io.files import atomic_write

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _about() -> None:
    """A candidate bundle that ran beside the active one (`shadow:=BUNDLE`)."""


@app.command()
def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the counts (shadow_folder), with shadow.jsonl in it.")
    ],
    out: Annotated[Path, output_file("The report, an HTML page.")],
) -> None:
    """Write the report of what was counted: differences with intervals, for each pair of bundles that was compared."""
    page = shadow_report(folder)
    with atomic_write(out, "w") as stream:
        stream.write(page)
    typer.echo(f"report in {out}")

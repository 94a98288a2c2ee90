# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq dataset check``: finds problems of a labelled data set before training or testing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from sticker_uq.cli.options import output_file
from sticker_uq.cli.terminal import output
from sticker_uq.io.coco import ANNOTATIONS, read_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.datasets.checking import (
    NEAR,
    Drift,
    Finding,
    class_balance,
    drift,
    duplicates,
    label_findings,
    picture_statistics,
    properties,
)
from sticker_uq.lab.datasets.repairing import check_not_source, repaired_annotations
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput

_SHOWN = 20


def command(
    data: Annotated[Path, typer.Argument(help="COCO folder to check.")],
    against: Annotated[
        Path | None,
        typer.Option(help="COCO folder that must not share pictures with it, e.g. the training set."),
    ] = None,
    near: Annotated[
        int, typer.Option(help="Highest Hamming distance of the 64-bit hashes of near duplicates.")
    ] = NEAR,
    repair: Annotated[
        Path | None,
        output_file(
            "Write a copy of the annotations to this file, with faulty boxes clipped or left out, and check no more."
        ),
    ] = None,
) -> None:
    """Find duplicates, implausible labels, imbalance, and drift against another set. Exit status 1 for shared pictures."""
    if repair is not None:
        _repair(data, repair)
        return
    if not 0 <= near <= 32:
        raise InvalidInput(f"--near {near}: expected 0 to 32")
    items = read_coco(data)
    others = read_coco(against) if against is not None else []
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(items) + len(others))
        seen, known = (picture_statistics(part, lambda: bar.advance(task)) for part in (items, others))
    console = output()
    balance = class_balance(items)
    console.print(
        f"{len(items)} pictures of {data}: {balance['logo']} logos, {balance['sticker']} stickers, {balance['empty']} "
        "pictures without an object"
    )
    table = Table("property", "least", "median", "largest")
    for name, values in properties(seen).items():
        if len(values):
            middle = sorted(values.tolist())[len(values) // 2]
            table.add_row(name, f"{values.min():.3g}", f"{middle:.3g}", f"{values.max():.3g}")
    console.print(table)
    _list("Duplicates", duplicates(seen, near=near))
    _list("Labels to review", label_findings(items))
    if against is None:
        return
    shared = duplicates(seen, known, near)
    _list(f"Shared with {against}", shared)
    console.print(_drift(drift(seen, known)))
    if shared:
        raise typer.Exit(1)


def _repair(data: Path, target: Path) -> None:
    check_not_source(data, target)
    document, changes = repaired_annotations(data)
    with atomic_write(target, "w") as stream:
        json.dump(document, stream)
    for change in changes:
        typer.echo(printable(change))
    typer.echo(
        f"{len(changes)} changes in {target}; check these pictures, then use it as {data / ANNOTATIONS}"
    )


def _list(title: str, findings: Sequence[Finding]) -> None:
    typer.echo(f"{title}: {len(findings)}")
    for one in findings[:_SHOWN]:
        typer.echo(f"  {one.kind}: {', '.join(path.name for path in one.pictures)}: {one.text}")
    if len(findings) > _SHOWN:
        typer.echo(f"  and {len(findings) - _SHOWN} more")


def _drift(rows: Sequence[Drift]) -> Table:
    table = Table("property", "here", "there", "KS distance", "p (Holm)", "", title="Drift, medians")
    for row in rows:
        words = "differs" if row.drifted else ""
        table.add_row(
            row.name, f"{row.first:.3g}", f"{row.second:.3g}", f"{row.distance:.2f}", f"{row.p:.2g}", words
        )
    return table

# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness init`` and ``sheet``: writes a specification, and a sheet of pictures to check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import check_file, output_file
from sticker_uq.lab.robustness.drawing import sweep_strengths
from sticker_uq.lab.robustness.preset import PRESETS, preset
from sticker_uq.lab.robustness.questions import SCALES, Question, ask_all, scale_text
from sticker_uq.lab.robustness.spec import Circumstance, Specification
from sticker_uq.scene import InvalidInput


def init(
    out: Annotated[Path, typer.Argument(help="YAML file to write.", callback=check_file)] = Path(
        "robustness.yaml"
    ),
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask for exposure, likelihood and severity of every circumstance.")
    ] = False,
    start: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help=f"Specification to start from: one of the package ({', '.join(PRESETS)}) or a file.",
        ),
    ] = PRESETS[0],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the specification of a cell, or ask for the values of each of its circumstances.

    The comments in the file explain every value; edit it to fit the cell. An existing file is replaced only with --force.
    """
    if out.exists() and not force:
        raise InvalidInput(f"{out} exists already; --force replaces it")
    spec = preset(start) if start in PRESETS else Specification.load(start)
    if ask:
        typer.echo("Enter keeps the value in brackets; Ctrl-C ends without writing anything.\n")
        spec = ask_all(spec, _asked, _told)
    spec.save(out, _comments(spec))
    typer.echo(f"{len(spec.circumstances)} circumstances in {out}")


def sheet(
    specification: Annotated[Path, typer.Argument(help="YAML file of the specification.")],
    data: Annotated[Path, typer.Option(help="COCO folder of source images.")],
    out: Annotated[Path, output_file("HTML file to write.")] = Path("circumstances.html"),
    image: Annotated[int, typer.Option(help="Index of the source image, from 0.")] = 0,
) -> None:
    """Write a sheet of pictures: every circumstance at three strengths, with its distance and the permitted change epsilon."""
    from sticker_uq.lab.robustness.sheet import write_sheet
    from sticker_uq.lab.robustness.source_set import SourceSet

    shown = write_sheet(Specification.load(specification), SourceSet.load(data), out, image)
    typer.echo(f"{shown} circumstances on {out}")


def _asked(question: Question) -> int:
    typer.echo(question.text)
    while True:
        value = int(typer.prompt(question.factor, default=question.default, type=int))
        if 1 <= value <= 5:
            return value
        typer.echo(f"{value}: expected 1 to 5")


def _told(circumstance: Circumstance) -> None:
    typer.echo(f"-> significance {circumstance.significance} of 125\n")


def _comments(spec: Specification) -> dict[str, str]:
    """Comments for the specification file, by the name of the circumstance; "" is the header."""
    from sticker_uq.lab.corruptions import TRANSFORMATIONS

    scales = "\n".join(f"{s.factor}: {s.question}\n{scale_text(s)}" for s in SCALES)
    comments = {
        "": "Robustness specification (Wozniak et al. 2024, tasks 1 and 2).\n\n"
        "significance = exposure * likelihood * severity, each 1 to 5:\n"
        f"{scales}\n\n"
        "strength: range from mild to severe from which follow-up images are sampled.\n"
        "probability: how likely an image is in the circumstance (relative_frequency: how often it was observed).\n"
        "exclusive_group: circumstances of one group never occur in the same image.\n"
        "measured: how the circumstance is recognised in untagged source images.\n"
        "relations: points (d, epsilon): permitted change epsilon of a metric at distance d from the source."
    }
    for circumstance in spec.circumstances:
        known = TRANSFORMATIONS.get(str(circumstance.transformation))
        if known is not None:
            sweep = ", ".join(f"{s:g}" for s in sweep_strengths(circumstance))
            comments[circumstance.name] = (
                f"strength in {known.unit}: {known.strength}; {known.limits[0]:g} to {known.limits[1]:g}; swept: {sweep}"
            )
    return comments

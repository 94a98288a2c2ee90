# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq robustness init``: writes a specification with comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sticker_uq.cli.options import check_file
from sticker_uq.lab.robustness.drawing import sweep_strengths
from sticker_uq.lab.robustness.preset import PRESETS, preset
from sticker_uq.lab.robustness.spec import Specification
from sticker_uq.scene import InvalidInput

SCALES = {
    "exposure": (
        "How often is the cell in a situation in which this can happen at all?",
        (
            "Rare: once a year or less: at a rebuild",
            "Unusual: a few times a year: at maintenance",
            "Occasional: every few weeks: in some weather, with some deliveries",
            "Frequent: every day, at some hours or on some laptops",
            "Continuous: with every laptop",
        ),
    ),
    "likelihood": (
        "When the cell is in that situation, how likely is it that an image is affected?",
        (
            "Rare: fewer than 1 image in 1000",
            "Unlikely: 1 in 1000 to 1 in 100",
            "Possible: 1 in 100 to 1 in 10",
            "Likely: 1 in 10 to 1 in 2",
            "Certain: more than every second image",
        ),
    ),
    "severity": (
        "If detection fails on such an image, what is the worst that is likely to follow?",
        (
            "Insignificant: a person is asked once more than needed",
            "Minor: a sticker stays on, and inspection finds it",
            "Marginal: a laptop is shipped with a sticker, or a lid is scratched",
            "Critical: a brand logo or a lid is ruined",
            "Catastrophic: many laptops are ruined before anybody notices",
        ),
    ),
}
"""What 1 to 5 stand for in a cell, by factor of the significance; the names are those of Wozniak et al., table 5."""


def init(
    out: Annotated[Path, typer.Argument(help="YAML file to write.", callback=check_file)] = Path(
        "robustness.yaml"
    ),
    start: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help=f"Specification to start from: one of the package ({', '.join(PRESETS)}) or a file.",
        ),
    ] = PRESETS[0],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write the specification of a cell.

    The comments in the file explain every value; edit it to fit the cell. An existing file is replaced only with --force.
    """
    if out.exists() and not force:
        raise InvalidInput(f"{out} exists already; --force replaces it")
    spec = preset(start) if start in PRESETS else Specification.load(start)
    spec.save(out, _comments(spec))
    typer.echo(f"{len(spec.circumstances)} circumstances in {out}")


def _comments(spec: Specification) -> dict[str, str]:
    """Comments for the specification file, by the name of the circumstance; "" is the header."""
    from sticker_uq.lab.corruptions import TRANSFORMATIONS

    scales = "\n".join(
        f"{factor}: {question}\n" + "\n".join(f"  {n} {value}" for n, value in enumerate(values, 1))
        for factor, (question, values) in SCALES.items()
    )
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

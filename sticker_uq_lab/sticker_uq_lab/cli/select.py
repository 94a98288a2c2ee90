# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq select``: selects a model of a study, as a parameter file for the detector."""

import math
from pathlib import Path

import typer
import yaml
from rich.table import Table

from sticker_uq.cli import option
from sticker_uq.cli.options import output_file
from sticker_uq.cli.terminal import output
from sticker_uq.io.files import atomic_write
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.studies.detectors.measures import ACCURACY_FLOOR


def command(
    study: Path = typer.Argument(..., help="Folder of a finished study."),
    require: list[str] = option(
        ...,
        "accuracy, label-uncertainty, box-uncertainty, robustness or latency, optionally =WEIGHT; may be repeated.",
        metavar="WHAT[=WEIGHT]",
    ),
    rate: float = option(-1.0, "Dropout rate; default: the one of the study nearest to 0.2."),
    min_map: float = option(
        ACCURACY_FLOOR,
        "Models with a lower mean mAP on clean images are not ranked: what sees nothing is sure and robust.",
        min=0.0,
        max=1.0,
    ),
    out: Path | None = output_file(None, "Write the detector's parameters to this YAML file."),
) -> None:
    """Rank the models of a study by the given criteria, with statistical ties, and write the detector's parameters."""
    from sticker_uq_lab.studies.detectors.model_selection import advice, parameters, rank
    from sticker_uq_lab.studies.detectors.study_report import reference_rate
    from sticker_uq_lab.studies.detectors.study_run import Study

    found = Study.load(study)
    chosen = reference_rate(found) if rate < 0 else rate
    ranking = rank(found, dict(map(_weight, require)), chosen, min_map)
    table = Table(title=f"dropout rate {chosen:g}; tiers, 1 = best")
    tiers_of = ranking.candidates[0].tiers
    for name in ("model", "score", *tiers_of, "mAP clean", "mAP attacked", "ms per image", "as good"):
        table.add_column(name, justify="left" if name in ("model", "as good") else "right", overflow="fold")
    for one in ranking.candidates:
        tiers = (f"{value:.2f}" for value in one.tiers.values())
        shown = ("-" if math.isnan(value) else f"{value:.2f}" for value in (one.clean, one.attacked))
        table.add_row(one.model, f"{one.score:.2f}", *tiers, *shown, f"{one.ms:.0f}", ", ".join(one.tied))
    output().print(table)
    typer.echo(advice(ranking))
    if out is not None:
        values = parameters(found, ranking.candidates[0].model, chosen)
        with atomic_write(out, "w") as stream:
            yaml.safe_dump({"/**/detector": {"ros__parameters": values}}, stream, sort_keys=False)
        typer.echo(f"parameters of the detector: {out}")


def _weight(text: str) -> tuple[str, float]:
    name, equals, weight = text.partition("=")
    try:
        return name, float(weight) if equals else 1.0
    except ValueError:
        raise InvalidInput(f"--require {text!r}: expected WHAT or WHAT=WEIGHT") from None

# SPDX-License-Identifier: Apache-2.0
"""``sticker-uq study statistics``: the statistics of the paper on per-image results, of this or another program."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.table import Table

from sticker_uq.cli.options import output_folder
from sticker_uq.cli.terminal import output
from sticker_uq.lab.studies.detectors.analysis import RESAMPLES, Analysis, analyse
from sticker_uq.lab.studies.detectors.measures import BY_NAME, check_profile, label
from sticker_uq.lab.studies.detectors.results import read_results
from sticker_uq.lab.table_files import write_tables
from sticker_uq.scene import InvalidInput


def statistics(
    results: Annotated[
        Path, typer.Option(help="Per-image results, .csv or .parquet: image, model, measures.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            metavar="paper|simula_rp",
            help="Definitions of the measures: correct, or those of the published code.",
        ),
    ] = "paper",
    out: Annotated[Path | None, output_folder("Folder to write every table to as CSV.")] = None,
    resamples: Annotated[
        int, typer.Option(help="Resamples of the bootstrap intervals; 0: no intervals.")
    ] = RESAMPLES,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Friedman and Wilcoxon tests, effect sizes, tiers, best models and correlations of per-image results."""
    if resamples < 0:
        raise InvalidInput(f"--resamples {resamples}: expected 0 or more")
    if seed < 0:
        raise InvalidInput(f"--seed {seed}: expected 0 or more")
    chosen = check_profile(profile)
    analysis = analyse(read_results(results), chosen, resamples, seed)
    console = output()
    for title, table in _shown(analysis).items():
        if not table.empty:
            console.print(_table(title, table))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_tables(analysis.tables(), out)
        typer.echo(f"tables in {out}")


def _shown(analysis: Analysis) -> dict[str, pd.DataFrame]:
    """Summary for a terminal: Friedman tests, the pairs that differ, Table 3, Table 4."""
    friedman, pairs, pooled = analysis.friedman, analysis.pairs, analysis.pooled
    if not pairs.empty:
        pairs = pairs.loc[pairs["opened"] & (pairs["better"] != "")]
        pairs = pairs[
            ["dataset", "dropout_rate", "measure", "first", "second", "p_holm", "rbc", "band", "better"]
        ]
        pairs = pairs.assign(**{name: pairs[name].map(label) for name in ("first", "second", "better")})
    if not pooled.empty:
        pooled = pooled.assign(model=pooled["model"].map(label))
    return {
        "Friedman's test": friedman,
        "Pairs that differ significantly and relevantly": pairs,
        "Best models at every dropout rate": analysis.best,
        "Spearman correlation with mAP over all rates and data sets": pooled,
    }


def _table(title: str, content: pd.DataFrame) -> Table:
    table = Table(title=title)
    for name in content.columns:
        numbers = pd.api.types.is_numeric_dtype(content[name])
        table.add_column(
            BY_NAME[name].short if name in BY_NAME else name, justify="right" if numbers else "left"
        )
    for row in content.itertuples(index=False):
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return BY_NAME[value].short if isinstance(value, str) and value in BY_NAME else str(value)

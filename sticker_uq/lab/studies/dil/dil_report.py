# SPDX-License-Identifier: Apache-2.0
"""The tables of a DiL study as CSV files, one Markdown text and one page that works offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from sticker_uq.evaluation.reporting.document import Block, Table, as_html, as_markdown
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.table_files import write_tables

Tables = Mapping[str, Mapping[str, pd.DataFrame]]
"""By the detector's name, by the table's title."""


def write_study(study: Tables, out: Path) -> list[Path]:
    """Write `study.md`, `study.html` and a CSV file per detector and table of a DiL study to the folder ``out``;
    the files written.
    """
    title = "Distinctive localization on abnormal scenes"
    page = as_html(
        title, [f"# {title}", "Brackets are 95 % bootstrap intervals over scenes.", *blocks(study)]
    )
    texts = {"study.md": as_markdown(blocks(study)), "study.html": page}
    for name, text in texts.items():
        with atomic_write(out / name, "w") as stream:
            stream.write(text)
    tables = {
        f"{detector}_{title}".lower().replace(" ", "-").replace(",", "").replace("/", "-"): table
        for detector, found in study.items()
        for title, table in found.items()
    }
    write_tables(tables, out)
    return [out / name for name in (*texts, *(f"{name}.csv" for name in tables))]


def blocks(study: Tables) -> list[Block]:
    """The tables of a DiL study below the names of the detectors and their own titles."""
    found: list[Block] = []
    for detector, tables in study.items():
        found.append(f"## {detector}")
        for title, table in tables.items():
            rows = [list(map(figure, row)) for row in table.itertuples(index=False)]
            found += [f"### {title}", Table(list(map(str, table.columns)), rows)]
    return found


def figure(value: object) -> str:
    """A value as the tables show it: three decimals, a dash for what is not known."""
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.3f}"
    return str(value).replace("_", " ")

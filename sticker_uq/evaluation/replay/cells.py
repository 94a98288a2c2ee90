# SPDX-License-Identifier: Apache-2.0
"""What a replay of several recordings says of each cell: laptops asked about and released, by the replayed policy."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
import pyarrow as pa

from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.io.labelled_images import recorded_workpieces

CELL_SCHEMA = pa.schema(
    [
        ("cell", pa.string()),
        *((name, pa.int64()) for name in ("recordings", "images", "failed", "laptops", "asked", "released")),
        *((name, pa.float64()) for name in ("asked_per_100", "asked_low", "asked_high")),
    ]
)
"""``asked``, ``released``: laptops with an image whose outcome is ASK, WORK; the interval is the exact 95 % one. Where a
recording announces no laptop, each of its images counts as one."""


def cell_of(source: Path) -> str:
    """The cell of a recording: the name of the folder that it lies in."""
    return source.absolute().parent.name or "/"


def laptops_of(source: Path) -> Callable[[int], str]:
    """The laptop that lay in the cell of a recording at a stamp in ns; "" for none, and where none were announced."""
    turns = recorded_workpieces(source, departures=True)

    def at(stamp_ns: int) -> str:
        before = bisect_right(turns, stamp_ns, key=lambda turn: turn[0])
        return turns[before - 1][1] if before else ""

    return at


def read_images(file: Path) -> pd.DataFrame:
    """The columns that :func:`cell_rows` needs of a replay's table ``images``."""
    columns = ["cell", "laptop", "image", "status", "outcome"]
    if file.suffix == ".parquet":
        return pd.read_parquet(file, columns=columns)
    return pd.read_csv(file, usecols=columns, keep_default_na=False)


def cell_rows(tables: Iterable[pd.DataFrame]) -> list[Row]:
    """The table ``cells`` from the tables ``images`` of one recording each."""
    whole = pd.concat(table.assign(recording=number) for number, table in enumerate(tables))
    announced = whole.groupby("recording")["laptop"].transform(lambda names: (names != "").any())
    whole["laptop"] = whole["laptop"].where(announced, whole["image"])
    rows = []
    for cell, images in whole.groupby("cell", sort=True):
        outcomes = images[images["laptop"] != ""].groupby(["recording", "laptop"])["outcome"].agg(set)
        count = len(outcomes)
        asked, released = (int(sum(one in found for found in outcomes)) for one in ("ASK", "WORK"))
        low, high = clopper_pearson(asked, count)
        rows.append(
            {
                "cell": cell,
                "recordings": images["recording"].nunique(),
                "images": len(images),
                "failed": int((images["status"] == "FAILED").sum()),
                "laptops": count,
                "asked": asked,
                "released": released,
                "asked_per_100": 100 * asked / count if count else float("nan"),
                "asked_low": 100 * low,
                "asked_high": 100 * high,
            }
        )
    return rows

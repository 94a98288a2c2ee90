# SPDX-License-Identifier: Apache-2.0
"""Result tables of studies and assessments as CSV files."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from sticker_uq.io.files import atomic_write


def write_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write every result table of the laboratory with rows to ``folder``/NAME.csv with all its digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        if not table.empty:
            with atomic_write(folder / f"{name}.csv", "w") as stream:
                table.to_csv(stream, index=False, lineterminator="\n")

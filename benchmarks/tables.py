# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of the documentation from the result files in ``benchmarks/results``.

    python -m benchmarks.tables

A line ``<!-- benchmarks/results/NAME.json -->``, or ``.jsonl``, in a page is followed by the table of that file, made by
``benchmarks.NAME``; of several tables one is named after the file, ``<!-- benchmarks/results/NAME.json TABLE -->``.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"(<!-- benchmarks/results/(\w+)\.(jsonl?)(?: (\w+))? -->\n)(?:\n(?:\|.*\n)+)?")


def filled(text: str) -> str:
    """``text`` of a page with the tables that its marks ask for. A missing file is an error or
    "not measured", as the module has it.
    """

    def table(mark: re.Match[str]) -> str:
        module = importlib.import_module(f"benchmarks.{mark[2]}")
        rows = module.read(ROOT / "benchmarks" / "results" / f"{mark[2]}.{mark[3]}")
        named = () if mark[4] is None else (mark[4],)
        return f"{mark[1]}\n{module.table(rows, *named)}\n"

    return _MARK.sub(table, text)


def pages() -> list[Path]:
    """The pages of the documentation."""
    return sorted((ROOT / "docs").rglob("*.md"))


def main() -> None:
    """Write every page anew whose tables are not those of the result files."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (wanted := filled(text)) != text:
            page.write_text(wanted, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: written")


if __name__ == "__main__":
    main()

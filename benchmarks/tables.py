# SPDX-License-Identifier: Apache-2.0
"""The tables of the documentation that come from the result files in ``benchmarks/results``.

A line ``<!-- benchmarks/results/NAME.json -->``, or ``.jsonl``, in a page is followed on the site by the table of that file,
made by ``benchmarks.NAME``; of several tables one is named after the file, ``<!-- benchmarks/results/NAME.json TABLE -->``. A
``.csv`` is such a table itself: of a benchmark that answered once and is no longer here.

    python -m benchmarks.tables hard.json wrong cases     these tables
"""

from __future__ import annotations

import csv
import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MARK = re.compile(r"<!-- benchmarks/results/(\w+)\.(jsonl?|csv)(?: (\w+))? -->\n(?:\n(?:\|.*\n)+)?")


def filled(text: str) -> str:
    """``text`` of a page with the tables that its marks ask for. A missing file is an error or
    "not measured", as the module has it.
    """

    def table(mark: re.Match[str]) -> str:
        file = ROOT / "benchmarks" / "results" / f"{mark[1]}.{mark[2]}"
        if mark[2] == "csv":
            head, *cells = csv.reader(file.read_text(encoding="utf-8").splitlines())
            return "\n".join(
                ["", *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)), ""]
            )
        module = importlib.import_module(f"benchmarks.{mark[1]}")
        rows = module.read(file)
        named = () if mark[3] is None else (mark[3],)
        return f"\n{module.table(rows, *named)}\n"

    return _MARK.sub(table, f"{text}\n")


if __name__ == "__main__":
    file, *names = sys.argv[1:]
    print(filled("".join(f"<!-- benchmarks/results/{' '.join([file, name])} -->\n" for name in names)))

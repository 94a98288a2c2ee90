# SPDX-License-Identifier: Apache-2.0
"""The tables of the documentation that come from the result files in ``benchmarks/results``.

A line ``[table by scripts/docs: benchmarks/results/NAME.json]``, or ``.jsonl``, of a page is replaced on the site by the
table of that file, made by ``benchmarks.NAME`` (of NAME_PART, too); one of several tables is named after the file. A ``.csv`` is
such a table itself: of a benchmark that answered once and is no longer here; its first line says which file of which commit it
was ("# commit HASH: FILE"). A table that stands after the line in the page is
for who reads the file.

    python -m benchmarks.tables hard.json wrong right     these tables
    python -m benchmarks.tables --write docs/worth.md     the tables that stand in the page, anew
"""

import csv
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MARK = re.compile(
    r"\[table by scripts/docs: benchmarks/results/(\w+)\.(jsonl?|csv)(?: (\w+))?\]\n((?:\n(?:\|.*\n)+)?)"
)


def filled(text: str) -> str:
    """``text`` of a page with the tables that its marks ask for. A missing file is an error or
    "not measured", as the module has it.
    """
    return _MARK.sub(_table, f"{text}\n")


def renewed(text: str) -> str:
    """``text`` of a page whose tables are those of the result files; where none stands after a mark, none is added."""
    return _MARK.sub(
        lambda mark: mark[0].removesuffix(mark[4]) + _table(mark).rstrip() + "\n" if mark[4] else mark[0],
        text,
    )


def without_commit(text: str) -> str:
    """``text`` of a result file without the line that says which commit made it."""
    return text[text.index("\n") :].lstrip() if text.startswith("# commit ") else text


def _table(mark: re.Match[str]) -> str:
    file = ROOT / "benchmarks" / "results" / f"{mark[1]}.{mark[2]}"
    if mark[2] == "csv":
        head, *cells = csv.reader(without_commit(file.read_text(encoding="utf-8")).splitlines())
        return "\n".join(["", *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)), ""])
    name = mark[1] if importlib.util.find_spec(f"benchmarks.{mark[1]}") else mark[1].rpartition("_")[0]
    module = importlib.import_module(f"benchmarks.{name}")
    return f"\n{module.table(module.read(file), *((mark[3],) if mark[3] else ()))}\n"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    file, *names = sys.argv[1:]
    if file == "--write":
        for page in map(Path, names):
            page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        marks = (f"[table by scripts/docs: benchmarks/results/{' '.join([file, name])}]\n" for name in names)
        print(filled("".join(marks)))

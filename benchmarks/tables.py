# SPDX-License-Identifier: Apache-2.0
"""The generated parts of the pages, which are committed with them: between two comments, which say from what they come.

    <!-- table: benchmarks/results/hard.json worth -->      a table of a result file, by benchmarks.hard (of NAME_PART, too)
    <!-- table: benchmarks/results/limits.csv -->           a file that is a table itself
    <!-- reference: node_parameters detector -->            what benchmarks.reference has of this name
    <!-- end -->

Of a result file with more than 25 rows a page has the first ten and a link; the site has them all (``scripts/docs``). The first
line of a .csv says which file of which commit made it ("# commit HASH: FILE") where the benchmark is no longer here.

    python -m benchmarks.tables --write                   every page of README.md and docs/ anew
    python -m benchmarks.tables --write docs/worth.md     this page
    python -m benchmarks.tables hard.json wrong right     print these tables
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result_files import argument_parser
from sticker_uq.io.files import atomic_write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
LONGEST, FIRST = 25, 10
"""Rows of a result file that a page has whole, and how many it has of a longer one."""
_PART = re.compile(r"^(<!-- (?:table|reference): (.+?) -->\n)(.*?)^<!-- end -->$", re.M | re.S)
_COMMENT = re.compile(r"^ *<!-- (?:(?:table|reference): .*|end) -->", re.M)
_REST = "*The first {} of {} rows; all: [{}]({}).*"


def pages() -> list[Path]:
    """The pages that may have generated parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renewed(page: Path) -> str:
    """The text of ``page`` with its generated parts as they should be. Raises ValueError for half a pair of comments."""
    text = page.read_text(encoding="utf-8")
    parts = len(_PART.findall(text))
    if len(_COMMENT.findall(text)) != 2 * parts:
        raise ValueError(
            f'{page}: expected "<!-- end -->" after each "<!-- table: ... -->" and "<!-- reference: ... -->"'
        )
    return _PART.sub(lambda part: _written(part, _shortened(_content(part[1], part[2]), part[2], page)), text)


def filled(text: str) -> str:
    """``text`` of a page with all rows of its long tables, as the site shows it."""
    rest = re.escape(_REST).replace(r"\{\}", ".+?")
    return _PART.sub(
        lambda part: _written(part, _content(part[1], part[2])) if re.search(rest, part[3]) else part[0], text
    )


def result_table(name: str, table: str = "") -> str:
    """A table in Markdown of the result file ``name``. Raises OSError, ValueError or LookupError for one that is not there; a
    missing file may be "not measured", as its module has it.
    """
    file = RESULTS / name
    if file.suffix == ".csv":
        text = without_commit(file.read_text(encoding="utf-8"))
        if table:  # of a file with several tables, below a line each that begins with #: its number from 0
            text = re.split(r"^# .*\n", text, flags=re.MULTILINE)[1:][int(table)].strip()
        head, *rows = csv.reader(text.splitlines())
        return markdown(head, rows)
    stem = file.stem if importlib.util.find_spec(f"benchmarks.{file.stem}") else file.stem.rpartition("_")[0]
    if not stem or importlib.util.find_spec(f"benchmarks.{stem}") is None:
        raise ValueError(f"{name}: no benchmark of this name, expected NAME.json or NAME.csv of {RESULTS}")
    module = importlib.import_module(f"benchmarks.{stem}")
    return str(module.table(module.read(file), *([table] if table else []))).strip()


def without_commit(text: str) -> str:
    """``text`` of a result file without the line that says which commit made it."""
    return text[text.index("\n") :].lstrip() if text.startswith("# commit ") else text


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _content(comment: str, source: str) -> str:
    name, *argument = source.split()
    if comment.startswith("<!-- reference"):
        from benchmarks.reference import PARTS  # loads nodes and commands, which the tables do not need

        return PARTS[name](*argument).strip()
    return result_table(Path(name).name, *argument)


def _written(part: re.Match[str], content: str) -> str:
    return f"{part[1]}\n{content}\n\n<!-- end -->"


def _shortened(content: str, source: str, page: Path) -> str:
    """``content`` without the rows beyond the first where it is one table of a result file with too many."""
    name, lines = source.split()[0], content.splitlines()
    head, rows = lines[:2], lines[2:]
    if (
        not name.startswith("benchmarks/")
        or len(rows) <= LONGEST
        or not all(row.startswith("|") for row in rows)
    ):
        return content
    link = os.path.relpath(ROOT / name, page.parent)
    return "\n".join([*head, *rows[:FIRST], "", _REST.format(FIRST, len(rows), Path(name).name, link)])


def main() -> None:
    """Write the parts of pages anew, or print tables."""
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--write", action="store_true", help="the generated parts of PAGES, of all without any"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="pages to write; or a result file and its tables"
    )
    arguments = parser.parse_args()
    try:
        if arguments.write:
            _write([Path(name) for name in arguments.names] or pages())
        elif arguments.names:
            file, *names = arguments.names
            print("\n\n".join(result_table(file, name) for name in names or [""]))
        else:
            parser.error("expected a result file, or --write")
    except LookupError as error:
        parser.error(f"no such table or part: {error}")
    except (OSError, ValueError, ImportError) as error:
        parser.error(str(error))


def _write(asked: Sequence[Path]) -> None:
    texts = {page: renewed(page) for page in asked}  # all, before the first is written
    for page, text in texts.items():
        if text != page.read_text(encoding="utf-8"):
            with atomic_write(page, "w") as stream:
                stream.write(text)
            print(f"written: {os.path.relpath(page)}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Which cell of the fleet a recording is from: by a YAML map, or by the folder that it lies in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sticker_uq.io.reading import read_yaml, shown
from sticker_uq.scene import InvalidInput


@dataclass(frozen=True)
class Recording:
    """A recording (anything that :func:`sticker_uq.io.sources.open_source` opens) and the cell of the fleet that it is from."""

    path: Path
    cell: str


def recordings_of(paths: Sequence[Path], cells: Path | None = None) -> list[Recording]:
    """The fleet's recordings at ``paths``, absolute, in their order, each with its cell.

    ``cells``: YAML file of lines ``CELL: [PATTERN, ...]``; a pattern (``*`` also matches slashes) is that of a recording or of a
    folder that holds it, relative to the file. Without it a recording is from the cell named as the folder that it lies in.
    Raises InvalidInput for a path that is given twice and for one that no cell or more than one has.
    """
    whole = [path.absolute() for path in paths]
    for path, count in Counter(whole).items():
        if count > 1:
            raise InvalidInput(f"{path}: given {count} times, expected every recording once")
    if cells is None:
        return [Recording(path, path.parent.name or "/") for path in whole]
    patterns = _patterns(cells)
    return [Recording(path, _cell(path, patterns, cells)) for path in whole]


def _patterns(file: Path) -> dict[str, list[str]]:
    values = read_yaml(file, f"--cells {file}")
    if not isinstance(values, dict) or not values:
        raise InvalidInput(f"--cells {file}: expected lines of the form CELL: [PATTERN, ...]")
    found = {}
    for cell, given in values.items():
        patterns = [given] if isinstance(given, str) else given
        if not isinstance(patterns, list) or not all(isinstance(one, str) and one for one in patterns):
            raise InvalidInput(
                f"--cells {file}: {shown(cell)}: expected a list of patterns, got {shown(given)}"
            )
        found[str(cell)] = [str(file.absolute().parent / one) for one in patterns]
    return found


def _cell(path: Path, patterns: dict[str, list[str]], file: Path) -> str:
    places = [str(place) for place in (path, *path.parents)]
    named = [
        cell
        for cell, wanted in patterns.items()
        if any(fnmatchcase(place, one) for one in wanted for place in places)
    ]
    if len(named) != 1:
        raise InvalidInput(f"--cells {file}: {path} is from {', '.join(named) or 'no cell'}, expected one")
    return named[0]

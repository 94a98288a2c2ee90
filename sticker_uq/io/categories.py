# SPDX-License-Identifier: Apache-2.0
"""``categories.yaml`` in a COCO folder: maps the category names of a data set to logo, sticker or ignore."""

from __future__ import annotations

from pathlib import Path

from sticker_uq.io.reading import read_yaml, shown
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput, ObjectClass

CATEGORIES = "categories.yaml"
IGNORE = "ignore"
OWN_NAMES = {label.name.lower(): label for label in (ObjectClass.LOGO, ObjectClass.STICKER)}
_TARGETS = ", ".join((*OWN_NAMES, IGNORE))


def category_names(folder: Path) -> dict[str, ObjectClass | None]:
    """Maps names of annotation categories in the COCO ``folder``, in lower case, to their class; None: such objects are left out.

    ``logo`` and ``sticker`` are always known; ``categories.yaml``, if it exists, adds lines NAME: logo, sticker or ignore. Raises
    InvalidInput, naming the line, for a file that is not such a table.
    """
    names: dict[str, ObjectClass | None] = dict(OWN_NAMES)
    path = folder / CATEGORIES
    if not path.exists():
        return names
    content = read_yaml(path)
    if not isinstance(content, dict) or not content:
        raise InvalidInput(f"{path}: expected lines NAME: one of {_TARGETS}")
    for name, target in content.items():
        word = str(target).strip().lower()
        if word not in (*OWN_NAMES, IGNORE):
            raise InvalidInput(
                f"{path}: {printable(str(name))[:80]}: {shown(target)}: expected one of {_TARGETS}"
            )
        names[str(name).strip().lower()] = OWN_NAMES.get(word)
    return names


def check_used(folder: Path, known: set[str]) -> None:
    """Raise InvalidInput for a line of ``categories.yaml`` whose name is none of ``known``, the categories of the annotations."""
    unknown = set(category_names(folder)) - set(OWN_NAMES) - known
    if unknown:
        raise InvalidInput(
            f"{folder / CATEGORIES}: {min(unknown)!r} is not a category of the annotations; expected one of "
            f"{', '.join(sorted(known)) or 'none'}"
        )

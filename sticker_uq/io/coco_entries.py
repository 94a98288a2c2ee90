# SPDX-License-Identifier: Apache-2.0
"""What the entries of COCO annotations mean, one at a time: categories, ids, boxes; and ``categories.yaml``, which maps the
category names of a data set to logo, sticker or ignore.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from sticker_uq.io.reading import read_yaml, show_value
from sticker_uq.messages import printable
from sticker_uq.scene import InvalidInput, ObjectClass

CATEGORIES = "categories.yaml"
IGNORE = "ignore"
OWN_NAMES = {label.name.lower(): label for label in (ObjectClass.LOGO, ObjectClass.STICKER)}
_TARGETS = ", ".join((*OWN_NAMES, IGNORE))


def category_names(folder: Path) -> dict[str, ObjectClass | None]:
    """Classes by the names of annotation categories in ``folder``, in lower case; None: such objects are left out.

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
                f"{path}: {printable(str(name))[:80]}: {show_value(target)}: expected one of {_TARGETS}"
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


_ROUNDING = 1.0
"""Pixels by which a box may exceed its image, as labelling tools allow; such a box is clipped."""
LONGEST = 1_000_000
"""Pixels of a side of an image."""
Labels = Mapping[int | None, tuple[str | None, ObjectClass | None, bool]]
"""By category id: its name, its class (None: left out), and whether it is known."""
Corners = tuple[float, float, float, float]


def is_crowd(annotation: Mapping[str, Any], where: str) -> bool:
    """Whether ``annotation`` marks a region of several objects; InvalidInput, which calls it ``where``, if unclear."""
    value = annotation.get("iscrowd", 0)
    if not isinstance(value, int | float) or value not in (0, 1):
        raise InvalidInput(f"{where}: iscrowd {show_value(value)}: expected 0 or 1")
    return bool(value)


def is_difficult(annotation: Mapping[str, Any]) -> bool:
    """Whether ``annotation`` has a mark of converters for VOC's difficult objects."""
    return any(annotation.get(key) in (1, True, "1") for key in ("difficult", "ignore"))


def entries_of(path: Path, document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects in the list ``key`` of the annotations at ``path``; InvalidInput when it is no such list."""
    entries = document.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInput(f"{path}: expected {key!r} to be a list of objects")
    return entries


def category_labels(path: Path, document: Mapping[str, Any]) -> Labels:
    """What the categories of annotations at ``path`` mean, by id; InvalidInput for an id that is none or used twice."""
    labels: dict[int | None, tuple[str | None, ObjectClass | None, bool]] = {}
    means = category_names(path.parent)
    for category in entries_of(path, document, "categories"):
        name = str(category.get("name"))
        key = name.strip().lower()
        # Labelling tools also list parent categories; only categories in use must be known.
        try:
            labels[unique_id("category", category, labels)] = (name, means.get(key), key in means)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
    check_used(path.parent, {str(name).strip().lower() for name, _, _ in labels.values()})
    return labels


def label_of(annotation: Mapping[str, Any], labels_of: Labels) -> tuple[str, ObjectClass | None]:
    """What is wrong with the category of ``annotation`` ("" if nothing), and its class, None for one to be left out."""
    category = annotation.get("category_id")
    name, label, known = labels_of.get(as_id(category), (None, None, False))
    if known:
        return "", label
    called = f" ({show_value(name)})" if name is not None else ""
    expected = " or ".join(repr(own) for own in OWN_NAMES)
    hint = f", or a line {show_value(name)[1:-1]}: ... in {CATEGORIES}" if name is not None else ""
    text = " (text; expected the number of a category)" if isinstance(category, str) else ""
    return f"category_id {show_value(category)}{text}{called}: expected {expected}{hint}", None


def as_id(value: object) -> int | None:
    """``value`` as an id, also where it is a whole float; None where it is none."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if (whole or isinstance(value, int)) and not isinstance(value, bool) else None  # type: ignore[call-overload]


def box_fault(box: object, width: int, height: int) -> str:
    """What is wrong with a ``box`` (x, y, width, height) of an image of this size; "" if nothing."""
    if not is_box(box):
        return f"bbox {show_value(box)}: expected four numbers x, y, width, height"
    x, y, w, h = map(float, box)
    if w <= 0 or h <= 0:
        return f"bbox {box}: expected a width and height above 0"
    if not _area((x, y, x + w, y + h)):
        return f"bbox {box}: its width or height is 0 as it is stored (32 bit): expected a width and height above 0"
    exceeds = min(x, y) < -_ROUNDING or x + w > width + _ROUNDING or y + h > height + _ROUNDING
    if exceeds or x >= width or y >= height or x + w <= 0 or y + h <= 0:
        return f"bbox {box} is outside its image of {width}x{height}"
    if clip_box(box, width, height) is None:
        return (
            f"bbox {box} has a width or height of 0 in its image of {width}x{height}: expected both above 0"
        )
    return ""


def is_box(box: object) -> TypeGuard[list[float]]:
    if not isinstance(box, list) or len(box) != 4:
        return False
    return all(type(part) in (int, float) and abs(part) <= LONGEST for part in box)


def clip_box(box: Sequence[float], width: int, height: int) -> Corners | None:
    """The corners x1, y1, x2, y2 px of the part of a ``box`` (x, y, width, height) inside its image; None when it is empty."""
    x, y, w, h = map(float, box)
    x1, y1, x2, y2 = max(0.0, x), max(0.0, y), min(float(width), x + w), min(float(height), y + h)
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 and _area((x1, y1, x2, y2)) else None


def _area(corners: Corners) -> bool:
    x1, y1, x2, y2 = np.asarray(corners, np.float32)
    return bool(x2 > x1 and y2 > y1)


def unique_id(kind: str, entry: Mapping[str, Any], known: Collection[int | None]) -> int:
    identity = as_id(entry.get("id"))
    if identity is None:
        text = " is text" if isinstance(entry.get("id"), str) else ""
        raise InvalidInput(f"{kind} id {show_value(entry.get('id'))}{text}: expected an integer")
    if identity in known:
        raise InvalidInput(f"{kind} id {identity} is used twice; expected every id once")
    return identity


def text_of(where: str, entry: Mapping[str, Any], key: str, expected: str) -> str:
    """The text of a field of the image at ``where``, "" without; InvalidInput for anything else, with what was ``expected``."""
    text = entry.get(key, "")
    if not isinstance(text, str):
        raise InvalidInput(f"{where}: {key} {show_value(text)}: expected {expected}")
    return text

# SPDX-License-Identifier: Apache-2.0
"""YOLO: one text file for each picture, with lines CLASS X Y WIDTH HEIGHT in fractions of the picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sticker_uq.io.faults import Faults
from sticker_uq.io.reading import MIB, read_text, read_yaml, shown
from sticker_uq.lab.datasets.importing.labelled_picture import (
    NamedObject,
    NamedPicture,
    PictureFinder,
    bounding,
    files_below,
    number,
)
from sticker_uq.scene import InvalidInput

NAME_LISTS = ("classes.txt", "obj.names")
_MOST = 16 * MIB


def read_yolo(names_file: Path, finder: PictureFinder, faults: Faults) -> list[NamedPicture]:
    """The pictures that have a label file; the names of the classes are in ``names_file``, YAML or one name a line.

    A label file lies beside its picture, or in ``labels`` where that has ``images`` in its path. A picture without one was not
    labelled and is left out; with an empty one it shows no object. Of polygons the box around them is taken.
    """
    names = _class_names(names_file)
    found = []
    for picture in finder.pictures:
        labels = _labels_of(picture)
        if labels is not None:
            with faults.collected():
                found.append(NamedPicture(picture, None, _objects(labels, names)))
    return found


def names_files(root: Path) -> list[Path]:
    """The files below ``root`` that may name the classes of a YOLO data set."""
    return [
        path
        for path in files_below(root)
        if path.name in NAME_LISTS or (path.suffix in (".yaml", ".yml") and _has_names(path))
    ]


def _has_names(path: Path) -> bool:
    try:
        content = read_yaml(path)
    except InvalidInput:
        return False
    return isinstance(content, dict) and isinstance(content.get("names"), (list, dict))


def _class_names(path: Path) -> Mapping[int, str]:
    if path.suffix not in (".yaml", ".yml"):
        return dict(enumerate(line.strip() for line in read_text(path, _MOST).splitlines()))
    content = read_yaml(path)
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not all(type(key) is int for key in names):
        raise InvalidInput(f"{path}: names {shown(names)}: expected a list of the names of the classes")
    return {key: str(name).strip() for key, name in names.items()}


def _labels_of(picture: Path) -> Path | None:
    """The label file of ``picture``, None without one."""
    parts = list(picture.with_suffix(".txt").parts)
    candidates = [picture.with_suffix(".txt")]
    for index in reversed(range(len(parts) - 1)):
        if parts[index] == "images":
            candidates.append(Path(*parts[:index], "labels", *parts[index + 1 :]))
            break
    return next((path for path in candidates if path.is_file() and path.name not in NAME_LISTS), None)


def _objects(path: Path, names: Mapping[int, str]) -> tuple[NamedObject, ...]:
    found = []
    for index, line in enumerate(read_text(path, _MOST).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        where = f"{path}: line {index}"
        if len(words) != 5 and (len(words) < 7 or len(words) % 2 == 0):
            raise InvalidInput(
                f"{where}: {len(words)} values: expected CLASS X Y WIDTH HEIGHT, or CLASS and the points of a polygon"
            )
        kind = int(words[0]) if words[0].isdecimal() and len(words[0]) < 10 else -1
        if kind not in names:
            raise InvalidInput(
                f"{where}: class {shown(words[0])}: expected one of 0 to {max(names, default=-1)}"
            )
        values = [number(word, f"{where}: value") for word in words[1:]]
        if len(values) == 4:
            x, y, width, height = values
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        else:
            box = bounding(zip(values[::2], values[1::2], strict=True))
        found.append(NamedObject(names[kind], box, where))
    return tuple(found)

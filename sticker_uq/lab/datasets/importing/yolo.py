# SPDX-License-Identifier: Apache-2.0
"""YOLO: one text file for each picture, with lines CLASS X Y WIDTH HEIGHT in fractions of the picture."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import files_in
from sticker_uq.io.reading import MIB, read_text, read_yaml, shown
from sticker_uq.lab.datasets.importing import labelled_picture
from sticker_uq.lab.datasets.importing.labelled_picture import number
from sticker_uq.scene import InvalidInput

NAME_LISTS = ("classes.txt", "obj.names")
_MOST = 16 * MIB
_YAML = (".yaml", ".yml")


def read_yolo(
    names_file: Path, root: Path, finder: labelled_picture.PictureFinder, faults: Faults, counts: LabelCounts
) -> list[labelled_picture.NamedPicture]:
    """The pictures that have a label file; the names of the classes are in ``names_file``, YAML or one name a line.

    A label file lies beside its picture, or in ``labels`` where that has ``images`` in its path. A picture without one was not
    labelled and is left out; with an empty one it shows no object. Of polygons the box around them is taken. A label file below
    ``root`` that belongs to no picture is a fault.
    """
    names, points = class_names(names_file)
    found = []
    used: dict[Path, Path] = {}
    unlabelled = []
    for picture in finder.pictures:
        labels = _labels_of(picture)
        if labels is None:
            unlabelled.append(picture)
        elif (other := used.setdefault(labels.resolve(), picture)) != picture:
            faults.add(f"{labels}: belongs to {other} and to {picture}; give each picture a name of its own")
        else:
            with faults.collected():
                lines = _lines(labels)
                counts.objects += len(lines)
                objects = tuple(
                    _object(f"{labels}: line {number}", words, names, points) for number, words in lines
                )
                found.append(
                    labelled_picture.NamedPicture(picture, None, objects, str(labels), fractions=True)
                )
    counts.pictures += len(used)
    counts.note("pictures without a label file", unlabelled)
    folders = {path.parent for path in used}
    for path in files_in(root, below=True):
        left = path.suffix.lower() == ".txt" and path.name not in NAME_LISTS and path.resolve() not in used
        if left and (
            path.resolve().parent in folders or "labels" in map(str.lower, path.relative_to(root).parts)
        ):
            with faults.collected():
                _leftover(path, counts)
    return found


def _leftover(path: Path, counts: LabelCounts) -> None:
    """Raise InvalidInput for a label file without a picture; a text of another kind and an empty file are noted."""
    labels = [words for _, words in _lines(path) if len(words) > 4 and all(map(_is_number, words[1:5]))]
    if labels:
        raise InvalidInput(
            f"{path}: has {len(labels)} labels, but there is no picture for it; give the folder of the pictures with --images, "
            "or remove it"
        )
    counts.note("text files that belong to no picture", [path])


def _is_number(word: str) -> bool:
    try:
        return abs(float(word)) < float("inf")
    except ValueError:
        return False


def names_files(root: Path) -> list[Path]:
    return [
        path
        for path in files_in(root, below=True)
        if path.name in NAME_LISTS or (path.suffix.lower() in _YAML and _has_names(path))
    ]


def _has_names(path: Path) -> bool:
    content = read_yaml(path)
    return isinstance(content, dict) and isinstance(content.get("names"), (list, dict))


def class_names(path: Path) -> tuple[Mapping[int, str], int]:
    """The names of the classes by number, and how many key point values each object has, 0 without."""
    if path.suffix.lower() not in _YAML:
        return dict(enumerate(line.strip() for line in read_text(path, _MOST).splitlines())), 0
    content = read_yaml(path)
    names, shape = (content.get(key) if isinstance(content, dict) else None for key in ("names", "kpt_shape"))
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not all(type(key) is int for key in names):
        raise InvalidInput(f"{path}: names {shown(names)}: expected a list of the names of the classes")
    shape = [0, 0] if shape is None else shape
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(one) is int for one in shape):
        raise InvalidInput(f"{path}: kpt_shape {shown(shape)}: expected two integers")
    return {key: str(name).strip() for key, name in names.items()}, shape[0] * shape[1]


def _labels_of(picture: Path) -> Path | None:
    folders, parts = [picture.parent], picture.parent.parts
    for index in reversed(range(len(parts))):
        if parts[index].lower() == "images":
            folders += [Path(*parts[:index], name, *parts[index + 1 :]) for name in ("labels", "Labels")]
            break
    # Label Studio writes the name of a label file, and not that of its picture, as in an address
    names = [f"{stem}{suffix}" for stem in (picture.stem, quote(picture.stem)) for suffix in (".txt", ".TXT")]
    candidates = (folder / name for folder in folders for name in names if name not in NAME_LISTS)
    return next((path for path in candidates if path.is_file()), None)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    lines = ((number, line.split()) for number, line in enumerate(read_text(path, _MOST).splitlines(), 1))
    return [(number, words) for number, words in lines if words]


def _object(
    where: str, words: list[str], names: Mapping[int, str], points: int
) -> labelled_picture.NamedObject:
    whole = words[0].removesuffix(".0")  # some exporters write all numbers as floats
    kind = int(whole) if whole.isdecimal() and len(whole) < 10 else -1
    if kind not in names:
        raise InvalidInput(f"{where}: class {shown(words[0])}: expected one of 0 to {max(names, default=-1)}")
    return labelled_picture.named_object(names[kind], where, partial(_box, where, words[1:], points))


def _box(where: str, words: list[str], points: int) -> labelled_picture.Corners:
    count = len(words) + 1
    if points and len(words) == 4 + points:
        words = words[:4]
    if len(words) != 4 and (points or len(words) < 6 or len(words) % 2):
        confidence = "; a prediction with its confidence is no label" if len(words) == 5 else ""
        raise InvalidInput(
            f"{where}: {count} values: expected CLASS X Y WIDTH HEIGHT, or CLASS and the points of a polygon{confidence}"
        )
    values = [number(word, f"{where}: value") for word in words]
    if len(values) == 4:
        x, y, width, height = values
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return labelled_picture.bounding(zip(values[::2], values[1::2], strict=True))

# SPDX-License-Identifier: Apache-2.0
"""YOLO: one text file for each picture, with lines CLASS X Y WIDTH HEIGHT in fractions of the picture."""

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import files_in
from sticker_uq.io.images import PICTURE_SUFFIXES
from sticker_uq.io.reading import MIB, read_text, read_yaml, show_value
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing import named_picture, schemas
from sticker_uq_lab.datasets.importing.named_picture import CENTRE, READINGS, Corners, file_key, number

NAME_LISTS = ("classes.txt", "obj.names", "_darknet.labels")
YOLO_TEXTS = "YOLO without a list of the names of the classes"
_MOST = 16 * MIB
_YAML = (".yaml", ".yml")
_LARGEST = 2.0
"""A fraction of a picture above this is none: pixels, or percent."""


def read_yolo(
    names_file: Path,
    root: Path,
    finder: named_picture.PictureFinder,
    faults: Faults,
    counts: LabelCounts,
    keys: schemas.Keys,
) -> list[named_picture.NamedPicture]:
    """The pictures that have a label file; the names of the classes are in ``names_file``, YAML or one name a line.

    A label file lies beside its picture, in ``labels`` where that has ``images`` in its path, or in ``root`` or its ``labels`` as
    its picture lies in --images. A picture without one was not labelled and is left out; with an empty one it shows no object. Of
    polygons the box around them is taken. A label file below ``root`` that belongs to no picture is a fault.
    """
    names, points = class_names(names_file, keys)
    found = []
    used: dict[Path, Path] = {}
    unlabelled, boxed, polygons, uploads = [], list[str](), 0, _uploads(root)
    for picture in finder.pictures:
        labels = _labels_of(picture, root, finder.chosen, uploads)
        if labels is None:
            unlabelled.append(picture)
        elif (other := used.setdefault(labels.resolve(), picture)) != picture:
            faults.add(f"{labels}: belongs to {other} and to {picture}; give each picture a name of its own")
        else:
            with faults.collect():
                lines = _lines(labels)
                counts.objects += len(lines)
                objects = []
                for line, words in lines:
                    where = f"{labels}: line {line}"
                    objects.append(_object(where, words, names, points))
                    if not points and len(words) > 6 and not objects[-1].fault:
                        polygons += 1
                        boxed += [where] if _starts_with_box(list(map(float, words[1:]))) else []
                found.append(
                    named_picture.NamedPicture(picture, None, tuple(objects), str(labels), fractions=True)
                )
    if 2 * len(boxed) > polygons:
        faults.add(
            f"{boxed[0]}: the first four values are a box that holds the rest, as in {len(boxed)} of {polygons} such "
            f"lines: key points, or a polygon after its box; expected kpt_shape in {names_file}, or lines of polygons alone"
        )
    counts.pictures += len(used)
    counts.note("pictures without a label file", unlabelled)
    _tell_lists(names_file, list(used.values()), counts)
    stems = {file_key(picture.stem) for picture in finder.pictures}
    folders = {path.parent for path in used}
    for path in files_in(root, below=True):
        if path.suffix.lower() != ".txt" or path.name in NAME_LISTS or path.resolve() in used:
            continue
        near = (
            not used
            or path.resolve().parent in folders
            or "labels" in map(str.lower, path.relative_to(root).parts)
        )
        with faults.collect():
            if (count := labels_in(path)) and (near or file_key(path.stem) in stems) and not _is_dota(path):
                raise InvalidInput(
                    f"{path}: has {count} labels, but there is no picture for it; give the folder of the pictures with --images, "
                    "or remove it. Label files are looked for beside the picture, in labels/ for images/, and for IMAGES/a/b.jpg "
                    "as SOURCE/a/b.txt and SOURCE/labels/a/b.txt"
                )
            if near:
                counts.note("text files that belong to no picture", [path])
    return found


def _is_dota(path: Path) -> bool:
    return path.parent.name.lower().startswith("labeltxt")


def labels_in(path: Path) -> int:
    """Lines of the text at ``path`` that have the numbers of a box or more."""
    return sum(len(words) > 4 and sum(map(_is_number, words)) >= 4 for _, words in _lines(path))


def _is_number(word: str) -> bool:
    try:
        return abs(float(word)) < float("inf")
    except ValueError:
        return False


def _starts_with_box(values: Sequence[float]) -> bool:
    """Whether the first four of ``values`` are a box round the points of the rest, and its size is none of the points."""
    x1, y1, x2, y2 = READINGS[CENTRE](*values[:4])
    left, top, right, bottom = named_picture.bounding_box(zip(values[4::2], values[5::2], strict=True))
    within = min(left - x1, top - y1, x2 - right, y2 - bottom) > -0.01
    tight = right - left > (x2 - x1) / 2 and bottom - top > (y2 - y1) / 2
    x, y, across, down = values[:4]
    left, top, right, bottom = min(left, x), min(top, y), max(right, x), max(bottom, y)
    lone = max(left - across, across - right, top - down, down - bottom) > max(right - left, bottom - top)
    return within and (tight or lone)


def _tell_lists(names_file: Path, pictures: Sequence[Path], counts: LabelCounts) -> None:
    """Say which of the labelled ``pictures`` the lists that data.yaml names (train: train.txt) leave out."""
    if names_file.suffix.lower() not in _YAML:
        return
    content = read_yaml(names_file)
    given = [content.get(key) for key in ("train", "val", "test")]
    texts = [str(one) for value in given for one in (value if isinstance(value, list) else [value])]
    folders = (names_file.parent / str(content.get("path") or "."), names_file.parent)
    files = [folder / one for one in texts if one.endswith(".txt") for folder in folders]
    files = [file for file in dict.fromkeys(files) if os.path.isfile(file)]
    lines = [line.strip() for file in files for line in read_text(file, _MOST).splitlines()]
    listed = {file_key(Path(line).name) for line in lines}
    missing = [picture for picture in pictures if file_key(picture.name) not in listed]
    if files and missing:
        are = "pictures are" if len(missing) > 1 else "picture is"
        names = ", ".join(dict.fromkeys(file.name for file in files))
        counts.remarks.append(f"{len(missing)} labelled {are} not in {names}, first {missing[0]}")


def names_files(root: Path) -> list[Path]:
    return [
        path
        for path in files_in(root, below=True)
        if path.name in NAME_LISTS or (path.suffix.lower() in _YAML and _has_names(path))
    ]


def _has_names(path: Path) -> bool:
    content = read_yaml(path)
    return isinstance(content, dict) and "names" in content


def class_names(path: Path, keys: schemas.Keys) -> tuple[Mapping[int, str], int]:
    """The names of the classes by number, and how many key point values each object has, 0 without."""
    if path.suffix.lower() not in _YAML:
        lines = [line.strip() for line in read_text(path, _MOST).rstrip().splitlines()]
        if "" in lines:
            raise InvalidInput(
                f"{path}: line {lines.index('') + 1} is empty; expected the name of a class in each"
            )
        return dict(enumerate(lines)), 0
    content = read_yaml(path)  # which refuses what PyYAML would take hours for
    if not isinstance(content, dict):
        raise InvalidInput(f"{path}: expected names, a list of the names of the classes")
    # YAML makes no, on and 1.0 something else than what is written
    names: Any = yaml.load(read_text(path, _MOST), yaml.BaseLoader).get("names")
    if not names or isinstance(names, str):
        raise InvalidInput(
            f"{path}: names {'is empty' if not names else show_value(names)}: expected a list of the names of the classes, "
            "indented below names:"
        )
    shape = keys.header(
        "yolo data.yaml", {str(key): value for key, value in content.items()}, str(path)
    ).kpt_shape
    if isinstance(names, list):
        names = {str(index): name for index, name in enumerate(names)}
    if not all(k.isdecimal() and isinstance(name, str) and name.strip() for k, name in names.items()):
        raise InvalidInput(f"{path}: names {show_value(names)}: expected a list of the names of the classes")
    if (count := content.get("nc")) not in (None, len(names)):
        raise InvalidInput(f"{path}: nc {show_value(count)}: contradicts names, which has {len(names)}")
    return {int(key): name.strip() for key, name in names.items()}, shape[0] * shape[1]


def _uploads(root: Path) -> dict[Path, Path]:
    """By their path without what Label Studio puts before the name of an upload: label files of a name that was uploaded once."""
    found: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in files_in(root, below=True):
        if uploaded := named_picture.UPLOADED.fullmatch(path.name):
            found[path.with_name(uploaded[1])].append(path)
    return {name: paths[0] for name, paths in found.items() if len(paths) == 1}


def _labels_of(picture: Path, root: Path, images: Path | None, uploads: Mapping[Path, Path]) -> Path | None:
    folders, parts = [picture.parent], picture.parent.parts
    if images is not None and images in picture.parents:
        within = picture.parent.relative_to(images)
        folders += [root / "labels" / within, root / within]
    for index in reversed(range(len(parts))):
        if parts[index].lower() == "images":
            folders += [Path(*parts[:index], name, *parts[index + 1 :]) for name in ("labels", "Labels")]
            break
    # Label Studio writes the name of a label file, and not that of its picture, as in an address
    names = [f"{stem}{suffix}" for stem in (picture.stem, quote(picture.stem)) for suffix in (".txt", ".TXT")]
    candidates = [folder / name for folder in folders for name in names if name not in NAME_LISTS]
    there = (path for path in candidates if path.is_file())
    return next(there, next((uploads[path] for path in candidates if path in uploads), None))


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    lines = ((number, line.split()) for number, line in enumerate(read_text(path, _MOST).splitlines(), 1))
    return [(number, words) for number, words in lines if words]


def _object(where: str, words: list[str], names: Mapping[int, str], points: int) -> named_picture.NamedObject:
    whole = words[0].removesuffix(".0")  # some exporters write all numbers as floats
    kind = int(whole) if whole.isdecimal() and len(whole) < 10 else -1
    if kind not in names:
        raise InvalidInput(
            f"{where}: class {show_value(words[0])}: expected one of 0 to {max(names, default=-1)}"
        )
    return named_picture.named_object(names[kind], where, partial(_box, where, words[1:], points))


def _box(where: str, words: list[str], points: int) -> named_picture.Shape:
    count = len(words) + 1
    if points and len(words) == 4 + points:
        words = words[:4]
    if len(words) != 4 and (points or len(words) < 6 or len(words) % 2):
        confidence = "; a prediction with its confidence is no label" if len(words) == 5 else ""
        raise InvalidInput(
            f"{where}: {count} values: expected CLASS X Y WIDTH HEIGHT, or CLASS and the points of a polygon{confidence}"
        )
    values = [number(word, f"{where}: value") for word in words]
    if max(values) > _LARGEST:
        raise InvalidInput(
            f"{where}: value {max(values):g}: expected fractions of the picture, and no pixels or percent"
        )
    if len(values) == 4:
        given: Corners = (values[0], values[1], values[2], values[3])
        return named_picture.Shape(READINGS[CENTRE](*given), (given, CENTRE))
    return named_picture.Shape(named_picture.bounding_box(zip(values[::2], values[1::2], strict=True)))


def text_with_labels(path: Path, stems: set[str]) -> str:
    """What kind of labels the text at ``path`` seems to hold, "" if none: it is called as a picture, or names some."""
    picture = re.compile(rf"\S(?:{'|'.join(map(re.escape, PICTURE_SUFFIXES))})\b", re.I)
    try:
        lines = [words for _, words in _lines(path)]
    except InvalidInput:
        return ""
    if _is_dota(path) and any(len(words) > 8 for words in lines):
        return "oriented boxes (labelTxt of DOTA)"
    if file_key(path.stem) in stems and any(sum(map(_is_number, words)) > 4 for words in lines):
        return YOLO_TEXTS
    named = [line for line in (" ".join(words) for words in lines) if picture.search(line)]
    return (
        "lines of pictures and numbers"
        if any(len(re.findall(r"[\s,;]-?\d+", one)) > 3 for one in named)
        else ""
    )

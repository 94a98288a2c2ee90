# SPDX-License-Identifier: Apache-2.0
"""COCO object detection: one or more JSON files, with any categories."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sticker_uq.io.coco import as_id, entries_of, is_box, is_crowd, is_difficult, text_of
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.reading import read_json, shown
from sticker_uq.lab.datasets.importing.labelled_picture import (
    Corners,
    NamedObject,
    NamedPicture,
    PictureFinder,
    bounding,
    class_name,
    named_object,
    number,
    side,
)
from sticker_uq.scene import InvalidInput


def read_coco_files(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts
) -> list[NamedPicture]:
    """The pictures of the JSON ``files``; ids count within a file."""
    found: list[NamedPicture] = []
    for path in files:
        document = read_json(path)
        if not isinstance(document, dict):
            raise InvalidInput(f"{path}: expected a JSON object with images, annotations and categories")
        names = {c: entry.get("name") for c, entry in _with_id(path, document, "categories", faults).items()}
        images = _with_id(path, document, "images", faults)
        objects: dict[int, list[NamedObject]] = {identity: [] for identity in images}
        counts.pictures += len(document["images"])
        counts.objects += len(entries_of(path, document, "annotations"))
        for identity, annotation in _with_id(path, document, "annotations", faults).items():
            with faults.collected():
                image_id, one = _object(f"{path}: annotation {identity}", annotation, names)
                if image_id not in objects:
                    raise InvalidInput(f"{one.where}: image_id {shown(image_id)} is not among the images")
                objects[image_id].append(one)
        for identity, image in images.items():
            with faults.collected():
                where = f"{path}: image {identity}"
                given = image.get("width"), image.get("height")
                size = (
                    None
                    if given == (None, None)
                    else (side(given[0], f"{where}: width"), side(given[1], f"{where}: height"))
                )
                picture = finder.find(str(image.get("file_name")), path)
                laptop = text_of(where, image, "workpiece_id", "the name of a laptop")
                found.append(NamedPicture(picture, size, tuple(objects[identity]), where, laptop=laptop))
    return found


def _with_id(
    path: Path, document: Mapping[str, Any], key: str, faults: Faults
) -> dict[int, Mapping[str, Any]]:
    """The entries with an id of their own, by it; the others are ``faults``."""
    known: dict[int, Mapping[str, Any]] = {}
    for entry in entries_of(path, document, key):
        identity = as_id(given := entry.get("id"))
        if identity is None or identity in known:
            text = " is text" if isinstance(given, str) else ""
            faults.add(f"{path}: {key}: id {shown(given)}{text}: expected an integer that is used once")
        else:
            known[identity] = entry
    return known


def _object(where: str, annotation: Mapping[str, Any], names: Mapping[int, Any]) -> tuple[int, NamedObject]:
    given = {key: annotation.get(key) for key in ("image_id", "category_id")}
    image_id, category = map(as_id, given.values())
    if image_id is None or category is None or category not in names:
        said = ", ".join(
            f"{key} {shown(v)}{' (text)' if isinstance(v, str) else ''}" for key, v in given.items()
        )
        raise InvalidInput(f"{where}: {said}: expected the numbers of an image and a category of the file")
    crowd, difficult = is_crowd(annotation, where), is_difficult(annotation)
    name = class_name(names[category], where)
    return image_id, named_object(name, where, partial(_box, annotation, where), crowd, difficult)


def _box(annotation: Mapping[str, Any], where: str) -> Corners:
    """The box of an annotation; where a tool wrote none, the box around its polygons."""
    box, outline = annotation.get("bbox"), annotation.get("segmentation")
    if is_box(box):
        x, y, width, height = map(float, box)
        about = annotation.get("attributes")
        angle = math.radians(
            number(about.get("rotation", 0), f"{where}: rotation") if isinstance(about, dict) else 0
        )
        if angle:  # CVAT writes the box before it is turned around its middle
            cosine, sine = abs(math.cos(angle)), abs(math.sin(angle))
            across, down = width * cosine + height * sine, width * sine + height * cosine
            x, y, width, height = x + (width - across) / 2, y + (height - down) / 2, across, down
        return x, y, x + width, y + height
    polygons = (
        isinstance(outline, list) and bool(outline) and all(isinstance(one, list) and one for one in outline)
    )
    if box in (None, []) and polygons:
        values = [[number(value, f"{where}: segmentation") for value in one] for one in outline or ()]
        if all(len(one) % 2 == 0 for one in values):
            return bounding(pair for one in values for pair in zip(one[::2], one[1::2], strict=True))
    raise InvalidInput(
        f"{where}: bbox {shown(box)}: expected four numbers x, y, width, height, or polygons in segmentation; export boxes too"
    )

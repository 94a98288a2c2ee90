# SPDX-License-Identifier: Apache-2.0
"""COCO object detection: one or more JSON files, with any categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sticker_uq.io.coco import entries_of, is_box
from sticker_uq.io.faults import Faults
from sticker_uq.io.reading import read_json, shown
from sticker_uq.lab.datasets.importing.labelled_picture import (
    NamedObject,
    NamedPicture,
    PictureFinder,
    class_name,
    side,
)
from sticker_uq.scene import InvalidInput


def read_coco_files(files: Sequence[Path], finder: PictureFinder, faults: Faults) -> list[NamedPicture]:
    """The pictures of the JSON ``files``; ids count within a file."""
    found: list[NamedPicture] = []
    for path in files:
        document = read_json(path)
        if not isinstance(document, dict):
            raise InvalidInput(f"{path}: expected a JSON object with images, annotations and categories")
        names = {c.get("id"): c.get("name") for c in _with_id(path, document, "categories", faults)}
        objects: dict[int, list[NamedObject]] = {
            image["id"]: [] for image in _with_id(path, document, "images", faults)
        }
        for annotation in _with_id(path, document, "annotations", faults):
            with faults.collected():
                image_id, one = _object(path, annotation, names)
                if image_id not in objects:
                    raise InvalidInput(f"{one.where}: image_id {shown(image_id)} is not among the images")
                objects[image_id].append(one)
        for image in _with_id(path, document, "images", Faults(str(path))):
            with faults.collected():
                where = f"{path}: image {image['id']}"
                size = (
                    side(image.get("width"), f"{where}: width"),
                    side(image.get("height"), f"{where}: height"),
                )
                picture = finder.find(str(image.get("file_name")), path)
                found.append(NamedPicture(picture, size, tuple(objects[image["id"]])))
    return found


def _with_id(path: Path, document: Mapping[str, Any], key: str, faults: Faults) -> list[Mapping[str, Any]]:
    """The entries with an id of their own; the others are ``faults``."""
    known: dict[int, Mapping[str, Any]] = {}
    for entry in entries_of(path, document, key):
        identity = entry.get("id")
        if type(identity) is not int or identity in known:
            faults.add(f"{path}: {key}: id {shown(identity)}: expected an integer that is used once")
        else:
            known[identity] = entry
    return list(known.values())


def _object(path: Path, annotation: Mapping[str, Any], names: Mapping[Any, Any]) -> tuple[int, NamedObject]:
    where = f"{path}: annotation {annotation['id']}"
    image_id, category, box = (annotation.get(key) for key in ("image_id", "category_id", "bbox"))
    if type(image_id) is not int or type(category) is not int or category not in names:
        raise InvalidInput(
            f"{where}: image_id {shown(image_id)}, category_id {shown(category)}: expected an image and a category of the file"
        )
    if not is_box(box):
        raise InvalidInput(f"{where}: bbox {shown(box)}: expected four numbers x, y, width, height")
    x, y, width, height = map(float, box)
    return image_id, NamedObject(class_name(names[category], where), (x, y, x + width, y + height), where)

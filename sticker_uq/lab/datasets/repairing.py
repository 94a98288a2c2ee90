# SPDX-License-Identifier: Apache-2.0
"""Repair of the annotations of a COCO folder: boxes that no reader accepts are clipped to their image or left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sticker_uq.io.coco import (
    ANNOTATIONS,
    Labels,
    box_fault,
    category_labels,
    clipped,
    entries_of,
    is_box,
    label_of,
    load_annotations,
    parse_annotations,
)
from sticker_uq.io.reading import shown
from sticker_uq.scene import InvalidInput


def repaired_annotations(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The annotations of ``folder`` without faulty boxes, and one line for every change.

    A box that exceeds its image is clipped to it; a box without area in it, one that is no four numbers and one of no image are
    left out; an id that is used twice or is no integer gets a new one. Objects of an ignored category stay as they are. Raises
    :class:`InvalidInput` for what cannot be repaired: a broken file, an image or category with a fault.
    """
    path = folder / ANNOTATIONS
    document = load_annotations(folder)
    labels_of = category_labels(path, document)
    images = {
        image["id"]: image for image in entries_of(path, document, "images") if type(image.get("id")) is int
    }
    entries = entries_of(path, document, "annotations")
    following = max((e["id"] for e in entries if type(e.get("id")) is int), default=0) + 1
    kept: list[Mapping[str, Any]] = []
    used: set[int] = set()
    changes = []
    for entry in entries:
        identity = entry.get("id")
        name = f"annotation {shown(identity)}"
        if type(identity) is not int or identity in used:
            name, identity, following = f"{name}, now {following}", following, following + 1
            changes.append(f"{name}: expected an integer that is used once")
        used.add(identity)
        entry, change = _repaired({**entry, "id": identity}, images, labels_of)
        if change:
            changes.append(f"{name}{_picture(entry, images)}: {change}")
        if not change.startswith(_LEFT_OUT):
            kept.append(entry)
    result = {**document, "annotations": kept}
    parse_annotations(path, result, crowd=True)
    return result, changes


_LEFT_OUT = "left out"


def _repaired(
    entry: dict[str, Any], images: Mapping[int, Mapping[str, Any]], labels_of: Labels
) -> tuple[dict[str, Any], str]:
    """The annotation, changed if necessary, and what is changed ("" if nothing)."""
    fault, label = label_of(entry, labels_of)
    if fault or label is None:
        return entry, ""
    image_id = entry.get("image_id")
    image = images.get(image_id) if type(image_id) is int else None
    if image is None:
        return entry, f"{_LEFT_OUT}: image_id {shown(image_id)} is not among the images"
    width, height, box = image.get("width"), image.get("height"), entry.get("bbox")
    if type(width) is not int or type(height) is not int:
        return entry, ""  # a fault of the image, which is reported in the end
    fault = box_fault(box, width, height)
    if not fault:
        return entry, ""
    inside = clipped(box, width, height) if is_box(box) and min(box[2:]) > 0 else None
    if inside is None or not is_box(box):
        return entry, f"{_LEFT_OUT}: {fault}"
    x1, y1, x2, y2 = inside
    new = [x1, y1, x2 - x1, y2 - y1]
    area = new[2] * new[3]
    share = area / (box[2] * box[3])
    return {**entry, "bbox": new, "area": area}, f"clipped to {new}, {share:.0%} of it: {fault}"


def _picture(entry: Mapping[str, Any], images: Mapping[int, Mapping[str, Any]]) -> str:
    image_id = entry.get("image_id")
    image = images.get(image_id, {}) if type(image_id) is int else {}
    return f" of {shown(image['file_name'])[1:-1]}" if isinstance(image.get("file_name"), str) else ""


def check_not_source(folder: Path, target: Path) -> None:
    """InvalidInput when ``target`` is the annotations of the data set ``folder`` themselves."""
    source = folder / ANNOTATIONS
    if target.exists() and source.exists() and target.samefile(source):
        raise InvalidInput(f"{target}: is the file to repair; expected another name, which then replaces it")

# SPDX-License-Identifier: Apache-2.0
"""Pascal VOC: one XML file for each picture, as labelImg, CVAT and Roboflow write it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree.ElementTree import Element

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.lab.datasets.importing.labelled_picture import (
    Corners,
    NamedPicture,
    PictureFinder,
    class_name,
    named_object,
    number,
    side,
)
from sticker_uq.lab.datasets.importing.xml_files import read_xml, text_of
from sticker_uq.scene import InvalidInput


def read_voc(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts
) -> list[NamedPicture]:
    """The pictures of the XML ``files``. Coordinates are taken as they are, without VOC's offset of one pixel."""
    found = []
    for path in files:
        with faults.collected():
            root = read_xml(path)
            counts.pictures += 1
            counts.objects += sum(1 for _ in root.iter("object"))
            found.append(_picture(path, root, finder))
    return found


def _picture(path: Path, root: Element, finder: PictureFinder) -> NamedPicture:
    if root.tag != "annotation":
        raise InvalidInput(f"{path}: <{root.tag}>: expected <annotation>, as Pascal VOC has it")
    picture = finder.find(text_of(root, "filename") or path.stem, path)
    objects = []
    for index, element in enumerate(root.findall("object"), 1):
        where = f"{path}: object {index}"
        name = class_name(text_of(element, "name"), where)
        difficult = (text_of(element, "difficult") or "").lower() in ("1", "true")
        objects.append(named_object(name, where, partial(_box, element, where), difficult=difficult))
    return NamedPicture(picture, _size(path, root.find("size")), tuple(objects), str(path))


def _size(path: Path, size: Element | None) -> tuple[int, int] | None:
    """Width and height in px, None where labelImg did not write them or wrote 0: boxes are in pixels, and need no size."""
    texts = [None if size is None else text_of(size, key) for key in ("width", "height")]
    if all(text in (None, "", "0") for text in texts):
        return None
    width, height = (
        side(text, f"{path}: <{key}>") for text, key in zip(texts, ("width", "height"), strict=True)
    )
    return width, height


def _box(element: Element, where: str) -> Corners:
    box = element.find("bndbox")
    if box is None:
        kinds = ", ".join(f"<{child.tag}>" for child in element if len(child)) or "no shape"
        raise InvalidInput(
            f"{where}: {kinds}: expected a <bndbox>; export boxes, or draw the box around the object"
        )
    x1, y1, x2, y2 = (
        number(text_of(box, key), f"{where}: <{key}>") for key in ("xmin", "ymin", "xmax", "ymax")
    )
    return x1, y1, x2, y2

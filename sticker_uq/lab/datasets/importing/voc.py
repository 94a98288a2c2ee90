# SPDX-License-Identifier: Apache-2.0
"""Pascal VOC: one XML file for each picture, as labelImg, CVAT and Roboflow write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from sticker_uq.io.faults import Faults
from sticker_uq.lab.datasets.importing.labelled_picture import (
    NamedObject,
    NamedPicture,
    PictureFinder,
    class_name,
    number,
    side,
)
from sticker_uq.lab.datasets.importing.xml_files import read_xml, text_of
from sticker_uq.scene import InvalidInput


def read_voc(files: Sequence[Path], finder: PictureFinder, faults: Faults) -> list[NamedPicture]:
    """The pictures of the XML ``files``. Coordinates are taken as they are, without VOC's offset of one pixel."""
    found = []
    for path in files:
        with faults.collected():
            found.append(_picture(path, read_xml(path), finder))
    return found


def _picture(path: Path, root: Element, finder: PictureFinder) -> NamedPicture:
    if root.tag != "annotation":
        raise InvalidInput(f"{path}: <{root.tag}>: expected <annotation>, as Pascal VOC has it")
    picture = finder.find(text_of(root, "filename") or path.stem, path)
    size = root.find("size")
    if size is None:
        raise InvalidInput(f"{path}: no <size>; expected the width and height of the picture")
    width, height = (side(text_of(size, key), f"{path}: <{key}>") for key in ("width", "height"))
    objects = []
    for index, element in enumerate(root.findall("object"), 1):
        where = f"{path}: object {index}"
        box = element.find("bndbox")
        if box is None:
            raise InvalidInput(f"{where}: no <bndbox>; expected a box")
        x1, y1, x2, y2 = (
            number(text_of(box, key), f"{where}: <{key}>") for key in ("xmin", "ymin", "xmax", "ymax")
        )
        objects.append(NamedObject(class_name(text_of(element, "name"), where), (x1, y1, x2, y2), where))
    return NamedPicture(picture, (width, height), tuple(objects))

# SPDX-License-Identifier: Apache-2.0
"""Pascal VOC (one XML file for each picture, as labelImg, CVAT and Roboflow write it) and CVAT for images 1.1 (one for all).

XML from outside is read to a limited size, without a document type, entities and references to other files.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.reading import MIB, marked_encoding, read_bytes, shown
from sticker_uq.lab.datasets.importing.labelled_picture import (
    Corners,
    NamedPicture,
    PictureFinder,
    bounding,
    class_name,
    named_object,
    number,
    side,
)
from sticker_uq.scene import InvalidInput

MOST_XML = 128 * MIB
"""Bytes of an XML file. The annotations of 300,000 pictures fit in."""


def read_xml(path: Path) -> Element:
    """The root of the XML file at ``path``; InvalidInput for one that is too long, broken or has a document type."""
    data = read_bytes(path, MOST_XML)
    try:
        # what a program re-encoded still declares the encoding of before
        encoding = marked_encoding(data)
        return fromstring(data.decode(encoding) if encoding else data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise InvalidInput(f"{path}: has a document type or entities, which are refused ({error})") from None
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an encoding that does not exist
        raise InvalidInput(f"{path}: not an XML file ({error})") from None


def text_of(element: Element, name: str) -> str | None:
    child = element.find(name)
    return None if child is None else (child.text or "").strip()


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
            found.append(_voc_picture(path, root, finder))
    return found


def _voc_picture(path: Path, root: Element, finder: PictureFinder) -> NamedPicture:
    if root.tag != "annotation":
        raise InvalidInput(f"{path}: <{root.tag}>: expected <annotation>, as Pascal VOC has it")
    picture = finder.find(text_of(root, "filename") or path.stem, path)
    objects = []
    for index, element in enumerate(root.findall("object"), 1):
        where = f"{path}: object {index}"
        name = class_name(text_of(element, "name"), where)
        difficult = (text_of(element, "difficult") or "").lower() in ("1", "true")
        objects.append(named_object(name, where, partial(_voc_box, element, where), difficult=difficult))
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


def _voc_box(element: Element, where: str) -> Corners:
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


_SHAPES = ("box", "polygon", "ellipse", "mask")
_NO_SHAPES = ("tag", "attribute")


def read_cvat(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts
) -> list[NamedPicture]:
    """The pictures of the XML ``files``; of polygons, ellipses, masks and turned boxes the box around them."""
    found = []
    for path in files:
        root = read_xml(path)
        if root.tag != "annotations":
            raise InvalidInput(f"{path}: <{root.tag}>: expected <annotations>, as CVAT for images 1.1 has it")
        if root.find("track") is not None:
            raise InvalidInput(f"{path}: is CVAT for video; export the task as CVAT for images 1.1")
        for element in root.iter("image"):
            counts.pictures += 1
            counts.objects += sum(shape.tag not in _NO_SHAPES for shape in element)
            counts.note(
                "tags of whole pictures",
                [f"{path}: image {shown(element.get('name'))}"] * len(element.findall("tag")),
            )
            with faults.collected():
                found.append(_picture(path, element, finder))
    return found


def _picture(path: Path, element: Element, finder: PictureFinder) -> NamedPicture:
    name = element.get("name", "")
    where = f"{path}: image {shown(name)}"
    width, height = (side(element.get(key), f"{where}: {key}") for key in ("width", "height"))
    objects = []
    for index, shape in enumerate(element, 1):
        if shape.tag in _NO_SHAPES:
            continue
        place = f"{where}: object {index}"
        objects.append(
            named_object(class_name(shape.get("label"), place), place, partial(_box, shape, place))
        )
    return NamedPicture(finder.find(name, path), (width, height), tuple(objects), where)


def _box(shape: Element, where: str) -> Corners:
    def value(key: str) -> float:
        return number(shape.get(key), f"{where}: {key}")

    if shape.tag not in _SHAPES:
        raise InvalidInput(
            f"{where}: <{shape.tag}> of class {shown(shape.get('label'))}: expected one of {', '.join(_SHAPES)}; draw a box "
            "in CVAT, or leave the class out with --ignore"
        )
    if shape.tag == "mask":
        left, top = value("left"), value("top")
        return left, top, left + value("width"), top + value("height")
    if shape.tag == "polygon":
        pairs = [pair.split(",") for pair in shape.get("points", "").split(";")]
        if not all(len(pair) == 2 for pair in pairs):
            raise InvalidInput(f"{where}: points {shown(shape.get('points'))}: expected x1,y1;x2,y2;...")
        return bounding((number(x, f"{where}: points"), number(y, f"{where}: points")) for x, y in pairs)
    if shape.tag == "ellipse":
        middle_x, middle_y = value("cx"), value("cy")
        half_x, half_y = value("rx"), value("ry")
    else:
        x1, y1, x2, y2 = (value(key) for key in ("xtl", "ytl", "xbr", "ybr"))
        middle_x, middle_y, half_x, half_y = (x1 + x2) / 2, (y1 + y2) / 2, (x2 - x1) / 2, (y2 - y1) / 2
    angle = math.radians(number(shape.get("rotation", "0"), f"{where}: rotation"))
    if angle:
        cosine, sine = abs(math.cos(angle)), abs(math.sin(angle))
        if shape.tag == "ellipse":
            half_x, half_y = (
                math.hypot(half_x * cosine, half_y * sine),
                math.hypot(half_x * sine, half_y * cosine),
            )
        else:
            half_x, half_y = half_x * cosine + half_y * sine, half_x * sine + half_y * cosine
    elif shape.tag == "box":
        return x1, y1, x2, y2
    return middle_x - half_x, middle_y - half_y, middle_x + half_x, middle_y + half_y

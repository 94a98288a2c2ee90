# SPDX-License-Identifier: Apache-2.0
"""Pascal VOC (one XML file for each picture, as labelImg, CVAT and Roboflow write it) and CVAT for images 1.1 (one for all).

XML from outside is read to a limited size, without a document type, entities and references to other files.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.reading import MIB, detect_encoding, read_bytes, show_value
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing.named_picture import (
    CORNERS,
    NamedObject,
    NamedPicture,
    PictureFinder,
    Shape,
    apart,
    bounding_box,
    named_object,
    number,
    same_name,
    sides,
    turn_box,
)
from sticker_uq_lab.datasets.importing.schemas import Keys, boxes_in

MOST_XML = 128 * MIB
"""Bytes of an XML file. The annotations of 300,000 pictures fit in."""
_PICTURES = ("JPEGImages", "images", "Images", "imgs")
"""Folders beside that of the XML files."""
STEM = "xml-name"
"""As an ignored key: the name of the XML file says nothing about the picture."""


def read_xml(path: Path) -> Element:
    """The root of the XML file at ``path``; InvalidInput for one that is too long, broken or has a document type."""
    data = read_bytes(path, MOST_XML)
    try:
        # what a program re-encoded still declares the encoding of before
        encoding = detect_encoding(data)
        return fromstring(data.decode(encoding) if encoding else data, forbid_dtd=True)
    except DefusedXmlException as error:
        raise InvalidInput(f"{path}: has a document type or entities, which are refused ({error})") from None
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an encoding that does not exist
        raise InvalidInput(f"{path}: not an XML file ({error})") from None


def content_of(element: Element) -> dict[str, Any]:
    """Attributes and children of ``element``: text, or what is in them; a list where there are several of a name."""
    found: dict[str, Any] = dict(element.attrib)
    for child in element:
        inner = content_of(child)
        value = inner if inner else (child.text or "").strip()
        if child.tag in found:
            before = found[child.tag]
            found[child.tag] = [*(before if isinstance(before, list) else [before]), value]
        else:
            found[child.tag] = value
    return found


def read_voc(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts, keys: Keys
) -> list[NamedPicture]:
    """The pictures of the XML ``files``. Coordinates are taken as they are, without VOC's offset of one pixel."""
    found = []
    for path in files:
        with faults.collect():
            root = read_xml(path)
            if root.tag != "annotation":
                raise InvalidInput(f"{path}: <{root.tag}>: expected <annotation>, as Pascal VOC has it")
            counts.pictures += 1
            counts.objects += sum(1 for _ in root.iter("object"))
            keys.boxes[path] += sum(boxes_in(one) for one in root.findall("object"))
            content = keys.header("voc file", content_of(root), str(path))
            size = keys.header("voc size", content.size or {}, f"{path}: <size>")
            objects = [
                _voc_object(content_of(one), f"{path}: object {index}", keys)
                for index, one in enumerate(root.findall("object"), 1)
            ]
            # boxes are in pixels, and need no size: labelImg sometimes writes none, or 0
            given = sides(size.width, size.height, f"{path}: <size>", (None, "0"))
            found.append(
                NamedPicture(_voc_picture(path, content, finder, keys), given, tuple(objects), str(path))
            )
    return found


def _voc_picture(path: Path, content: Any, finder: PictureFinder, keys: Keys) -> Path:
    """The picture that <filename> and the name of the file agree on, and the folders of <path>."""
    beside = finder.find_pictures(path.stem)
    if not content.filename:
        return finder.find(path.stem, path)
    same_name(str(path), "<filename>", content.filename, content.path, finder)
    called = finder.find_pictures(content.filename)
    if STEM in keys.drop_ignored({STEM: 0}) and beside and called and not set(beside) & set(called):
        raise InvalidInput(
            f"{path}: <filename> names {called[0]}, and the name of the file {beside[0]}; choose with --ignore-key filename (by "
            f"the name of the file) or --ignore-key {STEM} (by <filename>)"
        )
    near = [
        one for one in called if one in beside and (one.parent == path.parent or one.parent.name in _PICTURES)
    ]
    folders = content.path.replace("\\", "/").rpartition("/")[0] or content.folder
    folders = "" if len(near) == 1 else folders
    return finder.find(f"{folders}/{content.filename}" if folders else content.filename, path)


def _voc_object(content: dict[str, Any], where: str, keys: Keys) -> NamedObject:
    difficult = str(content.get("difficult", "")).lower() in ("1", "true")
    return named_object(
        content.get("name"), where, partial(_voc_box, content, where, keys), difficult=difficult
    )


def _voc_box(content: dict[str, Any], where: str, keys: Keys) -> Shape:
    shape = content.get("bndbox")
    if not isinstance(shape, dict):
        kinds = (
            ", ".join(f"<{key}>" for key, value in content.items() if isinstance(value, dict)) or "no shape"
        )
        kinds = f"{len(shape)} <bndbox>" if isinstance(shape, list) else kinds
        raise InvalidInput(
            f"{where}: {kinds}: expected a <bndbox>; export boxes, or draw the box around the object"
        )
    one = keys.read("voc object", content, where)
    if one.type not in ("", "bndbox"):
        raise InvalidInput(f"{where}: <type> {show_value(one.type)}: expected bndbox")
    box = keys.read("voc bndbox", shape, f"{where}: <bndbox>")
    corners = (box.xmin, box.ymin, box.xmax, box.ymax)
    about, unknown = _attributes(one.attributes, where, keys)
    around = turn_box(corners, about.rotation)
    if one.polygon:
        values = [number(value, f"{where}: <polygon>") for value in one.polygon.values()]
        outline = (
            bounding_box(zip(values[::2], values[1::2], strict=True)) if len(values) % 2 == 0 else corners
        )
        if apart(outline, corners) and apart(outline, around):
            raise InvalidInput(
                f"{where}: <bndbox> {list(corners)} contradicts <polygon>, whose box is {list(outline)}; correct it, or give "
                "--ignore-key polygon if the box is right"
            )
    return Shape(around, (corners, CORNERS), one.unknown + box.unknown + unknown)


def _attributes(given: Any, where: str, keys: Keys) -> tuple[Any, tuple[str, ...]]:
    """What CVAT and Datumaro write about an object, as pairs of name and value."""
    pairs = given.get("attribute") if isinstance(given, dict) else None
    named = {
        str(one.get("name")): one.get("value")
        for one in (pairs if isinstance(pairs, list) else [pairs])
        if isinstance(one, dict)
    }
    about = keys.read("coco attributes", named, f"{where}: <attributes>")
    return about, about.unknown


_SHAPES = ("box", "polygon", "ellipse", "mask")


def read_cvat(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts, keys: Keys
) -> list[NamedPicture]:
    """The pictures of the XML ``files``; of polygons, ellipses, masks and turned boxes the box around them."""
    found = []
    for path in files:
        root = read_xml(path)
        if root.tag != "annotations":
            raise InvalidInput(f"{path}: <{root.tag}>: expected <annotations>, as CVAT for images 1.1 has it")
        if root.find("track") is not None:
            raise InvalidInput(f"{path}: is CVAT for video; export the task as CVAT for images 1.1")
        keys.header("cvat file", content_of(root), str(path))
        keys.boxes[path] += boxes_in(root)
        subsets = {element.get("subset", "") for element in root.findall("image")} - {""}
        for element in root.findall("image"):
            name, width, height = (element.get(key) for key in ("name", "width", "height"))
            where = f"{path}: image {show_value(name)}"
            counts.pictures += 1
            shapes = [shape for shape in element if shape.tag != "tag"]
            counts.objects += len(shapes)
            counts.note("tags of whole pictures", [where] * len(element.findall("tag")))
            with faults.collect():
                subset = keys.header("cvat image", element.attrib, where).subset
                objects = tuple(
                    named_object(shape.get("label"), place, partial(_cvat_shape, shape, place, keys))
                    for index, shape in enumerate(shapes, 1)
                    for place in [f"{where}: object {index}"]
                )
                size = sides(width, height, where, ())
                place = _in_subset(name or "", subset, subsets, finder)
                found.append(NamedPicture(finder.find(place, path), size, objects, where))
    return found


def _in_subset(name: str, subset: str, subsets: set[str], finder: PictureFinder) -> str:
    """``name`` in the folder of its ``subset`` where pictures lie in such folders, as in the export of a project."""
    folders = {path.parents[name.count("/")].name for path in finder.find_pictures(name)}
    return f"{subset}/{name}" if subset and folders & subsets else name


def _cvat_shape(shape: Element, where: str, keys: Keys) -> Shape:
    if shape.tag not in _SHAPES:
        raise InvalidInput(
            f"{where}: <{shape.tag}> of class {show_value(shape.get('label'))}: expected one of {', '.join(_SHAPES)}; draw a box "
            "in CVAT, or leave the class out with --ignore"
        )
    one = keys.read(f"cvat {shape.tag}", content_of(shape), where)
    if shape.tag == "mask":
        # runs of pixels, which are longer than any side
        runs = [part.strip() for part in one.rle.split(",") if one.rle]
        area = sum(float(run) for run in runs if run.isdecimal())
        if len(runs) > 1 and (area != one.width * one.height or not all(map(str.isdecimal, runs))):
            raise InvalidInput(
                f"{where}: rle {show_value(one.rle)} of {area:g} pixels: expected the {one.width:g} x {one.height:g} of its box"
            )
        return Shape((one.left, one.top, one.left + one.width, one.top + one.height), None, one.unknown)
    if shape.tag == "polygon":
        pairs = [pair.split(",") for pair in one.points.split(";")]
        if not all(len(pair) == 2 for pair in pairs):
            raise InvalidInput(f"{where}: points {show_value(one.points)}: expected x1,y1;x2,y2;...")
        points = ((number(x, f"{where}: points"), number(y, f"{where}: points")) for x, y in pairs)
        return Shape(bounding_box(points), None, one.unknown)
    if shape.tag == "ellipse":
        box = one.cx - one.rx, one.cy - one.ry, one.cx + one.rx, one.cy + one.ry
        return Shape(turn_box(box, one.rotation, ellipse=True), None, one.unknown)
    corners = (one.xtl, one.ytl, one.xbr, one.ybr)
    return Shape(turn_box(corners, one.rotation), (corners, CORNERS), one.unknown)

# SPDX-License-Identifier: Apache-2.0
"""COCO object detection (one or more JSON files, with any categories), and Label Studio: the JSON export (also JSON-MIN), with
boxes in percent of the picture.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sticker_uq.io.coco import as_id, entries_of, is_box, is_crowd, is_difficult, text_of
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.images import PICTURE_SUFFIXES
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
                image_id, one = _coco_object(f"{path}: annotation {identity}", annotation, names)
                if image_id not in objects:
                    raise InvalidInput(f"{one.where}: image_id {shown(image_id)} is not among the images")
                objects[image_id].append(one)
        for identity, image in images.items():
            with faults.collected():
                where = f"{path}: image {identity}"
                given = image.get("width"), image.get("height")
                size = None
                if given != (None, None):
                    size = side(given[0], f"{where}: width"), side(given[1], f"{where}: height")
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


def _coco_object(
    where: str, annotation: Mapping[str, Any], names: Mapping[int, Any]
) -> tuple[int, NamedObject]:
    given = {key: annotation.get(key) for key in ("image_id", "category_id")}
    image_id, category = map(as_id, given.values())
    if image_id is None or category is None or category not in names:
        said = ", ".join(
            f"{key} {shown(v)}{' (text)' if isinstance(v, str) else ''}" for key, v in given.items()
        )
        raise InvalidInput(f"{where}: {said}: expected the numbers of an image and a category of the file")
    crowd, difficult = is_crowd(annotation, where), is_difficult(annotation)
    name = class_name(names[category], where)
    return image_id, named_object(name, where, partial(_coco_box, annotation, where), crowd, difficult)


def _coco_box(annotation: Mapping[str, Any], where: str) -> Corners:
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


_PREFIX = 9  # Label Studio puts eight hex digits and a hyphen before the name of an upload
_UNREADABLE = (
    "the box of such a region is not read: draw a rectangle or a polygon in Label Studio (SAM can make rectangles), or leave its "
    "class out with --ignore"
)
_GEOMETRY = ("x", "points", "radiusX", "rle", "vertices", "imageDataURL", "sequence")
"""Keys of a region that is a shape."""
_ABOUT_SHAPES = (
    "choices", "taxonomy", "textarea", "text", "rating", "number", "datetime", "pairwise", "relation", "ranker"
)  # fmt: skip
"""What is said about a picture or a shape, and is no shape. A region of a shape repeats the geometry."""


def read_label_studio(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts
) -> list[NamedPicture]:
    """The annotated pictures of the JSON ``files``, of several annotations the one marked as ground truth, else the last."""
    found = []
    for path in files:
        tasks = read_json(path)
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise InvalidInput(f"{path}: expected a list of tasks, as Label Studio exports it")
        for index, task in enumerate(tasks, 1):
            with faults.collected():
                where = f"{path}: task {shown(task.get('id', index))}"
                results = _results(task, where, counts)
                if results is not None:
                    counts.pictures += 1
                    found.append(_picture(path, where, task, _shapes(results, where, counts), finder))
                else:
                    counts.note("tasks that nobody finished", [where])
    return found


def _results(task: Mapping[str, Any], where: str, counts: LabelCounts) -> list[Mapping[str, Any]] | None:
    if "annotations" not in task:
        lists = [value for value in task.values() if isinstance(value, list) and value]
        regions = [one for value in lists if all(isinstance(one, dict) for one in value) for one in value]
        if "data" in task or not regions:
            return None
        return [{"value": one, **one} for one in regions]
    annotations = task["annotations"]
    if not isinstance(annotations, list) or not all(isinstance(one, dict) for one in annotations):
        raise InvalidInput(f"{where}: annotations {shown(annotations)}: expected a list")
    usable = [one for one in annotations if not one.get("was_cancelled")]
    if not usable:
        return None
    best = next((one for one in usable if one.get("ground_truth")), usable[-1])
    counts.note("annotations of a task beside the one that counts", [where] * (len(usable) - 1))
    results = best.get("result")
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise InvalidInput(f"{where}: result {shown(results)}: expected a list of regions")
    return results


def _shapes(
    results: Sequence[Mapping[str, Any]], where: str, counts: LabelCounts
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The shapes of a task: place, class and region; InvalidInput for one without a label.

    Controls of their own for shape and label write two regions with the same id.
    """
    shapes: dict[object, tuple[str, list[object], Mapping[str, Any]]] = {}
    for index, region in enumerate(results, 1):
        value, kind = region.get("value"), region.get("type")
        if not isinstance(value, dict) or kind in _ABOUT_SHAPES:
            counts.note("choices, texts and relations", [f"{where}: region {index}"])
            continue
        labels = next((value[key] for key in value if key == "labels" or key.endswith("labels")), None)
        spans = labels is None and any(key in value for key in _ABOUT_SHAPES)
        if spans or not (any(key in value for key in _GEOMETRY) or _is_drawn(kind)):
            counts.note("choices, texts and relations", [f"{where}: region {index}"])
            continue
        given = labels if isinstance(labels, list) else [] if labels is None else [labels]
        key = (
            (region.get("id"), *(shown(value.get(part)) for part in ("x", "y", "points")))
            if "id" in region
            else index
        )
        place, known, first = shapes.get(key, (f"{where}: region {index}", [], region))
        if known and given:  # ids are copied by some converters
            key, place, known, first = index, f"{where}: region {index}", [], region
        shapes[key] = place, [*known, *given], first
    counts.objects += len(shapes)
    for place, labels, region in shapes.values():
        if len(labels) != 1:
            kind = region.get("type", "region")
            raise InvalidInput(
                f"{place}: {shown(kind)} with labels {shown(labels)}: expected a single one; label it or delete it"
            )
    return [(place, class_name(labels[0], place), region) for place, labels, region in shapes.values()]


def _is_drawn(kind: object) -> bool:
    return isinstance(kind, str) and kind.removesuffix("labels") in (
        "rectangle", "polygon", "ellipse", "brush", "bitmask", "keypoint", "vector", "videorectangle"
    )  # fmt: skip


def _picture(
    path: Path,
    where: str,
    task: Mapping[str, Any],
    shapes: Sequence[tuple[str, str, Mapping[str, Any]]],
    finder: PictureFinder,
) -> NamedPicture:
    picture = _found(_picture_name(task, where), path, finder)
    sizes = {
        (region.get("original_width"), region.get("original_height"))
        for _, _, region in shapes
        if _plain(region)
    }
    if len(sizes) != bool(shapes):
        raise InvalidInput(
            f"{where}: original_width and original_height {shown(sizes)}: expected the same of every region"
        )
    size = next(
        ((side(w, f"{where}: original_width"), side(h, f"{where}: original_height")) for w, h in sizes), None
    )
    objects = tuple(
        named_object(name, place, partial(_shape, region, size or (0, 0), place))
        for place, name, region in shapes
    )
    return NamedPicture(picture, size, objects, where)


def _shape(region: Mapping[str, Any], size: tuple[int, int], where: str) -> Corners:
    value, kind = region["value"], region.get("type")
    if region.get("image_rotation"):
        raise InvalidInput(
            f"{where}: image_rotation {shown(region['image_rotation'])}: expected 0; turn the picture itself"
        )
    drawn = str(kind).removesuffix("labels")
    point = (
        drawn == "keypoint"
        or "keypointlabels" in value
        or not ("width" in value or "radiusX" in value or "points" in value)
    )
    if drawn in ("brush", "bitmask", "vector", "videorectangle") or point:
        named = kind or next((key for key in value if key.endswith("labels")), "region")
        raise InvalidInput(f"{where}: {shown(named)}: {_UNREADABLE}")
    return _box(value, size, where)


def _plain(region: Mapping[str, Any]) -> bool:
    return all(not isinstance(region.get(key), (list, dict)) for key in ("original_width", "original_height"))


def _picture_name(task: Mapping[str, Any], where: str) -> str:
    data = task.get("data", task)
    for value in data.values() if isinstance(data, dict) else ():
        if not isinstance(value, str):
            continue
        try:
            address = urlsplit(value)
        except ValueError:
            continue
        query = parse_qs(address.query.replace("+", "%2B"))  # a space is never a plus there
        # local files, uploads to a cloud
        local = [query[key][0] for key in ("d", "filepath") if key in query]
        for name in (*local, unquote(address.path)):
            if name.lower().endswith(PICTURE_SUFFIXES):
                return name
    raise InvalidInput(f"{where}: data {shown(data)}: expected the address of a picture")


def _found(name: str, path: Path, finder: PictureFinder) -> Path:
    try:
        return finder.find(name, path)
    except InvalidInput:
        folder, _, file = name.rpartition("/")
        digits = file[: _PREFIX - 1]
        uploaded = file[_PREFIX - 1 : _PREFIX] == "-" and all(c in "0123456789abcdef" for c in digits)
        if not uploaded:
            raise
        return finder.find(f"{folder}/{file[_PREFIX:]}", path)


def _box(value: Mapping[str, Any], size: tuple[int, int], where: str) -> Corners:
    scale_x, scale_y = size[0] / 100, size[1] / 100

    def part(key: str) -> float:
        return number(value.get(key), f"{where}: {key}")

    if "points" in value:
        points = value["points"]
        if (
            not isinstance(points, list)
            or not points
            or not all(isinstance(p, list) and len(p) == 2 for p in points)
        ):
            raise InvalidInput(f"{where}: points {shown(points)}: expected a list of x, y")
        return bounding(
            (number(x, f"{where}: points") * scale_x, number(y, f"{where}: points") * scale_y)
            for x, y in points
        )
    x, y = part("x") * scale_x, part("y") * scale_y
    if "radiusX" in value:
        across, down = part("radiusX") * scale_x, part("radiusY") * scale_y
        return x - across, y - down, x + across, y + down
    width, height = part("width") * scale_x, part("height") * scale_y
    angle = math.radians(number(value.get("rotation", 0), f"{where}: rotation"))
    if not angle:
        return x, y, x + width, y + height
    # turned clockwise around its upper left corner
    cosine, sine = math.cos(angle), math.sin(angle)
    corners = ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height))
    return bounding((x + a * cosine - b * sine, y + a * sine + b * cosine) for a, b in corners)

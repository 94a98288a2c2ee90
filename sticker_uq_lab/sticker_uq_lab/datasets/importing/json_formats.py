# SPDX-License-Identifier: Apache-2.0
"""COCO object detection (one or more JSON files, with any categories), and Label Studio: the JSON export (also JSON-MIN), with
boxes in percent of the picture.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sticker_uq.io.coco_entries import as_id, entries_of, is_box, is_crowd, is_difficult
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.images import PICTURE_SUFFIXES
from sticker_uq.io.reading import read_json, show_value
from sticker_uq.scene import InvalidInput
from sticker_uq_lab.datasets.importing import schemas
from sticker_uq_lab.datasets.importing.named_picture import (
    READINGS,
    SIZES,
    Corners,
    NamedObject,
    NamedPicture,
    PictureFinder,
    Shape,
    apart,
    bounding_box,
    named_object,
    number,
    same_name,
    side,
    sides,
    turn_box,
)
from sticker_uq_lab.datasets.importing.schemas import Keys, boxes_in


def read_coco_files(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts, keys: Keys
) -> list[NamedPicture]:
    """The pictures of the JSON ``files``; ids count within a file."""
    found: list[NamedPicture] = []
    for path in files:
        document = read_json(path)
        keys.header("coco file", document, str(path))
        categories = _with_id(path, document, "categories", "coco category", keys, faults)
        names = {identity: one.name for identity, one in categories.items()}
        images = _with_id(path, document, "images", "coco image", keys, faults)
        objects: dict[int, list[NamedObject]] = {identity: [] for identity in images}
        counts.pictures += len(document["images"])
        counts.objects += len(list(entries_of(path, document, "annotations")))
        keys.boxes[path] += boxes_in(document)
        for identity, one in _with_id(path, document, "annotations", "coco annotation", keys, faults).items():
            with faults.collect():
                image_id, labelled = _coco_object(f"{path}: annotation {identity}", one, names, keys)
                if image_id not in objects:
                    raise InvalidInput(
                        f"{labelled.where}: image_id {show_value(image_id)} is not among the images"
                    )
                objects[image_id].append(labelled)
        for identity, image in images.items():
            with faults.collect():
                where = f"{path}: image {identity}"
                size = sides(image.width, image.height, where)
                picture = finder.find(image.file_name, path)
                same_name(where, "file_name", image.file_name, image.path, finder)
                found.append(
                    NamedPicture(picture, size, tuple(objects[identity]), where, laptop=image.workpiece_id)
                )
    return found


def _with_id(
    path: Path, document: Mapping[str, Any], key: str, part: str, keys: Keys, faults: Faults
) -> dict[int, Any]:
    """The entries with an id of their own, by it; the others are ``faults``."""
    known: dict[int, Any] = {}
    for entry in entries_of(path, document, key):
        if "segments_info" in entry:
            raise InvalidInput(f"{path}: is COCO panoptic (segments_info): export object detection")
        identity = as_id(given := entry.get("id"))
        if identity is None or identity in known:
            text = " is text" if isinstance(given, str) else ""
            faults.add(f"{path}: {key}: id {show_value(given)}{text}: expected an integer that is used once")
            continue
        with faults.collect():
            where = f"{path}: {key.removesuffix('s')} {identity}"
            known[identity] = keys.read(part, entry, where)
            if key != "annotations":  # those of a class that is ignored do not matter
                keys.note(part, known[identity].unknown, where)
    return known


def _coco_object(where: str, one: Any, names: Mapping[int, Any], keys: Keys) -> tuple[int, NamedObject]:
    given = {"image_id": one.image_id, "category_id": one.category_id}
    image_id, category = map(as_id, given.values())
    if image_id is None or category is None or category not in names:
        said = ", ".join(
            f"{key} {show_value(v)}{' (text)' if isinstance(v, str) else ''}" for key, v in given.items()
        )
        raise InvalidInput(f"{where}: {said}: expected the numbers of an image and a category of the file")
    if one.category_name and one.category_name != names[category]:
        said = f"category_name {show_value(one.category_name)}, but its category_id is that of {show_value(names[category])}"
        raise InvalidInput(f"{where}: {said}; expected the same")
    marks = {key: value for key, value in vars(one).items() if value is not None}
    crowd, difficult = is_crowd(marks, where), is_difficult(marks)
    name = names[category]
    return image_id, named_object(name, where, partial(_coco_box, one, where, keys), crowd, difficult)


def _coco_box(one: Any, where: str, keys: Keys) -> Shape:
    """The box of an annotation; where a tool wrote none, the box around its polygons."""
    outline = _outline(one.segmentation, where)
    attributes = one.attributes if isinstance(one.attributes, dict) else {}
    about = keys.read("coco attributes", attributes, f"{where}: attributes")
    unknown = one.unknown + about.unknown
    if one.bbox_mode not in (None, 1):
        raise InvalidInput(
            f"{where}: bbox_mode {show_value(one.bbox_mode)}: expected 1 (x, y, width, height)"
        )
    if one.bbox in (None, []) and outline and not about.rotation:
        return Shape(outline, None, unknown)
    if not is_box(one.bbox):
        raise InvalidInput(
            f"{where}: bbox {show_value(one.bbox)}: expected four numbers x, y, width, height, or polygons in "
            "segmentation; export boxes too"
        )
    x, y, width, height = map(float, one.bbox)
    given = (x, y, width, height)
    box = READINGS[SIZES](*given)
    # CVAT writes the box before it is turned around its middle
    around = turn_box(box, about.rotation)
    area = float(one.area) if type(one.area) in (int, float) else 0.0
    if outline and apart(outline, box) and apart(outline, around):
        agrees = "as corners they would agree" if not apart(outline, given) else "they lie apart"
        raise InvalidInput(
            f"{where}: bbox {one.bbox} contradicts segmentation, whose box is {_as_sizes(outline)}: {agrees}; "
            "correct it, or give --ignore-key segmentation if the box is right"
        )
    as_corners = _like(area, max(width - x, 0) * max(height - y, 0)) and not _like(area, width * height)
    if not outline and area and as_corners:
        raise InvalidInput(
            f"{where}: bbox {one.bbox} contradicts area {show_value(one.area)}: as corners they would agree; correct it, or give "
            "--ignore-key area if the box is right"
        )
    return Shape(around, (given, SIZES), unknown)


def _as_sizes(box: Corners) -> list[float]:
    return [round(value, 1) for value in (box[0], box[1], box[2] - box[0], box[3] - box[1])]


def _like(one: float, other: float) -> bool:
    return abs(one - other) <= 0.02 * max(one, other)


def _outline(segmentation: object, where: str) -> Corners | None:
    """The box around polygons; None where there are none."""
    if not isinstance(segmentation, list) or not segmentation:
        return None
    polygons = [segmentation] if all(type(one) in (int, float) for one in segmentation) else segmentation
    if not all(isinstance(one, list) and one and len(one) % 2 == 0 for one in polygons):
        return None
    values = [[number(value, f"{where}: segmentation") for value in one] for one in polygons]
    return bounding_box(pair for one in values for pair in zip(one[::2], one[1::2], strict=True))


_UPLOADED = re.compile(r"(?:.*/)?upload/\d+/(.*)")
_UNREADABLE = (
    "the box of such a region is not read: draw a rectangle or a polygon in Label Studio (SAM can make rectangles), or leave its "
    "class out with --ignore"
)
_SHAPES = {"ellipse": "radiusX", "polygon": "points", "rectangle": "width"}
"""By the kind of a region: the key of its value that no other shape has."""
_UNREAD = {
    "brush": "rle", "bitmask": "imageDataURL", "keypoint": "x", "vector": "vertices", "videorectangle": "sequence"
}  # fmt: skip
_REMARKS = (
    "choices", "taxonomy", "textarea", "text", "rating", "number", "datetime", "pairwise", "relation", "ranker",
    "hypertextlabels", "paragraphlabels", "timeserieslabels", "paragraphs", "start", "html", "reactcode"
)  # fmt: skip
"""What is said about a picture or a shape, and is no shape. A region of a shape repeats the geometry."""
FINISHED = {"annotation_id", "annotator"}
"""Keys that only JSON-MIN has, in a task that somebody finished."""
_Region = tuple[str, object, Any]


def is_task(one: object) -> bool:
    """Whether ``one`` is what only Label Studio writes: data with annotations, or JSON-MIN."""
    if not isinstance(one, dict):
        return False
    return {"data", "annotations"} <= set(one) or bool(FINISHED & set(one)) or bool(_min_regions(one))


def _min_regions(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The regions in a task of JSON-MIN."""
    lists = [value for value in task.values() if isinstance(value, list)]
    return [one for value in lists for one in value if isinstance(one, dict) and "original_width" in one]


def read_label_studio(
    files: Sequence[Path], finder: PictureFinder, faults: Faults, counts: LabelCounts, keys: Keys
) -> list[NamedPicture]:
    """The annotated pictures of the JSON ``files``, of several annotations the one marked as ground truth, else the last."""
    found = []
    for path in files:
        tasks = read_json(path)
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise InvalidInput(f"{path}: expected a list of tasks, as Label Studio exports it")
        keys.boxes[path] += boxes_in(tasks)
        for index, task in enumerate(tasks, 1):
            with faults.collect():
                where = f"{path}: task {show_value(task.get('id', index))}"
                results = _results(task, where, counts, keys)
                if results is None:
                    counts.note("tasks that nobody finished", [where])
                    continue
                counts.pictures += 1
                found.append(
                    _picture(path, where, task, _regions(results, where, counts, keys), finder, keys)
                )
    return found


def _results(
    task: Mapping[str, Any], where: str, counts: LabelCounts, keys: Keys
) -> list[Mapping[str, Any]] | None:
    if "data" not in task:
        return _min_results(task, where, keys)
    whole = keys.header("label-studio task", task, where)
    for kind in ("predictions", "drafts"):
        given = task.get(kind)
        others = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        counts.note(f"{kind} with regions", [where] * sum(boxes_in(one) > 0 for one in others))
    about = f"{where}: annotation"
    annotations = [keys.header("label-studio annotation", one, about) for one in whole.annotations]
    usable = [one for one in annotations if not one.was_cancelled]
    if not usable:
        return None
    best = next((one for one in usable if one.ground_truth), usable[-1])
    counts.note("annotations of a task beside the one that counts", [where] * (len(usable) - 1))
    return list[Mapping[str, Any]](best.result)


def _min_results(task: Mapping[str, Any], where: str, keys: Keys) -> list[Mapping[str, Any]] | None:
    if not is_task(task):
        raise InvalidInput(
            f"{where}: has neither data and annotations nor what JSON-MIN has; expected a task"
        )
    regions = _min_regions(task)
    odd = [
        key
        for key, value in keys.drop_ignored(task).items()
        if key in schemas.BOXES.split("|")
        or any(
            isinstance(one, list)
            or (isinstance(one, dict) and one not in regions and not set(one) <= {*_REMARKS})
            for one in (value if isinstance(value, list) else [value])
        )
    ]
    keys.note("label-studio task", tuple(odd), where)
    if not regions and not FINISHED & set(task):
        return None
    # a region of this export is the value and what belongs to it in one
    fields = schemas.SCHEMAS["label-studio"]["region"].types
    about = [{key: value for key, value in one.items() if key in fields} for one in regions]
    values = [{key: value for key, value in one.items() if key not in fields} for one in regions]
    return [{**one, "value": value} for one, value in zip(about, values, strict=True)]


def _regions(
    results: Sequence[Mapping[str, Any]], where: str, counts: LabelCounts, keys: Keys
) -> list[_Region]:
    """The shapes of a task: place, class and region; InvalidInput for one without a label.

    Controls of their own for shape and label write two regions with the same id.
    """
    shapes: dict[object, tuple[str, list[object], Any]] = {}
    for index, content in enumerate(results, 1):
        place = f"{where}: region {index}"
        kind, value = content.get("type"), content.get("value")
        if kind in _REMARKS or (isinstance(value, dict) and "start" in value and "x" not in value):
            counts.note("choices, texts and relations", [place])
            continue
        region = keys.read("label-studio region", content, place)
        if kind is not None and shape_name(kind) not in (*_SHAPES, *_UNREAD, "labels"):
            raise InvalidInput(
                f"{place}: type {show_value(kind)}: is neither a shape nor a remark of Label Studio"
            )
        labels = next((v for k, v in region.value.items() if k.endswith("labels")), None)
        given = labels if isinstance(labels, list) else [] if labels is None else [labels]
        place_of = [show_value(region.value.get(part)) for part in ("x", "y", "points")]
        key: object = index if region.id is None else (show_value(region.id), *place_of)
        first, known, one = shapes.get(key, (place, [], region))
        if known and given:  # ids are copied by some converters
            key, first, known, one = index, place, [], region
        shapes[key] = first, [*known, *given], one
    counts.objects += len(shapes)
    for place, labels, region in shapes.values():
        if len(labels) != 1:
            raise InvalidInput(
                f"{place}: {show_value(region.type or 'region')} with labels {show_value(labels)}: expected a single one; label "
                "it or delete it"
            )
    return [(place, labels[0], region) for place, labels, region in shapes.values()]


def shape_name(kind: object) -> str:
    return str(kind).removesuffix("labels") or "labels"


def _picture(
    path: Path,
    where: str,
    task: Mapping[str, Any],
    regions: Sequence[_Region],
    finder: PictureFinder,
    keys: Keys,
) -> NamedPicture:
    shown_in = {region.to_name for _, _, region in regions if isinstance(region.to_name, str)}
    data = task.get("data", task)
    names = _picture_names(keys.drop_ignored(data) if isinstance(data, dict) else {})
    if not names:
        raise InvalidInput(f"{where}: data {show_value(data)}: expected the address of a picture")
    if len(set(names.values())) > 1 or len(shown_in) > 1:
        views = f", and labels of {', '.join(sorted(shown_in))}" if len(shown_in) > 1 else ""
        raise InvalidInput(
            f"{where}: has {len(names)} pictures ({', '.join(names)}){views}; leave those out that were not labelled, with "
            "--ignore-key KEY, or export one picture a task"
        )
    (name,) = set(names.values())
    uploaded = _UPLOADED.fullmatch(name)  # the number of a project says nothing
    picture = finder.find(uploaded[1] if uploaded else name, path)
    # without one a region has no box, which matters only where its class does
    pairs = [(region.original_width, region.original_height) for _, _, region in regions]
    given = {show_value(pair): pair for pair in pairs if pair != (None, None)}
    if len(given) > 1:
        raise InvalidInput(
            f"{where}: original_width and original_height {', '.join(sorted(given))}: expected the same of every region"
        )
    size = sides(*next(iter(given.values())), f"{where}: original", ()) if given else None
    objects = tuple(
        named_object(name, place, partial(_shape, region, place, keys)) for place, name, region in regions
    )
    return NamedPicture(picture, size, objects, where)


def _shape(region: Any, where: str, keys: Keys) -> Shape:
    value, kind = region.value, shape_name(region.type)
    for key in ("image_rotation", "item_index"):
        if getattr(region, key):
            hint = "turn the picture itself" if key == "image_rotation" else "export one picture a task"
            raise InvalidInput(f"{where}: {key} {show_value(getattr(region, key))}: expected 0; {hint}")
    found = [name for name, key in _SHAPES.items() if key in value]
    named = next((key for key in value if key.endswith("labels")), "region")
    unread = kind in _UNREAD or shape_name(named) in _UNREAD or not found
    if unread:
        raise InvalidInput(f"{where}: {show_value(region.type or named)}: {_UNREADABLE}")
    said = {one for one in (kind, shape_name(named)) if one in _SHAPES}
    if len(found) > 1 or said - set(found):
        raise InvalidInput(
            f"{where}: is called {' and '.join(sorted(said))}, and has the keys of {' and '.join(found)}"
        )
    one = keys.read(f"label-studio {found[0]}", value, where)
    across = side(region.original_width, f"{where}: original_width") / 100
    down = side(region.original_height, f"{where}: original_height") / 100
    if found[0] == "polygon":
        box = bounding_box((x * across, y * down) for x, y in one.points)
    elif found[0] == "ellipse":
        x, y, half_x, half_y = one.x * across, one.y * down, one.radiusX * across, one.radiusY * down
        box = turn_box((x - half_x, y - half_y, x + half_x, y + half_y), one.rotation, ellipse=True)
    else:
        x, y = one.x * across, one.y * down
        box = turn_box((x, y, x + one.width * across, y + one.height * down), one.rotation, corner=True)
    if box[2] <= across and box[3] <= down:
        raise InvalidInput(
            f"{where}: lies within 0..1 of 100 percent; fractions would fill the picture: expected percent"
        )
    return Shape(box, None, region.unknown + one.unknown)


def _picture_names(data: Mapping[str, Any]) -> dict[str, str]:
    """The names of the pictures in ``data``, by key."""
    found: dict[str, str] = {}
    for key, value in data.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (name := _name_in(text)):
                found[key if key not in found else f"{key}, {len(found)}"] = name
    return found


def _name_in(text: str) -> str:
    try:
        address = urlsplit(text)
    except ValueError:
        return ""
    query = parse_qs(address.query.replace("+", "%2B"))  # a space is never a plus there
    # local files, uploads to a cloud
    local = [query[key][0] for key in ("d", "filepath") if key in query]
    return next(
        (one for one in (*local, unquote(address.path)) if one.lower().endswith(PICTURE_SUFFIXES)), ""
    )

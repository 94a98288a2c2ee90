# SPDX-License-Identifier: Apache-2.0
"""Label Studio: the JSON export (also JSON-MIN), with boxes in percent of the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sticker_uq.io.faults import Faults
from sticker_uq.io.reading import read_json, shown
from sticker_uq.io.sources import PICTURE_SUFFIXES
from sticker_uq.lab.datasets.importing.labelled_picture import (
    Corners,
    NamedObject,
    NamedPicture,
    PictureFinder,
    bounding,
    class_name,
    number,
    side,
)
from sticker_uq.scene import InvalidInput

_PREFIX = 9  # Label Studio puts eight hex digits and a hyphen before the name of an upload


def read_label_studio(files: Sequence[Path], finder: PictureFinder, faults: Faults) -> list[NamedPicture]:
    """The pictures of the JSON ``files`` that were annotated; tasks that nobody finished are left out.

    Of several annotations the one marked as ground truth counts, else the last.
    """
    found = []
    for path in files:
        tasks = read_json(path)
        if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
            raise InvalidInput(f"{path}: expected a list of tasks, as Label Studio exports it")
        for index, task in enumerate(tasks, 1):
            with faults.collected():
                where = f"{path}: task {shown(task.get('id', index))}"
                results = _results(task, where)
                if results is not None:
                    found.append(_picture(path, where, task, results, finder))
    return found


def _results(task: Mapping[str, Any], where: str) -> list[Mapping[str, Any]] | None:
    """The marked regions of a task, None when nobody annotated it."""
    if "annotations" not in task:
        if "data" in task:
            return None
        chosen = next(
            (v for v in task.values() if isinstance(v, list) and v and isinstance(v[0], dict)), None
        )
        return (
            None
            if chosen is None
            else _regions([{"value": one, **one} for one in chosen if isinstance(one, dict)], where)
        )
    annotations = task["annotations"]
    if not isinstance(annotations, list) or not all(isinstance(one, dict) for one in annotations):
        raise InvalidInput(f"{where}: annotations {shown(annotations)}: expected a list")
    usable = [one for one in annotations if not one.get("was_cancelled")]
    if not usable:
        return None
    best = next((one for one in usable if one.get("ground_truth")), usable[-1])
    return _regions(best.get("result"), where)


def _regions(results: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise InvalidInput(f"{where}: result {shown(results)}: expected a list of regions")
    return [
        one for one in results if isinstance(one.get("value"), dict) and _labels(one["value"]) is not None
    ]


def _labels(value: Mapping[str, Any]) -> Any:
    kinds = ("rectanglelabels", "polygonlabels", "ellipselabels", "labels")
    return next((value[kind] for kind in kinds if kind in value), None)


def _picture(
    path: Path,
    where: str,
    task: Mapping[str, Any],
    regions: Sequence[Mapping[str, Any]],
    finder: PictureFinder,
) -> NamedPicture:
    picture = _found(_picture_name(task, where), path, finder)
    sizes = {
        (region.get("original_width"), region.get("original_height")) for region in regions if _plain(region)
    }
    if len(sizes) != bool(regions):
        raise InvalidInput(
            f"{where}: original_width and original_height {shown(sizes)}: expected the same of every region"
        )
    size = next(
        ((side(w, f"{where}: original_width"), side(h, f"{where}: original_height")) for w, h in sizes), None
    )
    objects = []
    for index, region in enumerate(regions, 1):
        place = f"{where}: region {index}"
        labels = _labels(region["value"])
        if not isinstance(labels, list) or len(labels) != 1:
            raise InvalidInput(f"{place}: labels {shown(labels)}: expected a single one")
        if region.get("image_rotation"):
            raise InvalidInput(
                f"{place}: image_rotation {shown(region['image_rotation'])}: expected 0; turn the picture itself"
            )
        assert size is not None
        objects.append(NamedObject(class_name(labels[0], place), _box(region["value"], size, place), place))
    return NamedPicture(picture, size, tuple(objects))


def _plain(region: Mapping[str, Any]) -> bool:
    return all(not isinstance(region.get(key), (list, dict)) for key in ("original_width", "original_height"))


def _picture_name(task: Mapping[str, Any], where: str) -> str:
    """The path of the picture in the address that Label Studio has for it."""
    data = task.get("data", task)
    for value in data.values() if isinstance(data, dict) else ():
        if not isinstance(value, str):
            continue
        try:
            address = urlsplit(value)
        except ValueError:
            continue
        local = parse_qs(address.query).get("d", [""])[0]
        for name in (local, unquote(address.path)):
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
    """The box in px of a region in percent of a picture of ``size``."""
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

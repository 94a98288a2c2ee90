"""COCO folders of labelled pictures: `annotations.json` beside a folder `images/`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.categories import CATEGORIES, OWN_NAMES, category_names, check_used
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import read_image_file
from sticker_uq.io.outputs import check_output_folder
from sticker_uq.io.reading import child_path, read_json, shown
from sticker_uq.scene import InvalidInput, ObjectClass

ANNOTATIONS = "annotations.json"
IMAGE_FORMATS = ("jpg", "png")
_JPEG_QUALITY = 93
_ROUNDING = 1.0
"""Pixels by which a box may exceed its image, as labelling tools allow; such a box is clipped."""
LONGEST = 1_000_000
"""Pixels of a side of an image."""
_Labels = Mapping[int, tuple[str, ObjectClass | None, bool]]
"""By category id: its name, its class, and whether it is known."""


@dataclass(frozen=True)
class EncodedScene:
    """A rendered scene with its picture encoded, to be written to a COCO folder."""

    seed: int
    format: str
    data: bytes
    width: int
    height: int
    boxes: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    image_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the picture's entry."""
    box_fields: tuple[Mapping[str, Any], ...] = ()
    """Further fields of the annotations, one of each box or none at all."""


@dataclass(frozen=True)
class LabelledImage:
    """One picture of a COCO folder."""

    path: Path
    image_id: int
    width: int
    height: int
    boxes: npt.NDArray[np.float32]
    """(N,4) x1 y1 x2 y2 in pixels."""
    labels: npt.NDArray[np.int64]
    """(N,) ids of `ObjectClass`, whatever ids the file gives its categories."""


def encode_picture(image: npt.NDArray[np.uint8], image_format: str = "jpg") -> bytes:
    """The bytes of a file of a COCO folder with the picture (H, W, 3); InvalidInput for a format other than "jpg" or "png"."""
    if image_format not in IMAGE_FORMATS:
        raise InvalidInput(f"image format {image_format!r}: expected {' or '.join(IMAGE_FORMATS)}")
    options = (cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY) if image_format == "jpg" else ()
    _, data = cv2.imencode(f".{image_format}", image, options)
    return data.tobytes()


def write_coco(
    folder: str | os.PathLike[str],
    scenes: Iterable[EncodedScene],
    progress: Callable[[int], None] | None = None,
    description: str = "Procedural laptop scenes with logos and stickers",
) -> int:
    """Write scenes to a new COCO folder as they arrive; returns their number.

    `annotations.json` is written last and atomically: a folder without it was interrupted. `progress` is called with
    the number of pictures written so far. InvalidInput if the folder already holds a dataset or is a file;
    OSError (a full disk, no permission) propagates.
    """
    root = Path(folder)
    check_new_dataset(root)
    (root / "images").mkdir(parents=True, exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for scene in scenes:
        image_id = len(images) + 1
        name = f"images/{scene.seed:08d}.{scene.format}"
        with atomic_write(root / name) as stream:
            stream.write(scene.data)
        size = {"width": scene.width, "height": scene.height}
        images.append({"id": image_id, "file_name": name, **size, "seed": scene.seed, **scene.image_fields})
        further = scene.box_fields or ({},) * len(scene.boxes)
        for box, label, fields in zip(scene.boxes.tolist(), scene.labels.tolist(), further, strict=True):
            annotations.append({**annotation(len(annotations) + 1, image_id, box, label), **fields})
        if progress is not None:
            progress(image_id)
    write_annotations(root, description, images, annotations)
    return len(images)


def check_new_dataset(root: Path) -> None:
    """Raise InvalidInput unless a data set can be written to the folder ``root``, which holds none yet or does not exist."""
    check_output_folder(root)
    if os.path.lexists(root / ANNOTATIONS):
        raise InvalidInput(f"{root / ANNOTATIONS}: exists already; expected a folder without a dataset")


def write_annotations(
    root: Path,
    description: str,
    images: Sequence[Mapping[str, Any]],
    annotations: Sequence[Mapping[str, Any]],
) -> None:
    """Write `annotations.json` with our categories to the folder ``root``, whole or not at all."""
    document = {
        "info": {"description": description},
        "categories": [{"id": int(label), "name": name} for name, label in OWN_NAMES.items()],
        "images": images,
        "annotations": annotations,
    }
    with atomic_write(root / ANNOTATIONS, "w") as stream:
        json.dump(document, stream)


def annotation(identity: int, image_id: int, box: list[float], label: int) -> dict[str, Any]:
    """The entry of a labelled box x1, y1, x2, y2 px in a COCO file."""
    x1, y1, x2, y2 = box
    return {
        "id": identity,
        "image_id": image_id,
        "category_id": label,
        "bbox": [x1, y1, x2 - x1, y2 - y1],
        "area": (x2 - x1) * (y2 - y1),
        "iscrowd": 0,
    }


def read_coco(folder: str | os.PathLike[str]) -> list[LabelledImage]:
    """The labelled pictures of a COCO folder, in the order of the file.

    Categories are matched by name ("logo", "sticker", any case, or as `categories.yaml` beside the annotations says, see
    :mod:`sticker_uq.io.categories`), whatever their ids. A file name is looked up
    in the folder itself and in its `images/`. InvalidInput names the file and the entry that is wrong: no or
    broken annotations.json, a category that is neither, a box outside its image or without area, an id used
    twice, an image that is not in the file or not on the disk.
    """
    root = Path(folder)
    path = root / ANNOTATIONS
    return [replace(item, path=_image_path(root, path, item)) for item in read_annotations(root)]


def read_annotations(folder: str | os.PathLike[str]) -> list[LabelledImage]:
    """The images in `annotations.json`, as :func:`read_coco` returns them, without checking that the files exist.

    The paths are the file names in the annotations.
    """
    path = Path(folder) / ANNOTATIONS
    document = load_annotations(folder)
    labels_of = _category_labels(path, document)
    entries: dict[int, Mapping[str, Any]] = {}
    for entry in _entries(path, document, "images"):
        entries[_unique(path, "image", entry, entries)] = entry
    if not entries:
        raise InvalidInput(f"{path}: expected at least one image, found none")
    boxes: dict[int, list[tuple[float, float, float, float]]] = {identity: [] for identity in entries}
    labels: dict[int, list[int]] = {identity: [] for identity in entries}
    seen: dict[int, Mapping[str, Any]] = {}
    for annotation in _entries(path, document, "annotations"):
        identity = _unique(path, "annotation", annotation, seen)
        seen[identity] = annotation
        image_id = annotation.get("image_id")
        if not isinstance(image_id, int) or image_id not in entries:
            raise InvalidInput(
                f"{path}: annotation {identity}: image_id {shown(image_id)} is not among the images"
            )
        box, label = (
            _box(path, identity, annotation, entries[image_id]),
            _label(path, identity, annotation, labels_of),
        )
        if label is not None:
            boxes[image_id].append(box)
            labels[image_id].append(label)
    return [
        LabelledImage(
            path=Path(_file_name(path, identity, entry)),
            image_id=identity,
            width=_length(path, identity, entry, "width"),
            height=_length(path, identity, entry, "height"),
            boxes=np.asarray(boxes[identity], np.float32).reshape(-1, 4),
            labels=np.asarray(labels[identity], np.int64),
        )
        for identity, entry in entries.items()
    ]


def load_annotations(folder: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The content of a COCO folder's `annotations.json`; InvalidInput when it is missing or not a JSON object."""
    path = Path(folder) / ANNOTATIONS
    if not path.exists():
        raise InvalidInput(f"{path}: no such file; expected a COCO folder with {ANNOTATIONS}")
    document = read_json(path)
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: expected a JSON object, found {type(document).__name__}")
    return document


def _entries(path: Path, document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = document.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidInput(f"{path}: expected {key!r} to be a list of objects")
    return entries


def _unique(path: Path, kind: str, entry: Mapping[str, Any], known: Mapping[int, Any]) -> int:
    identity = entry.get("id")
    if not isinstance(identity, int) or isinstance(identity, bool):
        raise InvalidInput(f"{path}: {kind} id {shown(identity)}: expected an integer")
    if identity in known:
        raise InvalidInput(f"{path}: {kind} id {identity} is used twice; expected every id once")
    return identity


def _category_labels(path: Path, document: Mapping[str, Any]) -> _Labels:
    labels: dict[int, tuple[str, ObjectClass | None, bool]] = {}
    means = category_names(path.parent)
    for category in _entries(path, document, "categories"):
        name = str(category.get("name"))
        key = name.strip().lower()
        # Labelling tools also list parent categories; only categories in use must be known.
        labels[_unique(path, "category", category, labels)] = (name, means.get(key), key in means)
    check_used(path.parent, {name.strip().lower() for name, _, _ in labels.values()})
    return labels


def _label(path: Path, identity: int, annotation: Mapping[str, Any], labels_of: _Labels) -> int | None:
    """The class of an annotation, None for one that is to be left out."""
    category = annotation.get("category_id")
    name, label, known = (
        labels_of.get(category, (None, None, False)) if isinstance(category, int) else (None, None, False)
    )
    if not known:
        called = f" ({shown(name)})" if name is not None else ""
        expected = " or ".join(repr(own) for own in OWN_NAMES)
        hint = f", or a line {shown(name)[1:-1]}: ... in {CATEGORIES}" if name is not None else ""
        raise InvalidInput(
            f"{path}: annotation {identity}: category_id {shown(category)}{called}: expected {expected}{hint}"
        )
    return None if label is None else int(label)


def _length(path: Path, identity: int, entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LONGEST:
        raise InvalidInput(f"{path}: image {identity}: {key} {shown(value)}: expected a positive integer")
    return value


def _box(
    path: Path, identity: int, annotation: Mapping[str, Any], image: Mapping[str, Any]
) -> tuple[float, float, float, float]:
    """The corners of a box, clipped to its image."""
    width, height = (_length(path, image["id"], image, key) for key in ("width", "height"))
    box = annotation.get("bbox")
    if (
        not isinstance(box, list)
        or len(box) != 4
        or not all(type(part) in (int, float) and abs(part) <= LONGEST for part in box)
    ):
        raise InvalidInput(
            f"{path}: annotation {identity}: bbox {shown(box)}: expected four numbers x, y, width, height"
        )
    x, y, w, h = (float(part) for part in box)
    if w <= 0 or h <= 0:
        raise InvalidInput(f"{path}: annotation {identity}: bbox {box}: expected a width and height above 0")
    if min(x, y) < -_ROUNDING or x + w > width + _ROUNDING or y + h > height + _ROUNDING:
        raise InvalidInput(
            f"{path}: annotation {identity}: bbox {box} is outside its image of {width}x{height}"
        )
    x1, y1, x2, y2 = max(0.0, x), max(0.0, y), min(float(width), x + w), min(float(height), y + h)
    if x2 <= x1 or y2 <= y1:
        raise InvalidInput(
            f"{path}: annotation {identity}: bbox {box} is outside its image of {width}x{height}"
        )
    return x1, y1, x2, y2


def _file_name(path: Path, identity: int, entry: Mapping[str, Any]) -> str:
    name = entry.get("file_name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"{path}: image {identity}: file_name {shown(name)}: expected the name of a picture"
        )
    child_path(path.parent, name, f"{path}: image {identity}")
    return name


def _image_path(root: Path, path: Path, item: LabelledImage) -> Path:
    for candidate in (root / item.path, root / "images" / item.path):
        if candidate.is_file():
            return candidate
    raise InvalidInput(
        f"{path}: image {item.image_id}: {item.path} is neither in {root} nor in {root / 'images'}"
    )


def dataset_digest(items: Sequence[LabelledImage]) -> str:
    """Hash of the names and labels of a COCO folder's pictures, 16 hex digits."""
    digest = hashlib.blake2b(digest_size=8)
    for item in items:
        digest.update(item.path.name.encode() + item.boxes.tobytes() + item.labels.tobytes())
    return digest.hexdigest()


def read_picture(item: LabelledImage) -> npt.NDArray[np.uint8]:
    """The pixels of a COCO folder's ``item``, BGR, of a JPEG, PNG, BMP or WebP file.

    Raises InvalidInput if they cannot be read or have another size than labelled.
    """
    image = read_image_file(item.path)
    if image.shape[:2] != (item.height, item.width):
        raise InvalidInput(
            f"{item.path}: is {image.shape[1]}x{image.shape[0]} px, expected {item.width}x{item.height} as labelled"
        )
    return image

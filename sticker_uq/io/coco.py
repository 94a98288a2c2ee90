# SPDX-License-Identifier: Apache-2.0
"""COCO folders of labelled pictures, read and written: `annotations.json` beside a folder `images/`."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.coco_entries import (
    LONGEST,
    OWN_NAMES,
    Corners,
    as_id,
    box_fault,
    category_labels,
    clip_box,
    entries_of,
    is_box,
    is_crowd,
    is_difficult,
    label_of,
    text_of,
    unique_id,
)
from sticker_uq.io.faults import Faults, LabelCounts
from sticker_uq.io.files import atomic_write, check_output_folder, undone_unless_finished, write_file
from sticker_uq.io.images import Picture, picture_files, read_image_file
from sticker_uq.io.reading import child_path, read_json, show_value
from sticker_uq.scene import InvalidInput, ObjectClass

ANNOTATIONS = "annotations.json"
_UNFINISHED = ".unfinished"
"""File in a COCO folder while it is written, by which pictures of a killed call are told from a person's."""
IMAGE_FORMATS = ("jpg", "png")
_JPEG_QUALITY = 93
HINT = "`sticker-uq dataset import {} --out NEW --repair --class sticker=sticker --class logo=logo` makes a repaired copy"


@dataclass(frozen=True)
class EncodedScene:
    """A rendered scene with its picture encoded."""

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
    name: str = ""
    """Name of the picture file without suffix; "" for one made of the seed."""
    crowd: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    crowd_labels: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """As in :class:`LabelledImage`."""

    @classmethod
    def of(cls, image: Picture, seed: int, image_format: str, boxes: Any, labels: Any, **more: Any) -> Self:
        """``image`` (H, W, 3) BGR, encoded, with its objects and ``more`` fields."""
        data, (height, width) = encode_picture(image, image_format), image.shape[:2]
        return cls(seed, image_format, data, width, height, boxes, labels, **more)


@dataclass(frozen=True)
class LabelledImage:
    path: Path
    image_id: int
    width: int
    height: int
    boxes: npt.NDArray[np.float32]
    """(N,4) x1 y1 x2 y2 in pixels."""
    labels: npt.NDArray[np.int64]
    """(N,) ids of `ObjectClass`, whatever ids the file gives its categories."""
    workpiece_id: str = ""
    """The laptop that it shows; "" when the annotations do not say."""
    source_name: str = ""
    """The name that it had before it was imported; "" when the annotations do not say."""
    crowd: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    """(M,4) regions of several objects (``iscrowd`` 1), as ``boxes``: no objects to learn, and detections in them are neither
    right nor wrong."""
    crowd_labels: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """(M,) as ``labels``."""

    @property
    def shows_sticker(self) -> bool:
        return ObjectClass.STICKER in self.labels or ObjectClass.STICKER in self.crowd_labels


def encode_picture(image: npt.NDArray[np.uint8], image_format: str = "jpg") -> bytes:
    """The bytes of a file with the picture (H, W, 3); InvalidInput for a format other than "jpg" or "png"."""
    if image_format not in IMAGE_FORMATS:
        raise InvalidInput(f"image format {image_format!r}: expected {' or '.join(IMAGE_FORMATS)}")
    options = (cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY) if image_format == "jpg" else ()
    _, data = cv2.imencode(f".{image_format}", image, options)
    return data.tobytes()


def write_coco(
    folder: str | os.PathLike[str],
    scenes: Iterable[EncodedScene],
    progress: Callable[[int], None] = lambda written: None,
    description: str = "Procedural laptop scenes with logos and stickers",
) -> int:
    """Write scenes to a new COCO folder as they arrive; returns their number.

    `annotations.json` is written last and atomically: a folder without it was killed. `progress` is called with the number of
    pictures written so far. InvalidInput if the folder already holds a dataset, pictures that no killed call wrote, or is a file;
    OSError (a full disk, no permission) propagates. What was written is removed when this is interrupted or fails.
    """
    root = Path(folder)
    check_new_dataset(root)
    (root / "images").mkdir(parents=True, exist_ok=True)
    (root / _UNFINISHED).touch()
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    with undone_unless_finished(lambda: _remove(root, [str(image["file_name"]) for image in images])):
        for scene in scenes:
            image_id = len(images) + 1
            name = f"images/{scene.name or f'{scene.seed:08d}'}.{scene.format}"
            size = {"width": scene.width, "height": scene.height}
            about = {"id": image_id, "file_name": name, **size, "seed": scene.seed, **scene.image_fields}
            images.append(about)
            write_file(root / name, scene.data)
            further = scene.box_fields or ({},) * len(scene.boxes)
            for box, label, fields in zip(scene.boxes.tolist(), scene.labels.tolist(), further, strict=True):
                annotations.append({**annotation(len(annotations) + 1, image_id, box, label), **fields})
            for box, label in zip(scene.crowd.tolist(), scene.crowd_labels.tolist(), strict=True):
                annotations.append({**annotation(len(annotations) + 1, image_id, box, label), "iscrowd": 1})
            progress(image_id)
        write_annotations(root, description, images, annotations)
    (root / _UNFINISHED).unlink(missing_ok=True)
    return len(images)


def _remove(root: Path, names: list[str]) -> None:
    for name in names:
        (root / name).unlink(missing_ok=True)
    with suppress(OSError):  # there is something else in it, perhaps pictures of a killed call
        (root / "images").rmdir()
        (root / _UNFINISHED).unlink(missing_ok=True)
        root.rmdir()


def check_new_dataset(root: Path) -> None:
    """Raise InvalidInput unless a COCO folder can be written to ``root``, which holds none yet or does not exist."""
    check_output_folder(root)
    if os.path.lexists(root / ANNOTATIONS):
        raise InvalidInput(f"{root / ANNOTATIONS}: exists already; expected a folder without a dataset")
    pictures = root / "images"
    if pictures.is_dir() and not (root / _UNFINISHED).exists() and (found := picture_files(pictures)):
        raise InvalidInput(
            f"{found[0]}: exists already; expected a folder without pictures, which could be overwritten"
        )


def write_annotations(
    root: Path,
    description: str,
    images: Sequence[Mapping[str, Any]],
    annotations: Sequence[Mapping[str, Any]],
) -> None:
    """Write `annotations.json` with our categories to ``root``, whole or not at all."""
    document = {
        "info": {"description": description},
        "categories": [{"id": int(label), "name": name} for name, label in OWN_NAMES.items()],
        "images": images,
        "annotations": annotations,
    }
    with atomic_write(root / ANNOTATIONS, "w") as stream:
        json.dump(document, stream)


def annotation(identity: int, image_id: int, box: list[float], label: int) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    return {
        "id": identity,
        "image_id": image_id,
        "category_id": label,
        "bbox": [x1, y1, x2 - x1, y2 - y1],
        "area": (x2 - x1) * (y2 - y1),
        "iscrowd": 0,
    }


def read_coco(folder: str | os.PathLike[str], *, crowd: bool = False) -> list[LabelledImage]:
    """The labelled pictures of ``folder`` with their annotations, in the order of the file.

    Categories are matched by name ("logo", "sticker", any case, or as `categories.yaml` beside the annotations says, see
    :func:`category_names`), whatever their ids; objects of an ignored category are not looked at. A file name is looked
    up in the folder itself and in its `images/`. InvalidInput names the file and all entries that are wrong: no or
    broken annotations.json, a category that is neither, a box outside its image or without area, an id used
    twice, an image that is not in the file or not on the disk.
    """
    root = Path(folder)
    path = root / ANNOTATIONS
    faults = Faults(str(path))
    found = []
    for item in read_annotations(root, crowd=crowd):
        with faults.collect():
            found.append(replace(item, path=_image_path(root, item)))
    faults.refuse()
    return found


def read_annotations(folder: str | os.PathLike[str], *, crowd: bool = False) -> list[LabelledImage]:
    """The images in `annotations.json` as of :func:`read_coco`, with paths as they are given there, which need not exist."""
    return parse_annotations(Path(folder) / ANNOTATIONS, load_annotations(folder), crowd=crowd)


def parse_annotations(path: Path, document: Mapping[str, Any], *, crowd: bool = False) -> list[LabelledImage]:
    """The annotated images in ``document``, the content of the file at ``path``; see :func:`read_annotations`."""
    faults = Faults(str(path))
    images = _images(path, document, faults)
    labels_of = category_labels(path, document)
    objects: dict[tuple[int, bool], list[tuple[Corners, int]]] = defaultdict(list)  # by image and iscrowd
    crowds = 0
    seen: set[int] = set()
    unknown: dict[str, tuple[int, int]] = {}  # fault of a category: first annotation, number of annotations
    for annotation in entries_of(path, document, "annotations"):
        with faults.collect(HINT.format(path.parent)):
            identity = unique_id("annotation", annotation, seen)
            seen.add(identity)
            fault, label = label_of(annotation, labels_of)
            if fault:
                first, count = unknown.get(fault, (identity, 0))
                unknown[fault] = first, count + 1
            elif label is not None:
                item = _image_of(identity, annotation, images)
                if item is not None:
                    several = is_crowd(annotation, f"annotation {identity}")
                    crowds += several
                    objects[item.image_id, several].append((_corners(identity, annotation, item), int(label)))
    for fault, (first, count) in unknown.items():
        faults.add(f"annotation {first}: {fault}" + (f" (in {count} annotations)" if count > 1 else ""))
    if crowds and not crowd:
        faults.add(
            f"{crowds} regions are marked as crowd (iscrowd 1), which hold several objects: only train and evaluate "
            "take them; label every object, or, where each region is one object (CVAT marks every mask so), set iscrowd to 0, "
            "for example with `dataset import --crowd object`"
        )
    faults.refuse()
    return [
        with_objects(item, objects[item.image_id, False], objects[item.image_id, True])
        for item in images.values()
        if item is not None
    ]


def with_objects(
    item: LabelledImage, objects: Sequence[tuple[Corners, int]], crowd: Sequence[tuple[Corners, int]] = ()
) -> LabelledImage:
    """``item`` with these boxes and classes, as they are stored."""

    def arrays(found: Sequence[tuple[Corners, int]]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        return (
            np.asarray([box for box, _ in found], np.float32).reshape(-1, 4),
            np.asarray([label for _, label in found], np.int64),
        )

    (boxes, labels), (crowds, crowd_labels) = arrays(objects), arrays(crowd)
    return replace(item, boxes=boxes, labels=labels, crowd=crowds, crowd_labels=crowd_labels)


def check_objects(items: Sequence[LabelledImage], name: str) -> None:
    """Raise InvalidInput, which calls the images ``name``, when none of them shows a logo or sticker."""
    if not any(len(item.labels) for item in items):
        crowds = sum(len(item.crowd) for item in items)
        regions = f" ({crowds} regions are marked as crowd, which are no objects)" if crowds else ""
        raise InvalidInput(
            f"{name}: none of {len(items)} pictures has a logo or sticker{regions}; expected labelled objects"
        )


def label_counts(items: Sequence[LabelledImage], document: Mapping[str, Any], folder: Path) -> LabelCounts:
    """What the annotations ``document`` of ``folder`` declare, and what of it is in ``items``."""
    labels_of = category_labels(folder / ANNOTATIONS, document)
    counts = LabelCounts(pictures=len(document["images"]), objects=len(document["annotations"]))
    for annotation in document["annotations"]:
        name, label, _ = labels_of[as_id(annotation["category_id"])]
        counts.ignored[str(name)] += label is None
        counts.difficult += label is not None and is_difficult(annotation)
    counts.read = sum(len(item.boxes) for item in items)
    counts.crowd = sum(len(item.crowd) for item in items)
    named = {item.path.resolve() for item in items}
    unlisted = [path for path in picture_files(folder, below=True) if path.resolve() not in named]
    counts.note("pictures that the annotations do not name", unlisted)
    counts.check(str(folder / ANNOTATIONS))
    return counts


def load_annotations(folder: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The content of `annotations.json`; InvalidInput when it is missing or not a JSON object."""
    path = Path(folder) / ANNOTATIONS
    if not path.exists():
        raise InvalidInput(f"{path}: no such file; expected a COCO folder with {ANNOTATIONS}")
    document = read_json(path)
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: expected a JSON object, found {type(document).__name__}")
    return document


def _images(path: Path, document: Mapping[str, Any], faults: Faults) -> dict[int, LabelledImage | None]:
    """The images of the annotations without objects, by id; None for one with a fault, which is added to ``faults``."""
    images: dict[int, LabelledImage | None] = {}
    named: dict[str, int] = {}
    for entry in entries_of(path, document, "images"):
        with faults.collect():
            identity = unique_id("image", entry, images)
            images[identity] = None
            name = _file_name(path, identity, entry)
            if (first := named.setdefault(name, identity)) != identity:
                raise InvalidInput(
                    f"image {identity}: file_name {show_value(name)} is that of image {first} too; expected one entry for each "
                    "picture: give the annotations of both one image_id, and remove the other"
                )
            images[identity] = LabelledImage(
                path=Path(name),
                image_id=identity,
                width=_length(identity, entry, "width"),
                height=_length(identity, entry, "height"),
                boxes=np.zeros((0, 4), np.float32),
                labels=np.zeros(0, np.int64),
                workpiece_id=text_of(f"image {identity}", entry, "workpiece_id", "the name of a laptop"),
                source_name=text_of(f"image {identity}", entry, "source_name", "the name of a file"),
            )
    if not images and not faults.count:
        raise InvalidInput(f"{path}: expected at least one image, found none")
    return images


def _image_of(
    identity: int, annotation: Mapping[str, Any], images: Mapping[int, LabelledImage | None]
) -> LabelledImage | None:
    image_id = as_id(annotation.get("image_id"))
    if image_id is None or image_id not in images:
        given = annotation.get("image_id")
        text = " is text, expected an integer: it" if isinstance(given, str) else ""
        raise InvalidInput(
            f"annotation {identity}: image_id {show_value(given)}{text} is not among the images"
        )
    return images[image_id]


def _corners(identity: int, annotation: Mapping[str, Any], item: LabelledImage) -> Corners:
    box = annotation.get("bbox")
    fault = box_fault(box, item.width, item.height)
    inside = clip_box(box, item.width, item.height) if is_box(box) else None
    if fault or inside is None:
        raise InvalidInput(f"annotation {identity}: {fault}")
    return inside


def _length(identity: int, entry: Mapping[str, Any], key: str) -> int:
    value = as_id(given := entry.get(key))
    if value is None or not 1 <= value <= LONGEST:
        raise InvalidInput(f"image {identity}: {key} {show_value(given)}: expected a positive integer")
    return value


def _file_name(path: Path, identity: int, entry: Mapping[str, Any]) -> str:
    name = entry.get("file_name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"image {identity}: file_name {show_value(name)}: expected the name of a picture")
    child_path(path.parent, name, f"image {identity}")
    return name


def _image_path(root: Path, item: LabelledImage) -> Path:
    for candidate in (root / item.path, root / "images" / item.path):
        if candidate.is_file():
            return candidate
    raise InvalidInput(f"image {item.image_id}: {item.path} is neither in {root} nor in {root / 'images'}")


def dataset_digest(items: Sequence[LabelledImage]) -> str:
    """Hash of the files of the pictures, their names and annotations, 16 hex digits. OSError for a file that cannot be read."""
    digest = hashlib.blake2b(digest_size=8)
    for item in items:
        stat = item.path.stat()
        digest.update(item.path.name.encode() + item.boxes.tobytes() + item.labels.tobytes())
        digest.update(item.crowd.tobytes() + item.crowd_labels.tobytes())
        digest.update(_file_digest(item.path, stat.st_mtime_ns, stat.st_size))
    return digest.hexdigest()


@cache
def _file_digest(path: Path, mtime_ns: int, size: int) -> bytes:
    """``mtime_ns`` and ``size``: of the file as it is now; another file under the same name has others."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def read_picture(item: LabelledImage) -> npt.NDArray[np.uint8]:
    """The image of ``item``, BGR; raises InvalidInput if it cannot be read or has another size than labelled."""
    image = read_image_file(item.path)
    if image.shape[:2] != (item.height, item.width):
        raise InvalidInput(
            f"{item.path}: is {image.shape[1]}x{image.shape[0]} px, expected {item.width}x{item.height} as labelled"
        )
    return image


def pictures_of(
    items: Iterable[LabelledImage], progress: Callable[[], None] = lambda: None
) -> Iterator[tuple[LabelledImage, npt.NDArray[np.uint8]]]:
    """Each of ``items`` with its picture, as :func:`read_picture`; ``progress`` is called once it is dealt with."""
    for item in items:
        yield item, read_picture(item)
        progress()

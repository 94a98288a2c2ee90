# SPDX-License-Identifier: Apache-2.0
"""COCO folders of abnormal scenes: made from the pictures of another COCO folder, and read with the record of the changes.

An image's entry also has `case`, `source` (the file it was made from), `added` (boxes and kinds of added objects) and
`lost` (boxes of objects that are hardly visible and have no annotation); an annotation also has `visible` (part of the
box that nothing covers) and `whole_bbox` (the box before).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.io.coco import (
    ANNOTATIONS,
    EncodedScene,
    LabelledImage,
    encode_picture,
    load_annotations,
    read_coco,
    read_picture,
)
from sticker_uq.lab.datasets.abnormal import CASES, EXPOSURE, AbnormalScene, patched, untouched
from sticker_uq.lab.rendering.painting import Image
from sticker_uq.scene import FloatArray, InvalidInput, ObjectClass

CLEAN = "clean"
_NEEDS_STICKER = ("occlusion", "patch")


@dataclass(frozen=True)
class AbnormalImage:
    """One picture of a folder of abnormal scenes.

    ``picture``: file, size, boxes and labels of what is visible; ``visible`` (N,), ``whole`` (N, 4), ``lost`` (M, 4),
    ``added`` (K, 4) and ``kinds`` as in `AbnormalScene`.
    """

    picture: LabelledImage
    case: str
    source: str
    visible: FloatArray
    whole: FloatArray
    lost: FloatArray
    added: FloatArray
    kinds: tuple[str, ...]


def abnormal_scenes(
    items: Sequence[LabelledImage],
    case: str,
    seed: int,
    patch: Image | None = None,
    image_format: str = "jpg",
) -> Iterator[EncodedScene]:
    """The pictures ``items`` in an abnormal ``case`` of `CASES` or `EXPOSURE`, untouched ("clean"), or with an adversarial
    ``patch``.

    The change depends on ``seed``, the case and the picture's id only. A case that hides stickers skips pictures
    without one. InvalidInput for an unknown case or a picture that cannot be read.
    """
    if patch is None and case not in (known := (CLEAN, *CASES, *EXPOSURE)):
        raise InvalidInput(f"case {case!r}: expected one of {', '.join(known)}, or a patch")
    return _scenes(items, case, seed, patch, image_format)


def _scenes(
    items: Sequence[LabelledImage], case: str, seed: int, patch: Image | None, image_format: str
) -> Iterator[EncodedScene]:
    for index, item in enumerate(items):
        if case.startswith(_NEEDS_STICKER) and ObjectClass.STICKER not in item.labels:
            continue
        rng = np.random.default_rng((seed, zlib.crc32(case.encode()), item.image_id))
        make: Callable[..., AbnormalScene] = (CASES | EXPOSURE).get(case, untouched)
        if patch is not None:
            scene = patched(read_picture(item), item.boxes, item.labels, rng, patch)
        elif case == CLEAN:
            scene = untouched(read_picture(item), item.boxes, item.labels)
        elif case == "occlusion-pasted":
            other = read_picture(items[(index + 1 + int(rng.integers(max(1, len(items) - 1)))) % len(items)])
            scene = make(read_picture(item), item.boxes, item.labels, rng, other)
        else:
            scene = make(read_picture(item), item.boxes, item.labels, rng)
        yield _encoded(item, scene, case, seed, image_format)


def read_abnormal(folder: str | os.PathLike[str]) -> list[AbnormalImage]:
    """The pictures of a folder of abnormal scenes; InvalidInput as `read_coco`, and where the further fields are missing."""
    pictures = read_coco(folder)
    document = load_annotations(folder)
    path = Path(folder) / ANNOTATIONS
    visible: dict[int, list[float]] = {picture.image_id: [] for picture in pictures}
    whole: dict[int, list[list[float]]] = {picture.image_id: [] for picture in pictures}
    entries = {entry["id"]: entry for entry in document["images"]}
    try:
        for annotation in document["annotations"]:
            visible[annotation["image_id"]].append(float(annotation["visible"]))
            whole[annotation["image_id"]].append(annotation["whole_bbox"])
        return [_image(p, entries[p.image_id], visible[p.image_id], whole[p.image_id]) for p in pictures]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path}: expected a folder of `sticker-uq dataset abnormal`, {error} is missing or invalid"
        ) from None


def _image(
    picture: LabelledImage, entry: Mapping[str, Any], visible: list[float], whole: list[list[float]]
) -> AbnormalImage:
    added = entry["added"]
    return AbnormalImage(
        picture=picture,
        case=str(entry["case"]),
        source=str(entry["source"]),
        visible=np.asarray(visible, np.float32),
        whole=_corners(whole),
        lost=_corners([*entry["lost"]]),
        added=_corners([thing["bbox"] for thing in added]),
        kinds=tuple(str(thing["kind"]) for thing in added),
    )


def _encoded(
    item: LabelledImage, scene: AbnormalScene, case: str, seed: int, image_format: str
) -> EncodedScene:
    image_fields = {
        "seed": seed,
        "case": case,
        "source": item.path.name,
        "added": [
            {"bbox": b, "kind": kind} for b, kind in zip(_sides(scene.added), scene.kinds, strict=True)
        ],
        "lost": _sides(scene.lost),
    }
    box_fields = tuple(
        {"visible": round(v, 4), "whole_bbox": b}
        for v, b in zip(scene.visible.tolist(), _sides(scene.whole), strict=True)
    )
    return EncodedScene(
        seed=item.image_id,
        format=image_format,
        data=encode_picture(scene.image, image_format),
        width=item.width,
        height=item.height,
        boxes=scene.boxes,
        labels=scene.labels,
        image_fields=image_fields,
        box_fields=box_fields,
    )


def _sides(boxes: FloatArray) -> list[list[float]]:
    """Corners (N, 4) as COCO's x, y, width, height."""
    return [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in boxes.tolist()]


def _corners(boxes: list[list[float]]) -> FloatArray:
    sides = np.asarray(boxes, np.float32).reshape(-1, 4)
    return np.concatenate((sides[:, :2], sides[:, :2] + sides[:, 2:]), axis=1)

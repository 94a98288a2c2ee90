# SPDX-License-Identifier: Apache-2.0
"""Pictures of abnormal laptops: what lies on them that no detector learned, and their COCO folder."""

import hashlib
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import cv2
import numpy as np

from sticker_uq.io import coco
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass, Rng
from sticker_uq_lab.corruptions import TRANSFORMATIONS, LabelledPicture, transform
from sticker_uq_lab.rendering.painting import Image, TurnedPen, draw_over, lay, lid_region
from sticker_uq_lab.rendering.things import OBJECTS, OCCLUDERS, UNKNOWN_STICKERS

HIDDEN_SHARE = (0.4, 0.75)
"""Lowest and highest share of a sticker's box that an occluder covers."""
MOST_TARGETS = 2
"""Number of occluded or attacked stickers in one scene."""
MOST_FOREIGN_OBJECTS = 3
PATCH_SIDE = 0.55
"""Side of an adversarial patch relative to the sticker's."""
_DIRECTIONS = 6
_PLACES = 40
_REACH = 1.5
_CORNERS = 9
_BISECTIONS = 6


@dataclass(frozen=True)
class AbnormalScene(LabelledPicture):
    """What is visible of the objects, and the changes made to the scene.

    ``before`` (N, 4): boxes px of all objects before. ``added`` (K, 4): boxes of the added objects, and ``kinds`` their kinds. A
    sticker of an unknown kind is a sticker and therefore also one of the objects.
    """

    before: FloatArray = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    added: FloatArray = field(default_factory=lambda: np.zeros((0, 4), np.float32))
    kinds: tuple[str, ...] = ()

    @property
    def whole(self) -> FloatArray:
        """Boxes of the visible objects before."""
        return self.before[self.origin]

    @property
    def lost(self) -> FloatArray:
        """Boxes of the objects of which less than a quarter is visible."""
        return self.before[self.hidden]


def leave_untouched(image: Image, boxes: FloatArray, labels: IntArray) -> AbnormalScene:
    return replace(AbnormalScene.of(image, boxes, labels), before=boxes)


# Each case draws on the image of the scene that it is given.


def occlude(scene: AbnormalScene, rng: Rng) -> AbnormalScene:
    shape, boxes = scene.image.shape, scene.boxes
    for target in _targets(scene, rng):
        kind = str(rng.choice(list(OCCLUDERS)))
        box, share, seed = boxes[target], rng.uniform(*HIDDEN_SHARE), int(rng.integers(2**31))
        others = np.delete(boxes, target, axis=0)
        # from the direction that hides least of the others
        turns = rng.uniform(0, 2 * math.pi, _DIRECTIONS)
        spoilt = [_cover(_draw_reaching(shape, kind, box, 0.0, t, seed)[1], others).sum() for t in turns]
        turn = float(turns[int(np.argmin(spoilt))])
        colours, mask = _draw_hiding(shape, kind, box, share, turn, seed)
        lay(scene.image, colours, mask, rng, height=rng.uniform(0.004, 0.012) * shape[1], realistic=True)
        scene = _hidden(scene, mask, kind)
    return scene


def paste(scene: AbnormalScene, rng: Rng, other: Image) -> AbnormalScene:
    """Pieces cut out of the ``other`` picture, pasted over one or two stickers, as in Occluded-PASCAL3D+."""
    foreign, boxes = cv2.resize(other, scene.size), scene.boxes
    for target in _targets(scene, rng):
        mask = _piece(scene.image.shape, boxes[target], rng.uniform(*HIDDEN_SHARE), rng)
        # a random part of the other picture covers the sticker
        shift = rng.integers(0, scene.size[::-1])
        lay(scene.image, np.roll(foreign, tuple(shift), (0, 1)), mask, rng, height=0.0, realistic=False)
        scene = _hidden(scene, mask, "piece of another picture")
    return scene


def add_foreign_objects(
    image: Image, boxes: FloatArray, labels: IntArray, rng: Rng, *, stickers: bool
) -> AbnormalScene:
    """One to three foreign objects between the known ones: ``stickers`` of unknown kinds, or other objects."""
    return _with_foreign(leave_untouched(image.copy(), boxes, labels), rng, stickers)


def _with_foreign(scene: AbnormalScene, rng: Rng, stickers: bool) -> AbnormalScene:
    shape, kinds = scene.image.shape, UNKNOWN_STICKERS if stickers else OBJECTS
    for kind in rng.permutation(list(kinds))[: int(rng.integers(1, MOST_FOREIGN_OBJECTS + 1))]:
        place = _free_place(shape, np.concatenate((scene.whole, scene.added)), rng)
        if place is None:
            break
        x, y, unit = place
        colours, mask = draw_over(shape, kinds[str(kind)], (x, y), unit, rng.uniform(0, 2 * math.pi), rng)
        height = 0.06 * unit if not stickers else 0.015 * unit
        lay(scene.image, colours, mask, rng, height=height, realistic=True)
        scene = (_with_sticker if stickers else _with_thing)(scene, mask, str(kind))
    return scene


def paste_patch(scene: AbnormalScene, rng: Rng, patch: Image) -> AbnormalScene:
    """An adversarial ``patch`` (s, s, 3) uint8 on one or two stickers, as `patch_place` says."""
    boxes = scene.boxes
    for target in _targets(scene, rng):
        left, top, side = patch_place(boxes[target], scene.image.shape, rng)
        place = (slice(top, top + side), slice(left, left + side))
        mask = np.zeros(scene.image.shape[:2], np.uint8)
        mask[place] = 255
        scene.image[place] = cv2.resize(patch, (side, side), interpolation=cv2.INTER_LINEAR)
        scene = _hidden(scene, mask, "adversarial patch")
    return scene


def patch_place(box: FloatArray, shape: tuple[int, ...], rng: Rng) -> tuple[int, int, int]:
    """Left, top, side px of an adversarial patch on the object in ``box``, near its middle, inside the picture."""
    x1, y1, x2, y2 = (float(v) for v in box)
    side = max(4, round(PATCH_SIDE * math.sqrt((x2 - x1) * (y2 - y1))))
    jitter = rng.uniform(-0.1, 0.1, 2) * side
    left = round((x1 + x2 - side) / 2 + jitter[0])
    top = round((y1 + y2 - side) / 2 + jitter[1])
    return max(0, min(left, shape[1] - side)), max(0, min(top, shape[0] - side)), side


def _targets(scene: AbnormalScene, rng: Rng) -> list[int]:
    stickers = rng.permutation(np.flatnonzero(scene.labels == ObjectClass.STICKER))
    return [int(i) for i in stickers[: int(rng.integers(1, MOST_TARGETS + 1))]]


def _draw_reaching(
    shape: tuple[int, ...], kind: str, box: FloatArray, reach: float, turn: float, seed: int
) -> tuple[Image, Image]:
    """Colours and coverage of the occluder ``kind`` that enters from direction ``turn`` with ``reach`` over ``box``."""
    centre = (float(box[0] + box[2]) / 2, float(box[1] + box[3]) / 2)
    unit = float(np.sqrt(np.prod(box[2:] - box[:2]))) / 2

    def draw(pen: TurnedPen, rng: Rng) -> None:
        OCCLUDERS[kind](pen, reach, rng)

    return draw_over(shape, draw, centre, unit, turn, np.random.default_rng(seed))


def _draw_hiding(
    shape: tuple[int, ...], kind: str, box: FloatArray, share: float, turn: float, seed: int
) -> tuple[Image, Image]:
    def cover_share(reach: float) -> float:
        return float(_cover(_draw_reaching(shape, kind, box, reach, turn, seed)[1], box[None])[0])

    return _draw_reaching(shape, kind, box, _bisect(cover_share, share, -_REACH, _REACH), turn, seed)


def _piece(shape: tuple[int, ...], box: FloatArray, share: float, rng: Rng) -> Image:
    """Coverage (H, W) of a piece with a ragged outline that hides ``share`` of ``box``."""
    turns = np.sort(rng.uniform(0, 2 * math.pi, _CORNERS))
    outline = np.stack((np.cos(turns), np.sin(turns)), axis=1) * rng.uniform(0.7, 1.2, (_CORNERS, 1))
    half = (box[2:] - box[:2]) / 2
    centre = (box[2:] + box[:2]) / 2 + rng.uniform(-0.5, 0.5, 2) * half

    def piece(size: float) -> Image:
        mask = np.zeros(shape[:2], np.uint8)
        corners = np.rint((outline * size * half + centre) * 16).astype(np.int32)
        cv2.fillPoly(mask, [corners], (255,), cv2.LINE_AA, 4)
        return mask

    return piece(_bisect(lambda size: float(_cover(piece(size), box[None])[0]), share, 0.0, 3.0))


def _bisect(covered: Callable[[float], float], share: float, low: float, high: float) -> float:
    """Where the growing function ``covered`` reaches ``share``, between ``low`` and ``high``."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if covered(middle) < share else (low, middle)
    return high


def _cover(mask: Image, boxes: FloatArray) -> FloatArray:
    parts = []
    for x1, y1, x2, y2 in np.rint(boxes).astype(int):
        window = mask[max(0, y1) : max(y2, y1 + 1), max(0, x1) : max(x2, x1 + 1)]
        parts.append(float((window > 127).mean()) if window.size else 0.0)
    return np.asarray(parts, np.float32)


def _hidden(scene: AbnormalScene, mask: Image, kind: str) -> AbnormalScene:
    return _with_thing(scene.with_cover((mask > 127).astype(np.uint8), scene.image), mask, kind)


def _with_thing(scene: AbnormalScene, mask: Image, kind: str) -> AbnormalScene:
    x, y, w, h = cv2.boundingRect(mask)
    box = np.array([[x, y, x + w, y + h]], np.float32)
    return replace(scene, added=np.concatenate((scene.added, box)), kinds=(*scene.kinds, kind))


def _with_sticker(scene: AbnormalScene, mask: Image, kind: str) -> AbnormalScene:
    scene = _with_thing(scene, mask, kind)
    box = scene.added[-1:]
    return replace(
        scene,
        boxes=np.concatenate((scene.boxes, box)),
        labels=np.append(scene.labels, np.int64(ObjectClass.STICKER)),
        visible=np.append(scene.visible, np.float32(1)),
        origin=np.append(scene.origin, len(scene.before)),
        before=np.concatenate((scene.before, box)),
    )


def _free_place(shape: tuple[int, ...], taken: FloatArray, rng: Rng) -> tuple[float, float, float] | None:
    """Centre and half side px of a free square of a sticker's size, near the objects or else the middle; None without one."""
    height, width = shape[:2]
    low, high = lid_region(shape, taken, 0.3)
    sides = np.sqrt(np.prod(taken[:, 2:] - taken[:, :2], axis=1))
    side = float(np.median(sides)) if len(taken) else 0.16 * height
    for _ in range(_PLACES):
        half = side / 2 * rng.uniform(0.8, 1.4)
        x, y = rng.uniform(low, high)
        box = np.array([x - half, y - half, x + half, y + half])
        if box.min() < 0 or box[2] > width or box[3] > height:
            continue
        apart = (taken[:, :2] > box[2:]) | (taken[:, 2:] < box[:2])
        if apart.any(axis=1).all():
            return float(x), float(y), float(half)
    return None


def corrupt(scene: AbnormalScene, rng: Rng, name: str, **options: str) -> AbnormalScene:
    strength, seed = float(rng.choice(TRANSFORMATIONS[name].ladder)), int(rng.integers(2**31))
    # a transformation replaces fields of what it is given
    return cast(AbnormalScene, transform(scene, name, strength, seed, **options))


EXPOSURE: dict[str, Callable[..., AbnormalScene]] = {
    "residue": partial(corrupt, name="sticker_residue"),
    "glare": partial(corrupt, name="glare"),
    "blur": partial(corrupt, name="defocus"),
    "noise": partial(corrupt, name="sensor_noise"),
    "hand": partial(corrupt, name="occlusion", tool="hand"),
    "gripper": partial(corrupt, name="occlusion", tool="gripper"),
}
"""Further abnormal cases, to train on: what must not be peeled, and degraded pictures."""
CASES: dict[str, Callable[..., AbnormalScene]] = {
    "occlusion-pasted": paste,
    "occlusion": occlude,
    "unknown-sticker": partial(_with_foreign, stickers=True),
    "unknown-object": partial(_with_foreign, stickers=False),
}
"""The abnormal cases that need no detector, by name."""

CLEAN = "clean"
_NEEDS_STICKER = ("occlusion", "patch")


@dataclass(frozen=True)
class AbnormalImage:
    """A picture, its case, the picture that it was made from, and the ``whole`` boxes (N, 4) before."""

    picture: coco.LabelledImage
    case: str
    source: str
    whole: FloatArray


def abnormal_scenes(
    items: Sequence[coco.LabelledImage],
    case: str,
    seed: int,
    patch: Image | None = None,
    image_format: str = "jpg",
) -> Iterator[coco.EncodedScene]:
    """The pictures ``items`` in a ``case`` of `CASES` or `EXPOSURE`, untouched ("clean"), or with a ``patch``.

    The change depends on ``seed``, the case and the picture's file only: no two laptops share it, whatever their ids and names
    in their data sets. A case that hides stickers skips pictures without one. InvalidInput for an unknown case, where all
    pictures would be skipped, or for one that cannot be read.
    """
    if patch is None and case not in (known := (CLEAN, *CASES, *EXPOSURE)):
        raise InvalidInput(f"case {case!r}: expected one of {', '.join(known)}, or a patch")
    if items and case.startswith(_NEEDS_STICKER) and not any(_has_sticker(item) for item in items):
        raise InvalidInput(
            f"case {case!r}: none of the {len(items)} pictures has a sticker, expected one or more"
        )
    return _scenes(items, case, seed, patch, image_format)


def _has_sticker(item: coco.LabelledImage) -> bool:
    return ObjectClass.STICKER in item.labels


def _scenes(
    items: Sequence[coco.LabelledImage], case: str, seed: int, patch: Image | None, image_format: str
) -> Iterator[coco.EncodedScene]:
    for index, item in enumerate(items):
        if case.startswith(_NEEDS_STICKER) and not _has_sticker(item):
            continue
        own = int.from_bytes(hashlib.blake2b(item.path.read_bytes(), digest_size=8).digest())
        rng = np.random.default_rng((seed, zlib.crc32(case.encode()), own))
        scene = leave_untouched(coco.read_picture(item), item.boxes, item.labels)
        if patch is not None:
            scene = paste_patch(scene, rng, patch)
        elif case == "occlusion-pasted":
            other = items[(index + 1 + int(rng.integers(max(1, len(items) - 1)))) % len(items)]
            scene = paste(scene, rng, coco.read_picture(other))
        elif case != CLEAN:
            scene = (CASES | EXPOSURE)[case](scene, rng)
        yield _encode(item, scene, case, seed, image_format)


def read_abnormal(folder: str | os.PathLike[str]) -> list[AbnormalImage]:
    """The pictures in ``folder``; InvalidInput as `read_coco`, and where the further fields are missing."""
    pictures = coco.read_coco(folder)
    document = coco.load_annotations(folder)
    path = Path(folder) / coco.ANNOTATIONS
    whole: dict[int, list[list[float]]] = {picture.image_id: [] for picture in pictures}
    entries = {entry["id"]: entry for entry in document["images"]}
    try:
        for annotation in document["annotations"]:
            whole[annotation["image_id"]].append(annotation["whole_bbox"])
        return [
            AbnormalImage(one, str(entry["case"]), str(entry["source"]), _corners(whole[one.image_id]))
            for one in pictures
            for entry in [entries[one.image_id]]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path}: expected a folder of `sticker-uq dataset abnormal`, {error} is missing or invalid"
        ) from None


def _encode(
    item: coco.LabelledImage, scene: AbnormalScene, case: str, seed: int, image_format: str
) -> coco.EncodedScene:
    added = zip(_sides(scene.added), scene.kinds, strict=True)
    shown = zip(scene.visible.tolist(), _sides(scene.whole), strict=True)
    return coco.EncodedScene.of(
        scene.image,
        item.image_id,
        image_format,
        scene.boxes,
        scene.labels,
        image_fields={
            "seed": seed,
            "case": case,
            "source": item.path.name,
            "added": [{"bbox": box, "kind": kind} for box, kind in added],
            "lost": _sides(scene.lost),
        },
        box_fields=tuple({"visible": round(share, 4), "whole_bbox": box} for share, box in shown),
    )


def _sides(boxes: FloatArray) -> list[list[float]]:
    return [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in boxes.tolist()]


def _corners(boxes: list[list[float]]) -> FloatArray:
    sides = np.asarray(boxes, np.float32).reshape(-1, 4)
    return np.concatenate((sides[:, :2], sides[:, :2] + sides[:, 2:]), axis=1)

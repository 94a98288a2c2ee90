# SPDX-License-Identifier: Apache-2.0
"""Checks labelled data sets before a training."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import scipy

from sticker_uq.evaluation.metrics.statistics import holm
from sticker_uq.io.coco import LabelledImage, pictures_of
from sticker_uq.scene import ObjectClass
from sticker_uq.uncertainty.overlap import iou_matrix

NEAR = 6
"""Highest Hamming distance of the 64-bit perceptual hashes of near duplicates."""
_SIDE = 8
_SMALL_SIDE = 4.0
_LARGE_SHARE = 0.9
_SAME_BOX = 0.9
_ALPHA = 0.05


@dataclass(frozen=True)
class PictureStatistics:
    """Perceptual hash (64 bits), digest of the pixels, mean grey level 0..255."""

    item: LabelledImage
    perceptual: int
    pixels: bytes
    brightness: float


@dataclass(frozen=True)
class LabelFinding:
    """``kind``: duplicate, near duplicate, label; ``pictures`` concerned."""

    kind: str
    pictures: tuple[Path, ...]
    text: str


@dataclass(frozen=True)
class Drift:
    """Difference of one property between two data sets: medians, Kolmogorov-Smirnov distance 0..1, p after Holm's correction."""

    name: str
    first: float
    second: float
    distance: float
    p: float

    @property
    def has_drifted(self) -> bool:
        return self.p < _ALPHA


def picture_statistics(
    items: Sequence[LabelledImage], progress: Callable[[], None] = lambda: None
) -> list[PictureStatistics]:
    """Every picture read once; InvalidInput for one that cannot be decoded or has another size than its labels say."""
    return [statistics_of(*pair) for pair in pictures_of(items, progress)]


def statistics_of(item: LabelledImage, image: npt.NDArray[np.uint8]) -> PictureStatistics:
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    return PictureStatistics(item, perceptual_hash(grey), pixel_digest(image), float(grey.mean()))


def pixel_digest(image: npt.NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(repr(image.shape).encode() + image.tobytes(), digest_size=16).digest()


def perceptual_hash(grey: npt.NDArray[np.uint8]) -> int:
    """Hash of a grey picture (H, W), 64 signs of change from column to column, on a grid of 8 rows, 9 columns."""
    small = cv2.resize(grey, (_SIDE + 1, _SIDE), interpolation=cv2.INTER_AREA)
    return int.from_bytes(np.packbits(small[:, 1:] > small[:, :-1]).tobytes())


def duplicates(
    first: Sequence[PictureStatistics], second: Sequence[PictureStatistics] = (), near: int = NEAR
) -> list[LabelFinding]:
    """Duplicates and near duplicates (hashes differ in at most ``near`` bits) in ``first``, or between it and ``second``."""
    everything = [*first, *second]
    found = []
    for index, other, distance in close_pairs(everything, near, len(first) if second else None):
        pair = (everything[index].item.path, everything[other].item.path)
        if everything[index].pixels == everything[other].pixels:
            found.append(LabelFinding("duplicate", pair, "the same pixels"))
        else:
            text = f"perceptual hashes differ in {distance} of 64 bits"
            found.append(LabelFinding("near duplicate", pair, text))
    return found


def close_pairs(
    pictures: Sequence[PictureStatistics], near: int, ours: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """Indices of two pictures, the lower one first, and the distance of their hashes, if that is at most ``near``.

    Pictures with the same pixels are a pair whatever ``near`` is. With ``ours`` only pairs of one of the first ``ours`` pictures
    with one of the others.
    """
    hashes = np.array([s.perceptual for s in pictures], np.uint64)[:, None].view(np.uint8)
    for index in range(len(pictures) if ours is None else ours):
        start = max(ours or 0, index + 1)
        distances = np.unpackbits(hashes[start:] ^ hashes[index], axis=1).sum(axis=1)
        for other in np.flatnonzero(distances <= max(near, 0)).tolist():
            same = pictures[index].pixels == pictures[start + other].pixels
            if same or distances[other] <= near:
                yield index, start + other, int(distances[other])


def label_findings(items: Sequence[LabelledImage]) -> list[LabelFinding]:
    found = []
    for item in items:
        overlaps = iou_matrix(item.boxes, item.boxes)
        for number, (box, label) in enumerate(zip(item.boxes, item.labels, strict=True)):
            name = ObjectClass(int(label)).name.lower()
            width, height = (box[2:] - box[:2]).tolist()
            if min(width, height) < _SMALL_SIDE:
                text = f"{name} of {width:.1f} x {height:.1f} px, smaller than {_SMALL_SIDE:g} px"
                found.append(LabelFinding("label", (item.path,), text))
            if width * height > _LARGE_SHARE * item.width * item.height:
                text = f"{name} covers more than {_LARGE_SHARE:.0%} of the picture"
                found.append(LabelFinding("label", (item.path,), text))
            for other in range(number + 1, len(item.boxes)):
                if overlaps[number, other] > _SAME_BOX:
                    second = ObjectClass(int(item.labels[other])).name.lower()
                    text = f"{name} and {second} in the same place (IoU above {_SAME_BOX:g})"
                    found.append(LabelFinding("label", (item.path,), text))
    return found


def class_balance(items: Sequence[LabelledImage]) -> dict[str, int]:
    counts = Counter(ObjectClass(int(label)).name.lower() for item in items for label in item.labels)
    empty = sum(not len(item.labels) for item in items)
    return {"logo": counts["logo"], "sticker": counts["sticker"], "empty": empty}


def properties(seen: Sequence[PictureStatistics]) -> dict[str, npt.NDArray[np.float64]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for one in seen:
        item = one.item
        found["brightness, grey levels"].append(one.brightness)
        found["picture, megapixels"].append(item.width * item.height / 1e6)
        found["objects per picture"].append(len(item.labels))
        sides = item.boxes[:, 2:] - item.boxes[:, :2]
        found["object, share of the picture"] += (sides.prod(axis=1) / (item.width * item.height)).tolist()
        found["object, width over height"] += (sides[:, 0] / sides[:, 1]).tolist()
    return {name: np.array(values) for name, values in found.items()}


def drift(first: Sequence[PictureStatistics], second: Sequence[PictureStatistics]) -> list[Drift]:
    """Kolmogorov-Smirnov test of every property, Holm-corrected; one without values is left out."""
    ours, theirs = properties(first), properties(second)
    rows = []
    for name, values in ours.items():
        if len(values) and len(theirs.get(name, ())):
            test = scipy.stats.ks_2samp(values, theirs[name])
            rows.append(
                (name, float(np.median(values)), float(np.median(theirs[name])), test.statistic, test.pvalue)
            )
    adjusted = holm(np.array([p for *_, p in rows]))
    return [
        Drift(name, a, b, float(distance), float(p))
        for (name, a, b, distance, _), p in zip(rows, adjusted, strict=True)
    ]

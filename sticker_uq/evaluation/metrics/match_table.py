# SPDX-License-Identifier: Apache-2.0
"""Which detection found which object, once for all images, so that COCO's figures can be computed for any selection of them.

A bootstrap over images needs the average precision of thousands of selections. The matching does not depend on the selection;
only the counting does, and that takes about a millisecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.average_precision import FOREGROUND, RECALLS
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, InvalidInput
from sticker_uq.uncertainty import iou_matrix

IOUS = tuple(0.5 + 0.05 * step for step in range(10))
"""IoU thresholds of COCO's AP and AR."""
AREAS = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""COCO's sizes of objects, px^2 of the image."""
MOST_DETECTIONS = 100

Weights = NDArray[np.floating]


@dataclass(frozen=True)
class _ClassTable:
    """All detections of one class, the surest first, and the objects of the class per image.

    ``image`` (N,) index of the image; ``rank`` (N,) place of the detection among those of its image and class; ``hit`` and
    ``ignored`` (N, 10) bool by IoU threshold; ``objects`` (images,).
    """

    image: NDArray[np.intp]
    rank: NDArray[np.intp]
    hit: NDArray[np.bool_]
    ignored: NDArray[np.bool_]
    objects: NDArray[np.float64]


class MatchTable:
    """COCO's matching of ``detections`` with ``truths``, one of each per image, for objects of one size (see AREAS).

    Raises InvalidInput when there is not exactly one of each, or no image.
    """

    def __init__(
        self, detections: Sequence[Detections], truths: Sequence[LabelledImage], area: str = "all"
    ) -> None:
        if not truths or len(detections) != len(truths):
            raise InvalidInput(
                f"{len(detections)} detections for {len(truths)} pictures, expected as many, at least one"
            )
        self.images = len(truths)
        self._tables = [_class_table(detections, truths, label, AREAS[area]) for label in FOREGROUND]

    def average_precision(
        self, weights: Weights | None = None, recalls: NDArray[np.float64] = RECALLS
    ) -> NDArray[np.float64]:
        """COCO's AP over logo and sticker from matched detections, at every threshold of IOUS, (10,); NaN without an object.

        ``weights`` (images,): how often each image counts, 0 leaves it out; None: every image once. ``recalls``: the recalls at
        which precision is read; a recall equal to a threshold reaches it.
        """
        weights = self._weights(weights)
        rows = [_average_precisions(table, weights, recalls) for table in self._tables]
        return _mean_over_classes(rows)

    def average_recall(self, most: int, weights: Weights | None = None) -> float:
        """COCO's AR from matched detections, the ``most`` surest of each class and image, mean over IOUS and classes; NaN
        without an object.
        """
        weights = self._weights(weights)
        rows = []
        for table in self._tables:
            objects = float(weights @ table.objects)
            chosen = table.rank < most
            found = weights[table.image[chosen]] @ table.hit[chosen]
            found = found / objects if objects > 0 else np.full(len(IOUS), np.nan)
            rows.append(np.asarray(found, np.float64))
        return float(_mean_over_classes(rows).mean())

    def _weights(self, weights: Weights | None) -> Weights:
        return np.ones(self.images) if weights is None else weights


def _mean_over_classes(rows: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    known = [row for row in rows if not np.isnan(row).any()]
    return np.mean(known, axis=0) if known else np.full(len(IOUS), math.nan)


def _average_precisions(
    table: _ClassTable, weights: Weights, recalls: NDArray[np.float64]
) -> NDArray[np.float64]:
    objects = float(weights @ table.objects)
    if objects <= 0:
        return np.full(len(IOUS), np.nan)
    counted = weights[table.image][:, None]
    right = np.cumsum(counted * table.hit, axis=0)
    wrong = np.cumsum(counted * ~(table.hit | table.ignored), axis=0)
    total = right + wrong
    precision = np.divide(right, total, out=np.zeros_like(right), where=total > 0)
    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    recall = right / objects
    found = np.zeros(len(IOUS))
    for column in range(len(IOUS)):
        places = np.searchsorted(recall[:, column], recalls, side="left")
        reached = places < len(recall)
        found[column] = precision[places[reached], column].sum() / len(recalls)
    return found


def _class_table(
    detections: Sequence[Detections], truths: Sequence[LabelledImage], label: int, area: tuple[float, float]
) -> _ClassTable:
    scores, images, ranks, hits, ignored = [], [], [], [], []
    objects = np.zeros(len(truths))
    for index, (found, truth) in enumerate(zip(detections, truths, strict=True)):
        chosen = np.flatnonzero(found.foreground_labels == label)
        order = chosen[np.argsort(-found.scores[chosen], kind="stable")][:MOST_DETECTIONS]
        wanted = truth.boxes[truth.labels == label]
        outside = _outside(wanted, area)
        hit, free = _matched(found.boxes[order], wanted, outside, area)
        objects[index] = float((~outside).sum())
        scores.append(found.scores[order])
        images.append(np.full(len(order), index))
        ranks.append(np.arange(len(order)))
        hits.append(hit)
        ignored.append(free)
    falling = np.argsort(-np.concatenate(scores), kind="stable")
    return _ClassTable(
        np.concatenate(images)[falling],
        np.concatenate(ranks)[falling],
        np.concatenate(hits)[falling],
        np.concatenate(ignored)[falling],
        objects,
    )


def _matched(
    boxes: NDArray[np.floating],
    wanted: NDArray[np.floating],
    outside: NDArray[np.bool_],
    area: tuple[float, float],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """COCO's greedy matching of one image: hits and ignored detections, (n, 10) each.

    A detection takes the free object that it overlaps most; one outside the size only if no other will do. A detection that took
    such an object, or took none and is itself outside the size, is neither right nor wrong.
    """
    hit = np.zeros((len(boxes), len(IOUS)), bool)
    ignored = np.zeros_like(hit)
    overlaps = iou_matrix(boxes, wanted)
    too_small_or_large = _outside(boxes, area)
    for column, threshold in enumerate(IOUS):
        free = np.ones(len(wanted), bool)
        for row in range(len(boxes)):
            candidates = np.where(free & (overlaps[row] >= threshold - 1e-10), overlaps[row], -1.0)
            inside = np.where(outside, -1.0, candidates)
            pick = inside if inside.max(initial=-1.0) >= 0 else candidates
            if pick.max(initial=-1.0) < 0:
                ignored[row, column] = too_small_or_large[row]
                continue
            best = int(pick.argmax())
            free[best] = False
            hit[row, column], ignored[row, column] = not outside[best], outside[best]
    return hit, ignored


def _outside(boxes: NDArray[np.floating], area: tuple[float, float]) -> NDArray[np.bool_]:
    sizes = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return (sizes < area[0]) | (sizes > area[1])

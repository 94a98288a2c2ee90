# SPDX-License-Identifier: Apache-2.0
"""Which labelled object each detection shows, if any."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix

MATCH_IOU = 0.5
"""IoU from which a detection and an object of the same class are the same thing."""
DECISION_SCORE = 0.5
"""Score from which a detection counts for precision and recall."""


@dataclass(frozen=True)
class MatchedDetections:
    """Detections of many labelled images in one table.

    ``probabilities`` (N, 3); ``truth`` (N,): class of the labelled object that the detection lies on, BACKGROUND when
    there is none or a surer detection took it; ``image`` (N,): number of the image; ``right`` (N,): its foreground label is
    that of an object that it fits and no surer detection of that label took (COCO's rule), with the IoU ``iou`` (N,), else
    0; ``missed``: labelled objects that no detection lies on, by class.
    """

    probabilities: FloatArray
    truth: IntArray
    image: IntArray
    right: NDArray[np.bool_]
    iou: FloatArray
    missed: dict[ObjectClass, int]

    @property
    def labels(self) -> IntArray:
        return self.probabilities[:, 1:].argmax(axis=1) + 1


def match(found: Sequence[Detections], truths: Sequence[LabelledImage]) -> MatchedDetections:
    """``found``, one for every image of ``truths``, with the labelled object that each detection shows."""
    if len(found) != len(truths):
        raise InvalidInput(f"detections of {len(found)} images, expected {len(truths)}")
    probabilities, truth, image, right, iou = [], [], [], [], []
    missed = {ObjectClass.LOGO: 0, ObjectClass.STICKER: 0}
    for number, (detected, labelled) in enumerate(zip(found, truths, strict=True)):
        place, _ = assign(iou_matrix(detected.boxes, labelled.boxes), detected.scores)
        hit, overlap = match_classes(detected, labelled)
        probabilities.append(detected.probabilities)
        truth.append(np.where(place >= 0, np.append(labelled.labels, 0)[place], int(ObjectClass.BACKGROUND)))
        image.append(np.full(len(detected), number))
        right.append(hit >= 0)
        iou.append(overlap)
        for label in missed:
            seen = place[place >= 0]
            missed[label] += int((labelled.labels == label).sum() - (labelled.labels[seen] == label).sum())
    return MatchedDetections(
        np.concatenate(probabilities).astype(np.float64),
        np.concatenate(truth).astype(np.int64),
        np.concatenate(image).astype(np.int64),
        np.concatenate(right),
        np.concatenate(iou).astype(np.float64),
        missed,
    )


def match_classes(
    detected: Detections, truth: LabelledImage, min_iou: float = MATCH_IOU
) -> tuple[IntArray, FloatArray]:
    """:func:`assign` the detections of one image to the labelled objects of their foreground class."""
    same = detected.foreground_labels[:, None] == truth.labels[None, :]
    return assign(np.where(same, iou_matrix(detected.boxes, truth.boxes), 0.0), detected.scores, min_iou)


def assign(
    overlaps: FloatArray, scores: FloatArray, min_iou: float = MATCH_IOU
) -> tuple[IntArray, FloatArray]:
    """Greedy matching of detections to labelled objects: each, the highest score first, takes the free one it overlaps most.

    ``overlaps`` (N, M): IoU of N detections and M objects; ``scores`` (N,). Returns for every detection the number of its object
    (N,), -1 for none with an IoU of at least ``min_iou`` > 0, and the IoU with it (N,), 0 for none.
    """
    taken, iou = np.full(len(overlaps), -1), np.zeros(len(overlaps))
    free = np.ones(overlaps.shape[1], bool)
    for row in np.argsort(-scores, kind="stable") if len(free) else ():
        candidates = np.where(free, overlaps[row], 0.0)
        best = int(candidates.argmax())
        if candidates[best] >= min_iou:
            taken[row], iou[row], free[best] = best, candidates[best], False
    return taken, iou


def best_overlap(boxes: FloatArray, objects: FloatArray, min_iou: float) -> tuple[IntArray, FloatArray]:
    """Which of ``objects`` (M, 4) each of ``boxes`` (N, 4) overlaps most, -1 below ``min_iou``, and the IoU; two may share it."""
    if not len(objects) or not len(boxes):
        return np.full(len(boxes), -1), np.zeros(len(boxes))
    overlaps = iou_matrix(boxes, objects)
    iou = overlaps.max(axis=1)
    return np.where(iou >= min_iou, overlaps.argmax(axis=1), -1), iou


def find_overlapping(boxes: FloatArray, others: FloatArray, min_iou: float) -> NDArray[np.bool_]:
    """Which of ``boxes`` (N, 4) overlap any of ``others`` (M, 4) by at least ``min_iou`` > 0, (N,)."""
    return best_overlap(boxes, others, min_iou)[0] >= 0


def shares_inside(boxes: NDArray[np.floating], crowd: NDArray[np.floating]) -> NDArray[np.float64]:
    """Which share of each of ``boxes`` (N, 4) is in each region of ``crowd`` (M, 4): (N, M), 0..1, as COCO measures it."""
    low, high = (
        np.maximum(boxes[:, None, :2], crowd[None, :, :2]),
        np.minimum(boxes[:, None, 2:], crowd[None, :, 2:]),
    )
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1, dtype=np.float64)[:, None]
    shared = (high - low).clip(0).prod(axis=2, dtype=np.float64)
    return np.divide(shared, areas, out=np.zeros_like(shared), where=areas > 0)

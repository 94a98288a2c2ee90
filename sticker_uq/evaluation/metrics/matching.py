"""Which labelled object each detection shows, if any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.accuracy import MATCH_IOU
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix


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
        """The most probable class of each detection other than background, (N,)."""
        return self.probabilities[:, 1:].argmax(axis=1) + 1

    @property
    def scores(self) -> FloatArray:
        """The probability of that class, (N,)."""
        return self.probabilities[:, 1:].max(axis=1)


def match(found: Sequence[Detections], truths: Sequence[LabelledImage]) -> MatchedDetections:
    """``found``, one for every image of ``truths``, with the labelled object that each detection shows.

    Raises :class:`InvalidInput` when there is not one for every image.
    """
    if len(found) != len(truths):
        raise InvalidInput(f"detections of {len(found)} images, expected {len(truths)}")
    probabilities, truth, image, right, iou = [], [], [], [], []
    missed = {ObjectClass.LOGO: 0, ObjectClass.STICKER: 0}
    for number, (detected, labelled) in enumerate(zip(found, truths, strict=True)):
        overlaps = iou_matrix(detected.boxes, labelled.boxes)
        order = np.argsort(-detected.scores, kind="stable")
        place = _assign(overlaps, order)
        same = detected.foreground_labels[:, None] == labelled.labels[None, :]
        hit = _assign(np.where(same, overlaps, 0.0), order)
        probabilities.append(detected.probabilities)
        truth.append(np.where(place >= 0, np.append(labelled.labels, 0)[place], int(ObjectClass.BACKGROUND)))
        image.append(np.full(len(detected), number))
        right.append(hit >= 0)
        padded = np.column_stack([overlaps, np.zeros(len(detected))])
        iou.append(padded[np.arange(len(detected)), hit])
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


def _assign(overlaps: FloatArray, order: IntArray) -> IntArray:
    """For each detection, the surest first, the free object it overlaps most, from MATCH_IOU on; -1: none. (N,)"""
    taken = np.full(len(overlaps), -1)
    free = np.ones(overlaps.shape[1], bool)
    for row in order if overlaps.shape[1] else []:
        candidates = np.where(free, overlaps[row], 0.0)
        best = int(candidates.argmax())
        if candidates[best] >= MATCH_IOU:
            taken[row], free[best] = best, False
    return taken

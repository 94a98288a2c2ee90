# SPDX-License-Identifier: Apache-2.0
"""Labels that are probably wrong: detections that a replay releases as certain and that the labels contradict."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import count

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.matching import MATCH_IOU
from sticker_uq.evaluation.replay.tables import Row
from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.images import Picture
from sticker_uq.io.sources import SourceImage
from sticker_uq.scene import ObjectClass, ObservedObject, SceneDecision, Verdict
from sticker_uq.uncertainty import iou_matrix

LABEL_SCHEMA = pa.schema(
    [
        ("image", pa.string()),
        ("object", pa.int32()),
        ("detected", pa.string()),
        ("labelled", pa.string()),
        ("iou", pa.float64()),
        ("probability", pa.float64()),
        ("detection_rate", pa.float64()),
        ("mutual_information", pa.float64()),
        *[(name, pa.float32()) for name in ("x1", "y1", "x2", "y2")],
    ]
)
"""One row per contradiction: what was detected, the class of the labelled object that overlaps most, their IoU, the probability
of the detected class, share of the passes, and the box in px.

Where no labelled object has an IoU of 0.5, ``labelled`` is "loose" if one of the detected class has an IoU of 0.1, which ``iou``
then is: the two boxes differ, not what they say. It is "nothing" without one.
"""
LOOSE = "loose"
_LOOSE_IOU = 0.1
SHOWN = 12
"""The surest contradictions of which a picture is kept."""
_MARGIN = 0.4
"""Of the box, that is shown around it."""


class LabelErrors:
    """Compares what a replay releases with ``labels``, by the name of the image without its suffix, image by image.

    ``rows``: the contradictions found, in the order of the images; ``unlabelled``: images without labels.
    """

    def __init__(self, labels: Mapping[str, LabelledImage]) -> None:
        self._labels = labels
        self.rows: list[Row] = []
        self.unlabelled = 0
        self._surest: list[tuple[float, int, Row, NDArray[np.uint8]]] = []
        self._number = count()

    def add(self, item: SourceImage, decision: SceneDecision) -> None:
        """Look for label errors in the replay's next image; a sticker to be removed and a logo to be kept are certain."""
        truth = self._labels.get(item.name.rsplit(".", 1)[0])
        if truth is None:
            self.unlabelled += 1
            return
        for verdict in decision.verdicts:
            certain = verdict.verdict is Verdict.REMOVE or (
                verdict.verdict is Verdict.KEEP and verdict.reasons[0].subject == "logo_probability"
            )
            if certain and (row := _contradiction(item.name, verdict.object, truth)):
                self.rows.append(row)
                if item.image is not None:
                    self._keep(row, item.image)

    def pictures(self) -> list[tuple[Row, Picture]]:
        """Pictures of a replay's probable label errors, each with the part of the image around it, the surest first."""
        return [(row, crop) for *_, row, crop in sorted(self._surest, key=lambda one: one[:2], reverse=True)]

    def _keep(self, row: Row, image: Picture) -> None:
        entry = (row["probability"], -next(self._number), row, _crop(image, row))
        (heapq.heappush if len(self._surest) < SHOWN else heapq.heappushpop)(self._surest, entry)


def _contradiction(name: str, found: ObservedObject, truth: LabelledImage) -> Row | None:
    overlaps = iou_matrix(found.box[None], truth.boxes)[0]
    best = int(overlaps.argmax()) if len(overlaps) else -1
    overlap = float(overlaps[best]) if len(overlaps) else 0.0
    labelled = ObjectClass(int(truth.labels[best])).name.lower() if overlap >= MATCH_IOU else "nothing"
    if labelled == found.label.name.lower():
        return None
    like = float(overlaps[truth.labels == found.label].max(initial=0.0))
    if labelled == "nothing" and like >= _LOOSE_IOU:
        labelled, overlap = LOOSE, like
    return {
        "image": name,
        "object": found.id,
        "detected": found.label.name.lower(),
        "labelled": labelled,
        "iou": overlap,
        "probability": float(found.probabilities[found.label]),
        "detection_rate": found.detection_rate,
        "mutual_information": found.mutual_information,
        **dict(zip(("x1", "y1", "x2", "y2"), found.box.tolist(), strict=True)),
    }


def contradiction_text(row: Row) -> str:
    if row["labelled"] == LOOSE:
        return f"box is loose (IoU {row['iou']:.2f})"
    return f"labelled {row['labelled']}"


def _crop(image: Picture, row: Row) -> Picture:
    height, width = image.shape[:2]
    x1, y1, x2, y2 = row["x1"], row["y1"], row["x2"], row["y2"]
    across, down = _MARGIN * (x2 - x1), _MARGIN * (y2 - y1)
    left, right = max(int(x1 - across), 0), min(int(x2 + across) + 1, width)
    top, bottom = max(int(y1 - down), 0), min(int(y2 + down) + 1, height)
    return image[top:bottom, left:right].copy()

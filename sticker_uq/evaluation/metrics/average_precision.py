# SPDX-License-Identifier: Apache-2.0
"""Mean average precision, the figure by which training picks its best epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics.detection.mean_ap import MeanAveragePrecision

from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, ObjectClass

FOREGROUND = (ObjectClass.LOGO, ObjectClass.STICKER)
RECALLS = np.arange(101) / 100
"""COCO's recall thresholds. Each is the double nearest to k / 100, as a recall of k in 100 is: that recall reaches it."""
TORCHMETRICS_RECALLS = np.array(torch.linspace(0, 1, 101).tolist())
"""torchmetrics' own, in single precision: a recall of 6 in 10 is below its threshold 0.6. AP is lower by up to 0.01 per threshold
met exactly. Only for comparison with figures that were computed with them."""


def average_precisions(
    detections: Sequence[Detections], truths: Sequence[LabelledImage], iou: float = 0.5
) -> dict[ObjectClass, float]:
    """COCO's AP of logo and sticker on labelled images at one IoU threshold, 0..1, NaN for a class without ground truth.

    ``detections`` and ``truths`` belong together one by one. A detection counts with its foreground label and
    that label's probability; one that finds no object and lies in a crowd of its class does not count.
    """
    result = coco_result(detections, truths, [iou], by_class=True)
    by_class = dict(
        zip(result["classes"].reshape(-1).tolist(), result["map_per_class"].reshape(-1).tolist(), strict=True)
    )
    present = {int(label) for truth in truths for label in truth.labels}
    # torchmetrics says -1 where a class has no ground truth
    return {c: by_class[int(c)] if int(c) in present else float("nan") for c in FOREGROUND}


def coco_result(
    detections: Sequence[Detections],
    truths: Sequence[LabelledImage],
    ious: list[float] | None = None,
    by_class: bool = False,
) -> dict[str, torch.Tensor]:
    """COCO's AP and AR from torchmetrics' ``MeanAveragePrecision``, by its names; ``ious`` None: 0.5 to 0.95 in steps of 0.05."""
    metric = MeanAveragePrecision(
        iou_thresholds=ious,
        rec_thresholds=RECALLS.tolist(),
        class_metrics=by_class,
        max_detection_thresholds=[1, 10, 100],
        backend="faster_coco_eval",
    )
    metric.warn_on_many_detections = False
    for found, truth in zip(detections, truths, strict=True):
        metric.update(
            [
                {
                    "boxes": torch.from_numpy(found.boxes),
                    "scores": torch.from_numpy(found.scores),
                    "labels": torch.from_numpy(found.foreground_labels),
                }
            ],
            [
                {
                    "boxes": torch.from_numpy(np.concatenate((truth.boxes, truth.crowd))),
                    "labels": torch.from_numpy(np.concatenate((truth.labels, truth.crowd_labels))),
                    "iscrowd": torch.arange(len(truth.labels) + len(truth.crowd_labels)) >= len(truth.labels),
                }
            ],
        )
    return dict(metric.compute())

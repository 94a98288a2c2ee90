# SPDX-License-Identifier: Apache-2.0
"""From the T passes over one image to its row in the results."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.accuracy import as_detections
from sticker_uq.evaluation.metrics.average_precision import RECALLS, TORCHMETRICS_RECALLS
from sticker_uq.evaluation.metrics.match_table import MatchTable
from sticker_uq.evaluation.metrics.matching import match
from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.studies.detectors.box_quality import box_quality
from sticker_uq.lab.studies.detectors.legacy import MIN_SCORE, legacy_metrics
from sticker_uq.lab.studies.detectors.measures import Profile
from sticker_uq.scene import METRICS, Detections, ObjectClass, StochasticSamples
from sticker_uq.uncertainty import observe

Row = dict[str, Any]


def score(samples: StochasticSamples, truth: LabelledImage, profile: Profile) -> tuple[Row, list[Row]]:
    """The measures of one image by their names, and one row for each of its clustered objects.

    ``map``: mAP@0.5 over the detections of all passes, each pass an image with the same labels, as published; classes without an
    object in the image do not count, NaN without any object. Metrics are means over the clusters, NaN where nothing was
    clustered. ``detection_rate``: mean share of the passes that saw a cluster. Profile ``simula_rp``: see `legacy`, and mAP of
    stickers with a score from 0.6 on, at torchmetrics' recall thresholds.
    """
    objects, unstable, uncertainty = observe(samples)
    passes = _passes(samples)
    by_class = {
        label: _average_precision(passes, truth, label) for label in (ObjectClass.LOGO, ObjectClass.STICKER)
    }
    quality = box_quality(objects, truth)
    row: Row = {
        "truth_objects": len(truth.labels),
        "map": _mean(list(by_class.values())),
        "ap_logo": by_class[ObjectClass.LOGO],
        "ap_sticker": by_class[ObjectClass.STICKER],
        **{name: getattr(uncertainty, name) for name in METRICS},
        "clusters": len(objects),
        "unstable": len(unstable),
        "detection_rate": _mean([o.detection_rate for o in objects]),
        "detections_per_pass": len(samples) / samples.passes,
        "true_positives": quality.true_positives,
        "false_positives": quality.false_positives,
        "false_negatives": quality.false_negatives,
        "lrp": quality.lrp,
        "pdq": quality.pdq,
        "pdq_sum": quality.pdq_sum,
    }
    if profile == "simula_rp":
        strong = [_only(found, ObjectClass.STICKER, MIN_SCORE) for found in passes]
        row |= legacy_metrics(samples) | {
            "map": _average_precision(strong, truth, ObjectClass.STICKER, TORCHMETRICS_RECALLS)
        }
    found = as_detections(objects)
    matched = match([found], [truth])
    rows = [
        {
            "label": int(o.label),
            "score": o.score,
            "right": bool(right),
            "iou": float(iou),
            "detection_rate": o.detection_rate,
            **dict(zip(("x1", "y1", "x2", "y2"), o.box.tolist(), strict=True)),
        }
        for o, right, iou in zip(objects, matched.right, matched.iou, strict=True)
    ]
    return row, rows


def _passes(samples: StochasticSamples) -> list[Detections]:
    """The detections of each pass."""
    members = [samples.pass_index == number for number in range(samples.passes)]
    return [Detections(samples.boxes[own], samples.probabilities[own]) for own in members]


def _only(found: Detections, label: ObjectClass, score: float = 0.0) -> Detections:
    chosen = (found.foreground_labels == label) & (found.scores >= score)
    return Detections(found.boxes[chosen], found.probabilities[chosen])


def _average_precision(
    passes: list[Detections],
    truth: LabelledImage,
    label: ObjectClass,
    recalls: NDArray[np.float64] = RECALLS,
) -> float:
    own = truth.labels == label
    if not own.any():
        return math.nan
    wanted = replace(truth, boxes=truth.boxes[own], labels=truth.labels[own])
    table = MatchTable([_only(found, label) for found in passes], [wanted] * len(passes))
    return float(table.average_precision(recalls=recalls)[0])


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan

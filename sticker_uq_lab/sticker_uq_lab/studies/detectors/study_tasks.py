# SPDX-License-Identifier: Apache-2.0
"""The tasks of a detector study, each a function of its arguments alone: attacking one picture, assessing one picture."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from hdbscan import HDBSCAN
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr

from sticker_uq.detection.detector import StochasticDetector, load_detector
from sticker_uq.evaluation.metrics.accuracy import RECALLS, TORCHMETRICS_RECALLS, MatchTable, as_detections
from sticker_uq.evaluation.metrics.matching import DECISION_SCORE, MATCH_IOU, match, match_classes
from sticker_uq.io.coco import LabelledImage, encode_picture, read_picture
from sticker_uq.io.files import write_file
from sticker_uq.perception.dil import LocalizationSettings, localize
from sticker_uq.perception.pipeline import image_digest, image_seed
from sticker_uq.scene import METRICS, Detections, FloatArray, ObjectClass, ObservedObject, StochasticSamples
from sticker_uq.uncertainty import observe
from sticker_uq.uncertainty.metrics import GroupedSamples, total_variance, variation_ratio
from sticker_uq_lab.attacks.white_box import attack, variant_seed
from sticker_uq_lab.studies.detectors.measures import UNCERTAINTY, Profile
from sticker_uq_lab.studies.detectors.study_plan import ModelChoice, StudySettings

# From the T passes over one image to its row in the results: average precision, box quality, uncertainty; and the metrics as
# the published code computes them (profile simula_rp), quirks included.
Row = dict[str, Any]
_LEAST_DEVIATION = 0.5  # standard deviation of a corner below which a box cannot be drawn, px
_REACH = 4.0
_SMALLEST = 1e-14


def box_quality(objects: Sequence[ObservedObject], truth: LabelledImage) -> Row:
    """Box quality of clustered ``objects`` with a score from DECISION_SCORE on, against the labels of ``truth``.

    ``lrp``: localization recall precision error 0..1 (Oksuz et al. 2018), lower is better; it matches at IoU 0.5 within a class,
    the surest first. ``pdq``: probability-based detection quality 0..1 (Hall et al. 2020); it matches for the largest sum
    ``pdq_sum`` of pairwise qualities, in which the corners of a box are Gaussian with the variances over the passes. Both are NaN
    without objects and detections.
    """
    found = [o for o in objects if o.score >= DECISION_SCORE and o.label != 0]
    places, overlaps = match_classes(as_detections(found), truth)
    hits = int((places >= 0).sum())
    wrong, missed = len(found) - hits, len(truth.boxes) - hits
    error = float((1.0 - overlaps[places >= 0]).sum()) / (1.0 - MATCH_IOU)
    labelled = list(zip(truth.boxes, truth.labels.tolist(), strict=True))
    pairs = np.array([[pairwise_pdq(o, box, label) for box, label in labelled] for o in found])
    pairs = pairs.reshape(len(found), len(truth.boxes))
    rows, columns = linear_sum_assignment(pairs, maximize=True)
    pdq_sum, total = float(pairs[rows, columns].sum()), hits + wrong + missed
    return {
        "true_positives": hits,
        "false_positives": wrong,
        "false_negatives": missed,
        "lrp": (error + wrong + missed) / total if total else math.nan,
        "pdq": pdq_sum / total if total else math.nan,
        "pdq_sum": pdq_sum,
    }


def pairwise_pdq(found: ObservedObject, box: FloatArray, label: int) -> float:
    """pPDQ 0..1 of one detection and one object: sqrt(spatial quality times probability of the object's class)."""
    deviation = np.maximum(np.sqrt(np.diag(found.box_covariance)), _LEAST_DEVIATION)
    low = np.floor(np.minimum(box[:2], found.box[:2] - _REACH * deviation[:2])).astype(int)
    high = np.ceil(np.maximum(box[2:], found.box[2:] + _REACH * deviation[2:])).astype(int)
    covered, inside = [], []
    for axis in (0, 1):
        pixels = np.arange(low[axis], high[axis]) + 0.5
        begins = ndtr((pixels - found.box[axis]) / deviation[axis])
        ends = ndtr((found.box[axis + 2] - pixels) / deviation[axis + 2])
        covered.append(begins * ends)
        inside.append((pixels > box[axis]) & (pixels < box[axis + 2]))
    within = float(inside[0].sum() * inside[1].sum())
    if not within or not np.isfinite(deviation).all():
        return 0.0
    logs = [np.log(np.maximum(c[i], _SMALLEST)).mean() for c, i in zip(covered, inside, strict=True)]
    foreground = -float(sum(logs))  # the pixel's probability is the product of its row's and its column's
    probability = np.outer(covered[1], covered[0])
    probability[np.outer(inside[1], inside[0])] = 0.0
    background = -float(np.log1p(-np.minimum(probability, 1 - _SMALLEST)).sum()) / within
    return math.sqrt(math.exp(-(foreground + background)) * float(found.probabilities[label]))


MIN_SCORE = 0.6
_CLUSTER = 3
_EPSILON = 1e-15
_DIGITS = 5


def legacy_metrics(samples: StochasticSamples) -> dict[str, float]:
    """Uncertainty metrics as Lu et al.'s code has them: VR, SE, MI, TV, PS over clusters, ``clusters``; NaN without any."""
    chosen = (samples.probabilities.argmax(axis=1) == ObjectClass.STICKER) & (
        samples.probabilities[:, ObjectClass.STICKER] >= MIN_SCORE
    )
    boxes = samples.boxes[chosen].astype(np.float64)
    vectors = samples.probabilities[chosen].astype(np.float64)
    names = tuple(measure.name for measure in UNCERTAINTY)
    if len(boxes) < _CLUSTER:
        return dict.fromkeys(names, math.nan) | {"clusters": 0.0}
    centres = ((boxes[:, :2] + boxes[:, 2:]) / 2).astype(int)
    labels = HDBSCAN(min_cluster_size=_CLUSTER).fit_predict(np.column_stack([boxes, centres]))
    rows = []
    # as `box in array` has it: a box belongs to every cluster with one of whose boxes it shares a coordinate, such as the border
    clusters = [
        np.flatnonzero((boxes[:, None] == boxes[labels == label]).any(axis=(1, 2)))
        for label in np.unique(labels)
    ]
    grouped = GroupedSamples.of(samples, [np.flatnonzero(chosen)[members] for members in clusters])
    ratios, variances = variation_ratio(grouped), total_variance(grouped)
    for number, members in enumerate(clusters):
        entropy = round(_entropy(vectors[members].mean(axis=0)), _DIGITS)
        expected = float(np.mean([_entropy(v) for v in vectors[members]]))
        found = ratios[number], entropy, entropy - expected, variances[number]
        rows.append((*found, perimeter_sum(boxes[members])))
    means = np.mean(rows, axis=0).tolist()
    return dict(zip(names, means, strict=True)) | {"clusters": float(len(rows))}


def perimeter_sum(boxes: FloatArray) -> float:
    """PS in Lu et al.'s code: perimeters of the corner hulls of boxes (M, 4), px; -1 for fewer than 3 or a flat hull."""
    total = 0.0
    for x, y in ((0, 1), (2, 1), (0, 3), (2, 3)):
        hull = shapely.convex_hull(shapely.multipoints(boxes[:, [x, y]]))
        if len(boxes) < _CLUSTER or hull.area == 0:
            return -1.0
        total += float(hull.length)
    return total


def _entropy(vector: FloatArray) -> float:
    return -float(np.sum(vector * np.log2(vector + _EPSILON)))


def score(samples: StochasticSamples, truth: LabelledImage, profile: Profile) -> tuple[Row, list[Row]]:
    """The measures of one image by their names, and one row for each of its clustered objects.

    ``map``: mAP@0.5 over the detections of all passes, each pass an image with the same labels, as published; classes without an
    object in the image do not count, NaN without any object. Metrics are means over the clusters, NaN where nothing was
    clustered. ``detection_rate``: mean share of the passes that saw a cluster. Profile ``simula_rp``: see `legacy`, and mAP of
    stickers with a score from 0.6 on, at torchmetrics' recall thresholds.
    """
    objects, unstable, uncertainty = observe(samples)
    members = [samples.pass_index == number for number in range(samples.passes)]
    passes = [Detections(samples.boxes[own], samples.probabilities[own]) for own in members]
    by_class = {
        label: _average_precision(passes, truth, label) for label in (ObjectClass.LOGO, ObjectClass.STICKER)
    }
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
        **box_quality(objects, truth),
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


def _only(found: Detections, label: ObjectClass, score: float = 0.0) -> Detections:
    chosen = (found.foreground_labels == label) & (found.scores >= score)
    return Detections(found.boxes[chosen], found.probabilities[chosen])


def _average_precision(
    passes: list[Detections], truth: LabelledImage, label: ObjectClass, recalls: NDArray[np.float64] = RECALLS
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


@dataclass(frozen=True)
class AttackTask:
    model: ModelChoice
    dataset: str
    item: LabelledImage
    variant: str
    file: Path
    key: str


@dataclass(frozen=True)
class Assess:
    """Assess ``item``, attacked in ``file`` if any, with ``model`` at ``rates``; ``keys`` of the results."""

    model: ModelChoice
    dataset: str
    item: LabelledImage
    variant: str
    rates: tuple[float, ...]
    keys: tuple[str, ...]
    file: Path | None = None


Task = AttackTask | Assess
_RESULTS = ("iterations", "rms", "linf", "targets", "fooled", "success")


def perform_task(task: Task, settings: StudySettings) -> dict[str, Any]:
    return _attack(task, settings) if isinstance(task, AttackTask) else _assess(task, settings)


def _attack(task: AttackTask, settings: StudySettings) -> dict[str, Any]:
    detector = _detectors(settings.detector(task.model), (0.0,))[0.0]
    seed = variant_seed(settings.seed, int(task.variant[-2:]), task.item.path.name)
    (found,) = attack(detector, [task.item], settings.attack, [seed])
    task.file.parent.mkdir(parents=True, exist_ok=True)
    write_file(task.file, encode_picture(found.image, "png"))
    return {
        task.key: {
            "attacked": task.model.label,
            "dataset": task.dataset,
            "image": task.item.path.name,
            "variant": task.variant,
            **{name: getattr(found, name) for name in _RESULTS},
        }
    }


def _assess(task: Assess, settings: StudySettings) -> dict[str, Any]:
    detectors = _detectors(settings.detector(task.model), settings.rates)
    first = next(iter(detectors.values()))
    truth = task.item if task.file is None else replace(task.item, path=task.file)
    image = read_picture(truth)
    started = time.perf_counter()
    features = first.encode(image)
    encode_ms = (time.perf_counter() - started) * 1e3
    started = time.perf_counter()
    asked = LocalizationSettings()
    localization = localize(first.deterministic_pass(features, least_score=asked.decision_threshold), asked)
    look_ms = (time.perf_counter() - started) * 1e3
    seed = image_seed(image_digest(image), settings.seed)
    kept: dict[str, Any] = {}
    for rate, key in zip(task.rates, task.keys, strict=True):
        started = time.perf_counter()
        samples = detectors[rate].sample(features, settings.passes, seed)
        decode_ms = (time.perf_counter() - started) * 1e3
        row, objects = score(samples, truth, settings.profile)
        where = {
            "dataset": task.dataset,
            "dropout_rate": rate,
            "variant": task.variant,
            "image": task.item.path.name,
            "model": task.model.label,
            "width": truth.width,
            "height": truth.height,
        }
        costs = {
            "dil": localization.dil,
            "encode_ms": encode_ms,
            "look_ms": look_ms,
            "decode_ms": decode_ms,
            "device": first.device_name,
        }
        kept[key] = {"row": where | row | costs, "objects": objects}
    return kept


@cache
def _detectors(settings: Any, rates: tuple[float, ...]) -> dict[float, StochasticDetector]:
    """One detector for each rate, all with one copy of the weights; kept for the next task of this process."""
    loaded = load_detector(settings)
    return {rate: loaded.with_settings(settings.model_copy(update={"dropout_rate": rate})) for rate in rates}


def weights_hash(model: ModelChoice, settings: StudySettings) -> str:
    return next(iter(_detectors(settings.detector(model), settings.rates).values())).weights_hash

# SPDX-License-Identifier: Apache-2.0
"""Detection accuracy on labelled pictures: average precision (COCO), of the deterministic detector and of the objects that
T passes cluster into, also for resampled images.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sticker_uq.detection.detector import StochasticDetector
from sticker_uq.evaluation.metrics import matching
from sticker_uq.io.coco import LabelledImage, pictures_of
from sticker_uq.scene import CLASS_COUNT, METRICS, Detections, InvalidInput, ObjectClass, ObservedObject
from sticker_uq.uncertainty import ClusterSettings, iou_matrix, observe

FOREGROUND = (ObjectClass.LOGO, ObjectClass.STICKER)
RECALLS = np.arange(101) / 100
"""COCO's recall thresholds. Each is the double nearest to k / 100, as a recall of k in 100 is: that recall reaches it."""
TORCHMETRICS_RECALLS = np.array(torch.linspace(0, 1, 101).tolist())
"""torchmetrics' own, in single precision: a recall of 6 in 10 is below its threshold 0.6. AP is lower by up to 0.01 per threshold
met exactly. Only for comparison with figures that were computed with them."""


def average_precisions(
    detections: Sequence[Detections], truths: Sequence[LabelledImage], iou: float = 0.5
) -> dict[ObjectClass, float]:
    """COCO's AP of logo and sticker at one IoU threshold, 0..1, NaN for a class without ground truth.

    There is one of ``detections`` for each of ``truths``. A detection counts with its foreground label and that label's
    probability; one that finds no object and lies in a crowd of its class does not count.
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
    # takes longer to load than PyTorch itself, and most commands that name this module never compute an AP
    from torchmetrics.detection.mean_ap import MeanAveragePrecision

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


IOUS = tuple(0.5 + 0.05 * step for step in range(10))
"""IoU thresholds of COCO's AP and AR."""
MOST_DETECTIONS = 100

Weights = NDArray[np.floating]


class MatchTable:
    """COCO's matching of ``detections`` with ``truths``, one of each per image, from which AP of any selection follows."""

    def __init__(self, detections: Sequence[Detections], truths: Sequence[LabelledImage]) -> None:
        _check_pairs(detections, truths)
        self.images = len(truths)
        self._tables = [_class_table(detections, truths, label) for label in FOREGROUND]

    def average_precision(
        self, weights: Weights | None = None, recalls: NDArray[np.float64] = RECALLS
    ) -> NDArray[np.float64]:
        """COCO's AP over logo and sticker at every threshold of IOUS, (10,); NaN without an object.

        ``weights`` (images,): how often each image counts, 0 leaves it out; None: every image once. ``recalls``: the recalls at
        which precision is read; a recall equal to a threshold reaches it.
        """
        weights = np.ones(self.images) if weights is None else weights
        rows = [_average_precisions(*table, weights, recalls) for table in self._tables]
        known = [row for row in rows if not np.isnan(row).any()]
        return np.mean(known, axis=0) if known else np.full(len(IOUS), math.nan)


def _average_precisions(
    image: NDArray[np.intp],
    hit: NDArray[np.bool_],
    objects: NDArray[np.float64],
    weights: Weights,
    recalls: NDArray[np.float64],
) -> NDArray[np.float64]:
    wanted = float(weights @ objects)
    if wanted <= 0:
        return np.full(len(IOUS), np.nan)
    counted = weights[image][:, None]
    right = np.cumsum(counted * hit, axis=0)
    total = np.cumsum(np.broadcast_to(counted, hit.shape), axis=0)
    precision = np.divide(right, total, out=np.zeros_like(right), where=total > 0)
    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    recall = right / wanted
    found = np.zeros(len(IOUS))
    for column in range(len(IOUS)):
        places = np.searchsorted(recall[:, column], recalls, side="left")
        reached = places < len(recall)
        found[column] = precision[places[reached], column].sum() / len(recalls)
    return found


def _class_table(
    detections: Sequence[Detections], truths: Sequence[LabelledImage], label: int
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.float64]]:
    """Detections of a class, the surest first: image (N,) and hits (N, 10) by IoU threshold; objects of the class (images,)."""
    scores, images, hits = [], [], []
    objects = np.zeros(len(truths))
    for index, (found, truth) in enumerate(zip(detections, truths, strict=True)):
        chosen = np.flatnonzero(found.foreground_labels == label)
        order = chosen[np.argsort(-found.scores[chosen], kind="stable")][:MOST_DETECTIONS]
        wanted = truth.boxes[truth.labels == label]
        overlaps = iou_matrix(found.boxes[order], wanted)
        # COCO's rule takes an object from an overlap a little below the threshold on
        columns = [matching.assign(overlaps, found.scores[order], least - 1e-10)[0] >= 0 for least in IOUS]
        objects[index] = len(wanted)
        scores.append(found.scores[order])
        images.append(np.full(len(order), index))
        hits.append(np.stack(columns, axis=1))
    falling = np.argsort(-np.concatenate(scores), kind="stable")
    return np.concatenate(images)[falling], np.concatenate(hits)[falling], objects


@dataclass(frozen=True)
class ClassAccuracy:
    """``objects`` of the ground truth; NaN: nothing to measure it on."""

    objects: int
    average_precision: float
    precision: float
    recall: float


@dataclass(frozen=True)
class Accuracy:
    """``map50``: mean over the classes with ground truth of the average precision at IoU 0.5 (COCO, 101 points).

    Precision and recall of ``classes`` count detections with score >= DECISION_SCORE.
    """

    images: int
    map50: float
    classes: Mapping[ObjectClass, ClassAccuracy]


@dataclass(frozen=True)
class StochasticAccuracy:
    """The clustered objects of T passes measured like detections, and the plain means over the images of their metrics."""

    accuracy: Accuracy
    passes: int
    dropout_rate: float
    objects_per_image: float
    unstable_per_image: float
    uncertainty: Mapping[str, float]
    """By metric name; images without an object do not count."""


def mean_average_precision(detections: Sequence[Detections], truths: Sequence[LabelledImage]) -> Accuracy:
    """mAP and AP of ``detections``; InvalidInput unless there is one for every picture of ``truths``, and at least one."""
    _check_pairs(detections, truths)
    precisions = average_precisions(detections, truths, matching.MATCH_IOU)
    classes = {c: _class_accuracy(c, precisions[c], detections, truths) for c in FOREGROUND}
    known = [p for p in precisions.values() if not math.isnan(p)]
    return Accuracy(len(truths), sum(known) / len(known) if known else math.nan, classes)


def coco_summary(detections: Sequence[Detections], truths: Sequence[LabelledImage]) -> dict[str, float]:
    """COCO's twelve figures (AP, AR) over logo and sticker, 0..1, NaN without an object to measure them on.

    ``ap``, ``ap50``, ``ap75``, ``ap_small``, ``ap_medium``, ``ap_large``, ``ar_1``, ``ar_10``, ``ar_100``, ``ar_small``,
    ``ar_medium``, ``ar_large``. Raises InvalidInput as :func:`mean_average_precision` does.
    """
    _check_pairs(detections, truths)
    result = coco_result(detections, truths)
    sizes = ("small", "medium", "large")
    names = {"ap": "map", "ap50": "map_50", "ap75": "map_75", **{f"ap_{s}": f"map_{s}" for s in sizes}}
    names |= {f"ar_{key}": f"mar_{key}" for key in (1, 10, 100, *sizes)}
    # torchmetrics says -1 where there is no object
    return {name: value if (value := float(result[key])) >= 0 else math.nan for name, key in names.items()}


def count_matches(
    detected: Detections,
    truth: LabelledImage,
    iou: float = matching.MATCH_IOU,
    score: float = matching.DECISION_SCORE,
) -> tuple[int, int, int]:
    """True positives (at least ``score``, and ``iou`` with an object of their class), false positives and false negatives."""
    kept = detected.scores >= score
    chosen = Detections(detected.boxes[kept], detected.probabilities[kept])
    hits = int((matching.match_classes(chosen, truth, iou)[0] >= 0).sum())
    return hits, len(chosen) - hits, len(truth.boxes) - hits


def evaluate_detector(
    detector: StochasticDetector, items: Sequence[LabelledImage], progress: Callable[[], None] = lambda: None
) -> Accuracy:
    """Accuracy of ``detector`` without dropout.

    The score floor of ``detector`` cuts the precision-recall curve off: give it a low one. ``progress`` is called after
    every picture. Raises InvalidInput for a picture that cannot be read.
    """
    found = [detector.detect(detector.encode(picture)) for _, picture in pictures_of(items, progress)]
    return mean_average_precision(found, items)


def evaluate_passes(
    detector: StochasticDetector,
    items: Sequence[LabelledImage],
    clustering: ClusterSettings | None = None,
    progress: Callable[[], None] = lambda: None,
) -> StochasticAccuracy:
    """Accuracy of what the stochastic passes cluster into, and its mean uncertainty; ``clustering`` None: the default."""
    settings = detector.settings
    found, images, unstable = [], [], 0
    for number, (_, picture) in enumerate(pictures_of(items, progress)):
        features = detector.encode(picture)
        objects, seldom, image = observe(
            detector.sample(features, settings.passes, settings.seed + number), clustering
        )
        found.append(as_detections(objects))
        images.append(image)
        unstable += len(seldom)
    table = np.array([[getattr(image, name) for name in METRICS] for image in images])
    seen = table[np.isfinite(table).all(axis=1)]
    means = seen.mean(axis=0) if len(seen) else np.full(len(METRICS), np.nan)
    return StochasticAccuracy(
        mean_average_precision(found, items),
        settings.passes,
        settings.dropout_rate,
        sum(map(len, found)) / len(items),
        unstable / len(items),
        dict(zip(METRICS, means.tolist(), strict=True)),
    )


def as_json(accuracy: Accuracy | StochasticAccuracy) -> dict[str, Any]:
    """``accuracy`` for a JSON file: classes by their lower-case names, None where nothing could be measured."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k.name.lower() if isinstance(k, ObjectClass) else k: plain(v) for k, v in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return dict(plain(asdict(accuracy)))


def _check_pairs(detections: Sequence[Detections], truths: Sequence[LabelledImage]) -> None:
    if not truths or len(detections) != len(truths):
        raise InvalidInput(
            f"{len(detections)} detections for {len(truths)} pictures, expected as many, at least one"
        )


def as_detections(objects: Sequence[ObservedObject]) -> Detections:
    """Clustered objects as detections: mean boxes and mean probabilities."""
    boxes = np.array([o.box for o in objects], np.float32).reshape(-1, 4)
    vectors = np.array([o.probabilities for o in objects], np.float32).reshape(-1, CLASS_COUNT)
    return Detections(boxes, vectors)


def _class_accuracy(
    label: ObjectClass,
    average_precision: float,
    detections: Sequence[Detections],
    truths: Sequence[LabelledImage],
) -> ClassAccuracy:
    hits = found = objects = 0
    for detected, truth in zip(detections, truths, strict=True):
        own = truth.labels == label
        chosen = (detected.foreground_labels == label) & (detected.scores >= matching.DECISION_SCORE)
        overlaps = iou_matrix(detected.boxes[chosen], truth.boxes[own])
        hit = matching.assign(overlaps, detected.scores[chosen])[0] >= 0
        crowd = matching.shares_inside(detected.boxes[chosen], truth.crowd[truth.crowd_labels == label])
        hits += int(hit.sum())
        found += int((hit | ~(crowd >= matching.MATCH_IOU).any(axis=1)).sum())
        objects += int(own.sum())
    precision, recall = (hits / count if count else math.nan for count in (found, objects))
    return ClassAccuracy(objects, average_precision, precision, recall)

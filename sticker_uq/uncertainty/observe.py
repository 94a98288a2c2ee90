# SPDX-License-Identifier: Apache-2.0
"""From the detections of T passes to objects with their uncertainty, and to the uncertainty of the image."""

from dataclasses import replace
from typing import Any

import numpy as np

from sticker_uq.scene import (
    METRICS,
    Detections,
    FloatArray,
    ImageUncertainty,
    IntArray,
    ObjectClass,
    ObservedObject,
    StochasticSamples,
)
from sticker_uq.uncertainty.cluster import NOISE, ClusterSettings, canonical_order, cluster_ordered, rows_of
from sticker_uq.uncertainty.metrics import GroupedSamples, measure
from sticker_uq.uncertainty.overlap import iou_matrix, overlap_groups

_SAME = 0.5  # IoU from which two passes see the same object


def observe(
    samples: StochasticSamples, settings: ClusterSettings | None = None
) -> tuple[tuple[ObservedObject, ...], tuple[ObservedObject, ...], ImageUncertainty]:
    """The clustered objects of ``samples``, the unstable ones, and the means over the clustered ones (Lu et al., 3.2).

    An object that fewer than ``min_cluster_size`` passes saw is unstable: its boxes are grouped by their overlap, its metrics
    and covariance are NaN. Every box of ``samples`` is in exactly one object. Objects come by falling score, then by box, with
    ids 0, 1, ...; the ids of the unstable ones continue after those. The result does not depend on the order of the rows or
    the numbering of the passes.

    Raises InvalidInput when a box or a probability is not finite, and TooManyBoxes.
    """
    settings = settings or ClusterSettings()
    samples = samples.select(canonical_order(samples))
    labels = cluster_ordered(samples, settings)
    noise = np.flatnonzero(labels == NOISE)
    seldom = overlap_groups(samples.boxes[noise], 1.0 - settings.epsilon)
    objects = _objects(samples, rows_of(labels), False, 0)
    unstable = _objects(samples, [noise[rows] for rows in rows_of(seldom)], True, len(objects))
    return objects, unstable, image_uncertainty(objects, len(unstable))


def single_pass_on(objects: tuple[ObservedObject, ...], found: Detections) -> tuple[ObservedObject, ...]:
    """``objects`` with the probability of sticker that each has in ``found``, a pass without dropout."""
    scores = sticker_scores(np.array([one.box for one in objects]).reshape(-1, 4), found)
    return tuple(replace(one, single_pass=score) for one, score in zip(objects, scores, strict=True))


def sticker_scores(boxes: FloatArray, found: Detections) -> list[float]:
    """The highest probability of sticker in ``found``, a pass without dropout, that overlaps each of ``boxes`` (N, 4) by half."""
    same = iou_matrix(boxes, found.boxes) >= _SAME
    scores = np.where(same, found.probabilities[:, ObjectClass.STICKER], 0.0).max(axis=1, initial=0.0)
    return [float(score) for score in scores]


def image_uncertainty(objects: tuple[ObservedObject, ...], unstable: int) -> ImageUncertainty:
    """Plain means of the metrics over the clustered ``objects`` of one image; NaN when there is none (Lu et al., 3.2.4)."""
    means = {
        name: float(np.mean([getattr(o, name) for o in objects])) if objects else float("nan")
        for name in METRICS
    }
    return ImageUncertainty(objects=len(objects), unstable=unstable, **means)


def _objects(
    samples: StochasticSamples, members: list[IntArray], unstable: bool, first_id: int
) -> tuple[ObservedObject, ...]:
    if not members:
        return ()
    grouped = GroupedSamples.of(samples, members)
    covariances = np.full((len(members), 4, 4), np.nan) if unstable else grouped.covariances
    measured = {} if unstable else {name: of_all.tolist() for name, of_all in measure(grouped).items()}
    values: list[dict[str, Any]] = [
        {name: of_all[g] for name, of_all in measured.items()} for g in range(len(members))
    ]
    boxes, probabilities = grouped.mean_boxes.astype(np.float32), grouped.mean_vectors.astype(np.float32)
    classes = probabilities.argmax(axis=1).tolist()
    sizes, passes = grouped.sizes.tolist(), grouped.passes.tolist()
    scores = probabilities.max(axis=1).tolist()
    ordered = sorted(range(len(members)), key=lambda g: (-scores[g], boxes[g].tolist()))
    return tuple(
        ObservedObject(
            id=first_id + index,
            label=ObjectClass(classes[g]),
            box=boxes[g],
            probabilities=probabilities[g],
            detections=sizes[g],
            passes=passes[g],
            detection_rate=passes[g] / samples.passes,
            duplicated=passes[g] < sizes[g],
            unstable=unstable,
            box_covariance=covariances[g],
            corner_hulls=grouped.corner_hulls[g],
            **values[g],
        )
        for index, g in enumerate(ordered)
    )

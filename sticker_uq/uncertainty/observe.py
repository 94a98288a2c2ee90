"""From the detections of T passes to objects with their uncertainty, and to the uncertainty of the image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sticker_uq.scene import (
    METRICS,
    FloatArray,
    ImageUncertainty,
    IntArray,
    ObjectClass,
    ObservedObject,
    StochasticSamples,
)
from sticker_uq.uncertainty import metrics
from sticker_uq.uncertainty.cluster import NOISE, ClusterSettings, canonical_order, cluster
from sticker_uq.uncertainty.overlap import box_areas, overlap_groups


def observe(
    samples: StochasticSamples, settings: ClusterSettings | None = None
) -> tuple[tuple[ObservedObject, ...], tuple[ObservedObject, ...], ImageUncertainty]:
    """The clustered objects of ``samples``, the unstable ones, and the means over the clustered ones (Wu et al., 3.2).

    An object that fewer than ``min_cluster_size`` passes saw is unstable: its boxes are grouped by their overlap, its metrics
    and covariance are NaN. Every box of ``samples`` is in exactly one object. Objects come by falling score, then by box, with
    ids 0, 1, ...; the ids of the unstable ones continue after those. The result does not depend on the order of the rows or
    the numbering of the passes.

    Raises InvalidInput when a box or a probability is not finite.
    """
    settings = settings or ClusterSettings()
    order = canonical_order(samples)
    samples = replace(
        samples,
        boxes=samples.boxes[order],
        probabilities=samples.probabilities[order],
        pass_index=samples.pass_index[order],
    )
    labels = cluster(samples, settings)
    noise = np.flatnonzero(labels == NOISE)
    seldom = overlap_groups(samples.boxes[noise], 1.0 - settings.epsilon)
    objects = _numbered(_objects(samples, _members(labels), False), 0)
    unstable = _numbered(_objects(samples, [noise[rows] for rows in _members(seldom)], True), len(objects))
    return objects, unstable, image_uncertainty(objects, len(unstable))


def image_uncertainty(objects: tuple[ObservedObject, ...], unstable: int) -> ImageUncertainty:
    """Plain means of the metrics over the clustered ``objects`` of one image; NaN when there is none (Wu et al., 3.2.4)."""
    means = {
        name: float(np.mean([getattr(o, name) for o in objects])) if objects else float("nan")
        for name in METRICS
    }
    return ImageUncertainty(objects=len(objects), unstable=unstable, **means)


def _members(labels: IntArray) -> list[IntArray]:
    return [np.flatnonzero(labels == label) for label in range(int(labels.max(initial=-1)) + 1)]


def _numbered(objects: list[ObservedObject], first_id: int) -> tuple[ObservedObject, ...]:
    ordered = sorted(objects, key=lambda o: (-o.score, o.box.tolist()))
    return tuple(replace(o, id=first_id + index) for index, o in enumerate(ordered))


def _objects(samples: StochasticSamples, members: list[IntArray], unstable: bool) -> list[ObservedObject]:
    outlines = metrics.surfaces_and_hulls([samples.boxes[rows] for rows in members])
    return [_object(samples, rows, unstable, *o) for rows, o in zip(members, outlines, strict=True)]


def _object(
    samples: StochasticSamples, rows: IntArray, unstable: bool, surface: float, hulls: tuple[FloatArray, ...]
) -> ObservedObject:
    boxes, probabilities = samples.boxes[rows], samples.probabilities[rows]
    box = boxes.mean(axis=0, dtype=np.float64)
    mean = metrics.mean_probabilities(probabilities).astype(np.float32)
    passes = int(np.count_nonzero(np.bincount(samples.pass_index[rows])))
    measured: dict[str, Any] = dict.fromkeys(METRICS, float("nan"))
    if not unstable:
        measured = _measure(boxes, probabilities, surface)
    return ObservedObject(
        id=0,
        label=ObjectClass(int(mean.argmax())),
        box=box.astype(np.float32),
        probabilities=mean,
        detections=len(rows),
        passes=passes,
        detection_rate=passes / samples.passes,
        duplicated=passes < len(rows),
        unstable=unstable,
        box_covariance=np.full((4, 4), np.nan) if unstable else metrics.box_covariance(boxes),
        corner_hulls=hulls,
        **measured,
    )


def _measure(boxes: np.ndarray, probabilities: np.ndarray, surface: float) -> dict[str, float]:
    area = float(box_areas(boxes.mean(axis=0, dtype=np.float64)[None])[0])
    variance = metrics.total_variance(boxes)
    return {
        "variation_ratio": metrics.variation_ratio(probabilities),
        "shannon_entropy": metrics.shannon_entropy(probabilities),
        "mutual_information": metrics.mutual_information(probabilities),
        "total_variance": variance,
        "predictive_surface": surface,
        "relative_total_variance": variance / area if area > 0.0 else float("nan"),
        "relative_predictive_surface": surface / area if area > 0.0 else float("nan"),
    }

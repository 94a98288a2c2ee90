"""How probably the passes that remain change what is decided about an object.

A logistic regression for each kind of object, learned from the passes of 600 rendered scenes that are in no other measurement,
judged by the packaged policy and by a calibrated one:

    python -m benchmarks.adaptive_fit --scenes 600 --policies config/policy.yaml calibrated.yaml

What it reads is told by the decision and by the geometry, in shares and standard deviations, so that it can serve other policies
and cameras; how well it does is measured by `python -m benchmarks.adaptive`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from sticker_uq.perception.change_weights import WEIGHTS
from sticker_uq.scene import FloatArray, ObjectClass, ObservedObject, StochasticSamples
from sticker_uq.uncertainty import iou_matrix

WIDTHS = (0.5, 1.0, 2.0, 4.0)
"""Standard deviations that every number is moved by to see whether the decision changes."""

UNMOVED = len(WIDTHS) + 1
"""The level of a decision that does not change within the widest of them."""

Kind = Literal["once", "limit", "twice", "seldom", "scene"]
"""Objects that no pass saw twice, those of them that lie close to a limit, those that a pass saw twice, those seen in too few
passes, and all else that makes the decision."""

_CLOSE = 2  # level up to which the numbers of an object lie close to a limit
_NEAR = 0.3  # IoU from which a box lies near an object
_TOUCHING, _OVERLAPPING = 0.05, 0.3  # IoU of two objects


@dataclass(frozen=True)
class Place:
    """Where an object lies: ``area`` its share of the image, ``crowd`` its largest IoU with another object that is seen,
    ``near`` the share of the passes in which two boxes lie near it.
    """

    area: float
    crowd: float
    near: float


def places(
    objects: tuple[ObservedObject, ...], samples: StochasticSamples, size: tuple[int, int]
) -> list[Place]:
    """The place of each of ``objects`` in an image of ``size`` px, seen in the passes of ``samples``."""
    if not objects:
        return []
    boxes = np.array([o.box for o in objects], np.float64)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) / (size[0] * size[1])
    among = iou_matrix(boxes, boxes)
    np.fill_diagonal(among, 0.0)
    seen = np.zeros((len(objects), samples.passes), np.int64)
    near = iou_matrix(boxes, samples.boxes) > _NEAR
    for index, rows in enumerate(near):
        seen[index] = np.bincount(samples.pass_index[rows], minlength=samples.passes)
    return [
        Place(float(a), float(m), float(n))
        for a, m, n in zip(areas, among.max(axis=1), (seen > 1).mean(axis=1), strict=True)
    ]


def kind_of(observed: ObservedObject, level: int) -> Kind:
    """The kind of ``observed``, whose verdict is ``level`` from changing."""
    if observed.unstable:
        return "seldom"
    if observed.duplicated:
        return "twice"
    return "limit" if level <= _CLOSE else "once"


def object_features(
    observed: ObservedObject, place: Place, taken: int, left: int, level: int, twice_matters: bool
) -> FloatArray:
    """What the chance of a change is learned from, (F,).

    ``taken`` and ``left``: passes made and still to make; ``level``: how far the verdict is from changing, 0 .. UNMOVED;
    ``twice_matters``: whether the verdict would change if a pass saw it twice.
    """
    remaining = np.log(left / 10)
    flip = float(twice_matters)
    surface = 0.0 if observed.unstable else np.log(max(observed.relative_predictive_surface, 1e-5)) + 4.5
    doubt = np.log(1 - float(observed.probabilities.max()) + 1e-3) + 5
    area = np.log(max(place.area, 1e-6)) + 4.5
    extra = observed.detections - observed.passes
    return np.array(
        [
            1.0,
            remaining,
            *(float(level == i) for i in range(UNMOVED)),
            flip,
            flip * remaining,
            surface,
            flip * surface,
            place.crowd,
            float(place.crowd > _TOUCHING),
            float(place.crowd > _OVERLAPPING),
            flip * place.crowd,
            place.near,
            float(place.near > 0),
            float(observed.label is ObjectClass.BACKGROUND),
            float(observed.label is ObjectClass.LOGO),
            doubt,
            flip * doubt,
            area,
            area**2,
            flip * area,
            surface * area,
            observed.detection_rate,
            float(observed.passes == 1),
            extra / taken,
            np.log(max(extra, 1)),
        ]
    )


def scene_features(objects: int, twice: int, seldom: int, left: int, level: int) -> FloatArray:
    """The same for all else: things that no pass has seen yet, and the outcome. The numbers count objects of each kind."""
    remaining = np.log(left / 10)
    return np.array(
        [
            1.0,
            remaining,
            remaining**2,
            *(float(level == i) for i in range(UNMOVED)),
            objects / 10,
            twice / 10,
            seldom / 10,
        ]
    )


def chance(kind: Kind, features: FloatArray) -> float:
    """Probability that the verdict about an object of ``kind`` changes."""
    return float(expit(features @ np.array(WEIGHTS[kind])))

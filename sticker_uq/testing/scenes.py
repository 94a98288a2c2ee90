# SPDX-License-Identifier: Apache-2.0
"""Scenes for tests made by hand, as perception would make them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sticker_uq.scene import (
    METRICS,
    Exposure,
    ImageUncertainty,
    Localization,
    ObjectClass,
    ObservedObject,
    SceneAssessment,
    Status,
)

EVERY_LIMIT: dict[str, Any] = {
    "min_detection_rate": 0.7,
    "max_relative_total_variance": 0.02,
    "max_relative_predictive_surface": 0.02,
    "ask_duplicated": True,
}
"""What switches on the limits of a policy that are off by default."""

MS = 1_000_000
SECOND = 1000 * MS
START = 1_000 * SECOND
"""A time at which a cell may run: far from the clock's zero."""

HERE = (100.0, 100.0, 180.0, 160.0)
THERE = (300.0, 100.0, 400.0, 180.0)
ELSEWHERE = (500.0, 300.0, 560.0, 360.0)
SIZE = (640, 480)

SURE = {
    ObjectClass.BACKGROUND: (0.96, 0.02, 0.02),
    ObjectClass.LOGO: (0.02, 0.96, 0.02),
    ObjectClass.STICKER: (0.02, 0.02, 0.96),
}


CERTAIN: dict[str, Any] = dict.fromkeys(METRICS, 0.0) | {
    "shannon_entropy": 0.2,
    "mutual_information": 0.02,
    "total_variance": 4.0,
    "predictive_surface": 3.0,
    "relative_total_variance": 0.001,
    "relative_predictive_surface": 0.001,
}
"""The metrics of an object that the passes are sure of."""


def object_at(
    box: Sequence[float] = HERE,
    label: ObjectClass = ObjectClass.STICKER,
    probabilities: Sequence[float] | None = None,
    **changes: Any,
) -> ObservedObject:
    """An object that all of 20 passes saw and were sure of, unless ``changes`` say otherwise."""
    sure = ObservedObject(
        id=0,
        label=label,
        box=np.array(box, np.float32),
        probabilities=np.array(probabilities or SURE[label], np.float32),
        detections=20,
        passes=20,
        detection_rate=1.0,
        duplicated=False,
        unstable=False,
        **CERTAIN,
        novelty=0.0,
        box_covariance=np.eye(4),
        corner_hulls=(np.array([[0, 0], [1, 0], [0, 1]], np.float32),) * 4,
    )
    return replace(sure, **changes)


def rarely_seen(box: Sequence[float] = HERE, passes: int = 2, **changes: Any) -> ObservedObject:
    """A sticker that only ``passes`` of 20 passes saw, so that nothing about it was measured."""
    nothing = dict.fromkeys(METRICS, float("nan"))
    seldom = {"passes": passes, "detections": passes, "detection_rate": passes / 20, "unstable": True}
    return object_at(box, **{**seldom, **nothing, **changes})


def assessment(
    *objects: ObservedObject,
    unstable: Sequence[ObservedObject] = (),
    stamp_ns: int = START,
    dil: float | None = 0.1,
    **changes: Any,
) -> SceneAssessment:
    """A scene of these objects, numbered in their order. ``dil`` None: distinctive localization was not computed."""
    numbered = [replace(o, id=number) for number, o in enumerate((*objects, *unstable))]
    scene = SceneAssessment(
        stamp_ns=stamp_ns,
        frame_id="camera",
        status=Status.OK,
        status_text="",
        image_size=SIZE,
        image_digest=f"{stamp_ns:032x}",
        model="ssdlite320_mobilenet_v3_large",
        model_hash="m" * 64,
        settings_hash="s" * 64,
        passes=20,
        dropout_rate=0.2,
        objects=tuple(numbered[: len(objects)]),
        unstable=tuple(numbered[len(objects) :]),
        uncertainty=ImageUncertainty(len(objects), len(unstable)),
        localization=None
        if dil is None
        else Localization(100.0, 100.0 * dil, dil, 0.5, unexplained_objectness=0.0),
        exposure=Exposure(90.0, 0.02, 0.01),
        image_publishers=("/camera",),
        scene_distance=0.5,
    )
    return replace(scene, **changes)

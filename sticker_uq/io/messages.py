# SPDX-License-Identifier: Apache-2.0
"""Conversion of the package's messages, live or recorded, to the types of :mod:`sticker_uq.scene`; needs no ROS.

Works on any object with the fields of the message: rclpy's and those of a recording. ROS is not needed.
An unknown value of an enumeration becomes UNKNOWN, which blocks; an unknown label becomes BACKGROUND, which is never removed.
A message whose arrays have inconsistent lengths raises :class:`sticker_uq.scene.InvalidInput`, and so does one with other fields:
a recording brings its own definitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from sticker_uq import scene as sc
from sticker_uq.scene import InvalidInput

E = TypeVar("E", bound=IntEnum)

NANOSECONDS = 1_000_000_000


@contextmanager
def expected_fields(name: str) -> Iterator[None]:
    """Raise :class:`InvalidInput` where a field of the message, called ``name``, is missing or has another type."""
    try:
        yield
    except InvalidInput:
        raise
    except (AttributeError, TypeError, ValueError, LookupError, OverflowError) as error:
        raise InvalidInput(f"{name} has other fields than expected: {error}") from None


def stamp_to_ns(stamp: Any) -> int:
    """Nanoseconds since the epoch in a message's field ``stamp``, live or from a recording, read without ROS."""
    return int(stamp.sec) * NANOSECONDS + int(
        stamp.nanosec
    )  # of a recording they may be lists, and * repeats them


def box_from_msg(message: Any) -> sc.FloatArray:
    """The box (4,) float32 px in the fields of ``message``, live or recorded, read without ROS."""
    return np.array([message.x1, message.y1, message.x2, message.y2], np.float32)


@expected_fields("the scene message")
def scene_from_msg(message: Any) -> sc.SceneAssessment:
    """The assessment in the fields of ``message``, read without ROS; raises :class:`InvalidInput` for arrays of inconsistent
    lengths.
    """
    return sc.SceneAssessment(
        stamp_ns=stamp_to_ns(message.header.stamp),
        frame_id=message.header.frame_id,
        status=_known(sc.Status, message.status, sc.Status.UNKNOWN),
        status_text=message.status_text,
        image_size=(message.image_width, message.image_height),
        image_digest=message.image_digest,
        model=message.model,
        model_hash=message.model_hash,
        settings_hash=message.settings_hash,
        passes=message.passes,
        dropout_rate=message.dropout_rate,
        objects=tuple(_object_from_msg(o) for o in message.objects),
        unstable=tuple(_object_from_msg(o) for o in message.unstable),
        uncertainty=sc.ImageUncertainty(
            objects=message.uncertainty.objects,
            unstable=message.uncertainty.unstable,
            **_metrics_from_msg(message.uncertainty.metrics),
        ),
        localization=_localization_from_msg(message.dil),
        timings={time.stage: time.ms for time in message.timings},
        exposure=_exposure_from_msg(message.exposure),
        # recordings from before these existed have none
        panel_hash=getattr(message, "panel_hash", ""),
        device=getattr(message, "device", ""),
        precision=getattr(message, "precision", ""),
        image_publishers=_publishers_from_msg(message),
    )


@expected_fields("the image check")
def image_check_from_msg(message: Any) -> sc.ImageCheck:
    """The image check in the fields of ``message``, live or recorded, read without ROS."""
    return sc.ImageCheck(
        stamp_ns=stamp_to_ns(message.header.stamp),
        frame_id=message.header.frame_id,
        problem=message.problem,
        image_size=(message.image_width, message.image_height),
        exposure=_exposure_from_msg(message.exposure),
        repeats=message.repeats,
        previous_stamp_ns=stamp_to_ns(message.previous_stamp),
        image_publishers=_publishers_from_msg(message),
    )


@expected_fields("a reason")
def reason_from_msg(message: Any) -> sc.Reason:
    """The reason in the fields of ``message``, live or recorded, read without ROS."""
    box = box_from_msg(message.box)
    return sc.Reason(
        code=message.code,
        subject=message.subject,
        value=message.value,
        limit=message.limit,
        values=tuple((v.name, v.text if math.isnan(v.number) else v.number) for v in message.values),
        box=(message.box.x1, message.box.y1, message.box.x2, message.box.y2) if box.any() else None,
    )


@expected_fields("the decision message")
def decision_from_msg(message: Any, scene: sc.SceneAssessment) -> sc.SceneDecision:
    """The decision in the fields of ``message`` about ``scene``, whose objects it names; boxes that only the operator drew
    are added.

    Raises :class:`InvalidInput` when ``scene`` is of another image or lacks a named object.
    """
    stamp_ns = stamp_to_ns(message.header.stamp)
    if stamp_ns != scene.stamp_ns:
        raise InvalidInput(
            f"decision {message.decision_id} is about the image at {stamp_ns} ns, not {scene.stamp_ns} ns"
        )
    objects = {o.id: o for o in (*scene.objects, *scene.unstable)}
    for verdict in message.verdicts:
        if verdict.object_id not in objects and verdict.by_operator:
            label = _known(sc.ObjectClass, verdict.label, sc.ObjectClass.BACKGROUND)
            objects[verdict.object_id] = sc.ObservedObject.drawn(
                verdict.object_id, label, box_from_msg(verdict.box)
            )
    missing = [v.object_id for v in message.verdicts if v.object_id not in objects]
    if missing:
        raise InvalidInput(
            f"decision {message.decision_id} names objects {missing} that the scene does not have"
        )
    return sc.SceneDecision(
        decision_id=message.decision_id,
        stamp_ns=stamp_ns,
        frame_id=message.header.frame_id,
        outcome=_known(sc.Outcome, message.outcome, sc.Outcome.UNKNOWN),
        verdicts=tuple(
            sc.ObjectVerdict(
                object=objects[v.object_id],
                verdict=_known(sc.Verdict, v.verdict, sc.Verdict.UNKNOWN),
                reasons=tuple(reason_from_msg(reason) for reason in v.reasons),
                by_operator=v.by_operator,
            )
            for v in message.verdicts
        ),
        reasons=tuple(reason_from_msg(reason) for reason in message.reasons),
        model_hash=message.model_hash,
        policy_hash=message.policy_hash,
        workpiece_id=message.workpiece_id,
    )


def _object_from_msg(message: Any) -> sc.ObservedObject:
    if len(message.probabilities) != sc.CLASS_COUNT or len(message.box_covariance) != 16:
        raise InvalidInput(
            f"object {message.id} has {len(message.probabilities)} probabilities and "
            f"{len(message.box_covariance)} covariances, expected {sc.CLASS_COUNT} and 16"
        )
    if any(len(hull.x) != len(hull.y) for hull in message.corner_hulls):
        raise InvalidInput(f"object {message.id} has a corner hull with different numbers of x and y")
    return sc.ObservedObject(
        id=message.id,
        label=_known(sc.ObjectClass, message.label, sc.ObjectClass.BACKGROUND),
        box=box_from_msg(message.box),
        probabilities=np.array(message.probabilities, np.float32),
        detections=message.detections,
        passes=message.passes,
        detection_rate=message.detection_rate,
        duplicated=message.duplicated,
        unstable=message.unstable,
        box_covariance=np.array(message.box_covariance, np.float64).reshape(4, 4),
        corner_hulls=tuple(
            np.stack([np.array(hull.x, np.float32), np.array(hull.y, np.float32)], axis=1)
            for hull in message.corner_hulls
        ),
        monitors=tuple(
            sc.MonitorScore(one.name, one.score, one.limit) for one in getattr(message, "monitors", ())
        ),
        novelty=getattr(message, "novelty", math.nan),  # older recordings lack it
        **_metrics_from_msg(message.metrics),
    )


def _metrics_from_msg(message: Any) -> dict[str, float]:
    """The metrics in ``message`` by name; NaN for one that is newer than the recording."""
    return {name: getattr(message, name, math.nan) for name in sc.METRICS}


def _publishers_from_msg(message: Any) -> tuple[str, ...] | None:
    names = getattr(message, "image_publishers", None)  # older recordings lack it
    return None if names is None else tuple(map(str, names))


def _exposure_from_msg(message: Any) -> sc.Exposure | None:
    """The exposure in ``message``; older recordings have NaN for noise and sharpness."""
    if not message.valid:
        return None
    known = {f.name: getattr(message, f.name) for f in fields(sc.Exposure) if hasattr(message, f.name)}
    return sc.Exposure(**known)


def _localization_from_msg(message: Any) -> sc.Localization | None:
    if not message.valid:
        return None
    return sc.Localization(
        complete_localization=message.complete_localization,
        background_localization=message.background_localization,
        dil=message.dil,
        decision_threshold=message.decision_threshold,
        unexplained_objectness=message.unexplained_objectness,
        unexplained=tuple(
            sc.UnexplainedRegion(box=box_from_msg(r.box), objectness=r.objectness, share=r.share)
            for r in message.unexplained
        ),
        novelty=getattr(message, "novelty", math.nan),
        missed_sticker_probability=getattr(message, "missed_sticker_probability", math.nan),
        scene_distance=getattr(message, "scene_distance", math.nan),
    )


def _known(kind: type[E], value: int, otherwise: E) -> E:
    return kind(value) if value in set(kind) else otherwise

# SPDX-License-Identifier: Apache-2.0
"""Conversion of the package's messages, live or recorded, to the types of :mod:`sticker_uq.scene`; needs no ROS.

Works on any object with the fields of the message: rclpy's and those of a recording. ROS is not needed.
An unknown value of an enumeration becomes UNKNOWN, which blocks; an unknown label becomes BACKGROUND, which is never removed.
A message whose arrays have inconsistent lengths raises :class:`sticker_uq.scene.InvalidInput`, and so does one with other fields:
a recording brings its own definitions.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np

from sticker_uq import scene as sc
from sticker_uq.plain import from_plain
from sticker_uq.scene import InvalidInput

E = TypeVar("E", bound=IntEnum)

NANOSECONDS = 1_000_000_000


@contextmanager
def expect_fields(name: str) -> Iterator[None]:
    """Raise :class:`InvalidInput` where a field of the message, called ``name``, is missing or has another type."""
    try:
        yield
    except InvalidInput:
        raise
    except (AttributeError, TypeError, ValueError, LookupError, OverflowError) as error:
        raise InvalidInput(f"{name} has other fields than expected: {error}") from None


def stamp_to_ns(stamp: Any) -> int:
    """Nanoseconds since the epoch in ``stamp``, live or from a recording."""
    # of a recording they may be lists, and * repeats them
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def box_from_msg(message: Any) -> sc.FloatArray:
    return np.array([message.x1, message.y1, message.x2, message.y2], np.float32)


@expect_fields("the scene message")
def scene_from_msg(message: Any) -> sc.SceneAssessment:
    """The assessment in the fields of ``message``; raises :class:`InvalidInput` for arrays of inconsistent lengths."""
    return from_plain(sc.SceneAssessment, message, _field)


@expect_fields("the image check")
def image_check_from_msg(message: Any) -> sc.ImageCheck:
    return from_plain(sc.ImageCheck, message, _field)


@expect_fields("a reason")
def reason_from_msg(message: Any) -> sc.Reason:
    box = box_from_msg(message.box)
    return sc.Reason(
        code=message.code,
        subject=message.subject,
        value=message.value,
        limit=message.limit,
        values=tuple((v.name, v.text if math.isnan(v.number) else v.number) for v in message.values),
        box=(message.box.x1, message.box.y1, message.box.x2, message.box.y2) if box.any() else None,
    )


@expect_fields("the decision message")
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
            label = _known_value(sc.ObjectClass, verdict.label, sc.ObjectClass.BACKGROUND)
            objects[verdict.object_id] = sc.ObservedObject.from_operator(
                verdict.object_id, label, box_from_msg(verdict.box)
            )
    missing = [v.object_id for v in message.verdicts if v.object_id not in objects]
    if missing:
        raise InvalidInput(
            f"decision {message.decision_id} names objects {missing} that the scene does not have"
        )

    def field(part: Any, name: str) -> Any:
        if name == "object":
            return objects[part.object_id]
        found = tuple(map(reason_from_msg, part.reasons)) if name == "reasons" else _field(part, name)
        if found is MISSING:  # no decision is older than its fields
            raise AttributeError(name)
        return found

    return from_plain(sc.SceneDecision, message, field)


def _field(message: Any, name: str) -> Any:
    """The field ``name`` of ``message``, MISSING where a recording is older than the field."""
    match name:
        case "stamp_ns":
            return stamp_to_ns(message.header.stamp)
        case "previous_stamp_ns":
            return stamp_to_ns(message.previous_stamp)
        case "frame_id":
            return message.header.frame_id
        case "image_size":
            return message.image_width, message.image_height
        case "localization" | "exposure":
            part = message.dil if name == "localization" else message.exposure
            return part if part.valid else None
        case "timings":
            return {time.stage: time.ms for time in message.timings}
        case "box":
            return box_from_msg(message.box)
        case "probabilities" | "box_covariance":
            values, expected = getattr(message, name), sc.CLASS_COUNT if name == "probabilities" else 16
            if len(values) != expected:
                raise InvalidInput(
                    f"object {message.id} has {len(values)} values in {name}, expected {expected}"
                )
            return values
        case "corner_hulls":
            if any(len(hull.x) != len(hull.y) for hull in message.corner_hulls):
                raise InvalidInput(f"object {message.id} has a corner hull with different numbers of x and y")
            return [np.stack([hull.x, hull.y], axis=1) for hull in message.corner_hulls]
        case "image_publishers":
            return list(map(str, getattr(message, name))) if hasattr(message, name) else MISSING
        case _ if name in sc.METRICS:
            return getattr(message.metrics, name, MISSING)
    return getattr(message, name, MISSING)


def _known_value(kind: type[E], value: int, otherwise: E) -> E:
    return kind(value) if value in set(kind) else otherwise

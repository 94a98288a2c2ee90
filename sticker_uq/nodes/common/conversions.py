# SPDX-License-Identifier: Apache-2.0
"""Lossless conversion of scenes and decisions to ROS messages and back, for the nodes.

``scene_from_msg(scene_to_msg(a)).to_bytes() == a.to_bytes()`` for every assessment. An unknown value
of an enumeration becomes UNKNOWN, which blocks; an unknown label becomes BACKGROUND, which is never removed.
A message whose arrays have inconsistent lengths raises :class:`sticker_uq.scene.InvalidInput`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseWithCovariance
from std_msgs.msg import Header

from sticker_uq import scene as sc
from sticker_uq.geometry import ObjectPose
from sticker_uq.io.messages import NANOSECONDS
from sticker_uq.messages import text_of
from sticker_uq.scene import InvalidInput
from sticker_uq_msgs import msg as m

M = TypeVar("M")
NOWHERE: Mapping[int, ObjectPose] = {}


def ns_to_stamp(stamp_ns: int) -> Time:
    """Raises :class:`InvalidInput` outside the range of the message (years 1901 to 2038)."""
    seconds, nanoseconds = divmod(stamp_ns, NANOSECONDS)
    if not -(2**31) <= seconds < 2**31:
        raise InvalidInput(f"stamp {stamp_ns} ns does not fit into builtin_interfaces/Time (32 bit seconds)")
    return Time(sec=seconds, nanosec=nanoseconds)


def header_of(stamp_ns: int, frame_id: str) -> Header:
    return Header(stamp=ns_to_stamp(stamp_ns), frame_id=frame_id)


def box_to_msg(box: sc.FloatArray) -> m.Box:
    x1, y1, x2, y2 = (float(value) for value in box)
    return m.Box(x1=x1, y1=y1, x2=x2, y2=y2)


def scene_to_msg(scene: sc.SceneAssessment, sequence: int = 0) -> m.SceneAssessment:
    return fill_message(
        m.SceneAssessment,
        scene,
        header=header_of(scene.stamp_ns, scene.frame_id),
        sequence=sequence,
        image_width=int(scene.image_size[0]),
        image_height=int(scene.image_size[1]),
        objects=[_object_to_msg(o) for o in scene.objects],
        unstable=[_object_to_msg(o) for o in scene.unstable],
        uncertainty=uncertainty_to_msg(scene),
        dil=localization_to_msg(scene),
        timings=[m.StageTime(stage=stage, ms=float(ms)) for stage, ms in scene.timings.items()],
        exposure=_exposure_to_msg(scene.exposure),
        image_publishers=list(scene.image_publishers or ()),
    )


def image_check_to_msg(check: sc.ImageCheck) -> m.ImageCheck:
    """Raises :class:`InvalidInput` for a stamp that does not fit into the message."""
    return fill_message(
        m.ImageCheck,
        check,
        header=header_of(check.stamp_ns, check.frame_id),
        image_width=int(check.image_size[0]),
        image_height=int(check.image_size[1]),
        exposure=_exposure_to_msg(check.exposure),
        previous_stamp=ns_to_stamp(check.previous_stamp_ns),
        image_publishers=list(check.image_publishers or ()),
    )


def _exposure_to_msg(exposure: sc.Exposure | None) -> m.Exposure:
    known = exposure or sc.Exposure(math.nan, math.nan, math.nan)
    return fill_message(m.Exposure, known, valid=exposure is not None)


def detections_to_msg(scene: sc.SceneAssessment) -> m.StickerDetectionArray:
    detections = [fill_message(m.StickerDetection, o, box=box_to_msg(o.box)) for o in scene.objects]
    return m.StickerDetectionArray(header=header_of(scene.stamp_ns, scene.frame_id), detections=detections)


def uncertainty_to_msg(scene: sc.SceneAssessment) -> m.ImageUncertainty:
    return fill_message(
        m.ImageUncertainty,
        scene.uncertainty,
        header=header_of(scene.stamp_ns, scene.frame_id),
        metrics=fill_message(m.MetricValues, scene.uncertainty),
    )


def localization_to_msg(scene: sc.SceneAssessment) -> m.DistinctiveLocalization:
    """All numbers are NaN when the distinctive localization was not computed."""
    localization = scene.localization or sc.Localization(math.nan, math.nan, math.nan, math.nan)
    return fill_message(
        m.DistinctiveLocalization,
        localization,
        header=header_of(scene.stamp_ns, scene.frame_id),
        valid=scene.localization is not None,
        unexplained=[
            fill_message(m.UnexplainedRegion, region, box=box_to_msg(region.box))
            for region in localization.unexplained
        ],
    )


def reason_to_msg(reason: sc.Reason) -> m.Reason:
    values = [
        m.ReasonValue(name=name, text=value, number=math.nan)
        if isinstance(value, str)
        else m.ReasonValue(name=name, number=float(value))
        for name, value in reason.values
    ]
    message = fill_message(m.Reason, reason, values=values, text=text_of(reason))
    if reason.box is not None:
        message.box = box_to_msg(np.asarray(reason.box))
    return message


def verdict_to_msg(verdict: sc.ObjectVerdict, pose: ObjectPose | None = None) -> m.Verdict:
    return fill_message(
        m.Verdict,
        verdict,
        object_id=verdict.object.id,
        label=int(verdict.object.label),
        box=box_to_msg(verdict.object.box),
        reasons=[reason_to_msg(reason) for reason in verdict.reasons],
        objectors=list(verdict.objectors),
        pose_valid=pose is not None,
        pose=pose_to_msg(pose),
    )


def pose_to_msg(pose: ObjectPose | None) -> PoseWithCovariance:
    message = PoseWithCovariance()
    if pose is None:
        message.pose.orientation.w = 0.0
        return message
    position, orientation = message.pose.position, message.pose.orientation
    position.x, position.y, position.z = pose.position
    orientation.x, orientation.y, orientation.z, orientation.w = pose.orientation
    message.covariance = list(pose.covariance)
    return message


def decision_to_msg(decision: sc.SceneDecision, poses: Mapping[int, ObjectPose] = NOWHERE) -> m.SceneDecision:
    """Objects are carried by id, label, box and, where ``poses`` has it by id, pose."""
    return fill_message(
        m.SceneDecision,
        decision,
        header=header_of(decision.stamp_ns, decision.frame_id),
        verdicts=[verdict_to_msg(verdict, poses.get(verdict.object.id)) for verdict in decision.verdicts],
        reasons=[reason_to_msg(reason) for reason in decision.reasons],
        pose_frame=next((pose.frame_id for pose in poses.values()), ""),
    )


def _object_to_msg(observed: sc.ObservedObject) -> m.ObservedObject:
    return fill_message(
        m.ObservedObject,
        observed,
        box=box_to_msg(observed.box),
        probabilities=_array("f", observed.probabilities, np.float32),
        box_covariance=_array("d", observed.box_covariance, np.float64),
        corner_hulls=[
            m.CornerHull(x=_array("f", hull[:, 0], np.float32), y=_array("f", hull[:, 1], np.float32))
            for hull in observed.corner_hulls
        ],
        monitors=[fill_message(m.MonitorScore, one) for one in observed.monitors],
        metrics=fill_message(m.MetricValues, observed),
    )


_PLAIN = {"boolean": bool, "string": str, "float": float, "double": float} | {
    f"{sign}int{bits}": int for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""What a plain field of a message is made of, by its type."""


def fill_message(kind: type[M], source: object, **others: Any) -> M:
    """A message with the fields ``others`` and the plain fields that ``source`` has by the same name."""
    for name, type_ in kind.get_fields_and_field_types().items():  # type: ignore[attr-defined]
        if name not in others and type_ in _PLAIN and hasattr(source, name):
            others[name] = _PLAIN[type_](getattr(source, name))
    return kind(**others)


def _array(typecode: str, values: sc.FloatArray, dtype: type[np.floating[Any]]) -> array[float]:
    # rclpy assigns an array.array as it is; it checks and copies any other sequence element by element
    return array(typecode, np.ascontiguousarray(values, dtype).tobytes())

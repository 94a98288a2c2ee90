# SPDX-License-Identifier: Apache-2.0
"""Markers for RViz and Foxglove, off where visualization_msgs is not installed."""

from collections.abc import Mapping
from types import ModuleType

import numpy as np

from sticker_uq.geometry import ObjectPose
from sticker_uq.geometry.transforms import quaternion
from sticker_uq.nodes.common.conversions import header_of, pose_to_msg
from sticker_uq.scene import SceneDecision, Verdict

try:
    from visualization_msgs import msg as _visualization
except ImportError:
    _visualization = None

#: ``visualization_msgs.msg``, or None where it is not installed.
VISUALIZATION_MSGS: ModuleType | None = _visualization
DEVIATIONS = 2.0
"""Half axes of the ellipsoid about a centre, in standard deviations."""
_THICKNESS_M = 0.001
# green, sky, orange of Okabe and Ito's palette, as on the annotated picture
_COLOURS = {Verdict.REMOVE: (0.0, 0.62, 0.45), Verdict.KEEP: (0.34, 0.71, 0.91)}
_OTHERWISE = (0.90, 0.62, 0.0)


def markers_to_msg(
    decision: SceneDecision, poses: Mapping[int, ObjectPose], visualization: ModuleType
) -> object:
    """A ``MarkerArray`` that replaces the one before it: for each object with a pose its area on the lid, coloured by verdict,
    and where its centre may be, an ellipsoid of :data:`DEVIATIONS` standard deviations.
    """
    found = [visualization.Marker(action=visualization.Marker.DELETEALL)]
    for verdict in decision.verdicts:
        pose = poses.get(verdict.object.id)
        if pose is None:
            continue
        area = visualization.Marker(ns="object", id=verdict.object.id, type=visualization.Marker.CUBE)
        area.header = header_of(decision.stamp_ns, pose.frame_id)
        area.pose = pose_to_msg(pose).pose
        area.scale.x, area.scale.y, area.scale.z = (*pose.size, _THICKNESS_M)
        area.color.r, area.color.g, area.color.b = _COLOURS.get(verdict.verdict, _OTHERWISE)
        area.color.a = 0.5
        found.append(area)
        covariance = np.reshape(pose.covariance, (6, 6))[:3, :3]
        if not np.isfinite(covariance).all():
            continue
        variances, axes = np.linalg.eigh(covariance)
        axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])  # a rotation, no reflection
        centre = visualization.Marker(ns="centre", id=verdict.object.id, type=visualization.Marker.SPHERE)
        centre.header = area.header
        centre.pose.position = area.pose.position
        orientation = centre.pose.orientation
        orientation.x, orientation.y, orientation.z, orientation.w = quaternion(axes)
        half = DEVIATIONS * np.sqrt(np.maximum(variances, 0.0))
        centre.scale.x, centre.scale.y, centre.scale.z = np.maximum(2 * half, _THICKNESS_M).tolist()
        centre.color.r, centre.color.g, centre.color.b, centre.color.a = 1.0, 1.0, 1.0, 0.8
        found.append(centre)
    return visualization.MarkerArray(markers=found)

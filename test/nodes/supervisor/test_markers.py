# SPDX-License-Identifier: Apache-2.0
"""Markers for RViz and Foxglove: where the objects are in the arm's frame, and how surely."""

import numpy as np
import pytest

from sticker_uq.gate import judge
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.geometry import ObjectPose
from sticker_uq.nodes.supervisor.markers import DEVIATIONS, markers_to_msg
from sticker_uq.testing.scenes import assessment, object_at

msg = pytest.importorskip("visualization_msgs.msg", reason="visualization_msgs is not installed")

LONG_M, SHORT_M = 0.02, 0.005
DECISION = judge(assessment(object_at((10.0, 10.0, 50.0, 40.0))), Policy())
ID = DECISION.verdicts[0].object.id
TURNED = np.radians(30.0)


def pose(covariance: np.ndarray) -> ObjectPose:
    whole = np.zeros((6, 6))
    whole[:3, :3] = covariance
    return ObjectPose(
        "base_link", (0.4, 0.1, 0.2), (0.0, 0.0, 0.0, 1.0), tuple(whole.ravel().tolist()), (0.16, 0.08)
    )


def markers(found: ObjectPose) -> list:
    return markers_to_msg(DECISION, {ID: found}, msg).markers


def test_an_object_is_its_area_on_the_lid_and_where_its_centre_may_be():
    along = np.array([np.cos(TURNED), np.sin(TURNED), 0.0])
    across = np.array([-np.sin(TURNED), np.cos(TURNED), 0.0])
    clear, area, centre = markers(
        pose(LONG_M**2 * np.outer(along, along) + SHORT_M**2 * np.outer(across, across))
    )
    assert clear.action == msg.Marker.DELETEALL
    assert (area.header.frame_id, area.ns, area.id) == ("base_link", "object", ID)
    assert (area.scale.x, area.scale.y) == (0.16, 0.08)
    assert (area.pose.position.x, area.pose.position.y, area.pose.position.z) == (0.4, 0.1, 0.2)
    assert centre.pose.position == area.pose.position
    assert sorted((centre.scale.y, centre.scale.z)) == pytest.approx(
        [2 * DEVIATIONS * SHORT_M, 2 * DEVIATIONS * LONG_M]
    )
    x, y, z, w = (getattr(centre.pose.orientation, name) for name in "xyzw")
    longest = np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])  # the marker's z
    assert abs(longest @ along) == pytest.approx(1.0)


def test_what_was_not_measured_is_not_drawn():
    _, area = markers(pose(np.full((3, 3), np.nan)))
    assert area.ns == "object"
    assert [one.action for one in markers_to_msg(DECISION, {}, msg).markers] == [msg.Marker.DELETEALL]

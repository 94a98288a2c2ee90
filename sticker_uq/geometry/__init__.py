# SPDX-License-Identifier: Apache-2.0
"""Pixels to metres: camera (real or the simulated cell's), planes, rigid transforms, the pose of an object in the arm's
frame, with covariance.

No ROS, no clock.
"""

from sticker_uq.geometry.camera import Camera
from sticker_uq.geometry.pose import CellGeometry, ObjectPose, ScenePoses, locate, locate_all
from sticker_uq.geometry.transforms import Plane, Transform

__all__ = ["Camera", "CellGeometry", "ObjectPose", "Plane", "ScenePoses", "Transform", "locate", "locate_all"]

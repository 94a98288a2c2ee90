# SPDX-License-Identifier: Apache-2.0
"""Poses of camera and lid in the simulated cell, in the arm's frame."""

import numpy as np

from sticker_uq.geometry.camera import Camera
from sticker_uq.geometry.transforms import Transform
from sticker_uq.scene import FloatArray

ARM_FRAME = "base_link"
CAMERA_POSE = [0.45, 0.0, 0.9, 1.0, 0.0, 0.0, 0.0]
"""The camera points straight down from 0.9 m; image rows are parallel to the arm's x axis."""

LID_PLANE = [0.0, 0.0, 1.0, -0.25]
"""The lid lies flat, 0.25 m above the arm's base."""

SIMULATED_GEOMETRY: dict[str, object] = {
    "arm_frame": ARM_FRAME,
    "camera_pose": " ".join(map(str, CAMERA_POSE)),
    "lid_plane": " ".join(map(str, LID_PLANE)),
    "require_pose": True,
}
"""Parameters of the supervisor in the simulated cell."""

_FOCAL_LENGTH = 1.2
"""Focal length of the simulated camera, in image widths."""


def sim_camera(width: int, height: int) -> Camera:
    """The pinhole camera for images of ``width`` by ``height`` px."""
    focal = _FOCAL_LENGTH * width
    return Camera((width, height), np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]]))


def project_to_image(position: FloatArray, camera: Camera) -> FloatArray:
    """Pixel (2,) of ``position`` (3,) m in the arm's frame, seen by ``camera``."""
    pose = Transform.of(CAMERA_POSE, "CAMERA_POSE")
    return camera.project(pose.inverse(np.asarray(position, float)[None]))[0]

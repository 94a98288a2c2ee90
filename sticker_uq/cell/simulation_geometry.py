"""Where camera and lid of the simulated cell are, in the frame of its arm."""

from __future__ import annotations

import numpy as np

from sticker_uq.geometry import Camera, Transform
from sticker_uq.scene import FloatArray

ARM_FRAME = "base_link"
CAMERA_POSE = [0.45, 0.0, 0.9, 1.0, 0.0, 0.0, 0.0]
"""The camera looks straight down from 0.9 m; the rows of its picture run along x of the arm."""

LID_PLANE = [0.0, 0.0, 1.0, -0.25]
"""The lid lies flat, 0.25 m above the arm's base."""

SIMULATED_GEOMETRY: dict[str, object] = {
    "arm_frame": ARM_FRAME,
    "camera_pose": " ".join(map(str, CAMERA_POSE)),
    "lid_plane": " ".join(map(str, LID_PLANE)),
    "require_pose": True,
}
"""What a supervisor of the simulated cell must know."""

_FOCAL_LENGTH = 1.2
"""Of the simulated lens, in widths of the picture."""


def sim_camera(width: int, height: int) -> Camera:
    """The simulated camera: a pinhole."""
    focal = _FOCAL_LENGTH * width
    return Camera((width, height), np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]]))


def seen_at(position: FloatArray, camera: Camera) -> FloatArray:
    """Pixel (2,) at which the simulated camera sees ``position`` (3,) m of the arm's frame."""
    pose = Transform.of(CAMERA_POSE, "CAMERA_POSE")
    return camera.project(pose.inverse(np.asarray(position, float)[None]))[0]

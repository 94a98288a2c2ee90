# SPDX-License-Identifier: Apache-2.0
"""The pose of an object on the lid in the arm's frame, with its covariance."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sticker_uq.geometry.camera import Camera
from sticker_uq.geometry.transforms import Plane, Transform, quaternion
from sticker_uq.scene import FloatArray, InvalidInput, ObservedObject, Reason, SceneDecision, Verdict

MIN_GRAZING_SINE = 0.05
"""Sine of the flattest angle (about 3 degrees) at which a ray may meet the lid: below it a pixel spans metres."""

YAW_VARIANCE = math.pi**2 / 12
"""rad^2: an axis-aligned box does not determine the yaw of its object, which is taken as uniform within +-90 degrees."""

_CENTRE = 0.5 * np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])


@dataclass(frozen=True)
class ObjectPose:
    """The pose of one object on the lid in the arm's frame, with covariance.

    ``position`` of the centre on the lid, m; ``orientation`` x, y, z, w: z out of the lid, x along the image's rows.

    ``covariance`` 36 numbers, row-major, of x, y, z (m) and rotations about the axes of ``frame_id`` (rad): from the
    covariance of the box alone, NaN where that was not measured. Camera, lid and transform are taken as exact. ``size``: width
    and height on the lid, m.
    """

    frame_id: str
    position: tuple[float, float, float]
    orientation: tuple[float, float, float, float]
    covariance: tuple[float, ...]
    size: tuple[float, float]


@dataclass(frozen=True)
class CellGeometry:
    """What turns pixels into metres: the camera, its pose in the arm's frame ``frame_id``, the lid in the same frame.

    ``camera_pose`` transforms points from the camera's optical frame to the arm's.
    """

    frame_id: str
    camera: Camera
    camera_pose: Transform
    lid: Plane

    @property
    def fingerprint(self) -> str:
        """Hash of the calibration, 16 hex digits; without the pose of the camera, which may be mounted on the arm."""
        values = (self.frame_id, self.camera.fingerprint, self.lid.normal.tolist(), self.lid.offset)
        return hashlib.blake2b(repr(values).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class ScenePoses:
    """Poses by object id.

    ``problem``: why an object that may be removed, or every object, has no pose; None otherwise; ``fingerprint`` of the
    calibration, empty without one.
    """

    poses: Mapping[int, ObjectPose] = field(default_factory=dict)
    problem: Reason | None = None
    fingerprint: str = ""


def locate(observed: ObservedObject, geometry: CellGeometry) -> ObjectPose:
    """Pose of ``observed`` on the lid, in the arm's frame.

    The centre of the box is cast onto the lid; its covariance is propagated to first order. Raises :class:`InvalidInput` when
    the ray does not meet the lid in front of the camera, meets it at too small an angle, or the lens model fails there.
    """
    x1, y1, x2, y2 = (float(value) for value in observed.box)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    pixels = np.array([[x, y], [x1, y], [x2, y], [x, y1], [x, y2]])
    rays, slopes = geometry.camera.rays(pixels)
    directions = np.column_stack([rays, np.ones(len(rays))]) @ geometry.camera_pose.rotation.T
    normal, eye = geometry.lid.normal, geometry.camera_pose.translation
    height = float(normal @ eye) + geometry.lid.offset
    if height < 0:
        normal, height = -normal, -height
    towards = directions @ normal
    if np.any(np.abs(towards) < MIN_GRAZING_SINE * np.linalg.norm(directions, axis=1)):
        raise InvalidInput("the angle between the line of sight and the lid is too small")
    lengths = -height / towards
    if height == 0 or np.any(lengths <= 0):
        raise InvalidInput("the lid lies behind the camera")
    points = eye + lengths[:, None] * directions
    by_ray = lengths[0] * (
        geometry.camera_pose.rotation
        - np.outer(directions[0], normal @ geometry.camera_pose.rotation) / towards[0]
    )
    by_box = by_ray[:, :2] @ slopes[0] @ _CENTRE
    covariance = np.zeros((6, 6))
    covariance[:3, :3] = by_box @ np.asarray(observed.box_covariance, float) @ by_box.T
    covariance[3:, 3:] = YAW_VARIANCE * np.outer(normal, normal)
    return ObjectPose(
        frame_id=geometry.frame_id,
        position=(float(points[0, 0]), float(points[0, 1]), float(points[0, 2])),
        orientation=_orientation(points[2] - points[1], normal),
        covariance=tuple(float(value) for value in covariance.ravel()),
        size=(float(np.linalg.norm(points[2] - points[1])), float(np.linalg.norm(points[4] - points[3]))),
    )


def locate_all(
    decision: SceneDecision, image_size: tuple[int, int], geometry: CellGeometry | Reason
) -> ScenePoses:
    """Poses in the arm's frame of all objects of ``decision``; ``geometry`` may be the reason why there is none."""
    if isinstance(geometry, Reason):
        return ScenePoses(problem=geometry)
    size = geometry.camera.image_size
    if size != image_size:
        expected, found = (f"{width} x {height}" for width, height in (size, image_size))
        return ScenePoses(problem=Reason.of("calibration_other_size", expected=expected, found=found))
    poses: dict[int, ObjectPose] = {}
    problem = None
    for verdict in decision.verdicts:
        try:
            poses[verdict.object.id] = locate(verdict.object, geometry)
        except (InvalidInput, ArithmeticError, np.linalg.LinAlgError) as error:
            if verdict.verdict is Verdict.REMOVE:
                number = verdict.object.id
                problem = problem or Reason.of("object_not_located", object=number, detail=str(error))
    return ScenePoses(poses, problem, geometry.fingerprint)


def _orientation(along: FloatArray, normal: FloatArray) -> tuple[float, float, float, float]:
    flat = along - (along @ normal) * normal
    x = flat / np.linalg.norm(flat)
    return quaternion(np.column_stack([x, np.cross(normal, x), normal]))

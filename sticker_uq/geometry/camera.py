# SPDX-License-Identifier: Apache-2.0
"""A pinhole camera with lens distortion, as in ``sensor_msgs/CameraInfo``."""

import hashlib
from dataclasses import dataclass

import cv2
import numpy as np

from sticker_uq.scene import FloatArray, InvalidInput

_COEFFICIENTS = {"": (0,), "plumb_bob": (4, 5), "rational_polynomial": (8, 12), "equidistant": (4,)}
"""Distortion models and how many coefficients each may have."""

_STEPS = 50
_EXACT = 1e-10
"""Convergence tolerance of the inverse distortion, in focal lengths."""

_H = 1e-6
"""Step of the numerical derivative of the distortion, in focal lengths."""


@dataclass(frozen=True)
class Camera:
    """A calibrated camera: a pinhole with lens distortion, pixels to rays.

    ``image_size`` (width, height) px; ``matrix`` (3, 3) intrinsic matrix, px; ``model`` one of the lens models of
    image_geometry (plumb_bob, rational_polynomial, equidistant) or empty for a lens without distortion; ``distortion`` its
    coefficients in OpenCV's order. Raises :class:`InvalidInput` for an invalid calibration.
    """

    image_size: tuple[int, int]
    matrix: FloatArray
    model: str = ""
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, float)
        if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or min(matrix[0, 0], matrix[1, 1]) <= 0:
            raise InvalidInput("the camera is not calibrated: its matrix K has no positive focal lengths")
        if np.linalg.det(matrix[:2, :2]) <= 0:
            raise InvalidInput(
                "the camera is not calibrated: its matrix K is singular, several points share one pixel"
            )
        width, height = self.image_size
        if min(width, height) <= 0:
            raise InvalidInput(f"the camera's image has the size {width} x {height} px")
        if self.model not in _COEFFICIENTS:
            known = ", ".join(filter(None, _COEFFICIENTS))
            raise InvalidInput(f"distortion model {self.model!r} is unknown, expected one of {known}")
        if len(self.distortion) not in _COEFFICIENTS[self.model] or not np.isfinite(self.distortion).all():
            expected = " or ".join(map(str, _COEFFICIENTS[self.model]))
            raise InvalidInput(
                f"distortion {self.model or 'none'} has {len(self.distortion)} coefficients, expected {expected} finite ones"
            )

    @property
    def fingerprint(self) -> str:
        """Hash of size, matrix, lens model and distortion, by which pixels become metres, 16 hex digits."""
        values = (self.image_size, np.asarray(self.matrix, float).tolist(), self.model, self.distortion)
        return hashlib.blake2b(repr(values).encode(), digest_size=8).hexdigest()

    def project(self, points: FloatArray) -> FloatArray:
        """Pixels (N, 2) of ``points`` (N, 3) m in the optical frame (x right, y down, z forward), all in front of the camera."""
        distorted = self._distort(points[:, :2] / points[:, 2:])
        matrix = np.asarray(self.matrix, float)
        return distorted @ matrix[:2, :2].T + matrix[:2, 2]

    def rays(self, pixels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rays through ``pixels`` (N, 2): x and y (N, 2) at z = 1 of the optical frame, and their derivatives.

        The derivatives (N, 2, 2) are with respect to the pixel. Raises :class:`InvalidInput` for a pixel outside the range in
        which the distortion polynomial can be inverted.
        """
        matrix = np.asarray(self.matrix, float)
        if not np.isfinite(pixels).all():
            raise InvalidInput("the lens model cannot be inverted at a pixel that is NaN or infinite")
        wanted = (np.asarray(pixels, float) - matrix[:2, 2]) @ np.linalg.inv(matrix[:2, :2]).T
        found = wanted.copy()
        slope = self._slope(found)
        for _ in range(_STEPS):
            error = self._distort(found) - wanted
            if np.abs(error).max(initial=0.0) < _EXACT:
                break
            step = np.linalg.solve(slope + 1e-12 * np.eye(2), error[..., None])[..., 0]
            # a full Newton step may leave the region in which the distortion is invertible
            found -= np.clip(step, -0.5, 0.5)
            slope = self._slope(found)
        exact = np.abs(self._distort(found) - wanted).max(axis=1) < 1e-8
        unfolded = np.linalg.det(slope) > 1e-3
        for (x, y), good in zip(pixels, exact & unfolded, strict=True):
            if not good:
                raise InvalidInput(f"the lens model cannot be inverted at pixel {x:.0f}, {y:.0f}")
        return found, np.linalg.inv(matrix[:2, :2] @ slope)

    def _slope(self, points: FloatArray) -> FloatArray:
        """Derivative (N, 2, 2) of the distortion at ``points`` (N, 2)."""
        columns = [
            (self._distort(points + offset) - self._distort(points - offset)) / (2 * _H)
            for offset in (np.array([_H, 0.0]), np.array([0.0, _H]))
        ]
        return np.stack(columns, axis=-1)

    def _distort(self, points: FloatArray) -> FloatArray:
        """``points`` (N, 2) after lens distortion, in focal lengths from the axis."""
        if not any(self.distortion) or not len(points):  # OpenCV returns nothing for no point
            return points
        project = cv2.fisheye.projectPoints if self.model == "equidistant" else cv2.projectPoints
        rays = np.column_stack([points, np.ones(len(points))])[:, None]
        bent, _ = project(rays, np.zeros(3), np.zeros(3), np.eye(3), np.array(self.distortion))
        return np.asarray(bent, float).reshape(-1, 2)

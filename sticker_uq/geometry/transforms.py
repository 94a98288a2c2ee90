# SPDX-License-Identifier: Apache-2.0
"""Rigid transforms and planes in metres."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sticker_uq.scene import FloatArray, InvalidInput


@dataclass(frozen=True)
class Transform:
    """A rigid transform between two frames: ``rotation`` (3, 3), ``translation`` (3,) m."""

    rotation: FloatArray
    translation: FloatArray

    @classmethod
    def of(cls, values: Sequence[float], name: str) -> Transform:
        """From x, y, z in m and a quaternion x, y, z, w: the pose of the first frame in the second one.

        Raises :class:`InvalidInput`, naming ``name``, unless there are seven finite numbers and the quaternion has length 1.
        """
        numbers = np.asarray(values, float)
        if numbers.shape != (7,) or not np.isfinite(numbers).all():
            raise InvalidInput(f"{name} = {list(values)} must be 7 finite numbers: x y z (m), qx qy qz qw")
        length = float(np.linalg.norm(numbers[3:]))
        if abs(length - 1.0) > 1e-3:
            raise InvalidInput(f"{name}: the quaternion has the length {length:.4g}, expected 1")
        x, y, z, w = numbers[3:] / length
        rotation = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ]
        )
        return cls(rotation, numbers[:3])

    def __call__(self, points: FloatArray) -> FloatArray:
        """``points`` (..., 3) m in the other frame."""
        return points @ self.rotation.T + self.translation

    @property
    def inverse(self) -> Transform:
        return Transform(self.rotation.T, -self.rotation.T @ self.translation)


@dataclass(frozen=True)
class Plane:
    """All points p with ``normal . p + offset = 0``; ``normal`` (3,) has length 1, ``offset`` in m."""

    normal: FloatArray
    offset: float

    @classmethod
    def of(cls, values: Sequence[float], name: str) -> Plane:
        """The plane a x + b y + c z + d = 0 (m), from a, b, c, d.

        Raises :class:`InvalidInput`, naming ``name``, unless there are four finite numbers and a, b, c are not all zero.
        """
        numbers = np.asarray(values, float)
        if numbers.shape != (4,) or not np.isfinite(numbers).all() or not numbers[:3].any():
            raise InvalidInput(
                f"{name} = {list(values)} must be 4 finite numbers a b c d with a b c not all 0"
            )
        length = float(np.linalg.norm(numbers[:3]))
        return cls(numbers[:3] / length, float(numbers[3]) / length)

    @classmethod
    def of_pose(cls, pose: Transform) -> Plane:
        """The plane through the origin of a frame with the given pose, normal to its z axis."""
        normal = pose.rotation[:, 2]
        return cls(normal, -float(normal @ pose.translation))

    def transform_by(self, transform: Transform) -> Plane:
        """The same plane in another coordinate frame."""
        normal = transform.rotation @ self.normal
        return Plane(normal, self.offset - float(normal @ transform.translation))


def quaternion(rotation: FloatArray) -> tuple[float, float, float, float]:
    """The quaternion x, y, z, w of ``rotation`` (3, 3), w >= 0."""
    if not np.isfinite(rotation).all():
        return (math.nan,) * 4  # of a box without a width; eigh would raise
    # the eigenvector of the largest eigenvalue (Bar-Itzhack 2000), which no angle makes inexact
    trace, turn = np.trace(rotation), rotation - rotation.T
    matrix = np.diag([-trace, -trace, -trace, trace])
    matrix[:3, :3] += rotation + rotation.T
    matrix[3, :3] = turn[2, 1], turn[0, 2], turn[1, 0]
    found = np.linalg.eigh(matrix)[1][:, -1]
    x, y, z, w = (found if found[3] >= 0 else -found).tolist()
    return x, y, z, w

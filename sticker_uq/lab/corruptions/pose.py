# SPDX-License-Identifier: Apache-2.0
"""Corruptions by the relative pose of camera and laptop, which move objects and boxes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sticker_uq.lab.corruptions.labelled_picture import LabelledPicture, warp_image
from sticker_uq.lab.corruptions.registry import POSE, transformation


def rotation_matrix(angle: float, size: tuple[int, int]) -> Any:
    """Map (3, 3) that turns a picture of `size` (width, height) by `angle` degrees clockwise.

    It turns about the picture's middle.
    """
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = size[0] / 2, size[1] / 2
    return np.array([[c, -s, x - c * x + s * y], [s, c, y - s * x - c * y], [0, 0, 1]])


def tilt_matrix(angle: float, axis: float, field_of_view: float, size: tuple[int, int]) -> Any:
    """Map (3, 3) of the laptop's plane for a camera tilted by `angle` degrees around the plane's centre.

    The camera keeps pointing at the centre from the same distance. `axis`: direction in the picture, degrees, of the line about
    which it turns; `field_of_view`: across the width of the picture, degrees.
    """
    width, height = size
    focal = width / 2 / math.tan(math.radians(field_of_view) / 2)
    turn, lean = math.radians(axis), math.radians(angle)
    ux, uy = math.cos(turn), math.sin(turn)
    c, s = math.cos(lean), math.sin(lean)
    # Rodrigues' formula for the axis (ux, uy, 0); the plane is z = 0, so only the first two columns count.
    rotation = np.array(
        [
            [c + ux * ux * (1 - c), ux * uy * (1 - c)],
            [ux * uy * (1 - c), c + uy * uy * (1 - c)],
            [-uy * s, ux * s],
        ]
    )
    to_plane = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1]])
    # A plane of one px per unit at distance `focal` is unchanged without tilt.
    project = np.column_stack([rotation, [0, 0, focal]])
    to_picture = np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]])
    return to_picture @ project @ to_plane / focal


@transformation(
    unit="degrees",
    strength="angle in the picture, to either side",
    stage=POSE,
    ladder=(2, 5, 10, 15, 25, 45),
    limits=(0, 180),
)
def rotation(picture: LabelledPicture, strength: float, rng: np.random.Generator) -> LabelledPicture:
    """Rotate the laptop under the camera."""
    matrix = rotation_matrix(strength if rng.random() < 0.5 else -strength, picture.size)
    return picture.warped(matrix, warp_image(picture.image, matrix))


@transformation(
    unit="degrees",
    strength="angle between the camera's axis and the vertical",
    stage=POSE,
    ladder=(3, 6, 10, 15, 22, 30),
    limits=(0, 50),
    field_of_view=55.0,
)
def tilt(
    picture: LabelledPicture, strength: float, rng: np.random.Generator, field_of_view: float = 55.0
) -> LabelledPicture:
    """Tilt the camera or the laptop to any side; ``field_of_view`` of the camera across the picture, degrees."""
    matrix = tilt_matrix(strength, float(rng.uniform(0, 360)), field_of_view, picture.size)
    return picture.warped(matrix, warp_image(picture.image, matrix))

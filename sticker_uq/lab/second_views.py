# SPDX-License-Identifier: Apache-2.0
"""Second views of a rendered laptop: the same one with another exposure, with light from the opposite side, or turned a little.

Each changes the description of a scene; what is seen of it follows from rendering the result.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sticker_uq.lab.corruptions.light import linear
from sticker_uq.lab.corruptions.pose import rotation_matrix
from sticker_uq.lab.rendering.render import frame_to_picture
from sticker_uq.lab.rendering.scene_spec import FRAME_HEIGHT, CameraSpec, LightSpec, SceneSpec
from sticker_uq.scene import FloatArray

TURN_DEGREES = 6.0
"""The small turn that docs/results/second_view.md measures."""
MIDDLE = 0.18
"""Mean linear light that another exposure aims at, white is 1; middle grey."""
MOST_STOPS = 2.0
_LEAST_STOPS = 0.5
"""Where metering would change less than this, a stop less is tried: it shows what is washed out."""
_DISPLAY = 2.2  # exponent between the camera's grey levels and light


def stops_for(image: NDArray[np.uint8]) -> float:
    """By how many stops another exposure of the lab differs from ``image``'s: to middle grey, or one less where that is near."""
    wanted = math.log2(MIDDLE / max(float(linear(image).mean()), 1e-4))
    if abs(wanted) < _LEAST_STOPS:
        return -1.0
    return float(np.clip(wanted, -MOST_STOPS, MOST_STOPS))


def brighter(camera: CameraSpec, stops: float) -> CameraSpec:
    """The lab's rendered ``camera`` with an exposure longer by ``stops``; negative ones are shorter."""
    return replace(camera, exposure=camera.exposure * 2.0 ** (stops / _DISPLAY))


def other_light(light: LightSpec) -> LightSpec:
    """The lab's lamp on the opposite side: what it brightens, reflects and shadows is mirrored at the middle of the picture."""

    def opposite(place: tuple[float, float]) -> tuple[float, float]:
        return 1.0 - place[0], FRAME_HEIGHT - place[1]

    return replace(
        light,
        direction=(light.direction + 180.0) % 360.0,
        hot_spot=opposite(light.hot_spot),
        specular_centre=opposite(light.specular_centre),
        shadow_angle=(light.shadow_angle + 180.0) % 360.0,
        shadow_offset=-light.shadow_offset,
    )


def turned(spec: SceneSpec, degrees: float) -> SceneSpec:
    """The lab's ``spec`` with the laptop turned clockwise about its middle, as a table turns it; lamp and camera stay."""
    matrix = _about_middle(spec, degrees) @ np.asarray(spec.pose.homography).reshape(3, 3)
    pose = replace(
        spec.pose, homography=tuple(float(v) for v in matrix.ravel()), angle=spec.pose.angle + degrees
    )
    return replace(spec, pose=pose)


def _about_middle(spec: SceneSpec, degrees: float) -> FloatArray:
    middle = np.asarray(spec.pose.homography).reshape(3, 3) @ [500.0, spec.laptop.depth / 2, 1.0]
    x, y = middle[:2] / middle[2]
    return np.asarray(rotation_matrix(degrees, (2 * x, 2 * y)), float)


def turn_map(spec: SceneSpec, degrees: float, size: tuple[int, int]) -> FloatArray:
    """The lab's turn of ``spec`` by ``degrees`` clockwise in pixels of pictures of ``size`` (width, height): a map (3, 3)."""
    to_picture = frame_to_picture(*size)
    return to_picture @ _about_middle(spec, degrees) @ np.linalg.inv(to_picture)

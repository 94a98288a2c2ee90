# SPDX-License-Identifier: Apache-2.0
"""The views of benchmarks.second_view: the same rendered laptop again, with another exposure, another light, or turned a little.

What made the first picture bad stays: the lamp that dazzles, the stops of light that are missing, the vibration that blurs. Only
what a view changes is changed, and the camera's noise, which is drawn anew in every picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.hard_scenes import NONE, SIZE, STRENGTHS
from sticker_uq.lab.corruptions import TRANSFORMATIONS, LabelledPicture
from sticker_uq.lab.corruptions.light import grey_levels, linear, reflection
from sticker_uq.lab.corruptions.pose import rotation_matrix
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.lab.rendering.scene_spec import FRAME_HEIGHT, LightSpec, SceneSpec
from sticker_uq.scene import FloatArray

FIRST, AGAIN, EXPOSURE, LIGHT, TURN, AVERAGED = "first", "again", "exposure", "light", "turn", "averaged"
VIEWS = (FIRST, AGAIN, EXPOSURE, LIGHT, TURN, AVERAGED)
"""The pictures of one laptop. ``again``: the same view with new noise; ``averaged``: the mean of that and the first."""
CIRCUMSTANCES = (NONE, "glare", "overexposure", "low_light", "motion_blur")
_STEPS = (
    1,
    3,
    5,
)  # weak, medium and strong among the strengths that a transformation names, as in benchmarks.hard
TURN_DEGREES = 6.0
MIDDLE = 0.18
"""Mean linear light that another exposure aims at, white is 1; middle grey."""
MOST_STOPS = 2.0
_LEAST_STOPS = 0.5
"""Where metering would change less than this, a stop less is tried: it shows what is washed out."""
_DISPLAY = 2.2  # exponent between the camera's grey levels and light


@dataclass(frozen=True)
class View:
    """One picture: ``image`` (H, W, 3) uint8 BGR, ``boxes`` (N, 4) px and ``labels`` (N,) of what is visible in it, and
    ``to_first`` (3, 3), the map of its pixels to those of the first picture.
    """

    image: NDArray[np.uint8]
    boxes: FloatArray
    labels: NDArray[np.int64]
    to_first: FloatArray


def views(seed: int, circumstance: str) -> dict[str, View]:
    """All of VIEWS of the laptop of ``seed``; the strength of the circumstance is one of STRENGTHS, by the seed."""
    spec = sample_scene(seed)
    scene = _Scene(spec, circumstance, strength_of(seed))
    found = {FIRST: scene.view(spec, 0)}
    found[AGAIN] = scene.view(spec, 1)
    found[EXPOSURE] = scene.view(spec, 2, stops=stops_for(found[FIRST].image))
    found[LIGHT] = scene.view(replace(spec, light=other_light(spec.light)), 3, lamp=1)
    found[TURN] = scene.view(turned(spec, TURN_DEGREES), 4, to_first=_turn(spec, -TURN_DEGREES))
    light = (linear(found[FIRST].image) + linear(found[AGAIN].image)) / 2
    found[AVERAGED] = replace(found[FIRST], image=grey_levels(light))
    return found


def strength_of(seed: int) -> int:
    """Which of STRENGTHS the circumstances of a laptop have: a third of the laptops each."""
    return seed % len(STRENGTHS)


def stops_for(image: NDArray[np.uint8]) -> float:
    """By how many stops another exposure differs from that of ``image``: to middle grey, or one less where that is near."""
    wanted = math.log2(MIDDLE / max(float(linear(image).mean()), 1e-4))
    if abs(wanted) < _LEAST_STOPS:
        return -1.0
    return float(np.clip(wanted, -MOST_STOPS, MOST_STOPS))


def other_light(light: LightSpec) -> LightSpec:
    """The same lamp on the opposite side: what it brightens, reflects and shadows is mirrored at the middle of the picture."""

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
    """``spec`` with the laptop turned clockwise about its middle, as a table turns it; lamp and camera stay."""
    matrix = _about_middle(spec, degrees) @ np.asarray(spec.pose.homography).reshape(3, 3)
    pose = replace(
        spec.pose, homography=tuple(float(v) for v in matrix.ravel()), angle=spec.pose.angle + degrees
    )
    return replace(spec, pose=pose)


def _about_middle(spec: SceneSpec, degrees: float) -> FloatArray:
    middle = np.asarray(spec.pose.homography).reshape(3, 3) @ [500.0, spec.laptop.depth / 2, 1.0]
    x, y = middle[:2] / middle[2]
    return np.asarray(rotation_matrix(degrees, (2 * x, 2 * y)), float)


def _turn(spec: SceneSpec, degrees: float) -> FloatArray:
    """The turn in pixels of pictures of SIZE, whose frame is as wide as the picture."""
    scale = np.diag([SIZE[0], SIZE[0], 1.0])
    return scale @ _about_middle(spec, degrees) @ np.linalg.inv(scale)


@dataclass(frozen=True)
class _Scene:
    """A laptop in a circumstance, of which pictures are taken."""

    spec: SceneSpec
    circumstance: str
    strength: int

    def view(
        self,
        spec: SceneSpec,
        number: int,
        stops: float = 0.0,
        lamp: int = 0,
        to_first: FloatArray | None = None,
    ) -> View:
        """Picture ``number`` of ``spec``, ``stops`` brighter; ``lamp``: which place the dazzling lamp has."""
        shown, severity = self._exposed(stops)
        camera = replace(
            spec.camera,
            exposure=spec.camera.exposure * 2.0 ** (shown / _DISPLAY),
            motion=spec.camera.motion * 2.0**stops,
        )
        scene = render(replace(spec, camera=camera), SIZE, noise_seed=spec.camera.noise_seed + number)
        picture = LabelledPicture.of(scene.image, scene.boxes, scene.labels)
        rng = np.random.default_rng([self.spec.seed, number])
        image = self._worsened(picture, severity, stops, lamp, rng)
        return View(image, scene.boxes, scene.labels, np.eye(3) if to_first is None else to_first)

    def _exposed(self, stops: float) -> tuple[float, float]:
        """Stops to render with, and severity of the circumstance, in a picture ``stops`` brighter than the first.

        Light beyond white is lost in a rendered picture, so that what is too much is added after it.
        """
        if self.circumstance == NONE:
            return stops, 0.0
        severity = float(TRANSFORMATIONS[self.circumstance].ladder[_STEPS[self.strength]])
        return {
            "overexposure": (min(severity + stops, 0.0), max(severity + stops, 0.0)),
            "low_light": (max(stops - severity, 0.0), max(severity - stops, 0.0)),
            "motion_blur": (stops, severity * 2.0**stops),
        }.get(self.circumstance, (stops, severity))

    def _worsened(
        self, picture: LabelledPicture, severity: float, stops: float, lamp: int, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        if self.circumstance == NONE:
            return picture.image
        if self.circumstance == "glare":
            # the place of the reflection is drawn from the first picture's objects: it stays when the laptop turns
            first = render(self.spec, SIZE)
            before = LabelledPicture.of(first.image, first.boxes, first.labels)
            added = reflection(before, severity, np.random.default_rng([self.spec.seed, 100 + lamp]))
            return grey_levels(linear(picture.image) + np.float32(2.0**stops) * added)
        corruption = TRANSFORMATIONS[self.circumstance]
        values = dict(corruption.parameters)
        if self.circumstance == "motion_blur":
            values["angle"] = float(np.random.default_rng(self.spec.seed).uniform(0, 180))
        return corruption.function(picture, severity, rng, **values).image

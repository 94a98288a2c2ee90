# SPDX-License-Identifier: Apache-2.0
"""The views of benchmarks.second_view: the same rendered laptop again, with another exposure, another light, or turned a little.

What made the first picture bad stays: the lamp that dazzles, the stops of light that are missing, the vibration that blurs. Only
what a view changes is changed, and the camera's noise, which is drawn anew in every picture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.hard_scenes import NONE, SIZE, STRENGTHS
from sticker_uq.lab.corruptions import TRANSFORMATIONS, LabelledPicture
from sticker_uq.lab.corruptions.light import grey_levels, linear, reflection
from sticker_uq.lab.rendering import render, sample_scene
from sticker_uq.lab.rendering.scene_spec import SceneSpec
from sticker_uq.lab.second_views import TURN_DEGREES, brighter, other_light, stops_for, turn_map, turned
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
    found[TURN] = scene.view(turned(spec, TURN_DEGREES), 4, to_first=turn_map(spec, -TURN_DEGREES, SIZE))
    light = (linear(found[FIRST].image) + linear(found[AGAIN].image)) / 2
    found[AVERAGED] = replace(found[FIRST], image=grey_levels(light))
    return found


def strength_of(seed: int) -> int:
    """Which of STRENGTHS the circumstances of a laptop have: a third of the laptops each."""
    return seed % len(STRENGTHS)


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
        camera = replace(brighter(spec.camera, shown), motion=spec.camera.motion * 2.0**stops)
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

# SPDX-License-Identifier: Apache-2.0
"""Familiarity: whether a scene as a whole looks like those that a policy was made from.

A policy's promise says nothing about other scenes, and a detector may be sure of itself on them. One number says how far a scene
lies outside what was usual, by the signal in which it is the most unusual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sticker_uq.gate.policy.policy_schema import Section
from sticker_uq.gate.policy.signals import scene_saliency
from sticker_uq.scene import FloatArray, InvalidInput, Reason, SceneAssessment

SceneSignal = Literal[
    "mean_level",
    "dark_share",
    "saturated_share",
    "noise",
    "sharpness",
    "score",
    "shannon_entropy",
    "mutual_information",
    "relative_total_variance",
    "relative_predictive_surface",
    "unstable",
    "unstable_share",
    "background_saliency",
    "saliency",
    "unexplained_objectness",
    "novelty",
]
"""What a scene may be unusual in: how it was taken, how sure the detector is of it, what it attends to and never saw."""

_TAIL, _LEAST_IN_TAIL = 0.02, 5
_RATIOS: frozenset[SceneSignal] = frozenset({"noise", "sharpness"})
"""Signals whose distances are ratios: half as sharp is as far as twice as sharp."""
_DIGITS = 6
MIN_SCENES = 20


def _of(part: str, *names: SceneSignal) -> dict[SceneSignal, Callable[[SceneAssessment], float]]:
    """Functions that read ``names`` from the ``part`` of a scene; NaN where it has none."""

    def of(name: SceneSignal) -> Callable[[SceneAssessment], float]:
        def measure(scene: SceneAssessment) -> float:
            found = getattr(scene, part)
            return math.nan if found is None else float(getattr(found, name))

        return measure

    return {name: of(name) for name in names}


def _score(scene: SceneAssessment) -> float:
    return float(np.mean([o.score for o in scene.objects])) if scene.objects else math.nan


def _unstable_share(scene: SceneAssessment) -> float:
    found = len(scene.objects) + len(scene.unstable)
    return len(scene.unstable) / found if found else math.nan


def _saliency(scene: SceneAssessment) -> float:
    pixels = scene.image_size[0] * scene.image_size[1]
    known = scene.localization is not None and pixels > 0
    return scene.localization.complete_localization / pixels if known and scene.localization else math.nan


MEASURES: Mapping[SceneSignal, Callable[[SceneAssessment], float]] = {
    **_of("exposure", "mean_level", "dark_share", "saturated_share", "noise", "sharpness"),
    "score": _score,
    **_of("uncertainty", "shannon_entropy", "mutual_information"),
    **_of("uncertainty", "relative_total_variance", "relative_predictive_surface"),
    "unstable": lambda scene: float(len(scene.unstable)),
    "unstable_share": _unstable_share,
    "background_saliency": lambda scene: scene_saliency(scene, "background_saliency"),
    "saliency": _saliency,
    "unexplained_objectness": lambda scene: scene_saliency(scene, "unexplained_objectness"),
    **_of("localization", "novelty"),
}
"""How each is measured, NaN where it was not. None was fitted to the scenes that a policy was made from."""


class Usual(Section):
    """What one signal was like in a policy's reference scenes: its median, and how far it went to either side."""

    low: float = Field(ge=0.0, description="Lowest usual value")
    middle: float = Field(description="Median")
    high: float = Field(description="Highest usual value")

    @model_validator(mode="after")
    def _check_ascending(self) -> Self:
        if not self.low <= self.middle <= self.high:
            raise ValueError("low, middle and high must not decrease")
        return self

    def distance(self, value: float, ratio: bool = False) -> float:
        """How far ``value`` lies from the middle: 1 at low and high; 0 where not measured, or never varied.

        ``ratio``: on a scale of log(1 + value).
        """
        if not math.isfinite(value):
            return 0.0
        low, middle, high, at = (
            math.log1p(max(v, 0.0)) if ratio else v for v in (self.low, self.middle, self.high, value)
        )
        spread = high - middle if at > middle else middle - low
        return abs(at - middle) / spread if spread > 0.0 else 0.0


def _usual(values: FloatArray, beyond: float, ratio: bool) -> Usual:
    """Limits that a share ``beyond`` of values like ``values`` (N,) lies above, and as many below."""
    at = np.log1p(values) if ratio else values
    high, low = tail_limit(at, beyond), max(-tail_limit(-at, beyond), 0.0)  # no signal is negative
    middle = float(np.median(at))
    found = (math.expm1(v) if ratio else v for v in (low, middle, high))
    low, middle, high = (float(f"{v:.{_DIGITS}g}") for v in found)
    return Usual(low=low, middle=middle, high=high)


def tail_limit(values: FloatArray, beyond: float) -> float:
    """The limit that a share ``beyond`` of values like ``values`` (N,) lies above, with an exponential tail."""
    tail = max(_TAIL, _LEAST_IN_TAIL / len(values))
    threshold = float(np.quantile(values, 1.0 - tail))
    above = values[values > threshold]
    if not len(above):
        return threshold
    excess = float(np.mean(above)) - threshold
    return threshold + excess * max(math.log(len(above) / len(values) / beyond), 0.0)


class Familiarity(Section):
    """Which scenes are like those that a policy was made from; nothing is decided about others without a person."""

    usual: dict[SceneSignal, Usual] = Field(min_length=1, description="What each signal was like")
    max_distance: float = Field(gt=0.0, description="Highest unfamiliarity of a scene that is judged")
    percentile: float = Field(ge=0.0, le=100.0)
    """Percentile of the scenes it was made of that max_distance lies at"""

    @classmethod
    def of(cls, scenes: Sequence[SceneAssessment], percentile: float) -> Familiarity:
        """Learned from ``scenes``; of others like them about ``percentile`` percent are within it.

        Every signal has a limit of its own on either side, beyond which an equal part of the rest lies. So little of it is
        seen in the scenes that their tails are continued as exponential ones (peaks over threshold; Pickands 1975).
        Raises :class:`InvalidInput` for fewer than 20 scenes.
        """
        if len(scenes) < MIN_SCENES:
            raise InvalidInput(f"{len(scenes)} scenes, expected at least {MIN_SCENES} to tell what is usual")
        measured = {n: np.array([of(scene) for scene in scenes], float) for n, of in MEASURES.items()}
        known = {name: values[np.isfinite(values)] for name, values in measured.items()}
        known = {name: values for name, values in known.items() if len(values) >= MIN_SCENES}
        if not known:
            raise InvalidInput("nothing was measured on enough scenes to tell what is usual")
        beyond = max(1.0 - percentile / 100.0, 1e-9) / (2 * len(known))
        usual = {name: _usual(values, beyond, name in _RATIOS) for name, values in known.items()}
        return cls(usual=usual, max_distance=1.0, percentile=percentile)

    def distance(self, scene: SceneAssessment) -> tuple[float, SceneSignal]:
        """How far ``scene`` is from the familiar ones, and the signal in which it is the most unusual."""
        far = {n: usual.distance(MEASURES[n](scene), n in _RATIOS) for n, usual in self.usual.items()}
        name = max(far, key=far.__getitem__)
        return far[name], name

    def doubts(self, scene: SceneAssessment) -> list[Reason]:
        value, name = self.distance(scene)
        if value <= self.max_distance:
            return []
        usual, measured = self.usual[name], MEASURES[name](scene)
        reason = Reason.of("unfamiliar_scene", signal=name, measured=measured, low=usual.low, high=usual.high)
        return [replace(reason, value=value, limit=self.max_distance)]

# SPDX-License-Identifier: Apache-2.0
"""Rendered laptops, assessed once and kept: what the benchmarks of the policy look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sticker_uq.calibration.records import Record
from sticker_uq.detection.detector import resolve_device
from sticker_uq.evaluation.executors import mapped
from sticker_uq.evaluation.replay.assessment_json import (
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.io.json_store import JsonStore
from sticker_uq.lab.corruptions import LabelledPicture, transform
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.perception import Perception, PerceptionSettings


@dataclass(frozen=True)
class Recipe:
    """The laptop of a seed, in a circumstance of that strength unless the name is empty."""

    seed: int
    circumstance: str = ""
    strength: float = 0.0

    @property
    def name(self) -> str:
        """What the record of it is called."""
        return f"{self.seed}" + (f" {self.circumstance} {self.strength:g}" if self.circumstance else "")

    def picture(self) -> LabelledPicture:
        """The picture and what is to be seen on it."""
        spec = sample_scene(self.seed)
        scene = render(spec)
        plain = LabelledPicture.of(scene.image, scene.boxes, scene.labels, scene=spec)
        if not self.circumstance:
            return plain
        return transform(plain, self.circumstance, self.strength, self.seed)


def records(
    recipes: Sequence[Recipe],
    settings: PerceptionSettings,
    cache: JsonStore,
    jobs: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> list[Record]:
    """The assessed pictures of ``recipes``, in order; what the cache does not hold is made in ``jobs`` processes."""
    settings_hash = settings.hash_on(resolve_device(settings.device).type)
    prefix = f"rendered:{settings.model}:{settings.weights}:{settings_hash}:{code_fingerprint('datasets')}"
    plain: dict[Recipe, Any] = {recipe: cache.get(f"{prefix}:{recipe.name}") for recipe in recipes}
    missing = [recipe for recipe, value in plain.items() if value is None]
    for _ in range(len(plain) - len(missing)):
        progress()
    with closing(mapped(partial(_record, settings=settings), missing, jobs, chunksize=4)) as made:
        for recipe, value in zip(missing, made, strict=True):
            cache.put({f"{prefix}:{recipe.name}": value})
            plain[recipe] = value
            progress()
    return [_from_plain(recipe.name, plain[recipe]) for recipe in recipes]


def _from_plain(name: str, plain: dict[str, Any]) -> Record:
    return Record(
        name=name,
        boxes=np.array(plain["boxes"], np.float32).reshape(-1, 4),
        labels=np.array(plain["labels"], np.int64),
        assessment=assessment_from_plain(plain["assessment"]),
    )


_perception: Perception | None = None


def _record(recipe: Recipe, settings: PerceptionSettings) -> dict[str, Any]:
    global _perception
    if _perception is None or _perception.settings != settings:
        _perception = Perception(settings)
    picture = recipe.picture()
    return {
        "boxes": picture.boxes.tolist(),
        "labels": picture.labels.tolist(),
        "assessment": assessment_to_plain(_perception.assess(picture.image)),
    }

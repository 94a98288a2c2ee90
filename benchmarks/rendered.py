# SPDX-License-Identifier: Apache-2.0
"""Rendered laptops, assessed once and kept: what the benchmarks of the policy look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from sticker_uq.calibration.records import Record
from sticker_uq.detection.detector import resolve_device
from sticker_uq.evaluation.executors import mapped
from sticker_uq.evaluation.replay.assessing import (
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.io.json_store import JsonStore
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.perception import Perception, PerceptionSettings


def records(
    seeds: Sequence[int],
    settings: PerceptionSettings,
    cache: JsonStore,
    jobs: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> list[Record]:
    """The assessed laptops of ``seeds``, in order; what the cache does not hold is made in ``jobs`` processes."""
    settings_hash = settings.hash_on(resolve_device(settings.device).type)
    prefix = f"rendered:{settings.model}:{settings.weights}:{settings_hash}:{code_fingerprint('datasets')}"
    plain: dict[int, Any] = {seed: cache.get(f"{prefix}:{seed}") for seed in seeds}
    missing = [seed for seed, value in plain.items() if value is None]
    for _ in range(len(plain) - len(missing)):
        progress()
    with closing(mapped(partial(_record, settings=settings), missing, jobs, chunksize=4)) as made:
        for seed, value in zip(missing, made, strict=True):
            cache.put({f"{prefix}:{seed}": value})
            plain[seed] = value
            progress()
    return [_from_plain(str(seed), plain[seed]) for seed in seeds]


def _from_plain(name: str, plain: dict[str, Any]) -> Record:
    return Record(
        name=name,
        boxes=np.array(plain["boxes"], np.float32).reshape(-1, 4),
        labels=np.array(plain["labels"], np.int64),
        assessment=assessment_from_plain(plain["assessment"]),
    )


_perception: Perception | None = None


def _record(seed: int, settings: PerceptionSettings) -> dict[str, Any]:
    global _perception
    if _perception is None or _perception.settings != settings:
        _perception = Perception(settings)
    scene = render(sample_scene(seed))
    return {
        "boxes": scene.boxes.tolist(),
        "labels": scene.labels.tolist(),
        "assessment": assessment_to_plain(_perception.assess(scene.image)),
    }

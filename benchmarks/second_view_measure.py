# SPDX-License-Identifier: Apache-2.0
"""What perception says about every view of benchmarks.second_view, assessed once and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import second_view_scenes
from benchmarks.second_view_scenes import CIRCUMSTANCES, FIRST, views
from sticker_uq.calibration.records import Record
from sticker_uq.evaluation.executors import mapped
from sticker_uq.evaluation.replay.assessment_json import (
    assessment_from_plain,
    assessment_to_plain,
    code_fingerprint,
)
from sticker_uq.io.json_store import JsonStore
from sticker_uq.lab import second_views
from sticker_uq.perception import Perception, PerceptionSettings
from sticker_uq.scene import FloatArray, SceneAssessment

SETTINGS = PerceptionSettings(device="cpu", threads=1)


@dataclass(frozen=True)
class Seen:
    """One view: what perception says of it, and ``to_first`` (3, 3), the map of its pixels to those of the first picture."""

    assessment: SceneAssessment
    to_first: FloatArray


@dataclass(frozen=True)
class Laptop:
    """The laptop of ``seed`` in ``circumstance``: the ``truth`` of the first picture, and what was seen in each view."""

    seed: int
    circumstance: str
    truth: Record
    seen: dict[str, Seen]


def measure(
    seeds: Sequence[int],
    cache: JsonStore,
    processes: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> list[Laptop]:
    """Every laptop of ``seeds`` in every circumstance; what the cache does not hold is made in ``processes`` processes."""
    jobs = [(seed, circumstance) for seed in seeds for circumstance in CIRCUMSTANCES]
    prefix = table_key()
    plain: dict[Any, Any] = {job: cache.get(f"{prefix}:{job}") for job in jobs}
    missing = [job for job, value in plain.items() if value is None]
    for _ in range(len(jobs) - len(missing)):
        progress()
    with closing(mapped(_measured, missing, processes, chunksize=4)) as made:
        for job, value in zip(missing, made, strict=True):
            cache.put({f"{prefix}:{job}": value})
            plain[job] = value
            progress()
    return [_laptop(job, plain[job]) for job in jobs]


def table_key() -> str:
    """Names the measurements of this code, these networks and these settings, 16 hex digits."""
    perception = _perception()
    parts = [
        perception.model_hash,
        perception.settings_hash,
        code_fingerprint("lab/rendering", "lab/corruptions"),
    ]
    parts += [Path(str(m.__file__)).read_text(encoding="utf-8") for m in (second_view_scenes, second_views)]
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


_made: list[Perception] = []


def _perception() -> Perception:
    if not _made:
        _made.append(Perception(SETTINGS))
    return _made[0]


def _measured(job: tuple[int, str]) -> dict[str, Any]:
    found = views(*job)
    return {
        "boxes": found[FIRST].boxes.tolist(),
        "labels": found[FIRST].labels.tolist(),
        "seen": {
            name: {
                "assessment": assessment_to_plain(_perception().assess(view.image)),
                "to_first": view.to_first.tolist(),
            }
            for name, view in found.items()
        },
    }


def _laptop(job: tuple[int, str], plain: dict[str, Any]) -> Laptop:
    seen = {
        name: Seen(assessment_from_plain(view["assessment"]), np.array(view["to_first"], float))
        for name, view in plain["seen"].items()
    }
    seed, circumstance = job
    truth = Record(
        name=f"{seed} {circumstance}",
        boxes=np.array(plain["boxes"], np.float32).reshape(-1, 4),
        labels=np.array(plain["labels"], np.int64),
        assessment=seen[FIRST].assessment,
    )
    return Laptop(seed, circumstance, truth, seen)

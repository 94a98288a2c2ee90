# SPDX-License-Identifier: Apache-2.0
"""Runs a whole detector study: what is missing is computed, on this machine or on a Ray cluster, and kept piece by piece."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from sticker_uq.detection.detector import resolve_device
from sticker_uq.evaluation.executors import Executor
from sticker_uq.io.coco import LabelledImage, check_objects, read_coco
from sticker_uq.io.files import atomic_write, write_file
from sticker_uq.io.images import MOST_PICTURE
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.reading import read_bytes, read_json
from sticker_uq.scene import InvalidInput
from sticker_uq_lab import Progress
from sticker_uq_lab.studies.detectors.measures import CLEAN
from sticker_uq_lab.studies.detectors.study_plan import TRANSFER, ModelChoice, StudySettings
from sticker_uq_lab.studies.detectors.study_tasks import Assess, AttackTask, Task, perform_task, weights_hash

CELLS, PLAN = "cells.sqlite", "study.json"
IMAGES, OBJECTS, ATTACKS = "images.parquet", "objects.parquet", "attacks.parquet"
ATTACKED = "adversarial"


@dataclass(frozen=True)
class Study:
    """``images``: one row per image, model, data set, rate and variant; ``objects``: one per clustered object; ``attacks``: one
    per attacked picture. ``weights``: identity of each model's weights by its label.
    """

    settings: StudySettings
    images: pd.DataFrame
    objects: pd.DataFrame
    attacks: pd.DataFrame
    weights: dict[str, str]

    @classmethod
    def load(cls, folder: Path) -> Study:
        try:
            plan = read_json(folder / PLAN)
            images, objects, attacks = (pd.read_parquet(folder / name) for name in (IMAGES, OBJECTS, ATTACKS))
            settings = StudySettings.model_validate(plan["settings"])
            return cls(settings, images, objects, attacks, plan["weights"])
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInput(f"{folder}: expected the folder of a finished study ({error})") from None


def run_study(
    settings: StudySettings,
    folder: Path,
    execute: Executor,
    progress: Progress = lambda stage, done, total: None,
) -> Study:
    """Compute what the ``folder`` does not hold yet, write the three tables to it, and return them.

    Every finished cell stays in ``folder``/cells.sqlite, so that a run that was killed goes on where it was, and a run with more
    rates, images or models computes those only. The tables are sorted and do not depend on how the work was spread.
    """
    data = {one.name: _items(one.name, read_coco(one.folder), settings.images) for one in settings.datasets}
    weights = {model.label: weights_hash(model, settings) for model in settings.models}
    folder.mkdir(parents=True, exist_ok=True)
    with JsonStore(folder / CELLS) as store:
        attacks, assessments = _plan(settings, folder, data, weights)
        plan: dict[str, Sequence[Task]] = {"attacks": attacks, "cells": assessments}
        for stage, tasks in plan.items():
            missing = list(_missing_tasks(tasks, store))
            done = count(len(tasks) - len(missing))
            progress(stage, next(done), len(tasks))
            for result in execute(partial(perform_task, settings=settings), missing):
                store.put(result)
                progress(stage, next(done), len(tasks))
        attacked = [store.get(task.key) for task in attacks]
        cells = [store.get(key) for task in assessments for key in task.keys]
    tables = _tables(cells, attacked)
    for name, table in zip((IMAGES, OBJECTS, ATTACKS), tables, strict=True):
        with atomic_write(folder / name) as stream:
            table.to_parquet(stream, index=False)
    kept = {"settings": settings.model_dump(mode="json"), "weights": weights}
    write_file(folder / PLAN, json.dumps(kept, indent=2))
    return Study(settings, *tables, weights)


def _plan(
    settings: StudySettings, folder: Path, data: Mapping[str, list[LabelledImage]], weights: Mapping[str, str]
) -> tuple[list[AttackTask], list[Assess]]:
    """All tasks, in a fixed order."""
    digests = {
        (name, item.path.name): hashlib.blake2b(
            read_bytes(item.path, MOST_PICTURE) + item.boxes.tobytes() + item.labels.tobytes(), digest_size=16
        ).hexdigest()
        for name, items in data.items()
        for item in items
    }
    attacking = {"what": "attack", "settings": settings.attack.model_dump(), "seed": settings.seed}
    looking = settings.model_dump(include={"passes", "score_floor", "profile", "seed", "precision"})
    looking |= {"what": "look", "device": resolve_device(settings.device).type}

    def facts(model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> dict[str, Any]:
        return {
            "label": model.label,
            "weights": weights[model.label],
            "min_size": model.min_size,
            "dataset": dataset,
            "image": item.path.name,
            "digest": digests[dataset, item.path.name],
            "variant": variant,
        }

    def attack(model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> AttackTask:
        key = _key(facts(model, dataset, item, variant) | attacking)
        # named by what decides it: pictures of other settings in the same folder are other files
        name = f"{item.path.stem}-{key[:8]}.png"
        file = folder / ATTACKED / model.label / dataset / variant / name
        return AttackTask(model, dataset, item, variant, file, key)

    def assessment(
        model: ModelChoice, dataset: str, item: LabelledImage, variant: str, other: ModelChoice | None = None
    ) -> Assess:
        seen = attack(other or model, dataset, item, variant) if variant != CLEAN else None
        variant = f"{TRANSFER}{other.label}" if other else variant
        own = {"dropout_site": model.dropout_site, "attack": seen.key if seen else ""} | looking
        known = facts(model, dataset, item, variant) | own
        rates = settings.rates[:1] if other else settings.rates
        keys = tuple(_key(known | {"rate": rate}) for rate in rates)
        return Assess(model, dataset, item, variant, rates, keys, seen.file if seen else None)

    places = [(model, name, items) for model in settings.models for name, items in data.items()]
    variants = settings.variants
    attacks = [
        attack(model, name, item, v) for model, name, items in places for v in variants for item in items
    ]
    own = [
        assessment(model, name, item, v)
        for model, name, items in places
        for item in items
        for v in (CLEAN, *variants)
    ]
    foreign = [
        assessment(model, name, item, variants[0], other)
        for model, name, items in places
        for item in items
        for other in settings.models
        if settings.transfer and other != model
    ]
    return attacks, own + foreign


def _key(facts: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _items(dataset: str, items: Sequence[LabelledImage], most: int) -> list[LabelledImage]:
    chosen = list(items[: most or None])
    check_objects(chosen, f"data set {dataset}")
    names = Counter(item.path.name for item in chosen)  # the results tell rows apart by it
    for name, times in names.items():
        if times > 1:
            raise InvalidInput(f"data set {dataset}: two images are called {name}, expected every name once")
    return chosen


def _missing_tasks(tasks: Sequence[Task], store: JsonStore) -> Iterator[Task]:
    for task in tasks:
        if isinstance(task, AttackTask):
            if task.key not in store or not task.file.is_file():
                yield task
        elif left := [(r, key) for r, key in zip(task.rates, task.keys, strict=True) if key not in store]:
            rates, keys = zip(*left, strict=True)
            yield replace(task, rates=rates, keys=keys)


def _tables(cells: list[Any], attacks: list[Any]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    order = ["dataset", "model", "variant", "dropout_rate", "image"]
    objects = [{name: cell["row"][name] for name in order} | one for cell in cells for one in cell["objects"]]
    images, found = (
        table.sort_values(order, kind="stable", ignore_index=True)
        for table in (
            pd.DataFrame([cell["row"] for cell in cells]),
            pd.DataFrame(objects, columns=None if objects else order),
        )
    )
    return images, found, pd.DataFrame(attacks)

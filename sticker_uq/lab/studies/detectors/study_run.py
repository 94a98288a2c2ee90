# SPDX-License-Identifier: Apache-2.0
"""Runs a whole detector study: what is missing is computed, on this machine or on a Ray cluster, and kept piece by piece."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from sticker_uq.lab.studies.detectors.measures import CLEAN
from sticker_uq.lab.studies.detectors.study_plan import ModelChoice, StudySettings
from sticker_uq.lab.studies.detectors.study_tasks import Assess, Attack, Task, perform_task, weights_hash
from sticker_uq.scene import InvalidInput

CELLS, PLAN = "cells.sqlite", "study.json"
IMAGES, OBJECTS, ATTACKS = "images.parquet", "objects.parquet", "attacks.parquet"
ATTACKED = "adversarial"

Progress = Callable[[str, int, int], None]
"""Called with the stage, what is done of it, and how much there is."""


@dataclass(frozen=True)
class Study:
    """The results of a study. ``images``: one row per image, model, data set, rate and variant; ``objects``: one per clustered
    object; ``attacks``: one per attacked picture. ``weights``: identity of each model's weights by its label.
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
        work = Work(settings, folder, data, weights)
        for stage, tasks in (("attacks", work.attacks()), ("cells", work.assessments())):
            _complete(stage, tasks, settings, store, execute, progress)
        attacks = [store.get(task.key) for task in work.attacks()]
        cells = [store.get(key) for task in work.assessments() for key in task.keys]
    images, objects, attacked = _tables(cells, attacks)
    study = Study(settings, images, objects, attacked, weights)
    for name, table in ((IMAGES, study.images), (OBJECTS, study.objects), (ATTACKS, study.attacks)):
        with atomic_write(folder / name) as stream:
            table.to_parquet(stream, index=False)
    write_file(
        folder / PLAN,
        json.dumps({"settings": settings.model_dump(mode="json"), "weights": weights}, indent=2),
    )
    return study


class Work:
    def __init__(
        self,
        settings: StudySettings,
        folder: Path,
        data: dict[str, list[LabelledImage]],
        weights: dict[str, str],
    ) -> None:
        self._settings, self._folder, self._data, self._weights = settings, folder, data, weights
        self._digests = {
            (name, item.path.name): hashlib.blake2b(
                read_bytes(item.path, MOST_PICTURE) + item.boxes.tobytes() + item.labels.tobytes(),
                digest_size=16,
            ).hexdigest()
            for name, items in data.items()
            for item in items
        }

    def attacks(self) -> list[Attack]:
        return [
            self._attack(model, name, item, variant)
            for model in self._settings.models
            for name, items in self._data.items()
            for variant in self._settings.variants
            for item in items
        ]

    def assessments(self) -> list[Assess]:
        return [
            self._assessment(model, name, item, variant)
            for model in self._settings.models
            for name, items in self._data.items()
            for item in items
            for variant in (CLEAN, *self._settings.variants)
        ]

    def _assessment(self, model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> Assess:
        settings = self._settings
        attack = self._attack(model, dataset, item, variant) if variant != CLEAN else None
        facts = self._facts(model, dataset, item, variant) | {
            "what": "look",
            "dropout_site": model.dropout_site,
            "attack": attack.key if attack else "",
            **settings.model_dump(include={"passes", "score_floor", "profile", "seed", "precision"}),
            "device": resolve_device(settings.device).type,
        }
        keys = tuple(_key(facts | {"rate": rate}) for rate in settings.rates)
        return Assess(model, dataset, item, variant, settings.rates, keys, attack.file if attack else None)

    def _attack(self, model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> Attack:
        settings = {"settings": self._settings.attack.model_dump(), "seed": self._settings.seed}
        key = _key(self._facts(model, dataset, item, variant) | {"what": "attack"} | settings)
        # named by what decides it: pictures of other settings in the same folder are other files
        name = f"{item.path.stem}-{key[:8]}.png"
        file = self._folder / ATTACKED / model.label / dataset / variant / name
        return Attack(model, dataset, item, variant, file, key)

    def _facts(self, model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> dict[str, Any]:
        return {
            "label": model.label,
            "weights": self._weights[model.label],
            "min_size": model.min_size,
            "dataset": dataset,
            "image": item.path.name,
            "digest": self._digests[dataset, item.path.name],
            "variant": variant,
        }


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


def _complete(
    stage: str,
    tasks: Sequence[Task],
    settings: StudySettings,
    store: JsonStore,
    execute: Executor,
    progress: Progress,
) -> None:
    missing = list(_missing(tasks, store))
    done = count(len(tasks) - len(missing))
    progress(stage, next(done), len(tasks))
    for result in execute(partial(perform_task, settings=settings), missing):
        store.put(result)
        progress(stage, next(done), len(tasks))


def _missing(tasks: Sequence[Task], store: JsonStore) -> Iterator[Task]:
    for task in tasks:
        if isinstance(task, Attack):
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

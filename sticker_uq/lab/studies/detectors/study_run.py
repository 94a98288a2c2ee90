# SPDX-License-Identifier: Apache-2.0
"""Runs a whole detector study: what is missing is computed, on this machine or on a Ray cluster, and kept piece by piece."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from sticker_uq.detection.detector import resolve_device
from sticker_uq.evaluation.executors import Executor
from sticker_uq.io.coco import LabelledImage, check_objects, read_coco
from sticker_uq.io.files import atomic_write
from sticker_uq.io.images import MOST_PICTURE
from sticker_uq.io.json_store import JsonStore
from sticker_uq.io.reading import read_bytes, read_json
from sticker_uq.lab.studies.detectors.measures import CLEAN
from sticker_uq.lab.studies.detectors.study_plan import ModelChoice, StudySettings
from sticker_uq.lab.studies.detectors.study_tasks import (
    Assess,
    Attack,
    Task,
    check_name,
    perform_task,
    weights_hash,
)
from sticker_uq.lab.table_files import write_parquet
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
        """A finished detector study from its folder; raises InvalidInput when there is none."""
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
        write_parquet(table, folder / name)
    with atomic_write(folder / PLAN, "w") as stream:
        json.dump({"settings": settings.model_dump(mode="json"), "weights": weights}, stream, indent=2)
    return study


class Work:
    """All tasks of a detector study, in a fixed order."""

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
            Attack(
                model,
                name,
                item,
                variant,
                self.file(model, name, item, variant),
                self._attack_key(model, name, item, variant),
            )
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
        settings, attacked = self._settings, variant != CLEAN
        facts = self._facts(model, dataset, item, variant) | {
            "what": "look",
            "dropout_site": model.dropout_site,
            "attack": self._attack_key(model, dataset, item, variant) if attacked else "",
            "passes": settings.passes,
            "score_floor": settings.score_floor,
            "profile": settings.profile,
            "seed": settings.seed,
            "precision": settings.precision,
            "device": resolve_device(settings.device).type,
        }
        keys = tuple(_key(facts | {"rate": rate}) for rate in settings.rates)
        file = self.file(model, dataset, item, variant) if attacked else None
        return Assess(model, dataset, item, variant, settings.rates, keys, file)

    def _attack_key(self, model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> str:
        settings = {"settings": self._settings.attack.model_dump(), "seed": self._settings.seed}
        return _key(self._facts(model, dataset, item, variant) | {"what": "attack"} | settings)

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

    def file(self, model: ModelChoice, dataset: str, item: LabelledImage, variant: str) -> Path:
        """Where the detector study keeps the attack ``variant`` on ``model``."""
        # named by what decides it: pictures of other settings in the same folder are other files
        name = f"{item.path.stem}-{self._attack_key(model, dataset, item, variant)[:8]}.png"
        return self._folder / ATTACKED / model.label / dataset / variant / name


def _key(facts: Mapping[str, Any]) -> str:
    """A key from everything that decides a value, 32 hex digits."""
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _items(dataset: str, items: Sequence[LabelledImage], most: int) -> list[LabelledImage]:
    chosen = list(items[: most or None])
    check_objects(chosen, f"data set {dataset}")
    names: set[str] = set()
    for item in chosen:
        check_name(item, names, dataset)
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
    total = len(tasks)
    done = total - len(missing)
    progress(stage, done, total)
    for result in execute(partial(perform_task, settings=settings), missing):
        store.put(result)
        done += 1
        progress(stage, done, total)


def _missing(tasks: Sequence[Task], store: JsonStore) -> Iterator[Task]:
    for task in tasks:
        if isinstance(task, Attack):
            if task.key not in store or not task.file.is_file():
                yield task
            continue
        left = [(rate, key) for rate, key in zip(task.rates, task.keys, strict=True) if key not in store]
        if left:
            rates, keys = zip(*left, strict=True)
            yield Assess(**{**vars(task), "rates": rates, "keys": keys})


def _tables(cells: list[Any], attacks: list[Any]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    rows = [cell["row"] for cell in cells]
    order = ["dataset", "model", "variant", "dropout_rate", "image"]
    where = (*order,)
    objects = [{name: cell["row"][name] for name in where} | one for cell in cells for one in cell["objects"]]
    images = pd.DataFrame(rows).sort_values(order, kind="stable", ignore_index=True)
    found = pd.DataFrame(objects, columns=None if objects else list(where))
    return images, found.sort_values(order, kind="stable", ignore_index=True), pd.DataFrame(attacks)

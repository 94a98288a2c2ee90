# SPDX-License-Identifier: Apache-2.0
"""The tasks of a detector study, each a function of its arguments alone: attacking one picture, assessing one picture."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sticker_uq.detection.detector import StochasticDetector, load_detector
from sticker_uq.dil import LocalizationSettings, localize
from sticker_uq.evaluation.metrics.matching import DECISION_SCORE, MATCH_IOU, overlapping
from sticker_uq.io.coco import LabelledImage, encode_picture, read_picture
from sticker_uq.io.files import atomic_write
from sticker_uq.lab.attacks.dpatch import craft_patch
from sticker_uq.lab.attacks.white_box import Adversarial, attack, variant_seed
from sticker_uq.lab.corruptions import LabelledPicture, transform
from sticker_uq.lab.datasets.abnormal import patched
from sticker_uq.lab.studies.detectors.image_scores import score
from sticker_uq.lab.studies.detectors.study_plan import PATCHED, ModelChoice, StudyCircumstance, StudySettings
from sticker_uq.perception.pipeline import image_digest, image_seed
from sticker_uq.scene import FloatArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix


def patch_picture(detector: StochasticDetector, item: LabelledImage, steps: int, seed: int) -> Adversarial:
    """The adversarial ``item``: a patch on one or two stickers, made in ``steps`` against ``detector``.

    The patch is a DPatch (Liu et al. 2019).

    ``targets``: stickers with a patch; ``fooled``: those of them that the model without dropout no longer detects. A picture
    without stickers stays as it is. Raises InvalidInput for a picture that cannot be read.
    """
    clean = read_picture(item)
    if not (item.labels == ObjectClass.STICKER).any():
        return Adversarial(clean, 0, 0.0, 0.0, 0, 0)
    patch = craft_patch(detector, [item], steps=steps, seed=seed, batch=1)
    rng = np.random.default_rng([seed, 1])
    scene = patched(clean, item.boxes, item.labels, rng, patch)
    change = scene.image.astype(np.float64) - clean
    stickers = item.boxes[item.labels == ObjectClass.STICKER]
    attacked = stickers[np.unique(iou_matrix(scene.added, stickers).argmax(axis=1))]
    return Adversarial(
        image=scene.image,
        iterations=steps,
        linf=float(np.abs(change).max()),
        rms=float(np.sqrt(np.square(change).mean())),
        targets=len(attacked),
        fooled=int((~_detected(detector, scene.image, attacked)).sum()),
    )


def _detected(detector: StochasticDetector, image: np.ndarray, boxes: FloatArray) -> np.ndarray:
    """Which of ``boxes`` (N, 4) of stickers a pass without dropout detects, (N,) bool."""
    found = detector.detect(detector.encode(image))
    sure = (found.foreground_labels == ObjectClass.STICKER) & (found.scores >= DECISION_SCORE)
    return overlapping(boxes, found.boxes[sure], MATCH_IOU)


Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Attack:
    """Attack ``item`` of a data set against ``model`` and store the picture in ``file``."""

    model: ModelChoice
    dataset: str
    item: LabelledImage
    variant: str
    file: Path
    key: str


@dataclass(frozen=True)
class Assess:
    """Assess ``item`` with ``model`` at every one of ``rates``; ``keys``: of the result at each rate.

    ``file``: the attacked picture instead of the clean one, if any; ``circumstance`` that it is put into, if any.
    """

    model: ModelChoice
    dataset: str
    item: LabelledImage
    variant: str
    rates: tuple[float, ...]
    keys: tuple[str, ...]
    file: Path | None = None
    circumstance: StudyCircumstance | None = None


Task = Attack | Assess


def perform_task(task: Task, settings: StudySettings) -> dict[str, Any]:
    """Do one task of a detector study: what is to be kept, by key. Raises InvalidInput for a picture that cannot be read."""
    return _attack(task, settings) if isinstance(task, Attack) else _assessed(task, settings)


def _attack(task: Attack, settings: StudySettings) -> dict[str, Any]:
    detector = _detectors(settings.detector(task.model), (0.0,))[0.0]
    seed = variant_seed(settings.seed, int(task.variant[-2:]), task.item.path.name)
    if task.variant.startswith(PATCHED):
        found = patch_picture(detector, task.item, settings.patch_steps, seed)
    else:
        (found,) = attack(detector, [task.item], settings.attack, [seed])
    task.file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(task.file) as stream:
        stream.write(encode_picture(found.image, "png"))
    return {
        task.key: {
            "attacked": task.model.label,
            "dataset": task.dataset,
            "image": task.item.path.name,
            "variant": task.variant,
            "iterations": found.iterations,
            "rms": found.rms,
            "linf": found.linf,
            "targets": found.targets,
            "fooled": found.fooled,
            "success": found.success,
        }
    }


def _assessed(task: Assess, settings: StudySettings) -> dict[str, Any]:
    detectors = _detectors(settings.detector(task.model), settings.rates)
    first = next(iter(detectors.values()))
    image, truth = variant_picture(task.item, task.variant, task.file, task.circumstance, settings.seed)
    started = time.perf_counter()
    features = first.encode(image)
    encode_ms = (time.perf_counter() - started) * 1e3
    started = time.perf_counter()
    asked = LocalizationSettings()
    localization = localize(first.deterministic_pass(features, least_score=asked.decision_threshold), asked)
    look_ms = (time.perf_counter() - started) * 1e3
    seed = image_seed(image_digest(image), settings.seed)
    kept: dict[str, Any] = {}
    for rate, key in zip(task.rates, task.keys, strict=True):
        started = time.perf_counter()
        samples = detectors[rate].sample(features, settings.passes, seed)
        decode_ms = (time.perf_counter() - started) * 1e3
        row, objects = score(samples, truth, settings.profile)
        where = {
            "dataset": task.dataset,
            "dropout_rate": rate,
            "variant": task.variant,
            "image": task.item.path.name,
            "model": task.model.label,
            "width": truth.width,
            "height": truth.height,
        }
        costs = {
            "dil": localization.dil,
            "encode_ms": encode_ms,
            "look_ms": look_ms,
            "decode_ms": decode_ms,
            "device": first.device_name,
        }
        kept[key] = {"row": where | row | costs, "objects": objects}
    return kept


def variant_picture(
    item: LabelledImage, variant: str, file: Path | None, circumstance: StudyCircumstance | None, seed: int
) -> tuple[Picture, LabelledImage]:
    """What a model sees as ``variant`` of the ``item``, and its labels.

    The picture in ``file`` instead of the clean one, if any; a ``circumstance`` that it is put into, if any, with the ``seed`` of
    the study. Raises InvalidInput for a picture that cannot be read.
    """
    seen = item if file is None else replace(item, path=file)
    image = read_picture(seen)
    if circumstance is None:
        return image, seen
    drawn = variant_seed(seed, 0, f"{variant} {item.path.name}") % 2**32
    found = transform(
        LabelledPicture.of(image, item.boxes, item.labels), circumstance.name, circumstance.strength, drawn
    )
    height, width = found.image.shape[:2]
    return found.image, replace(item, boxes=found.boxes, labels=found.labels, width=width, height=height)


@cache
def _detectors(settings: Any, rates: tuple[float, ...]) -> dict[float, StochasticDetector]:
    """One detector for each rate, all of the same weights in memory once; kept for the next task of this process."""
    loaded = load_detector(settings)
    return {rate: loaded.with_settings(settings.model_copy(update={"dropout_rate": rate})) for rate in rates}


def weights_hash(model: ModelChoice, settings: StudySettings) -> str:
    """Identity of the weights of a detector study's ``model``; raises InvalidInput when it has none."""
    return next(iter(_detectors(settings.detector(model), settings.rates).values())).weights_hash


def check_name(item: LabelledImage, names: set[str], dataset: str) -> None:
    """Raise InvalidInput when two images of a detector study's data set have one name: its results tell rows apart by it."""
    if item.path.name in names:
        raise InvalidInput(
            f"data set {dataset}: two images are called {item.path.name}, expected every name once"
        )
    names.add(item.path.name)

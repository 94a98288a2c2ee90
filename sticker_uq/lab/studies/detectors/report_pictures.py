# SPDX-License-Identifier: Apache-2.0
"""The pictures of a study's report: the worst, least certain and most changed of every model, with labels and detections."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import pandas as pd

from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.images import encode_jpeg
from sticker_uq.lab.studies.detectors.labelled import labelled_images
from sticker_uq.lab.studies.detectors.measures import in_order
from sticker_uq.lab.studies.detectors.results import CLEAN
from sticker_uq.lab.studies.detectors.study_plan import ADVERSARIAL
from sticker_uq.lab.studies.detectors.study_run import Study, Work
from sticker_uq.lab.studies.detectors.study_tasks import variant_picture
from sticker_uq.lab.studies.detectors.summaries import reference_rate
from sticker_uq.scene import InvalidInput

WIDTH = 480
"""Of a picture in the report, px."""
_QUALITY = 80
_KEYS = ["dataset", "image", "model", "variant"]
Box = tuple[int, float, float, float, float]
"""Label, x1, y1, x2, y2."""


FAINT = 0.3
"""Objects with a lower score are not drawn."""
_MOST = 60
_LEAST_CHANGE = 1e-9


@dataclass(frozen=True)
class Picture:
    """``data``: JPEG as base64, at most `WIDTH` px wide; ``width``, ``height``, ``truth``: of the original, px."""

    width: int
    height: int
    truth: tuple[Box, ...]
    data: str


@dataclass(frozen=True)
class Shown:
    """A picture on the page: ``why``, its ``caption`` and the ``boxes`` that the passes cluster into, the surest last."""

    dataset: str
    model: str
    why: str
    caption: str
    picture: Picture
    boxes: list[Mapping[str, Any]]


def gallery(study: Study, scores: pd.DataFrame, folder: Path) -> Iterator[Shown]:
    """Up to four pictures of each kind for every model and data set, fewer where there are many models.

    ``scores``: of `robustness_scores`. A picture that is gone or cannot be read is left out.
    """
    settings, rate = study.settings, reference_rate(study)
    data = {one.name: labelled_images(one, folder) for one in settings.datasets}
    work = Work(settings, folder, data, study.weights)
    items = {name: {item.path.name: item for item in found} for name, found in data.items()}
    models = {model.label: model for model in settings.models}
    rows = study.images[study.images["dropout_rate"] == rate].set_index(_KEYS).sort_index()
    objects = study.objects
    objects = (
        objects[(objects["dropout_rate"] == rate) & (objects["score"] >= FAINT)] if len(objects) else objects
    )
    ranking = _ranking(study, scores, rate)
    each = max(1, min(4, _MOST // max(len(ranking), 1)))
    for dataset, model, why, images in ranking:
        for image in images[:each]:
            for variant in (CLEAN, f"{ADVERSARIAL}00")[: 2 if "attack" in why else 1]:
                key = (dataset, image, model, variant)
                item = items[dataset][image]
                file = work.file(models[model], dataset, item, variant) if variant != CLEAN else None
                picture = _picture(item, variant, file, settings.seed)
                if picture is None or key not in rows.index:
                    continue
                caption = f"{image}{'' if variant == CLEAN else ', attacked'}: {_words(rows.loc[key])}"
                boxes = (
                    objects[objects[_KEYS].eq(list(key)).all(axis=1)].sort_values("score")
                    if len(objects)
                    else objects
                )
                yield Shown(dataset, model, why, caption, picture, boxes.to_dict("records"))


def _ranking(study: Study, scores: pd.DataFrame, rate: float) -> list[tuple[str, str, str, list[str]]]:
    """Data set, model, why, and the images in which the model stands out most, in order."""
    rows = study.images[(study.images["dropout_rate"] == rate) & (study.images["variant"] == CLEAN)]
    found = []
    for dataset in [one.name for one in study.settings.datasets]:
        for model in in_order({one.label for one in study.settings.models}):
            own = rows[(rows["dataset"] == dataset) & (rows["model"] == model)]
            kinds = {
                "lowest mAP": own.sort_values(["map", "image"]),
                "most uncertain": own.sort_values(["shannon_entropy", "image"], ascending=[False, True]),
            }
            if not scores.empty:
                here = scores[(scores["dataset"] == dataset) & (scores["model"] == model)]
                here = here[here["dropout_rate"] == rate]
                change = here.assign(change=(here["map_clean"] - here["map_adversarial"]).abs())
                kinds["most changed by the attack"] = change[change["change"] > _LEAST_CHANGE].sort_values(
                    ["change", "image"], ascending=[False, True]
                )
            found += [(dataset, model, why, table["image"].tolist()) for why, table in kinds.items()]
    return found


def _words(row: pd.Series) -> str:
    told = [
        ("mAP", "map", ".2f", ""),
        ("SE", "shannon_entropy", ".2f", " bit"),
        ("TV/area", "relative_total_variance", ".3f", ""),
        ("DiL", "dil", ".2f", ""),
    ]
    known = [(word, row[name], form, unit) for word, name, form, unit in told if pd.notna(row[name])]
    return ", ".join(f"{word} {value:{form}}{unit}" for word, value, form, unit in known)


def _picture(item: LabelledImage, variant: str, file: Path | None, seed: int) -> Picture | None:
    try:
        pixels, seen = variant_picture(item, variant, file, None, seed)
    except (InvalidInput, OSError):
        return None
    height, width = pixels.shape[:2]
    if width > WIDTH:
        pixels = cv2.resize(pixels, (WIDTH, round(height * WIDTH / width)), interpolation=cv2.INTER_AREA)
    data = base64.b64encode(encode_jpeg(pixels, _QUALITY)).decode()
    return Picture(width, height, _truth(seen), data)


def _truth(item: LabelledImage) -> tuple[Box, ...]:
    return tuple(
        (label, *(round(value, 1) for value in box))
        for label, box in zip(item.labels.tolist(), item.boxes.tolist(), strict=True)
    )

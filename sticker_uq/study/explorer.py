"""Pictures worth looking at: where a model is worst, least sure, and most changed by an attack."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sticker_uq.datasets.coco import LabelledImage
from sticker_uq.datasets.images import encode_jpeg
from sticker_uq.detection.sampling import read_picture
from sticker_uq.scene import ObjectClass
from sticker_uq.study.labelled import labelled_images
from sticker_uq.study.plan import ADVERSARIAL
from sticker_uq.study.results import CLEAN
from sticker_uq.study.running import ATTACKED, Study
from sticker_uq.study.summaries import reference_rate

WIDTH = 420
"""Of a picture in the report, px."""
_MOST_PICTURES = 60
_COLOURS = {ObjectClass.LOGO: (178, 114, 0), ObjectClass.STICKER: (0, 94, 213)}
_TRUTH = (235, 235, 235)


@dataclass(frozen=True)
class Shown:
    """One picture of the report: ``why`` it is there, ``caption`` with its figures, ``data`` JPEG as base64."""

    dataset: str
    model: str
    why: str
    caption: str
    data: str


def choose(study: Study, scores: pd.DataFrame, folder: str) -> list[Shown]:
    """Up to four pictures of each kind for every model and data set, at the reference rate; fewer where there are many models."""
    rate = reference_rate(study)
    groups = len(study.settings.models) * len(study.settings.datasets)
    each = max(1, min(4, _MOST_PICTURES // (3 * groups)))
    items = {
        d.name: {i.path.name: i for i in labelled_images(d, Path(folder))} for d in study.settings.datasets
    }
    rows = study.images[study.images["dropout_rate"] == rate]
    found = []
    for (dataset, model), own in rows[rows["variant"] == CLEAN].groupby(["dataset", "model"], sort=True):
        labelled = items[str(dataset)]
        kinds = {
            "lowest mAP": own.dropna(subset="map").nsmallest(each, "map"),
            "most uncertain": own.dropna(subset="shannon_entropy").nlargest(each, "shannon_entropy"),
        }
        for why, chosen in kinds.items():
            for row in chosen.to_dict("records"):
                item = labelled[row["image"]]
                found.append(_shown(study, why, row, _annotated(study, item, read_picture(item), row)))
        if scores.empty:
            continue
        here = (scores["dataset"] == dataset) & (scores["model"] == model) & (scores["dropout_rate"] == rate)
        changes = scores[here].assign(change=lambda t: (t["map_clean"] - t["map_adversarial"]).abs())
        for name in changes.nlargest(each, "change")["image"]:
            found += _pair(study, labelled[name], str(dataset), str(model), rows, folder)
    return found


def _pair(
    study: Study, item: LabelledImage, dataset: str, model: str, rows: pd.DataFrame, folder: str
) -> list[Shown]:
    """The attacked picture of the first variant."""
    variant = f"{ADVERSARIAL}00"
    mine = (rows["dataset"] == dataset) & (rows["model"] == model) & (rows["image"] == item.path.name)
    (row,) = rows[mine & (rows["variant"] == variant)].to_dict("records")
    (clean,) = rows[mine & (rows["variant"] == CLEAN)].to_dict("records")
    place = cv2.imread(str(_attacked(folder, model, dataset, variant, item)))
    if place is None:
        return []
    picture = _annotated(study, item, np.asarray(place, np.uint8), row)
    shown = _shown(study, "most changed by the attack", row, picture)
    return [Shown(dataset, model, shown.why, f"{shown.caption}; clean {clean['map']:.2f}", shown.data)]


def _attacked(folder: str, model: str, dataset: str, variant: str, item: LabelledImage) -> str:
    found = sorted(Path(folder, ATTACKED, model, dataset, variant).glob(f"{item.path.stem}-????????.png"))
    return str(max(found, key=lambda path: path.stat().st_mtime)) if found else ""


def _shown(study: Study, why: str, row: Mapping[str, object], picture: NDArray[np.uint8]) -> Shown:
    caption = (
        f"{row['image']}: mAP {row['map']:.2f}, SE {row['shannon_entropy']:.2f} bit, TV/area "
        f"{row['relative_total_variance']:.3f}, DiL {row['dil']:.2f}"
    )
    return Shown(
        str(row["dataset"]), str(row["model"]), why, caption, base64.b64encode(encode_jpeg(picture)).decode()
    )


def _annotated(
    study: Study, item: LabelledImage, image: NDArray[np.uint8], row: Mapping[str, object]
) -> NDArray[np.uint8]:
    """The picture in the width of the report, labels in light grey, clusters in the colour of their class with their score."""
    scale = WIDTH / image.shape[1]
    canvas = cv2.resize(image, (WIDTH, round(image.shape[0] * scale)), interpolation=cv2.INTER_AREA)
    for box in item.boxes * scale:
        x1, y1, x2, y2 = np.round(box).astype(int).tolist()
        cv2.rectangle(canvas, (x1 - 2, y1 - 2), (x2 + 2, y2 + 2), _TRUTH, 1)
    keys = ("dataset", "model", "variant", "dropout_rate", "image")
    objects = study.objects
    for name in keys:
        objects = objects[objects[name] == row[name]]
    for found in objects.to_dict("records"):
        x1, y1, x2, y2 = (round(found[name] * scale) for name in ("x1", "y1", "x2", "y2"))
        colour = _COLOURS.get(ObjectClass(found["label"]), _TRUTH)
        cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, 2)
        text = f"{ObjectClass(found['label']).name.lower()} {found['score']:.2f}"
        cv2.putText(
            canvas, text, (x1 + 2, max(y1 - 4, 10)), cv2.FONT_HERSHEY_SIMPLEX, 0.38, colour, 1, cv2.LINE_AA
        )
    return np.asarray(canvas, np.uint8)

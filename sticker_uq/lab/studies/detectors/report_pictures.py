# SPDX-License-Identifier: Apache-2.0
"""The pictures of the detector study's report: what its models looked at, small enough, with the labels that belong to them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import cv2

from sticker_uq.io.coco import LabelledImage
from sticker_uq.io.images import encode_jpeg
from sticker_uq.lab.studies.detectors.labelled import labelled_images
from sticker_uq.lab.studies.detectors.results import CLEAN
from sticker_uq.lab.studies.detectors.study_plan import TRANSFER, Circumstance
from sticker_uq.lab.studies.detectors.study_run import Study, Work
from sticker_uq.lab.studies.detectors.study_tasks import variant_picture
from sticker_uq.scene import InvalidInput

WIDTH = 480
"""Of a picture in the report, px."""
_QUALITY = 80
Box = tuple[int, float, float, float, float]
"""Label, x1, y1, x2, y2."""


@dataclass(frozen=True)
class Picture:
    """A picture of the detector study's report. ``data``: JPEG as base64, at most `WIDTH` px wide; ``width``, ``height``,
    ``truth``: of the original, px.
    """

    number: int
    width: int
    height: int
    truth: tuple[Box, ...]
    data: str

    @property
    def cost(self) -> int:
        """Bytes that the picture takes in the detector study's report, about."""
        return len(self.data) + 60 * len(self.truth) + 100


class Pictures:
    """The pictures of a detector study in ``folder``, each made when it is asked for and kept."""

    def __init__(self, study: Study, folder: Path) -> None:
        settings = study.settings
        data = {one.name: labelled_images(one, folder) for one in settings.datasets}
        self.items = {name: {item.path.name: item for item in items} for name, items in data.items()}
        self._study = study
        self._models = {model.label: model for model in settings.models}
        self._circumstances = {one.variant: one for one in settings.circumstances}
        self._work = Work(settings, folder, data, study.weights)
        self._made: dict[tuple[str, str, str, str], Picture | None] = {}

    def find(self, dataset: str, image: str, model: str, variant: str) -> Picture | None:
        """The detector study's picture that ``model`` saw as ``variant`` of ``image``; None when it is gone or cannot be read."""
        circumstance = self._circumstances.get(variant)
        # all models see one clean picture and one of a circumstance; an attack that came from another model is the other's
        if variant == CLEAN or circumstance:
            model = ""
        elif variant.startswith(TRANSFER):
            model, variant = variant.removeprefix(TRANSFER), self._study.settings.variants[0]
        key = (dataset, image, model, variant)
        if key not in self._made:
            number = sum(1 for one in self._made.values() if one is not None)
            self._made[key] = self._make(number, key, circumstance)
        return self._made[key]

    def _make(
        self, number: int, key: tuple[str, str, str, str], circumstance: Circumstance | None
    ) -> Picture | None:
        dataset, image, model, variant = key
        item = self.items[dataset][image]
        file = self._work.file(self._models[model], dataset, item, variant) if model else None
        try:
            pixels, seen = variant_picture(item, variant, file, circumstance, self._study.settings.seed)
        except (InvalidInput, OSError):
            return None
        height, width = pixels.shape[:2]
        if width > WIDTH:
            pixels = cv2.resize(pixels, (WIDTH, round(height * WIDTH / width)), interpolation=cv2.INTER_AREA)
        data = base64.b64encode(encode_jpeg(pixels, _QUALITY)).decode()
        return Picture(number, width, height, _truth(seen), data)


def _truth(item: LabelledImage) -> tuple[Box, ...]:
    return tuple(
        (label, *(round(value, 1) for value in box))
        for label, box in zip(item.labels.tolist(), item.boxes.tolist(), strict=True)
    )

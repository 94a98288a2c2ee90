"""How many of those who were asked call an annotated object a sticker that may be removed: labels with doubt in COCO folders.

An annotation may say it in one of two further fields:

    "annotators": {"sticker": 3, "logo": 1, "background": 1}     how many people chose which class
    "probabilities": [0.1, 0.2, 0.7]                             in the order background, logo, sticker

Without either its category counts as certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.datasets.coco import ANNOTATIONS, LabelledImage, load_annotations
from sticker_uq.scene import CLASS_COUNT, FloatArray, InvalidInput, ObjectClass

_CLASSES = {label.name.lower(): label for label in ObjectClass}


def sticker_fractions(folder: Path, items: list[LabelledImage]) -> dict[int, FloatArray]:
    """The share (N,) of annotators who call each object of an image a sticker, by the image's id, for all of ``items``.

    Objects are in the order of ``items``, which :func:`sticker_uq.datasets.coco.read_coco` read from the same ``folder``. Raises
    :class:`InvalidInput` naming the annotation whose field cannot be used.
    """
    path = folder / ANNOTATIONS
    said: dict[int, list[float | None]] = {item.image_id: [] for item in items}
    for annotation in load_annotations(folder)["annotations"]:
        if annotation["image_id"] in said:
            said[annotation["image_id"]].append(_fraction(path, annotation))
    found = {}
    for item in items:
        certain = (item.labels == ObjectClass.STICKER).astype(float)
        own = [c if f is None else f for c, f in zip(certain.tolist(), said[item.image_id], strict=True)]
        found[item.image_id] = np.array(own, float)
    return found


def _fraction(path: Path, annotation: Mapping[str, Any]) -> float | None:
    where = f"{path}: annotation {annotation['id']}"
    if "annotators" in annotation:
        votes = annotation["annotators"]
        usable = isinstance(votes, dict) and set(votes) <= set(_CLASSES)
        if not usable or any(type(n) is not int or n < 0 for n in votes.values()) or not sum(votes.values()):
            raise InvalidInput(
                f"{where}: annotators {votes!r}: expected how many people chose each of {', '.join(_CLASSES)}"
            )
        return float(votes.get("sticker", 0) / sum(votes.values()))
    if "probabilities" in annotation:
        values = annotation["probabilities"]
        numbers = isinstance(values, list) and all(type(v) in (int, float) for v in values)
        if (
            not numbers
            or len(values) != CLASS_COUNT
            or min(values) < 0
            or not math.isclose(sum(values), 1, abs_tol=1e-3)
        ):
            raise InvalidInput(
                f"{where}: probabilities {values!r}: expected {CLASS_COUNT} numbers that sum to 1, background, logo, sticker"
            )
        return float(values[ObjectClass.STICKER])
    return None

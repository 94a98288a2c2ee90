# SPDX-License-Identifier: Apache-2.0
"""Soft labels in COCO folders: the share of annotators who call an object a sticker that may be removed.

An annotation may have one of two further fields:

    "annotators": {"sticker": 3, "logo": 1, "background": 1}     number of annotators who chose each class
    "probabilities": [0.1, 0.2, 0.7]                             in the order background, logo, sticker

Without either, its category counts as certain. Annotators may use the names in ``categories.yaml``; a vote for a name that is
ignored there counts as not a sticker. An object whose own category is ignored is left out.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sticker_uq.io.coco import ANNOTATIONS, LabelledImage, load_annotations
from sticker_uq.io.coco_entries import category_names
from sticker_uq.io.reading import show_value
from sticker_uq.scene import CLASS_COUNT, FloatArray, InvalidInput, ObjectClass

_Names = Mapping[str, ObjectClass | None]


def sticker_fractions(folder: Path, items: list[LabelledImage]) -> dict[int, FloatArray]:
    """The share (N,) of annotators who call each object of an image a sticker, by image id, for all of ``items``.

    Objects are in the order of ``items``, which :func:`sticker_uq.io.coco.read_coco` read from the same ``folder``. Raises
    :class:`InvalidInput` naming the annotation whose field is invalid.
    """
    path = folder / ANNOTATIONS
    document = load_annotations(folder)
    names: _Names = {"background": ObjectClass.BACKGROUND, **category_names(folder)}
    left_out = {
        category["id"]
        for category in document["categories"]
        if names.get(_key(category.get("name")), ObjectClass.BACKGROUND) is None
    }
    said: dict[int, list[float | None]] = {item.image_id: [] for item in items}
    for annotation in document["annotations"]:
        if annotation["category_id"] not in left_out and annotation["image_id"] in said:
            said[annotation["image_id"]].append(_fraction(path, annotation, names))
    found = {}
    for item in items:
        certain = (item.labels == ObjectClass.STICKER).astype(float)
        own = [c if f is None else f for c, f in zip(certain.tolist(), said[item.image_id], strict=True)]
        found[item.image_id] = np.array(own, float)
    return found


def _key(name: object) -> str:
    return str(name).strip().lower()


def _fraction(path: Path, annotation: Mapping[str, Any], names: _Names) -> float | None:
    where = f"{path}: annotation {annotation['id']}"
    if "annotators" in annotation:
        votes = annotation["annotators"]
        usable = isinstance(votes, dict) and {_key(name) for name in votes} <= set(names)
        if not usable or any(type(n) is not int or n < 0 for n in votes.values()) or not sum(votes.values()):
            raise InvalidInput(
                f"{where}: annotators {show_value(votes)}: expected the number of votes for each of {', '.join(names)}"
            )
        stickers = sum(n for name, n in votes.items() if names[_key(name)] == ObjectClass.STICKER)
        return float(stickers / sum(votes.values()))
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
                f"{where}: probabilities {show_value(values)}: expected {CLASS_COUNT} numbers that sum to 1 (background, logo, "
                "sticker)"
            )
        return float(values[ObjectClass.STICKER])
    return None

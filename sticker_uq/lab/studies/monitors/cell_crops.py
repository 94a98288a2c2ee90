# SPDX-License-Identifier: Apache-2.0
"""Crops of the cell's own objects for the studies of monitors: lid, logo and sticker, from rendered scenes or a COCO folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.io.crops import cut_crops, empty_boxes
from sticker_uq.lab.datasets.abnormal import add_foreign_objects
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.lab.studies.ambiguity.raae import RaaeSettings
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.monitors.crop_network import Training
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass

SIZE = 24
"""Side of a crop of the task networks and of a COCO folder, px."""
STUDY_SIZE, STUDY_SCENES = 40, 600
"""Side of a crop, px, and rendered scenes of the study of monitors: print and texture must be told apart."""
PAIRS = (
    (int(ObjectClass.LOGO), int(ObjectClass.STICKER)),
    (int(ObjectClass.BACKGROUND), int(ObjectClass.STICKER)),
)
"""Sticker against logo, the distinction that costs money, and sticker against the lid's texture."""
RAAE = RaaeSettings(latent=4, hidden=96, steps=2000, keep=2)
_TRAINING = Training(epochs=40, deep=True, augment=True)
_LIDS = 2  # crops of bare lid per scene
_SCENE = (480, 360)

Picture = tuple[NDArray[np.uint8], FloatArray, NDArray[np.int64]]


def cell_material(scenes: int = 240, seed: int = 4_000_000, size: int = SIZE) -> Material:
    """Crops of ``scenes`` rendered scenes from ``seed`` on, ``size`` px wide,
    two thirds to train with.
    """

    def rendered() -> Iterable[Picture]:
        for number in range(scenes):
            scene = render(sample_scene(seed + number), _SCENE)
            yield scene.image, scene.boxes, scene.labels

    return _material("cell", rendered(), scenes, seed, size)


def study_material() -> Material:
    """The larger crops of more scenes, and the deeper classifier, that the study is made with."""
    return replace(cell_material(STUDY_SCENES, size=STUDY_SIZE), training=_TRAINING)


def coco_material(folder: Path, seed: int = 0) -> Material:
    """Crops of a COCO folder, two thirds of the pictures, drawn with ``seed``, to train with."""
    items = read_coco(folder)
    order = np.random.default_rng(seed).permutation(len(items))
    chosen: Sequence[LabelledImage] = [items[i] for i in order]
    pictures = ((read_picture(item), item.boxes, item.labels) for item in chosen)
    return _material(folder.name, pictures, len(chosen), seed)


def _material(name: str, pictures: Iterable[Picture], count: int, seed: int, size: int = SIZE) -> Material:
    crops: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    labels: tuple[list[IntArray], list[IntArray]] = ([], [])
    foreign_objects = []
    for number, (image, boxes, classes) in enumerate(pictures):
        rng = np.random.default_rng([seed, number])
        testing = int(number >= 2 * count // 3)
        found = _crops(image, boxes, classes, rng, size)
        crops[testing].append(found[0])
        labels[testing].append(found[1])
        if testing:
            scene = add_foreign_objects(image, boxes, classes, rng, stickers=False)
            foreign_objects.append(cut_crops(scene.image, scene.added, size))
    present = set(np.concatenate(labels[0]).tolist()) if labels[0] else set()
    missing = [label.name.lower() for label in ObjectClass if int(label) not in present]
    if missing or not crops[1]:
        raise InvalidInput(
            f"{name}: no {', '.join(missing) or 'picture to test with'} among {count} pictures, expected all of lid, logo "
            "and sticker"
        )
    return Material(
        name=name,
        classes=("lid", "logo", "sticker"),
        train=np.concatenate(crops[0]),
        train_labels=np.concatenate(labels[0]),
        test=np.concatenate(crops[1]),
        test_labels=np.concatenate(labels[1]),
        invalid=np.concatenate(foreign_objects),
        pairs=PAIRS,
        raae=RAAE,
    )


def crops_of(
    pictures: Iterable[tuple[NDArray[np.uint8], FloatArray, NDArray[np.int64], object]], seed: int
) -> tuple[FloatArray, IntArray]:
    """Monitor study crops (N, 3, SIZE, SIZE) of objects in ``pictures`` (image, boxes, labels, ...) and of bare lid, with
    classes (N,).
    """
    crops, labels = [], []
    for number, (image, boxes, classes, _) in enumerate(pictures):
        found = _crops(image, boxes, classes, np.random.default_rng([seed, number]), SIZE)
        crops.append(found[0])
        labels.append(found[1])
    return np.concatenate(crops), np.concatenate(labels)


def _crops(
    image: NDArray[np.uint8],
    boxes: FloatArray,
    classes: NDArray[np.int64],
    rng: np.random.Generator,
    size: int,
) -> tuple[FloatArray, IntArray]:
    bare = empty_boxes((image.shape[1], image.shape[0]), boxes, _LIDS, rng)
    crops = cut_crops(image, np.concatenate([bare, boxes]), size)
    return crops, np.concatenate([np.zeros(len(bare), np.int64), classes])

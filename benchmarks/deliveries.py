# SPDX-License-Identifier: Apache-2.0
"""A delivery of laptops that the packaged detector was never trained on: four makes of their own, stickers of unknown kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.rendered import Recipe
from sticker_uq.io.coco import ANNOTATIONS, EncodedScene, encode_picture, write_coco
from sticker_uq.lab.corruptions.workpiece import scene_of_unknown_make
from sticker_uq.lab.datasets.abnormal import add_foreign_objects
from sticker_uq.lab.rendering.painting import Image
from sticker_uq.lab.rendering.render import render
from sticker_uq.lab.rendering.scene_sampling import sample_scene
from sticker_uq.scene import InvalidInput, ObjectClass

MAKES = 4
CONTRAST = 40.0
"""Grey levels between the logos of the new makes and their cases."""
_FIRST_MAKE = 9000
_STREAM = 77

Labelled = tuple[Image, NDArray[np.float32], NDArray[np.int64]]
"""A picture (H, W, 3) BGR with boxes (N, 4) px and labels (N,)."""


def new_laptop(seed: int) -> Labelled:
    """A laptop of the delivery; where it bears stickers at all, one to three of them are of kinds that no training scene has."""
    rng = np.random.default_rng((seed, _STREAM))
    make = _FIRST_MAKE + int(rng.integers(MAKES))
    scene = render(scene_of_unknown_make(sample_scene(seed), CONTRAST, make))
    if not (scene.labels == ObjectClass.STICKER).any():
        return scene.image, scene.boxes, scene.labels
    with_foreign_objects = add_foreign_objects(scene.image, scene.boxes, scene.labels, rng, stickers=True)
    return with_foreign_objects.image, with_foreign_objects.boxes, with_foreign_objects.labels


def known_laptop(seed: int) -> Labelled:
    """A laptop like those of the training."""
    picture = Recipe(seed).picture()
    return picture.image, picture.boxes, picture.labels


def coco_folder(
    folder: Path, first: int, count: int, laptop: Callable[[int], Labelled], image_format: str = "png"
) -> Path:
    """``folder`` with the labelled pictures of ``count`` laptops from seed ``first``; made only if it is not there yet.

    Raises InvalidInput when the folder holds other pictures.
    """
    seeds = range(first, first + count)
    if not (folder / ANNOTATIONS).exists():
        write_coco(folder, (encoded(seed, *laptop(seed), image_format) for seed in seeds))
    held = [image["seed"] for image in json.loads((folder / ANNOTATIONS).read_text())["images"]]
    if held != list(seeds):
        raise InvalidInput(
            f"{folder}: holds {len(held)} other laptops, expected {count} from seed {first}; use another --out"
        )
    return folder


def encoded(
    seed: int, image: Image, boxes: NDArray[np.float32], labels: NDArray[np.int64], image_format: str = "jpg"
) -> EncodedScene:
    """A labelled picture as `write_coco` takes it."""
    height, width = image.shape[:2]
    data = encode_picture(image, image_format)
    return EncodedScene(seed, image_format, data, width, height, boxes, labels)

# SPDX-License-Identifier: Apache-2.0
"""Ambiguous crops (AmbiGuess) back in scenes, so that detectors meet them: seamless borders, probabilistic labels in COCO."""

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import numpy.typing as npt

from sticker_uq.io.coco import EncodedScene, LabelledImage, read_picture
from sticker_uq.io.crops import crop_square, empty_boxes
from sticker_uq.scene import FloatArray, IntArray, ObjectClass, Rng
from sticker_uq_lab.studies.ambiguity.raae import AmbiguousImages


def paste(
    image: npt.NDArray[np.uint8], boxes: FloatArray, crops: FloatArray, numbers: IntArray, rng: Rng
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """``image`` (H, W, 3) uint8 BGR with the ambiguous ``crops`` (N, 3, s, s) on it, and their boxes px.

    They are as many of ``numbers``, from the first on, as fit where no object of ``boxes`` lies. The borders are seamless (Perez
    et al. 2003, Poisson blending): the crop keeps its gradients and takes the colour of the lid.
    """
    size = (image.shape[1], image.shape[0])
    places = empty_boxes(size, boxes, len(numbers), rng)
    found = image.copy()
    for place, number in zip(places, numbers, strict=False):
        left, top, side = crop_square(place)
        pixels = np.rint(crops[number].transpose(1, 2, 0) * 255).astype(np.uint8)
        pixels = cv2.resize(pixels, (side, side), interpolation=cv2.INTER_CUBIC)
        mask = np.zeros((side, side), np.uint8)
        mask[1:-1, 1:-1] = 255  # the outermost pixels are what the solution starts from
        centre = (left + side // 2, top + side // 2)
        found = cv2.seamlessClone(pixels, found, mask, centre, cv2.NORMAL_CLONE)
    return found, places


def pasted_scenes(
    items: Sequence[LabelledImage], ambiguous: AmbiguousImages, each: int, seed: int
) -> Iterator[EncodedScene]:
    """The pictures ``items`` with up to ``each`` ambiguous crops pasted on each, with probabilistic labels.

    An annotation's class is the more probable one that is an object; its further field ``probabilities`` holds the probabilistic
    label in the order background, logo, sticker; ``ambiguous`` says whether the object was pasted.
    """
    vectors = ambiguous.vectors(len(ObjectClass))
    order = np.random.default_rng(seed).permutation(len(ambiguous))
    used = 0
    for item in items:
        rng = np.random.default_rng([seed, item.image_id])
        numbers = order[np.arange(used, used + each) % len(order)]
        image, places = paste(read_picture(item), item.boxes, ambiguous.images, numbers, rng)
        used += len(places)
        own = vectors[numbers[: len(places)]]
        certain = np.eye(len(ObjectClass))[item.labels]
        labels = np.concatenate([item.labels, own[:, 1:].argmax(axis=1) + 1]).astype(np.int64)
        further = tuple(
            {"probabilities": [round(v, 6) for v in row.tolist()], "ambiguous": number >= len(item.labels)}
            for number, row in enumerate(np.concatenate([certain, own]))
        )
        boxes, about = np.concatenate([item.boxes, places]), {"source": item.path.name}
        yield EncodedScene.of(
            image, item.image_id, "jpg", boxes, labels, image_fields=about, box_fields=further
        )

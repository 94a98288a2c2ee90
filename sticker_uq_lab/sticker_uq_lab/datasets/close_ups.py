# SPDX-License-Identifier: Apache-2.0
"""Labelled close-ups, to train weights that look at nothing else."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import cv2
import numpy as np

from sticker_uq.detection import StochasticDetector
from sticker_uq.io.coco import EncodedScene, LabelledImage, read_picture
from sticker_uq.perception.close_ups import AT_ONCE, close_ups
from sticker_uq.scene import FloatArray, IntArray, Rng
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab.rendering.painting import Image

ZOOMS = (1.5, 2.0, 2.5, 3.0)
WIDEST = 960
"""Width px that wider pictures are reduced to: inputs are smaller."""
_SEEN = (np.nan, 0.3, 0.03)
"""Probabilities from which a logo or a sticker of a pass without dropout is shown, of those above the detector's score floor."""
_MOST_SEEN = 13
_SHIFT = 0.08
"""Standard deviation of where a labelled object is shown to lie, in its sides."""
_MORE = 0.85
"""Probability of a further close-up of any other place."""
_SAME = 0.5
_SMALLEST = 3.0
"""Sides px from which a moved object is shown."""
_USUAL = 0.06
"""Sides of other places where no object is labelled, relative to the width."""
_SIZES = (0.6, 1.5)
"""Sides of other places over those of a labelled object."""
_VISIBLE = 0.35
"""Share of an object that a close-up has to show for it to be labelled there, as in the crops of a training."""


def close_up_scenes(
    items: Sequence[LabelledImage], detector: StochasticDetector, seed: int, image_format: str = "jpg"
) -> Iterator[EncodedScene]:
    """Of every picture one with close-ups of what ``detector`` finds there, right or wrong, of labelled objects, and others."""
    for number, item in enumerate(items):
        rng = np.random.default_rng((seed, number))
        scene = close_up_scene(
            item.image_id, read_picture(item), item.boxes, item.labels, detector, rng, image_format
        )
        yield replace(scene, image_fields={"workpiece_id": item.workpiece_id} if item.workpiece_id else {})


def close_up_scene(
    number: int,
    image: Image,
    boxes: FloatArray,
    labels: IntArray,
    detector: StochasticDetector,
    rng: Rng,
    image_format: str = "jpg",
) -> EncodedScene:
    """The close-ups of one picture as picture ``number``; ``boxes`` (N, 4) px and ``labels`` (N,) of what ``image`` shows."""
    height, width = image.shape[:2]
    places = _places(image, boxes, detector, rng)
    places = places[rng.permutation(len(places))][:AT_ONCE].clip(0, [width, height] * 2)
    ((picture, parts),) = close_ups(image, places, float(rng.choice(ZOOMS)))
    shown: list[FloatArray] = [np.zeros((0, 4), np.float32)]
    classes: list[IntArray] = [np.zeros(0, np.int64)]
    for part in parts:
        left, top, w, h = part.window
        inside = boxes.clip([left, top] * 2, [left + w, top + h] * 2)
        kept = _areas(inside) >= _VISIBLE * _areas(boxes)
        shown.append(part.project_boxes(inside[kept]))
        classes.append(labels[kept])
    size = (min(width, WIDEST), round(height * min(width, WIDEST) / width))
    if width > WIDEST:
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    scale = np.array([size[0] / width, size[1] / height] * 2, np.float32)
    return EncodedScene.of(
        picture, number, image_format, np.concatenate(shown) * scale, np.concatenate(classes)
    )


def _places(image: Image, boxes: FloatArray, detector: StochasticDetector, rng: Rng) -> FloatArray:
    """What a pass without dropout finds, labelled objects that it does not find, and any other places, (N, 4) px, N > 0."""
    (height, width), found = image.shape[:2], detector.detect(detector.encode(image))
    seen = (found.probabilities >= _SEEN).any(axis=1)
    chosen: list[FloatArray] = []

    def add(box: FloatArray) -> None:
        if not chosen or iou_matrix(box[None], np.array(chosen)).max() < _SAME:
            chosen.append(box)

    for box in found.boxes[seen][np.argsort(-found.probabilities[seen].max(axis=1))]:
        if len(chosen) < _MOST_SEEN:
            add(box)
    sides = boxes[:, 2:] - boxes[:, :2]
    moved = boxes + rng.normal(0, _SHIFT, boxes.shape) * np.tile(sides, 2)
    for box in moved[rng.permutation(len(moved))]:
        if (box[2:] - box[:2] >= _SMALLEST).all():
            add(box)
    if not len(sides):
        sides = np.full((1, 2), _USUAL * width)
    while len(chosen) < AT_ONCE and rng.random() < _MORE:
        side = sides[rng.integers(len(sides))] * rng.uniform(*_SIZES)
        corner = rng.uniform(0, np.maximum([width, height] - side, 0))
        chosen.append(np.concatenate((corner, corner + side)))
    middle = np.array([0.4 * width, 0.4 * height, 0.45 * width, 0.45 * height])
    return np.array(chosen or [middle])


def _areas(boxes: FloatArray) -> FloatArray:
    return np.asarray(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1))

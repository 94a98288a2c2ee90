# SPDX-License-Identifier: Apache-2.0
"""Fitting the photo head to labelled pictures: what the detector calls there, right or wrong, and what is labelled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sticker_uq.detection import StochasticDetector
from sticker_uq.io.coco import LabelledImage, pictures_of
from sticker_uq.perception.novelty.photo_network import PhotoNetwork, load_photo_network
from sticker_uq.perception.photo import PhotoHead, photo_features, save_photo_head
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq.uncertainty import iou_matrix
from sticker_uq_lab import Progress

MOST_PICTURES = 600
"""Pictures that a head is fitted to, evenly spread where there are more."""
CALLED, TIMES = 15, 2
"""Of a picture: the surest boxes of one pass without dropout, and how often each labelled object is shown."""
_SAME, _NONE = 0.5, 0.3
"""IoU with a labelled object from which a box is one, and below which it is none."""
_SHIFT = 0.06
CALLED_FROM = 0.02
"""Score from which a box is called one: the detector's floor."""
FOLDS = 4
PENALTIES = (0.03, 0.1, 0.3, 1.0)
"""Strengths of the shrinkage of the weights, of the mean loss."""
_SPREAD = 1e-3


@dataclass(frozen=True)
class PhotoExamples:
    """Of N boxes: ``features`` (N, FEATURES) float32, ``classes`` (N,), and which laptop each is of, ``laptops`` (N,)."""

    features: FloatArray
    classes: IntArray
    laptops: IntArray


def examples_of(
    detector: StochasticDetector,
    network: PhotoNetwork,
    items: Sequence[LabelledImage],
    seed: int = 0,
    on_picture: Callable[[], None] = lambda: None,
) -> PhotoExamples:
    """Of up to MOST_PICTURES of ``items`` what ``detector`` calls a sticker or logo, and what is labelled."""
    items = items[:: -(-len(items) // MOST_PICTURES)]
    names = [item.workpiece_id or f"picture {number}" for number, item in enumerate(items)]
    numbers = np.unique(names, return_inverse=True)[1]
    features, classes, laptops = [], [], []
    for number, (item, picture) in zip(numbers, pictures_of(items, on_picture), strict=True):
        boxes, known = boxes_of(detector, picture, item, np.random.default_rng((seed, item.image_id)))
        features.append(photo_features(network, picture, boxes).numpy())
        classes.append(known)
        laptops.append(np.full(len(known), number))
    if not features:
        raise InvalidInput("no pictures to fit a photo head to, expected some dozens")
    return PhotoExamples(np.concatenate(features), np.concatenate(classes), np.concatenate(laptops))


def boxes_of(
    detector: StochasticDetector, picture: np.ndarray, item: LabelledImage, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Boxes (N, 4) px of ``picture`` and their classes (N,): those that are clearly one of its labels, or none."""
    found = detector.detect(detector.encode(picture))
    called = found.boxes[np.argsort(-found.scores, kind="stable")[:CALLED]]
    overlap = iou_matrix(called, item.boxes) if len(item.boxes) else np.zeros((len(called), 1), np.float32)
    best = overlap.max(axis=1, initial=0.0)
    labels = item.labels[overlap.argmax(axis=1)] if len(item.boxes) else np.zeros(len(called), np.int64)
    clear = (best >= _SAME) | (best < _NONE)
    shown = np.repeat(item.boxes, TIMES, axis=0)
    moved = shown + rng.normal(0, _SHIFT, shown.shape) * np.tile(shown[:, 2:] - shown[:, :2], 2)
    boxes = np.concatenate([called[clear], moved]).astype(np.float32)
    classes = np.where(best >= _SAME, labels, int(ObjectClass.BACKGROUND))[clear]
    return boxes, np.concatenate([classes, np.repeat(item.labels, TIMES)]).astype(np.int64)


def fit_photo_head(examples: PhotoExamples, network: PhotoNetwork) -> PhotoHead:
    """The head that tells ``examples`` apart, with the shrinkage that does so best on laptops left out; the same every time."""
    seen = np.unique(examples.classes)
    if ObjectClass.STICKER not in seen or ObjectClass.BACKGROUND not in seen:
        raise InvalidInput(
            "a photo head needs labelled stickers, and something that the detector calls one and is none: label more pictures"
        )
    fold = np.random.default_rng(0).permutation(int(examples.laptops.max()) + 1)[examples.laptops] % FOLDS
    losses = dict.fromkeys(PENALTIES, 0.0)
    for number in range(FOLDS):
        own = fold == number
        if own.any() and not own.all():
            truth = torch.from_numpy(examples.classes[own])
            for penalty in PENALTIES:
                head = _fit(examples, ~own, penalty).requires_grad_(False)
                found = head(torch.from_numpy(examples.features[own]))
                losses[penalty] += float(torch.nn.functional.cross_entropy(found, truth, reduction="sum"))
    head = _fit(examples, np.ones(len(fold), bool), min(losses, key=lambda penalty: losses[penalty]))
    head.network = network.hash
    return head.eval().requires_grad_(False)


def _fit(examples: PhotoExamples, rows: np.ndarray, penalty: float) -> PhotoHead:
    """Multinomial logistic regression with an L2 ``penalty`` on the examples ``rows`` (N,) bool."""
    features, classes = torch.from_numpy(examples.features[rows]), torch.from_numpy(examples.classes[rows])
    head = PhotoHead()
    head.mean.copy_(features.mean(0))
    head.spread.copy_(features.std(0, correction=0) + _SPREAD)
    scaled = head.scale_features(features)
    for parameter in head.linear.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.LBFGS(head.linear.parameters(), max_iter=80, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        own = torch.nn.functional.cross_entropy(head.linear(scaled), classes)
        loss = own + penalty * head.linear.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return head


def learn_photo_head(
    detector: StochasticDetector,
    items: Sequence[LabelledImage],
    file: Path,
    seed: int = 0,
    progress: Progress = lambda stage, done, total: None,
) -> None:
    """Fit a head for ``detector`` to ``items`` and write it to ``file``."""
    network = load_photo_network(device=detector.device)
    total, done = min(len(items), MOST_PICTURES), count(1)
    found = examples_of(
        detector, network, items, seed, lambda: progress("looking at objects", next(done), total)
    )
    head = fit_photo_head(found, network)
    save_photo_head(
        head, detector.name, file, examples=len(found.classes), laptops=int(found.laptops.max()) + 1
    )

# SPDX-License-Identifier: Apache-2.0
"""What a study of monitors is made on: crops of the cell's own objects, the digits that scikit-learn ships, MNIST and
Fashion-MNIST from their files.
"""

import gzip
import io
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_sample_images

from sticker_uq.io.coco import LabelledImage, read_coco, read_picture
from sticker_uq.io.crops import cut_crops, empty_boxes
from sticker_uq.io.reading import read_bytes
from sticker_uq.perception.monitors.crop_network import CropTraining
from sticker_uq.scene import FloatArray, IntArray, InvalidInput, ObjectClass
from sticker_uq_lab.datasets.abnormal import add_foreign_objects
from sticker_uq_lab.rendering.render import render
from sticker_uq_lab.rendering.scene_sampling import sample_scene
from sticker_uq_lab.studies.ambiguity.raae import Pair, RaaeSettings

Tell = Callable[[str], None]
"""Called with the stage that a monitor study begins."""


@dataclass(frozen=True)
class Material:
    """Crops (N, C, h, w) float32 0..1 with classes (N,), to train with and to test with.

    ``invalid``: crops of none of the ``classes``; ``pairs``: classes that are made ambiguous, by autoencoders of ``raae``;
    ``training``: of its classifiers.
    """

    name: str
    classes: tuple[str, ...]
    train: FloatArray
    train_labels: IntArray
    test: FloatArray
    test_labels: IntArray
    invalid: FloatArray
    pairs: tuple[Pair, ...]
    raae: RaaeSettings
    training: CropTraining = field(default_factory=CropTraining)

    def __post_init__(self) -> None:
        for crops, labels in ((self.train, self.train_labels), (self.test, self.test_labels)):
            if crops.ndim != 4 or len(crops) != len(labels) or not len(crops):
                raise InvalidInput(
                    f"{self.name}: crops {crops.shape} for {len(labels)} labels, expected (N, C, h, w), N >= 1"
                )


CLASSES = 10
_SIDE = 8


def digits(seed: int = 0) -> Material:
    """The 1797 digits, two thirds to train with; ``seed`` of the split."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    train, test = np.split(order, [2 * len(images) // 3])
    return _of_digits(
        "digits",
        (images[train], data.target[train], images[test], data.target[test]),
        no_digits(len(test), seed),
        # pictures of one autoencoder alone have labels that a classifier learns by heart
        RaaeSettings(keep=3, steps=800),
    )


def _of_digits(
    name: str, data: tuple[Any, Any, Any, Any], invalid: FloatArray, raae: RaaeSettings, **more: Any
) -> Material:
    """Material of ten classes; ``data``: crops and labels to train with, and to test with."""
    pairs = tuple(combinations(range(CLASSES), 2))
    return Material(name, tuple(map(str, range(CLASSES))), *data, invalid, pairs, raae, **more)


def no_digits(count: int, seed: int = 0, side: int = _SIDE) -> FloatArray:
    """Square pieces of scikit-learn's photographs, (count, 1, side, side), stretched to the digits' contrast."""
    rng = np.random.default_rng(seed)
    photographs = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in load_sample_images().images]
    found = np.empty((count, 1, side, side), np.float32)
    number = 0
    while number < count:
        photograph = photographs[number % len(photographs)]
        cut = int(rng.integers(24, 200))
        y, x = (int(rng.integers(0, length - cut)) for length in photograph.shape)
        piece = cv2.resize(photograph[y : y + cut, x : x + cut], (side, side), interpolation=cv2.INTER_AREA)
        low, high = float(piece.min()), float(piece.max())
        if high - low < 16:  # sky: nothing to stretch
            continue
        found[number, 0] = (piece - low) / (high - low)
        number += 1
    return found


_MOST_BYTES = 64 << 20  # of a file, packed or not; the largest of MNIST has 47 MB
_UINT8 = 0x08
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def mnist(folder: Path, name: str, invalid: Path | None = None) -> Material:
    """The pictures in ``folder`` as material called ``name``.

    ``invalid``: folder of the other data set, whose test pictures are of no class here, as in the paper; None: pieces of
    photographs. Raises :class:`InvalidInput` for a missing file and one that is no IDX file of that shape.
    """
    (train, train_labels), (test, test_labels) = (_part(folder, part) for part in _FILES)
    foreign = no_digits(len(test), side=test.shape[-1]) if invalid is None else _part(invalid, "test")[0]
    data, raae = (train, train_labels, test, test_labels), RaaeSettings(hidden=256)
    return _of_digits(name, data, foreign, raae, training=CropTraining(epochs=15))


def _part(folder: Path, part: str) -> tuple[FloatArray, NDArray[np.int64]]:
    images, labels = (_read_idx(folder, name) for name in _FILES[part])
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or not len(labels):
        raise InvalidInput(
            f"{folder}: pictures {images.shape} and labels {labels.shape} of {part}: expected (N, h, w) and (N,)"
        )
    if labels.max() >= CLASSES:
        raise InvalidInput(f"{folder}: label {labels.max()}: expected 0 to {CLASSES - 1}")
    return (images[:, None] / np.float32(255)).astype(np.float32), labels.astype(np.int64)


def _read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    path = folder / name
    packed = path.with_name(f"{name}.gz")
    if packed.is_file():
        path = packed
    elif not path.is_file():
        raise InvalidInput(
            f"{path}: no such file, neither with .gz: expected the four files of MNIST or Fashion-MNIST"
        )
    content = read_bytes(path, _MOST_BYTES)
    if path is packed:
        content = _unpack(content, path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UINT8:
        raise InvalidInput(f"{path}: no IDX file of bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise InvalidInput(f"{path}: ends in its header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise InvalidInput(f"{path}: {len(content) - start} values for the shape {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _unpack(content: bytes, path: Path) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            found = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise InvalidInput(f"{path}: not a gzip file: {error}") from None
    if len(found) > _MOST_BYTES:
        raise InvalidInput(f"{path}: more than {_MOST_BYTES} bytes unpacked")
    return found


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
_TRAINING = CropTraining(epochs=40, deep=True, augment=True)
_LIDS = 2  # crops of bare lid per scene
_SCENE = (480, 360)

Picture = tuple[NDArray[np.uint8], FloatArray, NDArray[np.int64]]


def cell_material(scenes: int = 240, seed: int = 4_000_000, size: int = SIZE) -> Material:
    """Crops of ``scenes`` rendered scenes from ``seed`` on, ``size`` px wide, two thirds to train with."""

    def render_scenes() -> Iterable[Picture]:
        for number in range(scenes):
            scene = render(sample_scene(seed + number), _SCENE)
            yield scene.image, scene.boxes, scene.labels

    return _material("cell", render_scenes(), scenes, seed, size)


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
        bare = empty_boxes((image.shape[1], image.shape[0]), boxes, _LIDS, rng)
        crops[testing].append(cut_crops(image, np.concatenate([bare, boxes]), size))
        labels[testing].append(np.concatenate([np.zeros(len(bare), np.int64), classes]))
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

# SPDX-License-Identifier: Apache-2.0
"""MNIST and Fashion-MNIST from a folder with their four IDX files, which the package does not have."""

from __future__ import annotations

import gzip
import io
import math
import struct
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sticker_uq.io.reading import read_bytes
from sticker_uq.lab.studies.ambiguity.raae import RaaeSettings
from sticker_uq.lab.studies.monitors.digits import no_digits
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.monitors.crop_network import Training
from sticker_uq.scene import FloatArray, InvalidInput

CLASSES = 10
_MOST_BYTES = 64 << 20
"""Of a file, packed or not; the largest of MNIST has 47 MB."""
_UINT8 = 0x08
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def mnist(folder: Path, name: str, invalid: Path | None = None) -> Material:
    """The pictures in ``folder`` as crops for a monitor study called ``name``.

    ``invalid``: folder of the other data set, whose test pictures are of no class here, as in the paper; None: pieces of
    photographs. Raises :class:`InvalidInput` for a missing file and one that is no IDX file of that shape.
    """
    (train, train_labels), (test, test_labels) = (_part(folder, part) for part in _FILES)
    return Material(
        name=name,
        classes=tuple(map(str, range(CLASSES))),
        train=train,
        train_labels=train_labels,
        test=test,
        test_labels=test_labels,
        invalid=no_digits(len(test), side=test.shape[-1]) if invalid is None else _part(invalid, "test")[0],
        pairs=tuple(combinations(range(CLASSES), 2)),
        raae=RaaeSettings(hidden=256),
        training=Training(epochs=15),
    )


def _part(folder: Path, part: str) -> tuple[FloatArray, NDArray[np.int64]]:
    """Pictures (N, 1, h, w) float32 0..1 and their classes (N,)."""
    images, labels = (_read_idx(folder, name) for name in _FILES[part])
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or not len(labels):
        raise InvalidInput(
            f"{folder}: pictures {images.shape} and labels {labels.shape} of {part}: expected (N, h, w) and (N,)"
        )
    if labels.max() >= CLASSES:
        raise InvalidInput(f"{folder}: label {labels.max()}: expected 0 to {CLASSES - 1}")
    return (images[:, None] / np.float32(255)).astype(np.float32), labels.astype(np.int64)


def _read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """The array of bytes in the IDX file ``name``, with or without ``.gz``."""
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
        content = _unpacked(content, path)
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


def _unpacked(content: bytes, path: Path) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            found = stream.read(_MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise InvalidInput(f"{path}: not a gzip file: {error}") from None
    if len(found) > _MOST_BYTES:
        raise InvalidInput(f"{path}: more than {_MOST_BYTES} bytes unpacked")
    return found

# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits that scikit-learn ships (real scans, 8 by 8), and pictures of no digits."""

from __future__ import annotations

from itertools import combinations

import cv2
import numpy as np
from sklearn.datasets import load_digits, load_sample_images

from sticker_uq.lab.studies.ambiguity.raae import RaaeSettings
from sticker_uq.lab.studies.monitors.material import Material
from sticker_uq.scene import FloatArray

CLASSES = 10
_SIDE = 8


def digits(seed: int = 0) -> Material:
    """The 1797 digits, two thirds to train with, as material of a monitor study; ``seed`` of the split."""
    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(images))
    train, test = np.split(order, [2 * len(images) // 3])
    return Material(
        name="digits",
        classes=tuple(map(str, range(CLASSES))),
        train=images[train],
        train_labels=data.target[train],
        test=images[test],
        test_labels=data.target[test],
        invalid=no_digits(len(test), seed),
        pairs=tuple(combinations(range(CLASSES), 2)),
        # pictures of one autoencoder alone have labels that a classifier learns by heart
        raae=RaaeSettings(keep=3, steps=800),
    )


def no_digits(count: int, seed: int = 0, side: int = _SIDE) -> FloatArray:
    """Square pieces of scikit-learn's photographs, (count, 1, side, side), stretched to the digits'
    contrast.
    """
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

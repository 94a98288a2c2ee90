# SPDX-License-Identifier: Apache-2.0
"""Labelled images without a detector: how sure it was and how right is drawn from a seed."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from sticker_uq.calibration.records import Record
from sticker_uq.scene import ObjectClass
from sticker_uq.testing.scenes import assessment, object_at

STEP = 60.0


@cache
def draw(seed: int, error: float = 0.15) -> Record:
    """One image: up to five stickers and a logo in a row. A share of ``error`` of what is called sticker is none.

    What is wrong is doubtful more often than what is right, in its probability and, independently, in its entropy.
    """
    rng = np.random.default_rng(seed)
    objects, boxes, labels = [], [], []
    for place in range(int(rng.integers(0, 6))):
        box = (STEP * place, 0.0, STEP * place + 40.0, 40.0)
        wrong = rng.random() < error
        p = float(np.clip(rng.beta(6, 1) if wrong else rng.beta(20, 1), 0.35, 0.999))
        entropy = float(rng.uniform(0.4, 1.4) if wrong else rng.uniform(0.0, 0.7))
        rest = (1 - p) / 2
        objects.append(object_at(box, probabilities=(rest, rest, p), shannon_entropy=entropy))
        if not wrong:
            boxes.append(box)
            labels.append(int(ObjectClass.STICKER))
    logo = (0.0, 200.0, 50.0, 240.0)
    objects.append(object_at(logo, ObjectClass.LOGO))
    boxes.append(logo)
    labels.append(int(ObjectClass.LOGO))
    return Record(
        name=str(seed),
        boxes=np.array(boxes, np.float32).reshape(-1, 4),
        labels=np.array(labels, np.int64),
        assessment=assessment(*objects, dil=float(rng.uniform(0.1, 0.5))),
    )


@pytest.fixture(scope="session")
def drawn() -> Callable[[int, int], list[Record]]:
    """``drawn(first, count)``: the images of the seeds from ``first`` on."""
    return lambda first, count: [draw(seed) for seed in range(first, first + count)]

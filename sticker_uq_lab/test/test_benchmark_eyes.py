# SPDX-License-Identifier: Apache-2.0
"""What a start is said to gain is the difference on the same pictures, with an interval over them."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import eyes
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, ObjectClass

BOXES = np.array([[10, 10, 60, 60], [100, 100, 140, 150]], np.float32)
LABELS = np.array([ObjectClass.STICKER, ObjectClass.LOGO])


def _items(count: int) -> list[LabelledImage]:
    return [LabelledImage(Path(f"{n}.jpg"), n, 738, 554, BOXES, LABELS) for n in range(count)]


def _found(whole: bool) -> Detections:
    """Both objects, or a sticker where there is none."""
    boxes = BOXES if whole else BOXES[:1] + 200
    probabilities = np.full((len(boxes), 3), 0.05, np.float32)
    probabilities[np.arange(len(boxes)), LABELS[: len(boxes)]] = 0.9 if whole else 0.95
    return Detections(boxes, probabilities / probabilities.sum(axis=1, keepdims=True))


def test_the_gain_is_that_on_the_same_pictures(monkeypatch):
    monkeypatch.setattr(eyes, "RESAMPLES", 40)
    items = _items(8)
    found = {"photographs": [_found(True)] * 8, "packaged weights": [_found(n >= 4) for n in range(8)]}
    best, other = eyes.compared(found, items)
    assert best["map_interval"] == best["recall_interval"] == [1.0, 1.0, 1.0]
    assert best["map_gain"] == best["recall_gain"] == [0.0, 0.0, 0.0]
    assert best["by_size"] == [[0, 0], [0, 0], [8, 8]]
    value, low, high = other["map_gain"]
    assert value == pytest.approx(1 - other["map50"], abs=1e-3)
    assert 0 < low < value < high < 1
    assert other["recall"] == 0.0  # four wrong ones come first, and then never more than half are right
    assert other["recall_gain"][0] == 1.0
    said = eyes.table({"sets": [{"photographs": [other, best]}]}, "photographs")
    assert f"+{value:.3f} (+{low:.3f} to +{high:.3f})" in said

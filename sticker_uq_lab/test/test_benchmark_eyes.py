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


def test_what_was_found_is_kept_for_an_interrupted_run(tmp_path, monkeypatch):
    found = [
        _found(True),
        Detections(np.zeros((0, 4), np.float32), np.zeros((0, 3), np.float32)),
        _found(False),
    ]
    monkeypatch.setattr(eyes, "found_by", lambda weights, items, model: found)
    first = eyes.seen(tmp_path, _items(3), "a model", "photographs")
    monkeypatch.setattr(eyes, "found_by", lambda weights, items, model: pytest.fail("found again"))
    for kept in (first, eyes.seen(tmp_path, _items(3), "a model", "photographs")):
        for one, other in zip(kept, found, strict=True):
            np.testing.assert_array_equal(one.boxes, other.boxes)
            np.testing.assert_array_equal(one.probabilities, other.probabilities)

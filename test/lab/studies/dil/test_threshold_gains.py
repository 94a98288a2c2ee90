# SPDX-License-Identifier: Apache-2.0
"""The figures of the DiL paper's Table 3 on hand-made detections."""

from pathlib import Path

import numpy as np
import pytest

from sticker_uq.io.coco import LabelledImage
from sticker_uq.lab.studies.dil.dil_report import threshold_gains
from sticker_uq.scene import Detections, InvalidInput, Localization, UnexplainedRegion

BOXES = np.float32([[0, 0, 40, 40], [100, 100, 140, 140], [200, 0, 240, 40]])
TRUTH = LabelledImage(Path("a.png"), 1, 320, 240, BOXES[:2], np.array([2, 2]))
REGION = UnexplainedRegion(np.float32([95, 95, 145, 145]), objectness=0.4, share=0.7)
FOUND = Localization(10.0, 10.0, 1.0, 0.3, None, 0.4, (REGION,))


def seen(*scores: float) -> Detections:
    return Detections(BOXES, np.array([[1 - s, 0.0, s] for s in scores], np.float32))


def test_gains_are_relative_to_the_fixed_threshold() -> None:
    # an object at 0.9, one at 0.4 in a region, and a false alarm at 0.35
    fixed, paper, regional = threshold_gains([seen(0.9, 0.4, 0.35)], [FOUND], [TRUTH])
    assert (fixed.rule, fixed.recall, fixed.precision, fixed.tpr) == ("fixed", 0.5, 1.0, 0.5)
    assert fixed.f1 == pytest.approx(2 / 3)
    assert (fixed.recall_gain, fixed.precision_gain, fixed.f1_gain, fixed.tpr_gain) == (0, 0, 0, 0)
    assert (paper.recall, paper.recall_gain, paper.precision) == (1.0, 1.0, pytest.approx(2 / 3))
    assert paper.precision_gain == pytest.approx(-1 / 3)
    assert (regional.recall, regional.precision, regional.f1, regional.tpr_gain) == (1.0, 1.0, 1.0, 1.0)
    assert regional.f1_gain == pytest.approx(0.5)


def test_a_second_detection_of_an_object_is_wrong() -> None:
    twice = Detections(BOXES[[0, 0]], np.float32([[0.1, 0, 0.9], [0.2, 0, 0.8]]))
    fixed = threshold_gains([twice], [None], [TRUTH])[0]
    assert (fixed.recall, fixed.precision) == (0.5, 0.5)


def test_nothing_to_measure_on_is_nan() -> None:
    empty = LabelledImage(Path("b.png"), 2, 320, 240, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    fixed = threshold_gains([seen(0.1, 0.1, 0.1)], [None], [empty])[0]
    assert all(np.isnan(v) for v in (fixed.recall, fixed.precision, fixed.f1, fixed.tpr, fixed.recall_gain))


def test_there_is_one_of_each_for_every_image() -> None:
    with pytest.raises(InvalidInput, match="1 detections, 0 localizations"):
        threshold_gains([seen(0.1, 0.1, 0.1)], [], [TRUTH])

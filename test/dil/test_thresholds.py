# SPDX-License-Identifier: Apache-2.0
"""Which detections count under each decision threshold."""

import numpy as np
import pytest

from sticker_uq.dil.score import above_dil_threshold, decision_thresholds
from sticker_uq.scene import Detections, Localization, UnexplainedRegion

BOXES = np.float32([[0, 0, 40, 40], [100, 100, 140, 140], [120, 100, 200, 140]])
REGION = UnexplainedRegion(np.float32([95, 95, 145, 145]), objectness=0.4, share=0.7)
FOUND = Localization(10.0, 5.0, 0.5, 0.4, None, 0.4, (REGION,))


def with_scores(*scores: float) -> Detections:
    rows = [[1 - score, 0.0, score] for score in scores]
    return Detections(BOXES[: len(scores)], np.array(rows, np.float32).reshape(-1, 3))


def test_every_rule_has_its_thresholds() -> None:
    detections = with_scores(0.9, 0.45, 0.45)
    assert decision_thresholds(detections, FOUND, "fixed", 0.5, 0.2).tolist() == [0.5, 0.5, 0.5]
    assert decision_thresholds(detections, FOUND, "paper", 0.5, 0.2).tolist() == [0.4, 0.4, 0.4]
    # the third box lies in the region with less than half of its area
    assert decision_thresholds(detections, FOUND, "regional", 0.5, 0.2) == pytest.approx([0.5, 0.3, 0.5])


def test_the_regional_threshold_finds_what_is_in_the_region_and_nothing_else() -> None:
    detections = with_scores(0.35, 0.35, 0.35)
    assert len(above_dil_threshold(detections, FOUND, "fixed")) == 0
    assert len(above_dil_threshold(detections, FOUND, "paper")) == 0
    found = above_dil_threshold(detections, FOUND, "regional")
    np.testing.assert_array_equal(found.boxes, BOXES[1:2])
    np.testing.assert_array_equal(found.probabilities, detections.probabilities[1:2])


@pytest.mark.parametrize("rule", ["fixed", "paper", "regional"])
def test_without_a_localization_the_threshold_is_fixed(rule: str) -> None:
    assert decision_thresholds(with_scores(0.3), None, rule).tolist() == [0.5]  # type: ignore[arg-type]
    assert decision_thresholds(with_scores(), FOUND, rule).tolist() == []  # type: ignore[arg-type]


def test_a_dil_that_is_nan_changes_nothing() -> None:
    nothing = Localization(0.0, 0.0, float("nan"), 0.5)
    assert decision_thresholds(with_scores(0.3), nothing, "paper").tolist() == [0.5]

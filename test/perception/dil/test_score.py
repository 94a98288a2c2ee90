# SPDX-License-Identifier: Apache-2.0
"""CL, BL, DiL and the dynamic threshold from a saliency map and boxes; detections under the three kinds of threshold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sticker_uq.perception.dil import distinctive_localization, dynamic_threshold
from sticker_uq.perception.dil.score import above_dil_threshold, covered_pixels, decision_thresholds
from sticker_uq.scene import Detections, Localization, UnexplainedRegion

NO_BOX = np.zeros((0, 4), np.float32)
saliencies = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=st.floats(0, 100, width=32)
)


@st.composite
def box_lists(draw: st.DrawFn) -> np.ndarray:
    numbers = draw(hnp.arrays(np.float64, (draw(st.integers(0, 4)), 4), elements=st.floats(-3, 15)))
    return np.hstack([numbers[:, :2], numbers[:, :2] + np.abs(numbers[:, 2:])])


def test_a_box_covers_the_pixels_whose_centres_it_holds():
    covered = covered_pixels(np.array([[0.5, 1.6, 2.4, 3.0]]), 4, 4)
    assert covered.astype(int).tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]


@given(box_lists(), st.integers(1, 12), st.integers(1, 12))
def test_covered_pixels_are_those_with_a_centre_in_a_box(boxes, height, width):
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    inside = [(x >= x1) & (x < x2) & (y >= y1) & (y < y2) for x1, y1, x2, y2 in boxes]
    expected = np.any(inside, axis=0) if inside else np.zeros((height, width), bool)
    assert (covered_pixels(boxes, height, width) == expected).all()


def test_worked_example():
    saliency = np.array([[1, 2], [3, 4]], np.float32)
    boxes = np.array([[0, 0, 1, 1], [0, 1, 1, 2], [0, 0, 1, 2]])  # overlaps count once
    assert distinctive_localization(saliency, boxes) == (10.0, 6.0, 0.6)


@pytest.mark.parametrize("boxes", [NO_BOX, np.array([[0, 0, 2, 2]])])
def test_without_saliency_there_is_no_dil(boxes):
    complete, background, dil = distinctive_localization(np.zeros((4, 4), np.float32), boxes)
    assert (complete, background) == (0.0, 0.0)
    assert math.isnan(dil)


@given(saliencies, box_lists())
def test_dil_is_a_share(saliency, boxes):
    complete, background, dil = distinctive_localization(saliency, boxes)
    assert 0.0 <= background <= complete
    assert (0.0 <= dil <= 1.0) if complete > 0 else math.isnan(dil)


@given(saliencies, box_lists(), box_lists())
def test_another_box_never_raises_dil(saliency, boxes, more):
    _, background, _ = distinctive_localization(saliency, boxes)
    assert distinctive_localization(saliency, np.concatenate([boxes, more]))[1] <= background


@given(saliencies, box_lists(), st.sampled_from([2.0**-10, 4.0, 2.0**20]))
def test_the_unit_of_the_saliency_does_not_matter(saliency, boxes, unit):
    # Multiples of 1/16 stay exact under these units, whatever the order of the sum.
    saliency = np.round(saliency * 16) / 16
    scaled = distinctive_localization((saliency * np.float32(unit)).astype(np.float32), boxes)[2]
    assert scaled == pytest.approx(distinctive_localization(saliency, boxes)[2], rel=1e-12, nan_ok=True)


def test_the_dynamic_threshold_falls_with_dil():
    assert dynamic_threshold(0.0, 0.5, 0.2) == 0.5
    assert dynamic_threshold(0.5, 0.5, 0.2) == pytest.approx(0.4)
    assert dynamic_threshold(1.0, 0.5, 0.2) == pytest.approx(0.3)
    assert dynamic_threshold(1.0, 0.1, 0.2) == 0.0
    assert dynamic_threshold(float("nan"), 0.5, 0.2) == 0.5


BOXES = np.float32([[0, 0, 40, 40], [100, 100, 140, 140], [120, 100, 200, 140]])
REGION = UnexplainedRegion(np.float32([95, 95, 145, 145]), objectness=0.4, share=0.7)
FOUND = Localization(10.0, 5.0, 0.5, 0.4, None, 0.4, (REGION,))


def with_scores(*scores: float) -> Detections:
    rows = [[1 - score, 0.0, score] for score in scores]
    return Detections(BOXES[: len(scores)], np.array(rows, np.float32).reshape(-1, 3))


def test_every_rule_has_its_thresholds():
    detections = with_scores(0.9, 0.45, 0.45)
    assert decision_thresholds(detections, FOUND, "fixed", 0.5, 0.2).tolist() == [0.5, 0.5, 0.5]
    assert decision_thresholds(detections, FOUND, "paper", 0.5, 0.2).tolist() == [0.4, 0.4, 0.4]
    # the third box lies in the region with less than half of its area
    assert decision_thresholds(detections, FOUND, "regional", 0.5, 0.2) == pytest.approx([0.5, 0.3, 0.5])


def test_the_regional_threshold_finds_what_is_in_the_region_and_nothing_else():
    detections = with_scores(0.35, 0.35, 0.35)
    assert len(above_dil_threshold(detections, FOUND, "fixed")) == 0
    assert len(above_dil_threshold(detections, FOUND, "paper")) == 0
    found = above_dil_threshold(detections, FOUND, "regional")
    np.testing.assert_array_equal(found.boxes, BOXES[1:2])
    np.testing.assert_array_equal(found.probabilities, detections.probabilities[1:2])


@pytest.mark.parametrize("rule", ["fixed", "paper", "regional"])
def test_without_a_localization_the_threshold_is_fixed(rule):
    assert decision_thresholds(with_scores(0.3), None, rule).tolist() == [0.5]
    assert decision_thresholds(with_scores(), FOUND, rule).tolist() == []


def test_a_dil_that_is_nan_changes_nothing():
    nothing = Localization(0.0, 0.0, float("nan"), 0.5)
    assert decision_thresholds(with_scores(0.3), nothing, "paper").tolist() == [0.5]

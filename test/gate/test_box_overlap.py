# SPDX-License-Identifier: Apache-2.0
"""Overlap of two boxes agrees with the vectorised version, and nonsense overlaps nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sticker_uq.gate.box_overlap import as_box, cover, covered_share, iou, is_proper, same_place
from sticker_uq.scene import InvalidInput
from sticker_uq.testing.scenes import HERE, THERE
from sticker_uq.uncertainty.overlap import iou_matrix

coordinates = st.floats(-1000, 1000, width=32)
boxes = st.tuples(coordinates, coordinates, coordinates, coordinates)


@given(boxes, boxes)
def test_agrees_with_the_pairwise_table(first, second):
    expected = iou_matrix(np.array([first]), np.array([second]))[0, 0]
    assert iou(as_box(first), as_box(second)) == pytest.approx(expected, abs=1e-9)


@given(boxes, boxes)
def test_is_symmetric_and_bounded(first, second):
    a, b = as_box(first), as_box(second)
    assert iou(a, b) == iou(b, a)
    assert 0.0 <= iou(a, b) <= cover(a, b) + 1e-12
    assert cover(a, b) <= 1.0 + 1e-9


def test_a_box_inside_another_is_covered_entirely():
    assert cover(HERE, (0.0, 0.0, 1000.0, 1000.0)) == 1.0
    assert iou(HERE, (0.0, 0.0, 1000.0, 1000.0)) < 0.01
    assert iou(HERE, HERE) == 1.0
    assert cover(HERE, THERE) == 0.0


@pytest.mark.parametrize(
    "box", [(math.nan, 0, 10, 10), (0, 0, math.inf, 10), (10, 0, 0, 10), (5, 5, 5, 5), (0, 9, 9, 0)]
)
def test_nonsense_overlaps_nothing_not_even_itself(box):
    bad = as_box(box)
    assert not is_proper(bad)
    assert iou(bad, bad) == cover(bad, HERE) == 0.0
    assert not same_place(bad, bad)


def test_a_box_has_four_coordinates():
    with pytest.raises(InvalidInput, match="4 coordinates, got 3"):
        as_box((1.0, 2.0, 3.0))


small = st.tuples(*(st.integers(0, 12),) * 4)


@given(small, st.lists(small, max_size=5))
def test_the_covered_share_is_that_of_the_pixels(box, others):
    def pixels(x1: int, y1: int, x2: int, y2: int) -> set[tuple[int, int]]:
        return {(x, y) for x in range(x1, x2) for y in range(y1, y2)}

    inside = pixels(*box)
    shared = inside & set().union(*(pixels(*other) for other in others))
    expected = len(shared) / len(inside) if inside else 0.0
    assert covered_share(as_box(box), [as_box(other) for other in others]) == pytest.approx(expected)


def test_nothing_is_covered_by_nonsense():
    assert covered_share(as_box(HERE), [(math.nan, 0, 9, 9), (5, 5, 5, 9)]) == 0.0
    assert covered_share((math.nan, 0, 9, 9), [as_box(HERE)]) == 0.0

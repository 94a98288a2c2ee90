# SPDX-License-Identifier: Apache-2.0
"""Overlap of boxes, and the groups it connects."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from shapely import box as rectangle

from sticker_uq.uncertainty import overlap
from sticker_uq.uncertainty.overlap import in_order_of_appearance, iou_matrix, overlap_groups


@st.composite
def crowds(draw: st.DrawFn) -> np.ndarray:
    numbers = draw(hnp.arrays(np.int64, (draw(st.integers(0, 30)), 4), elements=st.integers(0, 12)))
    return np.hstack([numbers[:, :2], numbers[:, :2] + numbers[:, 2:]]).astype(np.float32)


def test_no_boxes():
    assert iou_matrix(np.zeros((0, 4)), np.zeros((3, 4))).shape == (0, 3)
    assert overlap_groups(np.zeros((0, 4)), 0.5).shape == (0,)


@given(crowds())
def test_overlap_agrees_with_polygons(boxes):
    table = iou_matrix(boxes, boxes)
    assert ((table >= 0.0) & (table <= 1.0)).all()
    assert (table == table.T).all()
    shapes = [rectangle(*corners) for corners in boxes.tolist()]
    for i, first in enumerate(shapes):
        for j, second in enumerate(shapes):
            union = first.union(second).area
            expected = first.intersection(second).area / union if union else 0.0
            assert table[i, j] == pytest.approx(expected, abs=1e-9)


@given(crowds(), st.sampled_from([0.05, 0.3, 0.5, 0.9]))
def test_groups_are_the_closure_of_the_overlap(boxes, least):
    near = iou_matrix(boxes, boxes) >= least
    np.fill_diagonal(near, True)
    for _ in range(5):  # squaring five times reaches chains of up to 32 boxes
        near = (near.astype(int) @ near.astype(int)) > 0
    groups = overlap_groups(boxes, least)
    assert ((groups[:, None] == groups[None, :]) == near).all()


@pytest.mark.parametrize("pairs", [1, 64, 1 << 15])
def test_neither_chains_nor_tables_depend_on_what_is_computed_at_once(pairs, monkeypatch):
    boxes = np.random.default_rng(1).uniform(0, 30, (60, 2))
    boxes = np.concatenate([boxes, boxes + 12], axis=1)
    whole = iou_matrix(boxes, boxes), overlap_groups(boxes, 0.4)
    monkeypatch.setattr(overlap, "_PAIRS_AT_ONCE", pairs)
    assert np.array_equal(iou_matrix(boxes, boxes), whole[0])
    assert np.array_equal(overlap_groups(boxes, 0.4), whole[1])
    monkeypatch.setattr(overlap, "_PAIRS_AT_ONCE", pairs)
    left = 3.0 * np.arange(700)
    chain = np.stack([left, np.zeros(700), left + 10, np.full(700, 5.0)], axis=1)
    shuffled = np.random.default_rng(0).permutation(700)
    assert (overlap_groups(chain[shuffled], 0.5) == 0).all()
    assert len(set(overlap_groups(np.delete(chain, 350, axis=0), 0.5).tolist())) == 2


def test_labels_count_from_their_first_appearance():
    assert in_order_of_appearance(np.array([7, -1, 2, 7, 5, -1])).tolist() == [0, -1, 1, 0, 2, -1]

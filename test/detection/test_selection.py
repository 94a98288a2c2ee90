# SPDX-License-Identifier: Apache-2.0
"""Distributions and the choice of boxes, without a network."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as hnp

from sticker_uq.detection import selection
from sticker_uq.detection.selection import (
    NonFiniteOutput,
    Rows,
    check_finite,
    keep_best,
    sigmoid_distribution,
    strongest,
)


@given(hnp.arrays(np.float32, (5, 3), elements=st.floats(-60, 60, width=32)))
def test_sigmoids_become_a_distribution(logits):
    vectors = sigmoid_distribution(torch.from_numpy(logits)).double().numpy()
    assert (vectors >= 0).all()
    np.testing.assert_allclose(vectors.sum(axis=1), 1, atol=1e-6)
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    total = 1 + p[:, 1] * p[:, 2]  # (1 - p1)(1 - p2) + p1 + p2
    np.testing.assert_allclose(vectors[:, 1:], p[:, 1:] / total[:, None], atol=1e-6)
    untrained = torch.from_numpy(logits).clone()
    untrained[:, 0] = 5.0
    np.testing.assert_allclose(sigmoid_distribution(untrained).numpy(), vectors, atol=1e-6)


def rows(*entries: tuple[int, float, float, tuple[float, float, float, float]]) -> Rows:
    """Entries are (pass, probability of logo, probability of sticker, box)."""
    vectors = [[1 - logo - sticker, logo, sticker] for _, logo, sticker, _ in entries]
    boxes = [box for *_, box in entries]
    return Rows(torch.tensor(boxes), torch.tensor(vectors), torch.tensor([t for t, *_ in entries]))


def test_suppresses_within_a_pass_and_a_class_only():
    a, b = (0.0, 0.0, 10.0, 10.0), (1.0, 0.0, 11.0, 10.0)
    kept = keep_best(
        rows((0, 0.0, 0.9, a), (0, 0.8, 0.0, b), (0, 0.0, 0.7, b), (1, 0.0, 0.6, b), (1, 0.1, 0.5, a)),
        (20, 20),
        0.5,
        10,
    )
    assert kept.pass_index.tolist() == [0, 0, 1]
    assert kept.probabilities[:, 1:].amax(dim=1).tolist() == pytest.approx([0.9, 0.8, 0.6])


def test_clips_drops_empty_boxes_and_limits_each_pass():
    boxes = [(-5.0, 2.0, 8.0, 9.0), (30.0, 0.0, 40.0, 10.0), (3.0, 3.0, 3.0, 9.0), (12.0, 0.0, 25.0, 15.0)]
    entries = [(t, 0.0, 0.9 - 0.1 * i, box) for t in (0, 2) for i, box in enumerate(boxes)]
    kept = keep_best(rows(*entries), (10, 20), 0.5, 10)
    assert kept.boxes.tolist() == [[0, 2, 8, 9], [12, 0, 20, 10]] * 2
    assert kept.pass_index.tolist() == [0, 0, 2, 2]
    assert keep_best(rows(*entries), (10, 20), 0.5, 1).pass_index.tolist() == [0, 2]


def test_nothing_above_the_floor_is_no_row():
    vectors = torch.tensor([[[0.9, 0.06, 0.04]], [[0.2, 0.1, 0.7]]])
    passes, candidates = strongest(vectors, 0.5)
    assert passes.tolist() == [1]
    assert candidates.tolist() == [0]
    passes, candidates = strongest(vectors, 0.99)
    assert len(passes) == len(candidates) == 0
    empty = keep_best(Rows(torch.zeros(0, 4), torch.zeros(0, 3), passes), (5, 5), 0.5, 3)
    assert empty.boxes.shape == (0, 4)


def test_strongest_first_and_ties_in_order(monkeypatch):
    scores = torch.tensor([[0.3, 0.6, 0.6, 0.1], [0.5, 0.2, 0.5, 0.9]])
    vectors = torch.stack([1 - scores, scores, torch.zeros_like(scores)], dim=-1)
    passes, candidates = strongest(vectors, 0.15)
    assert passes.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert candidates.tolist() == [1, 2, 0, 3, 0, 2, 1]
    monkeypatch.setattr(selection, "CANDIDATES", 2)
    assert [t.tolist() for t in strongest(vectors, 0.15)] == [[0, 0, 1, 1], [1, 2, 3, 0]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_finds_one_bad_element(bad):
    values = torch.full((3, 1000), 3e38)
    check_finite(values, torch.zeros(0))
    values[1, 7] = bad
    with pytest.raises(NonFiniteOutput):
        check_finite(torch.zeros(2), values)

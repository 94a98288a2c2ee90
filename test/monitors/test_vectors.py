# SPDX-License-Identifier: Apache-2.0
"""Class vectors whose scores are known by hand, and what holds for every class vector."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sticker_uq.monitors import Objects, monitor_named
from sticker_uq.scene import InvalidInput

SINGLE = ("max_softmax", "pcs", "deep_gini", "softmax_entropy")


def score(name: str, **fields: np.ndarray) -> np.ndarray:
    first = next(iter(fields.values()))
    vectors = fields.get("probabilities", first if first.ndim == 2 else first[0])
    return monitor_named(name).score(Objects(**{"probabilities": vectors, **fields}))


@pytest.mark.parametrize(
    ("name", "even", "pair"),
    [("max_softmax", 0.75, 0.5), ("pcs", 1, 1), ("deep_gini", 0.75, 0.5), ("softmax_entropy", 2, 1)],
)
def test_one_vector(name: str, even: float, pair: float) -> None:
    vectors = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0, 0, 1, 0]])
    assert score(name, probabilities=vectors) == pytest.approx([even, pair, 0])


VECTORS = arrays(np.float64, (5, 4), elements=st.floats(1e-6, 1)).map(
    lambda v: v / v.sum(axis=1, keepdims=True)
)


@given(VECTORS, st.permutations(range(4)), st.sampled_from(SINGLE))
def test_the_order_of_the_classes_does_not_matter(vectors: np.ndarray, order: list[int], name: str) -> None:
    one, other = score(name, probabilities=vectors), score(name, probabilities=vectors[:, order])
    assert one == pytest.approx(other)
    assert (one >= -1e-12).all()


def test_energy() -> None:
    assert score("energy", logits=np.array([[0.0, 0.0], [3.0, -50.0]])) == pytest.approx([-np.log(2), -3])


@pytest.mark.parametrize(
    ("prefix", "field"),
    [("mc", "samples"), ("ensemble", "members")],
)
def test_passes_that_disagree_and_passes_that_doubt(prefix: str, field: str) -> None:
    disagree, doubt, agree = [[1, 0], [0, 1]], [[0.5, 0.5], [0.5, 0.5]], [[0, 1], [0, 1]]
    samples = np.array([disagree, doubt, agree], float).transpose(1, 0, 2)
    of = {
        name: score(f"{prefix}_{name}", **{field: samples}) for name in ("mutual_information", "mean_softmax")
    }
    assert of["mutual_information"] == pytest.approx([1, 0, 0])
    assert of["mean_softmax"] == pytest.approx([0.5, 0.5, 0])
    assert score(f"{prefix}_predictive_entropy", **{field: samples}) == pytest.approx([1, 1, 0])
    if prefix == "mc":
        assert score("mc_variation_ratio", samples=samples) == pytest.approx([0.5, 0, 0])


def test_a_pass_that_did_not_see_the_object_does_not_count() -> None:
    seen = np.array([[[0.9, 0.1]], [[0.6, 0.4]]])
    with_blind = np.concatenate([seen, np.full((1, 1, 2), np.nan)])
    for name in ("mc_variation_ratio", "mc_mutual_information", "mc_predictive_entropy", "mc_mean_softmax"):
        monitor, vectors = monitor_named(name), np.array([[0.9, 0.1]])
        expected = monitor.score(Objects(vectors, samples=seen))
        assert monitor.score(Objects(vectors, samples=with_blind)) == pytest.approx(expected)
        assert np.isnan(monitor.score(Objects(vectors, samples=np.full((2, 1, 2), np.nan)))).all()


@given(arrays(np.float64, (6, 3, 4), elements=st.floats(1e-6, 1)))
def test_mutual_information_is_part_of_the_predictive_entropy(values: np.ndarray) -> None:
    samples = values / values.sum(axis=2, keepdims=True)
    information, total = (
        score(f"mc_{n}", samples=samples) for n in ("mutual_information", "predictive_entropy")
    )
    assert (information >= 0).all()
    assert (information <= total + 1e-12).all()


def test_fields_of_other_shapes_are_refused() -> None:
    vectors = np.full((3, 2), 0.5)
    with pytest.raises(InvalidInput, match=r"samples .* expected \(T, 3, 2\)"):
        Objects(vectors, samples=np.zeros((4, 2, 2)))
    with pytest.raises(InvalidInput, match="features"):
        Objects(vectors, features=np.zeros((2, 5)))
    with pytest.raises(InvalidInput, match="probabilities"):
        Objects(np.zeros(3))

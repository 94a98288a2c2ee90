# SPDX-License-Identifier: Apache-2.0
"""Monitors that read activations, against formulas and libraries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, spearmanr
from sklearn.covariance import ledoit_wolf

from sticker_uq.monitors import Objects, monitor_named
from sticker_uq.monitors.dissector import support

ONE_CLASS = np.array([[0.9, 0.1]])


def of(features: np.ndarray, classes: np.ndarray | int = 0, **further: np.ndarray) -> Objects:
    labels = np.broadcast_to(classes, len(features))
    return Objects(np.eye(2)[labels] * 0.8 + 0.1, features=np.asarray(features, float), **further)


def test_lsa_is_the_density_of_the_predicted_class() -> None:
    rng = np.random.default_rng(0)
    known, other = rng.normal(0, 1, (400, 2)) * [1, 3], rng.normal(9, 1, (50, 2))
    asked = rng.normal(0, 2, (60, 2))
    train = of(np.concatenate([known, other]), np.repeat([0, 1], [400, 50]))
    scores = monitor_named("lsa").fit(train).score(of(asked))
    expected = -gaussian_kde(known.T).logpdf(asked.T)
    assert spearmanr(scores, expected).statistic > 0.999
    assert np.median(np.abs(scores - expected)) < 0.05  # the covariance is shrunk a little


def test_lsa_reads_the_activations_that_vary_most() -> None:
    rng = np.random.default_rng(1)
    features = np.column_stack([rng.normal(0, 1, 50), rng.normal(0, 0.01, 50)])
    fitted = monitor_named("lsa", most=1).fit(of(features))
    moved = features + np.array([0, 5])
    assert fitted.score(of(moved)) == pytest.approx(fitted.score(of(features)))


def test_dsa_on_a_line() -> None:
    train = of(np.array([[0.0], [1.0], [4.0]]), np.array([0, 0, 1]))
    fitted = monitor_named("dsa", share=1.0).fit(train)
    # nearest of its class to 1.5 is 1, at 0.5; from there to the other class 3
    assert fitted.score(of(np.array([[1.5], [-1.0]]))) == pytest.approx([0.5 / 3, 1 / 4])
    assert fitted.score(of(np.array([[6.0]]), 1)) == pytest.approx([2 / 3])


def test_dsa_keeps_a_share_of_every_class() -> None:
    train = of(np.random.default_rng(0).normal(size=(101, 3)), np.repeat([0, 1], [100, 1]))
    learned = monitor_named("dsa").fit(train).arrays()
    assert np.bincount(learned["classes"]).tolist() == [30, 1]


def test_mdsa_is_the_squared_mahalanobis_distance() -> None:
    rng = np.random.default_rng(2)
    known = rng.normal(0, 1, (200, 3)) @ np.array([[2, 0, 0], [1, 1, 0], [0, 0, 0.5]])
    asked = rng.normal(0, 3, (20, 3))
    covariance, _ = ledoit_wolf(known - known.mean(axis=0), assume_centered=True)
    centred = asked - known.mean(axis=0)
    expected = np.einsum("nf,fg,ng->n", centred, np.linalg.inv(covariance), centred)
    assert monitor_named("mdsa").fit(of(known)).score(of(asked)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["lsa", "dsa", "mdsa"])
def test_a_class_that_nobody_predicted_is_infinitely_surprising(name: str) -> None:
    rng = np.random.default_rng(3)
    fitted = monitor_named(name).fit(of(rng.normal(size=(30, 2))))
    assert fitted.score(of(np.zeros((1, 2)), 1)).tolist() == [np.inf]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_mahalanobis_scores_do_not_depend_on_the_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, classes = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    offset = rng.uniform(-20, 20, 3)
    for name in ("mdsa", "relative_mahalanobis"):
        plain = monitor_named(name).fit(of(features, classes)).score(of(features[:9]))
        moved = monitor_named(name).fit(of(features + offset, classes)).score(of(features[:9] + offset))
        assert moved == pytest.approx(plain, rel=1e-5, abs=1e-6)


def test_relative_mahalanobis_takes_the_background_off() -> None:
    rng = np.random.default_rng(4)
    classes = rng.integers(0, 2, 400)
    # the second direction varies equally for all and tells nothing about the classes
    features = np.column_stack([rng.normal(8.0 * classes, 0.5), rng.normal(0, 5, 400)])
    fitted = monitor_named("relative_mahalanobis").fit(of(features, classes, labels=classes))
    usual, between, aside = fitted.score(of(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 15.0]])))
    assert between > usual + 20
    assert abs(aside - usual) < 2


def test_knn_measures_angles() -> None:
    known = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    fitted = monitor_named("knn", k=1).fit(of(known))
    assert fitted.score(of(np.array([[7.0, 0.0], [-1.0, 0.0]]))) == pytest.approx([0, np.sqrt(2)])
    assert monitor_named("knn", k=50).fit(of(known)).score(of(known[:1])) == pytest.approx([np.sqrt(2)])


def test_vim_finds_what_the_classes_do_not_explain() -> None:
    rng = np.random.default_rng(5)
    plane = rng.normal(0, 3, (300, 2)) @ np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    features = plane + rng.normal(0, 0.1, (300, 4))
    weight, bias = rng.normal(size=(4, 2)), np.array([0.3, -0.2])
    fitted = monitor_named("vim").fit(of(features, logits=features @ weight + bias))
    learned = fitted.arrays()
    assert learned["origin"] @ weight + bias == pytest.approx([0, 0], abs=1e-8)
    asked = np.array([[1.0, 1.0, 0, 0], [1.0, 1.0, 2.0, -2.0]])
    logits = asked @ weight + bias
    residual = np.linalg.norm((asked - learned["origin"]) @ learned["rest"], axis=1)
    expected = learned["alpha"][0] * residual - logsumexp(logits, axis=1)
    scores = fitted.score(of(asked, logits=logits))
    assert scores == pytest.approx(expected)
    assert residual[1] > 5 * residual[0]


def test_support_of_one_layer() -> None:
    vectors = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]])
    # the first agrees: l / (l + second); the second does not: 1 - best / (best + l)
    assert support(vectors, np.array([0, 1])) == pytest.approx([0.6 / 0.9, 1 - 0.6 / 0.9])


def test_dissector_sees_layers_that_contradict_the_answer() -> None:
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, 200)
    layer = rng.normal(0, 0.3, (200, 2)) + 2.0 * np.eye(2)[labels]
    vectors = np.eye(2)[labels] * 0.8 + 0.1
    fitted = monitor_named("dissector").fit(Objects(vectors, layers=(layer, layer), labels=labels))
    right = fitted.score(Objects(vectors, layers=(layer, layer)))
    wrong = fitted.score(Objects(1 - vectors, layers=(layer, layer)))
    halfway = fitted.score(Objects(vectors, layers=(layer[::-1], layer)))
    assert right.max() < 0.2 < 0.8 < wrong.min()
    assert right.mean() < halfway.mean() < wrong.mean()

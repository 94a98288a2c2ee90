# SPDX-License-Identifier: Apache-2.0
"""Monitors: fit, score, save, load, refuse; formulas over class vectors, features, task networks."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import gaussian_kde, spearmanr
from sklearn.covariance import ledoit_wolf

from sticker_uq.perception.monitors import (
    MONITORS,
    Objects,
    concatenate,
    load_monitor,
    measure_cost,
    monitor_named,
    save_monitor,
)
from sticker_uq.perception.monitors.dissector import support
from sticker_uq.perception.monitors.task_network import TaskNetwork
from sticker_uq.scene import InvalidInput
from test.perception.monitors.conftest import make_objects

QUICK = {"autoencoder": {"steps": 60, "hidden": 16}}


def new(name: str):
    return monitor_named(name, **QUICK.get(name, {}))


@pytest.mark.parametrize("name", MONITORS)
def test_what_was_saved_scores_the_same(name, usual, tmp_path):
    others = make_objects(2, 40)
    monitor = new(name).fit(usual)
    scores = monitor.score(others)
    assert scores.shape == (40,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    cost = measure_cost(monitor, others)
    path = save_monitor(monitor, tmp_path)
    again = load_monitor(tmp_path, name)
    assert again.score(others).tolist() == scores.tolist()
    assert again.cost_ms == cost > 0
    described = json.loads(path.read_text())
    assert described["name"] == name
    assert described["needs"] == list(monitor.needs)


@pytest.mark.parametrize("name", MONITORS)
def test_objects_score_alone_as_among_others(name, usual):
    monitor, others = new(name).fit(usual), make_objects(3, 12)
    together = monitor.score(others)
    alone = np.concatenate([monitor.score(others[row : row + 1]) for row in range(12)])
    assert alone == pytest.approx(together, rel=1e-6, abs=1e-9)
    assert monitor.score(others[:0]).shape == (0,)


@pytest.mark.parametrize("name", [n for n in MONITORS if "features" in MONITORS[n].needs])
def test_the_unusual_scores_higher(name, usual):
    monitor = new(name).fit(usual)
    novel = replace(usual, features=usual.features[:, ::-1] * 3, logits=np.zeros_like(usual.logits))
    assert np.median(monitor.score(novel)) > np.quantile(monitor.score(make_objects(4)), 0.9)


def test_the_autoencoder_cannot_draw_what_it_has_not_seen(usual):
    monitor = monitor_named("autoencoder", steps=600, hidden=32).fit(usual)
    novel = replace(usual, crops=1 - usual.crops)
    assert monitor.score(novel).min() > monitor.score(make_objects(4)).max()
    with pytest.raises(InvalidInput, match="crops have shape"):
        monitor.score(replace(usual, crops=usual.crops[..., :2]))
    with pytest.raises(InvalidInput, match="expected 0 to 1"):
        monitor.fit(replace(usual, crops=usual.crops * 255))


def test_fitting_is_repeatable(usual):
    one, other = (new("autoencoder").fit(usual).score(usual) for _ in range(2))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("name", MONITORS)
def test_a_field_that_is_missing_is_named(name, usual):
    bare = Objects(usual.probabilities)
    wanted = [need for need in MONITORS[name].needs if need != "probabilities"]
    if not wanted:
        assert len(new(name).score(bare)) == len(bare)
        return
    with pytest.raises(InvalidInput, match=f"{name} needs .*{wanted[0]}"):
        new(name).fit(bare)


@pytest.mark.parametrize("name", [n for n in MONITORS if MONITORS[n].learns])
def test_what_learns_must_be_fitted(name, usual):
    with pytest.raises(InvalidInput, match="not fitted"):
        new(name).score(usual)
    with pytest.raises(InvalidInput, match="no objects"):
        new(name).fit(usual[:0])


def test_files_that_do_not_belong_together_are_refused(usual, tmp_path):
    path = save_monitor(new("knn").fit(usual), tmp_path)
    with pytest.raises(InvalidInput, match=r"mdsa.json: no such file; fitted there: knn"):
        load_monitor(tmp_path, "mdsa")
    data = path.with_suffix(".safetensors")
    data.write_bytes(data.read_bytes()[:-8] + b"\0" * 8)
    with pytest.raises(InvalidInput, match="checksum"):
        load_monitor(tmp_path, "knn")
    data.unlink()
    with pytest.raises(InvalidInput, match="no such file"):
        load_monitor(tmp_path, "knn")
    path.write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        load_monitor(tmp_path, "knn")
    path.write_text(json.dumps({"format": 9}))
    with pytest.raises(InvalidInput, match="format"):
        load_monitor(tmp_path, "knn")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InvalidInput, match="did you mean mdsa"):
        monitor_named("mdsaa")


def test_objects_can_be_joined_and_chosen(usual):
    joined = concatenate([usual, replace(usual, crops=None)])
    assert len(joined) == 240
    assert joined.crops is None
    assert joined.samples.shape == (8, 240, 3)
    assert joined[120:].layers[1].tolist() == usual.layers[1].tolist()
    with pytest.raises(InvalidInput, match="at least one"):
        concatenate([])


def score(name: str, **fields: np.ndarray) -> np.ndarray:
    first = next(iter(fields.values()))
    vectors = fields.get("probabilities", first if first.ndim == 2 else first[0])
    return monitor_named(name).score(Objects(**{"probabilities": vectors, **fields}))


@pytest.mark.parametrize(
    ("name", "even", "pair"),
    [("max_softmax", 0.75, 0.5), ("pcs", 1, 1), ("deep_gini", 0.75, 0.5), ("softmax_entropy", 2, 1)],
)
def test_one_vector(name, even, pair):
    vectors = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0, 0, 1, 0]])
    assert score(name, probabilities=vectors) == pytest.approx([even, pair, 0])


def test_energy():
    assert score("energy", logits=np.array([[0.0, 0.0], [3.0, -50.0]])) == pytest.approx([-np.log(2), -3])


@pytest.mark.parametrize(("prefix", "field"), [("mc", "samples"), ("ensemble", "members")])
def test_passes_that_disagree_and_passes_that_doubt(prefix, field):
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


def test_a_pass_that_did_not_see_the_object_does_not_count():
    seen = np.array([[[0.9, 0.1]], [[0.6, 0.4]]])
    with_blind = np.concatenate([seen, np.full((1, 1, 2), np.nan)])
    for name in ("mc_variation_ratio", "mc_mutual_information", "mc_predictive_entropy", "mc_mean_softmax"):
        monitor, vectors = monitor_named(name), np.array([[0.9, 0.1]])
        expected = monitor.score(Objects(vectors, samples=seen))
        assert monitor.score(Objects(vectors, samples=with_blind)) == pytest.approx(expected)
        assert np.isnan(monitor.score(Objects(vectors, samples=np.full((2, 1, 2), np.nan)))).all()


def test_fields_of_other_shapes_are_refused():
    vectors = np.full((3, 2), 0.5)
    with pytest.raises(InvalidInput, match=r"samples .* expected \(T, 3, 2\)"):
        Objects(vectors, samples=np.zeros((4, 2, 2)))
    with pytest.raises(InvalidInput, match="features"):
        Objects(vectors, features=np.zeros((2, 5)))
    with pytest.raises(InvalidInput, match="probabilities"):
        Objects(np.zeros(3))


def of(features: np.ndarray, classes: np.ndarray | int = 0, **further: np.ndarray) -> Objects:
    labels = np.broadcast_to(classes, len(features))
    return Objects(np.eye(2)[labels] * 0.8 + 0.1, features=np.asarray(features, float), **further)


def test_lsa_is_the_density_of_the_predicted_class():
    rng = np.random.default_rng(0)
    known, other = rng.normal(0, 1, (400, 2)) * [1, 3], rng.normal(9, 1, (50, 2))
    asked = rng.normal(0, 2, (60, 2))
    train = of(np.concatenate([known, other]), np.repeat([0, 1], [400, 50]))
    scores = monitor_named("lsa").fit(train).score(of(asked))
    expected = -gaussian_kde(known.T).logpdf(asked.T)
    assert spearmanr(scores, expected).statistic > 0.999
    assert np.median(np.abs(scores - expected)) < 0.05  # the covariance is shrunk a little


def test_lsa_reads_the_activations_that_vary_most():
    rng = np.random.default_rng(1)
    features = np.column_stack([rng.normal(0, 1, 50), rng.normal(0, 0.01, 50)])
    fitted = monitor_named("lsa", most=1).fit(of(features))
    assert fitted.score(of(features + np.array([0, 5]))) == pytest.approx(fitted.score(of(features)))


def test_dsa_on_a_line():
    fitted = monitor_named("dsa", share=1.0).fit(of(np.array([[0.0], [1.0], [4.0]]), np.array([0, 0, 1])))
    # nearest of its class to 1.5 is 1, at 0.5; from there to the other class 3
    assert fitted.score(of(np.array([[1.5], [-1.0]]))) == pytest.approx([0.5 / 3, 1 / 4])
    assert fitted.score(of(np.array([[6.0]]), 1)) == pytest.approx([2 / 3])


def test_dsa_keeps_a_share_of_every_class():
    train = of(np.random.default_rng(0).normal(size=(101, 3)), np.repeat([0, 1], [100, 1]))
    assert np.bincount(monitor_named("dsa").fit(train).arrays()["classes"]).tolist() == [30, 1]


def test_mdsa_is_the_squared_mahalanobis_distance():
    rng = np.random.default_rng(2)
    known = rng.normal(0, 1, (200, 3)) @ np.array([[2, 0, 0], [1, 1, 0], [0, 0, 0.5]])
    asked = rng.normal(0, 3, (20, 3))
    covariance, _ = ledoit_wolf(known - known.mean(axis=0), assume_centered=True)
    centred = asked - known.mean(axis=0)
    expected = np.einsum("nf,fg,ng->n", centred, np.linalg.inv(covariance), centred)
    assert monitor_named("mdsa").fit(of(known)).score(of(asked)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["lsa", "dsa", "mdsa"])
def test_a_class_that_nobody_predicted_is_infinitely_surprising(name):
    fitted = monitor_named(name).fit(of(np.random.default_rng(3).normal(size=(30, 2))))
    assert fitted.score(of(np.zeros((1, 2)), 1)).tolist() == [np.inf]


def test_relative_mahalanobis_takes_the_background_off():
    rng = np.random.default_rng(4)
    classes = rng.integers(0, 2, 400)
    # the second direction varies equally for all and tells nothing about the classes
    features = np.column_stack([rng.normal(8.0 * classes, 0.5), rng.normal(0, 5, 400)])
    fitted = monitor_named("relative_mahalanobis").fit(of(features, classes, labels=classes))
    usual, between, aside = fitted.score(of(np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 15.0]])))
    assert between > usual + 20
    assert abs(aside - usual) < 2


def test_knn_measures_angles():
    known = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    fitted = monitor_named("knn", k=1).fit(of(known))
    assert fitted.score(of(np.array([[7.0, 0.0], [-1.0, 0.0]]))) == pytest.approx([0, np.sqrt(2)])
    assert monitor_named("knn", k=50).fit(of(known)).score(of(known[:1])) == pytest.approx([np.sqrt(2)])


def test_support_of_one_layer():
    vectors = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]])
    # the first agrees: l / (l + second); the second does not: 1 - best / (best + l)
    assert support(vectors, np.array([0, 1])) == pytest.approx([0.6 / 0.9, 1 - 0.6 / 0.9])


def test_dissector_sees_layers_that_contradict_the_answer():
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


CLEAR, DOUBTFUL, NONE = 0.9, 0.5, 0.1


def objects(count: int = 120, seed: int = 0) -> Objects:
    """Crops of three kinds of bars, of which all, half or none of the annotators say that they are stickers."""
    rng = np.random.default_rng(seed)
    fractions = np.array([CLEAR, DOUBTFUL, NONE])[np.arange(count) % 3]
    crops = rng.uniform(0.4, 0.6, (count, 3, 16, 16)).astype(np.float32)
    for kind, channel in ((CLEAR, 0), (DOUBTFUL, 1), (NONE, 2)):
        crops[fractions == kind, channel, 4:12] += 0.4
    return Objects(
        probabilities=np.column_stack([1 - fractions, fractions]), crops=crops, fractions=fractions
    )


def test_a_task_network_learns_its_threshold(tmp_path):
    network = TaskNetwork(0.7, epochs=20).fit(objects())
    seen = objects(60, seed=1)
    assert seen.fractions is not None
    scores = network.score(seen)
    assert ((scores > 0.5) == (seen.fractions < 0.7)).mean() >= 0.9
    save_monitor(network, tmp_path)
    np.testing.assert_array_equal(load_monitor(tmp_path, "task").score(seen), scores)

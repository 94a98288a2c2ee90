# SPDX-License-Identifier: Apache-2.0
"""The benchmark of other doubts: what dropout meets, ranking figures, what is fitted, the recall by size, and a short run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks import better_measure, better_recall, better_signals, better_uncertainty
from benchmarks.better_measure import (
    CLUSTERINGS,
    KINDS,
    PACKAGED,
    VIEWED,
    Instrument,
    Passes,
    dropped,
    heads_of,
    plan,
    samples_of,
    source_anchors,
    sticker_states,
    sticker_views,
)
from benchmarks.better_recall import shrunk
from benchmarks.better_signals import PAPER_DOUBTS, best_temperature, learned_doubts, margin, tempered
from benchmarks.better_uncertainty import REFERENCE, TABLES, figures, main, read, table, within_score
from benchmarks.hard_scenes import SPLITS, HardScene, Material, cases
from sticker_uq.scene import InvalidInput, StochasticSamples
from sticker_uq.testing.scenes import ELSEWHERE, HERE

NOTHING = Material(np.zeros((0, 3, 24, 24)), {})


@pytest.fixture(scope="module")
def instrument():
    return Instrument()


@pytest.fixture(scope="module")
def scene():
    return cases()[0].scene(SPLITS["fit"][0], NOTHING)


def samples(*passes):
    """Passes with a box and its probability of sticker for every object that they show."""
    rows = [(number, box, p) for number, shown in enumerate(passes) for box, p in shown]
    return StochasticSamples(
        np.array([box for _, box, _ in rows], np.float32).reshape(-1, 4),
        np.array([(0.1, 0.9 - p, p) for *_, p in rows], np.float32).reshape(-1, 3),
        np.array([number for number, *_ in rows], np.int64),
        len(passes),
    )


def test_the_packaged_passes_are_those_of_the_cell(instrument, scene):
    features = instrument.detector.encode(scene.image)
    ours = samples_of(
        instrument.detector, features, dropped(instrument.detector, features, scene.image, PACKAGED, 20)
    )
    cell = instrument.detector.sample(features, 20, instrument.detector.settings.seed)
    assert ours.pass_index.tolist() == cell.pass_index.tolist()
    assert np.allclose(ours.boxes, cell.boxes, atol=1e-2)
    assert np.allclose(ours.probabilities, cell.probabilities, atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.rate == 0.2], ids=lambda kind: kind.name)
def test_dropout_changes_every_pass_and_without_it_each_is_the_plain_one(instrument, scene, kind):
    detector = instrument.detector
    features = detector.encode(scene.image)
    plain = detector.detect(features)
    nothing = dropped(detector, features, scene.image, Passes(kind.place, 0.0, kind.channels), 2)
    found = samples_of(detector, features, nothing)
    for number in (0, 1):
        own = found.pass_index == number
        assert np.allclose(found.boxes[own], plain.boxes, atol=0.05)
        assert np.allclose(found.probabilities[own], plain.probabilities, atol=1e-4)
    logits, deltas = dropped(detector, features, scene.image, kind, 2)
    assert not np.allclose(logits[0], logits[1], atol=1e-2)
    assert not np.allclose(deltas[0], deltas[1], atol=1e-2)


def test_every_detection_has_the_anchor_that_it_comes_from(instrument, scene):
    detector = instrument.detector
    features = detector.encode(scene.image)
    seen = detector.detect(features)
    single = heads_of(detector, detector.head_maps(features))
    anchors = source_anchors(detector, features, single, seen.boxes, seen.probabilities)
    assert np.allclose(softmax(single[0][0, anchors].numpy(), axis=1), seen.probabilities, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), min_size=4, max_size=40))
def test_figures_are_those_of_scikit_learn(drawn):
    doubt, wrong, weight = (np.array(column) for column in zip(*drawn, strict=True))
    counted = np.repeat(np.arange(len(doubt)), weight)
    if len(set(wrong[counted].tolist())) < 2:
        return
    area, average, _ = figures(doubt.astype(float), wrong, weight[None].astype(float))[0]
    assert area == pytest.approx(roc_auc_score(wrong[counted], doubt[counted]))
    assert average == pytest.approx(average_precision_score(wrong[counted], doubt[counted]))


def test_an_object_that_nothing_is_known_about_is_the_most_doubtful():
    wrong = np.array([False, False, False, False, True, True])
    doubt = np.array([0.1, 0.2, 0.3, 0.9, 0.4, np.nan])
    area, _, passed = figures(doubt, wrong, np.ones((1, 6)))[0]
    assert area == pytest.approx(7 / 8)
    assert passed == pytest.approx(1 / 2)  # 80 % of four right ones are all four
    assert (
        figures(doubt, wrong, np.ones((1, 6)))[0, 2]
        > figures(doubt, wrong, np.array([[1, 1, 1, 0, 1, 1.0]]))[0, 2]
    )


def test_a_doubt_that_repeats_the_score_adds_nothing_to_it():
    rng = np.random.default_rng(0)
    score = np.repeat(np.arange(10.0), 200)
    wrong = rng.random(2000) < 0.05 + score / 20
    assert figures(score, wrong, np.ones((1, 2000)))[0, 0] > 0.6
    assert within_score(score, score, wrong) == pytest.approx(0.5)
    assert within_score(score + wrong * rng.random(2000), score, wrong) > 0.9


def test_a_temperature_is_found_again():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 3))
    p = softmax(logits, axis=1)
    labels = (rng.random((4000, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=2)
    assert best_temperature(3 * logits, labels) == pytest.approx(3.0, rel=0.1)
    hot, cold = (tempered(logits[:, None], t)["entropy"] for t in (4.0, 1.0))
    assert (hot > cold).all()
    assert np.allclose(tempered(logits[:, None], 1.0)["mutual information"], 0)


def test_the_margin_of_certain_logits_is_the_log_odds():
    logits = np.log(np.array([[0.2, 0.1, 0.7], [0.5, 0.3, 0.2]]))
    mean, deviation = margin(logits, np.zeros((2, 3)))
    assert mean == pytest.approx([np.log(0.7 / 0.3), np.log(0.2 / 0.8)])
    assert deviation == pytest.approx([0, 0])
    assert (margin(logits, np.ones((2, 3)))[1] > 1).all()


def test_the_pictures_of_a_laptop_take_turns_and_those_to_fit_on_are_mild():
    found = plan("development", 15, ("foreign object",))
    assert len(found) == 15 * 8
    assert {p.case.name for p in found if p.case.strength == "strong"} == {
        c.name for c in cases(("shift",))[1:]
    }
    assert {p.case.strength for p in plan("fit", 15, ("foreign object",))} == {"none", "weak"}
    assert not {p.seed for p in found} & {p.seed for p in plan("test", 15, ())}
    assert len({p.name for p in found}) == len(found)


def test_a_sticker_is_clustered_unstable_or_called_something_else():
    stickers = np.array([HERE, ELSEWHERE], np.float32)
    steady, once = [(HERE, 0.8)], [(HERE, 0.8), (ELSEWHERE, 0.8)]
    assert sticker_states(stickers, samples(steady, steady, steady, once), False)[:, 0].tolist() == [2, 1]
    logo = [(HERE, 0.1)]
    states = sticker_states(stickers, samples(logo, logo, logo), True)
    assert states.shape == (2, len(CLUSTERINGS))
    assert states[:, 0].tolist() == [-1, 0]
    views = sticker_views(stickers, samples(steady, steady, logo, once))
    assert views["views"].tolist() == [3, 1]
    assert views["agreement"][0] == pytest.approx(1)
    assert np.isnan(views["agreement"][1])


def test_a_shrunk_picture_shows_its_objects_where_its_boxes_are(scene):
    small = shrunk(scene, 0.5)
    assert small.image.shape == scene.image.shape
    sides, before = (boxes[:, 2:] - boxes[:, :2] for boxes in (small.boxes, scene.boxes))
    assert np.allclose(sides, before / 2, atol=1e-3)
    assert isinstance(small, HardScene)
    x1, y1, x2, y2 = np.round(small.boxes[0]).astype(int)
    X1, Y1, X2, Y2 = np.round(scene.boxes[0]).astype(int)
    assert np.abs(small.image[y1:y2, x1:x2].mean() - scene.image[Y1:Y2, X1:X2].mean()) < 4


def test_a_run_measures_once_and_writes_both_splits_into_one_file(tmp_path, monkeypatch, capsys):
    few = (PACKAGED, VIEWED)
    monkeypatch.setattr(better_uncertainty, "KINDS", few)
    monkeypatch.setattr(better_uncertainty, "TEST_KINDS", few)
    monkeypatch.setattr(
        better_uncertainty, "CHOSEN", ("novelty of the object", "logistic regression on one pass")
    )
    monkeypatch.setattr(better_uncertainty, "NOVELTIES", ("foreign object",))
    monkeypatch.setattr(better_uncertainty, "_RESAMPLES", 20)
    monkeypatch.setattr(better_measure, "_SHIFTS_EACH", 1)
    # one laptop of each half to fit on, on which something is wrong
    monkeypatch.setitem(SPLITS, "fit", [200_000_029, 200_000_070])
    monkeypatch.setattr(better_recall, "SCALES", (0.4,))
    monkeypatch.setattr(better_recall, "KINDS", (PACKAGED,))
    # fewer of what takes long: large covariances, a Hessian of every output for each prior, and models
    monkeypatch.setattr(better_signals, "DENSITIES", {"last": "last layer's input"})
    monkeypatch.setattr(better_signals, "PRIORS", (10.0,))
    monkeypatch.setattr(better_signals, "LEARNERS", dict(list(better_signals.LEARNERS.items())[:1]))
    cache = tmp_path / "cache"
    cache.mkdir()
    np.save(cache / "ambiguous.npy", NOTHING.ambiguous)
    out = tmp_path / "result.json"
    arguments = ["--out", str(out), "--fit", "2", "--cache", str(cache)]
    main([*arguments, "--laptops", "1"])
    kept = {file: file.stat().st_mtime_ns for file in cache.rglob("fit-*.npz")}
    assert len(kept) == 2 * 2
    development = read(out)["development"]
    main([*arguments, "--laptops", "1", "--split", "test"])
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("fit-*.npz")} == kept
    found = read(out)
    assert found["development"] == development
    assert found["test"]["pictures"] == development["pictures"] == 5
    shown, all_of_them = (
        {row["doubt"] for row in found[split]["ranking"]} for split in ("test", "development")
    )
    assert {REFERENCE, *PAPER_DOUBTS} <= shown < all_of_them
    assert {row["by"] for row in found["test"]["recall"]["rows"]} >= {"one pass", PACKAGED.name}
    for name in TABLES:
        assert table(found, name).startswith("| ")
    assert REFERENCE in capsys.readouterr().out


def test_fitting_needs_right_and_wrong_objects():
    doubts = {REFERENCE: np.array([0.1, 0.2]), "novelty of the object": np.array([0.1, 0.2])}
    with pytest.raises(
        InvalidInput, match="all 2 objects to fit on are alike, expected right and wrong ones"
    ):
        learned_doubts(doubts, np.array([False, False]), doubts)

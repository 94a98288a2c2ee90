# SPDX-License-Identifier: Apache-2.0
"""The whole study on a few digits, its figures by hand, and attacks on a linear model, whose nearest boundary is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sticker_uq.perception.monitors.crop_network import CropTraining
from sticker_uq_lab.studies.ambiguity.raae import RaaeSettings
from sticker_uq_lab.studies.monitors.classifier_study import (
    MonitorStudySettings,
    StudyResult,
    ambiguous_row,
    classifier_report,
    count_missed,
    draw_labels,
    nominal_row,
    run_study,
    threshold_at,
)
from sticker_uq_lab.studies.monitors.crop_changes import (
    CORRUPTIONS,
    EPSILONS,
    adversarial,
    bim,
    corrupt,
    deepfool,
    fgsm,
    pgd,
)
from sticker_uq_lab.studies.monitors.material import Material, digits

TINY = MonitorStudySettings(
    seeds=1, members=1, passes=5, ambiguous=100, training=CropTraining(epochs=18, batch=64)
)


def three_digits() -> Material:
    """The digits 0, 1 and 4 alone."""
    everything = digits()
    train, test = (np.isin(labels, (0, 1, 4)) for labels in (everything.train_labels, everything.test_labels))
    order = np.array([0, 1, -1, -1, 2])
    return replace(
        everything,
        classes=("0", "1", "4"),
        train=everything.train[train],
        train_labels=order[everything.train_labels[train]],
        test=everything.test[test],
        test_labels=order[everything.test_labels[test]],
        invalid=everything.invalid[:100],
        pairs=((0, 1), (0, 2)),
        raae=RaaeSettings(steps=200, learning_rate=3e-3),
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResult, Path]:
    folder = tmp_path_factory.mktemp("study")
    return run_study(three_digits(), TINY, folder), folder


def test_the_shape_of_the_paper(result):
    (seed,) = result[0].seeds
    assert seed["accuracy"] > 0.9
    assert seed["table_1"]["ambiguous"]["entropy"] > 3 * seed["table_1"]["nominal"]["entropy"]
    assert seed["table_1"]["ambiguous"]["top_pair"] > 0.8
    assert seed["auc"]["max_softmax"]["ambiguous"] > 0.85
    assert seed["auc"]["autoencoder"]["invalid"] > 0.9
    assert seed["auc"]["lsa"]["ambiguous"] < seed["auc"]["lsa"]["invalid"]
    assert seed["auc"]["ensemble_mean_softmax"]["adversarial"] is None
    assert len(seed["auc"]) == 19


def test_a_study_goes_on_from_what_it_left(result):
    found, folder = result
    (path,) = folder.glob("seed_0_*.json")
    before = path.stat().st_mtime_ns
    again = run_study(three_digits(), TINY, folder)
    assert path.stat().st_mtime_ns == before
    assert str(again.seeds) == str(found.seeds)  # NaN equals nothing, not itself either


def test_the_tables(result):
    text = classifier_report(result[0])
    assert "## Table II" in text
    assert "| ensemble_mean_softmax | " in text
    (row,) = [line for line in text.splitlines() if line.startswith("| ambiguous | ")]
    assert f"{result[0].seeds[0]['table_1']['ambiguous']['entropy']:.3f}" in row


def test_labels_are_drawn_by_their_probabilities():
    drawn = draw_labels(np.tile([0.2, 0.0, 0.8], (5000, 1)), 0)
    assert np.bincount(drawn, minlength=3) / 5000 == pytest.approx([0.2, 0, 0.8], abs=0.02)
    assert draw_labels(np.array([[0.0, 1 - 1e-9]]), 0).tolist() == [1]


def test_rows_of_table_1():
    vectors = np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.1, 0.4, 0.5]])
    row = nominal_row(vectors, np.array([0, 2, 2]))
    assert (row["top_1"], row["top_2"]) == pytest.approx((1 / 3, 2 / 3))
    assert row["entropy"] == pytest.approx((1 + 2 - (0.1 * np.log2(0.1) + 0.4 * np.log2(0.4) - 0.5)) / 3)
    assert np.isnan(row["top_pair"])
    ambiguous = ambiguous_row(vectors, np.array([[1, 0], [3, 2], [2, 3]]), np.tile([0.4, 0.6], (3, 1)))
    assert ambiguous["top_1"] == pytest.approx(2 / 3)  # classes 0, 2, 3 are right
    assert ambiguous["top_pair"] == pytest.approx(2 / 3)


def test_the_threshold_refuses_the_share_it_may():
    usual = np.arange(100.0)
    threshold = threshold_at(usual, 0.05)
    assert (usual > threshold).sum() == 5
    wrong, scores = np.array([True, True, True, False]), np.array([threshold, threshold + 1, np.nan, 0])
    assert count_missed(wrong, scores, threshold) == (1, 3)


WEIGHT = torch.tensor([0.5, -1.0, 2.0, 0.5]).view(1, 4)


def linear(crops: Tensor) -> Tensor:
    """Class 1 where the weighted sum is above 0."""
    margin = (crops.flatten(1) - 0.5) @ WEIGHT.T
    return torch.cat([-margin, margin], dim=1)


def crops(n: int = 40) -> tuple[Tensor, Tensor]:
    values = 0.5 + 0.2 * (torch.rand((n, 1, 2, 2), generator=torch.Generator().manual_seed(0)) - 0.5)
    return values, linear(values).argmax(dim=1)


def least(values: Tensor) -> Tensor:
    """The smallest largest change that reaches the boundary."""
    return ((values.flatten(1) - 0.5) @ WEIGHT.T).abs()[:, 0] / WEIGHT.abs().sum()


@pytest.mark.parametrize("attack", [fgsm, bim, pgd])
def test_an_attack_stays_within_its_bound_and_works_from_the_least_one_on(attack):
    values, labels = crops()
    found = attack(linear, values, labels, 0.05)
    assert float((found - values).abs().max()) <= 0.05 + 1e-6
    fooled = linear(found).argmax(dim=1) != labels
    possible = least(values) < 0.05
    if attack is pgd:  # its steps together reach a third farther than the bound: not from every random start
        possible &= fooled | (least(values) < 0.05 / 3)
    assert fooled.tolist() == possible.tolist()
    assert 0 < int(fooled.sum()) < 40


def test_deepfool_finds_the_nearest_boundary():
    values, labels = crops()
    found = deepfool(linear, values, labels)
    assert bool((linear(found).argmax(dim=1) != labels).all())
    change = (found - values).abs().flatten(1).amax(dim=1)
    assert change.numpy() == pytest.approx(1.02 * least(values).numpy(), rel=1e-3, abs=1e-5)


def test_the_smallest_bound_that_works_is_taken():
    values, labels = crops()
    flipped = labels.clone()
    flipped[:4] = 1 - flipped[:4]  # taken for another class already: not attacked
    made, numbers = adversarial(linear, values.numpy(), flipped.numpy(), seed=0)
    assert sorted(numbers) == list(range(4, 40))
    assert (linear(torch.from_numpy(made)).argmax(dim=1).numpy() != flipped.numpy()[numbers]).all()
    change = np.abs(made - values.numpy()[numbers]).max(axis=(1, 2, 3))
    enough = np.array([min(e for e in EPSILONS if e > x) for x in least(values).numpy()[numbers]])
    assert (change <= enough + 1e-6).all()
    again, _ = adversarial(linear, values.numpy(), flipped.numpy(), seed=0)
    assert again.tolist() == made.tolist()


@pytest.mark.parametrize("shape", [(22, 1, 8, 8), (11, 3, 32, 32)])
def test_every_corruption_changes_the_picture_and_keeps_it_one(shape):
    pictures = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    found = corrupt(pictures, 3)
    assert found.shape == shape
    assert found.dtype == np.float32
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert (np.abs(found - pictures).reshape(len(pictures), -1).max(axis=1) > 0.05).all()
    assert len(CORRUPTIONS) == 11
    assert corrupt(pictures, 3).tolist() == found.tolist()

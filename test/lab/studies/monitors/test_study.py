# SPDX-License-Identifier: Apache-2.0
"""The whole study on a few digits: it runs, remembers, and already shows who notices what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sticker_uq.lab.studies.ambiguity.raae import RaaeSettings
from sticker_uq.lab.studies.monitors.classifier_study import (
    MonitorStudySettings,
    StudyResult,
    classifier_report,
    draw_labels,
    observe_crops,
    run_study,
)
from sticker_uq.lab.studies.monitors.material import Material, digits, no_digits
from sticker_uq.monitors.crop_network import Training, train_classifier
from sticker_uq.scene import InvalidInput

TINY = MonitorStudySettings(
    seeds=1, members=1, passes=5, ambiguous=200, training=Training(epochs=40, batch=64)
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
        raae=RaaeSettings(steps=300, learning_rate=3e-3),
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyResult, Path]:
    folder = tmp_path_factory.mktemp("study")
    return run_study(three_digits(), TINY, folder), folder


def test_the_shape_of_the_paper(result: tuple[StudyResult, Path]) -> None:
    (seed,) = result[0].seeds
    assert seed.accuracy > 0.9
    assert seed.table_1["ambiguous"].entropy > 3 * seed.table_1["nominal"].entropy
    assert seed.table_1["ambiguous"].top_pair > 0.8
    assert seed.auc["max_softmax"]["ambiguous"] > 0.85
    assert seed.auc["autoencoder"]["invalid"] > 0.9
    assert seed.auc["lsa"]["ambiguous"] < seed.auc["lsa"]["invalid"]
    assert seed.auc["ensemble_mean_softmax"]["adversarial"] is None
    assert len(seed.auc) == 20


def test_a_study_goes_on_from_what_it_left(result: tuple[StudyResult, Path]) -> None:
    found, folder = result
    (path,) = folder.glob("seed_0_*.json")
    before = path.stat().st_mtime_ns
    again = run_study(three_digits(), TINY, folder)
    assert path.stat().st_mtime_ns == before
    assert str(again.seeds) == str(found.seeds)  # NaN equals nothing, not itself either


def test_the_tables(result: tuple[StudyResult, Path]) -> None:
    text = classifier_report(result[0])
    assert "## Table II" in text
    assert "| ensemble_mean_softmax | " in text
    (row,) = [line for line in text.splitlines() if line.startswith("| ambiguous | ")]
    assert f"{result[0].seeds[0].table_1['ambiguous'].entropy:.3f}" in row


def test_labels_are_drawn_by_their_probabilities() -> None:
    drawn = draw_labels(np.tile([0.2, 0.0, 0.8], (5000, 1)), 0)
    assert np.bincount(drawn, minlength=3) / 5000 == pytest.approx([0.2, 0, 0.8], abs=0.02)
    assert draw_labels(np.array([[0.0, 1 - 1e-9]]), 0).tolist() == [1]


def test_stochastic_passes_follow_their_seed() -> None:
    material = three_digits()
    model = train_classifier(
        material.train[:50], np.eye(3)[material.train_labels[:50]], 0, Training(epochs=1)
    )
    one, other, third = (observe_crops(model, material.test[:4], 3, seed) for seed in (1, 1, 2))
    assert one.samples.tolist() == other.samples.tolist() != third.samples.tolist()
    assert one.probabilities.tolist() == third.probabilities.tolist()
    assert (one.samples[0] != one.samples[1]).any()
    assert one.features @ model.last.weight.numpy().T + model.last.bias.numpy() == pytest.approx(
        one.logits, abs=1e-4
    )


def test_no_digits_are_pieces_of_photographs() -> None:
    pieces = no_digits(20, 1)
    assert pieces.shape == (20, 1, 8, 8)
    assert pieces.min(axis=(1, 2, 3)) == pytest.approx(np.zeros(20))
    assert pieces.max(axis=(1, 2, 3)) == pytest.approx(np.ones(20))
    assert no_digits(20, 1).tolist() == pieces.tolist()


def test_settings_out_of_range() -> None:
    with pytest.raises(InvalidInput, match="--seeds 0"):
        MonitorStudySettings(seeds=0)
    with pytest.raises(InvalidInput, match="--alarms 1"):
        MonitorStudySettings(alarms=1)

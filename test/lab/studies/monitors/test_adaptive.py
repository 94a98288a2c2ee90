# SPDX-License-Identifier: Apache-2.0
"""Attacks that know the monitor lower its score; their gradients are those of the score itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sticker_uq.lab.studies.monitors.crop_observations import observe_crops
from sticker_uq.lab.studies.monitors.monitor_attacks import (
    ATTACKED,
    EPSILON,
    attack_monitor,
    score_of,
    targeted,
)
from sticker_uq.monitors import monitor_named
from sticker_uq.monitors.crop_network import CropClassifier, Training, train_classifier
from sticker_uq.scene import InvalidInput

QUICK = {"autoencoder": {"steps": 300, "hidden": 16}}


@pytest.fixture(scope="module")
def trained() -> tuple[CropClassifier, np.ndarray, np.ndarray]:
    """Bars in one of three rows, a little noisy."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 180)
    crops = rng.uniform(0.2, 0.5, (180, 1, 6, 6)).astype(np.float32)
    for row in range(3):
        crops[labels == row, :, 2 * row : 2 * row + 2] += 0.3
    model = train_classifier(crops, np.eye(3)[labels], 0, Training(epochs=40, batch=32, learning_rate=3e-3))
    return model, crops, labels


@pytest.mark.parametrize("name", ATTACKED)
def test_an_attack_that_knows_the_supervisor_escapes_it_more_often(name: str, trained) -> None:
    model, crops, labels = trained
    monitor = monitor_named(name, **QUICK.get(name, {})).fit(observe_crops(model, crops, 1, 0, labels=labels))
    score = score_of(monitor, model)
    expected = monitor.score(observe_crops(model, crops, 1, 0))
    assert score(torch.from_numpy(crops)).detach().numpy() == pytest.approx(expected, rel=1e-3, abs=1e-5)
    found = attack_monitor(monitor, model, crops, labels)
    assert found.fooled > 0.2
    assert found.fooled_adaptive == found.fooled  # the way to the boundary is the same
    assert found.auc_adaptive <= found.auc + 0.02


def test_the_bound_holds(trained) -> None:
    model, crops, labels = trained
    made, numbers = targeted(model, crops, labels, None)
    assert np.abs(made - crops[numbers]).max() <= EPSILON + 1e-6
    assert (observe_crops(model, made, 1, 0).predicted != labels[numbers]).all()


def test_a_supervisor_without_a_gradient_is_refused(trained) -> None:
    with pytest.raises(InvalidInput, match="no gradient known"):
        score_of(monitor_named("knn"), trained[0])

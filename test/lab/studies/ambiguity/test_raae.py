# SPDX-License-Identifier: Apache-2.0
"""Autoencoders of two classes that are easy to draw: bright on the left, bright on the right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sticker_uq.lab.studies.ambiguity.raae import Acceptance, Raae, RaaeSettings, train_raaes, train_round
from sticker_uq.scene import InvalidInput

QUICK = RaaeSettings(steps=300, learning_rate=3e-3)


def sides(seed: int = 0, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, 1, 4, 4) of classes 3 (left), 5 (right) and 8 (all)."""
    rng = np.random.default_rng(seed)
    labels = np.array([3, 5, 8])[rng.integers(0, 3, n)]
    images = rng.uniform(0.0, 0.1, (n, 1, 4, 4))
    images[labels == 3, :, :, :2] += 0.7
    images[labels == 5, :, :, 2:] += 0.7
    images[labels == 8] += 0.5
    return images.astype(np.float32), labels


@pytest.fixture(scope="module")
def trained() -> list[Raae]:
    return train_raaes(*sides(), pairs=[(3, 5), (8, 5)], settings=QUICK)


def test_every_pair_has_an_accepted_autoencoder(trained: list[Raae]) -> None:
    assert [raae.pair for raae in trained] == [(3, 5), (8, 5)]
    assert all(raae.acceptance.accepted for raae in trained)


def test_codes_and_labels_of_nominal_pictures(trained: list[Raae]) -> None:
    images, labels = sides(1)
    for raae in trained:
        for side, label in enumerate(raae.pair):
            codes = raae.encode(torch.from_numpy(images[labels == label]))
            probabilities = raae.label(codes)
            assert float(codes[:, 0].mean()) == pytest.approx(3 * (2 * side - 1), abs=1.5)
            assert torch.allclose(probabilities.sum(dim=1), torch.ones(len(codes)))
            assert float((probabilities[:, side] > 0.5).float().mean()) > 0.9
            assert float(probabilities[:, side].median()) > 0.8  # the class is not only ahead, it is sure


def test_nominal_pictures_can_be_drawn_again(trained: list[Raae]) -> None:
    images, labels = sides(1)
    own = torch.from_numpy(images[labels == 3])
    again = trained[0].decode(trained[0].encode(own))
    assert again.shape == own.shape
    assert float(((again - own) ** 2).mean()) < 0.02
    middle = trained[0].decode(torch.zeros(1, 2))[0, 0].mean(dim=0)
    left, right = (float(half.mean()) for half in (middle[:2], middle[2:]))
    assert min(left, right) > 0.1  # something of both


def test_the_same_seed_gives_the_same_autoencoder() -> None:
    short = replace(QUICK, steps=3)
    one, other = (train_round(*sides(), pairs=[(3, 5)], settings=short, seed=7)[0] for _ in range(2))
    codes = torch.tensor([[0.3, -0.2]])
    assert one.decode(codes).tolist() == other.decode(codes).tolist()
    assert one.acceptance == other.acceptance


@pytest.mark.parametrize(
    ("told", "right", "accepted"), [(0.5, 0.95, True), (0.4, 1, False), (0.61, 1, False), (0.5, 0.89, False)]
)
def test_acceptance(told: float, right: float, accepted: bool) -> None:
    assert Acceptance(told, right).accepted is accepted


def test_an_autoencoder_that_is_never_accepted_is_an_error() -> None:
    hopeless = replace(QUICK, steps=1, tries=2)
    with pytest.raises(InvalidInput, match="no autoencoder of 3 and 5 was accepted in 2 tries"):
        train_raaes(*sides(), pairs=[(3, 5)], settings=hopeless)


def test_what_cannot_be_trained_on() -> None:
    images, labels = sides()
    with pytest.raises(InvalidInput, match="two different classes"):
        train_raaes(images, labels, [(3, 4)])
    with pytest.raises(InvalidInput, match="values 0 to 1"):
        train_raaes(images * 16, labels, [(3, 5)])
    with pytest.raises(InvalidInput, match=r"expected \(N, C, h, w\)"):
        train_raaes(images[:, 0], labels, [(3, 5)])
    with pytest.raises(InvalidInput, match="no pair"):
        train_raaes(images, labels, [])
    with pytest.raises(InvalidInput, match="latent is 0"):
        RaaeSettings(latent=0)

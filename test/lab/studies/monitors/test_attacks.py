# SPDX-License-Identifier: Apache-2.0
"""Attacks on a linear model, whose nearest boundary is known, and corruptions that leave the class alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sticker_uq.lab.studies.monitors.crop_changes import (
    CORRUPTIONS,
    EPSILONS,
    adversarial,
    bim,
    corrupt,
    deepfool,
    fgsm,
    pgd,
)

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
def test_an_attack_stays_within_its_bound_and_works_from_the_least_one_on(attack) -> None:
    values, labels = crops()
    found = attack(linear, values, labels, 0.05)
    assert float((found - values).abs().max()) <= 0.05 + 1e-6
    fooled = linear(found).argmax(dim=1) != labels
    possible = least(values) < 0.05
    if attack is pgd:  # its steps together reach a third farther than the bound: not from every random start
        possible &= fooled | (least(values) < 0.05 / 3)
    assert fooled.tolist() == possible.tolist()
    assert 0 < int(fooled.sum()) < 40


def test_deepfool_finds_the_nearest_boundary() -> None:
    values, labels = crops()
    found = deepfool(linear, values, labels)
    assert bool((linear(found).argmax(dim=1) != labels).all())
    change = (found - values).abs().flatten(1).amax(dim=1)
    assert change.numpy() == pytest.approx(1.02 * least(values).numpy(), rel=1e-3, abs=1e-5)


def test_the_smallest_bound_that_works_is_taken() -> None:
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
def test_every_corruption_changes_the_picture_and_keeps_it_one(shape: tuple[int, ...]) -> None:
    pictures = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    found = corrupt(pictures, 3)
    assert found.shape == shape
    assert found.dtype == np.float32
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert (np.abs(found - pictures).reshape(len(pictures), -1).max(axis=1) > 0.05).all()
    assert len(CORRUPTIONS) == 11
    assert corrupt(pictures, 3).tolist() == found.tolist()

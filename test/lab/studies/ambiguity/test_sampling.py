# SPDX-License-Identifier: Apache-2.0
"""Drawing from latent spaces whose decoder and labels are known by formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sticker_uq.lab.studies.ambiguity.raae import (
    Acceptance,
    Raae,
    RaaeSettings,
    density,
    diversity,
    draw,
    generate,
    region,
)
from sticker_uq.scene import InvalidInput


class Formula(nn.Module):
    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._formula = formula

    def forward(self, values: Tensor) -> Tensor:
        return self._formula(values)


def made(decoder: Callable[[Tensor], Tensor], latent: int = 2, sharp: float = 1.0) -> Raae:
    """An autoencoder whose label is about a logistic function of the first coordinate."""

    def tell(codes: Tensor) -> Tensor:
        side = codes[:, -1:] - codes[:, -2:-1]  # -1 for the first class, 1 for the second
        return sharp * codes[:, :1] * side - 6  # far below 0 a sigmoid is an exponential

    return Raae(
        pair=(2, 7),
        shape=(1, 1, 2),
        settings=RaaeSettings(latent=latent),
        encoder=Formula(lambda x: x),
        decoder=Formula(decoder),
        discriminator=Formula(tell),
        acceptance=Acceptance(0.5, 1.0),
    )


def test_density_of_a_linear_decoder_is_the_norm_of_its_matrix() -> None:
    matrix = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]], dtype=torch.float64)
    found = density(lambda z: z @ matrix, torch.randn(5, 2, dtype=torch.float64))
    assert found.numpy() == pytest.approx(np.full(5, np.sqrt(15)))


def test_density_sees_change_that_does_not_change_the_energy() -> None:
    codes = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None].requires_grad_()

    def turning(z: Tensor) -> Tensor:
        return torch.cat([torch.cos(z), torch.sin(z)], dim=1)

    (energy,) = torch.autograd.grad((turning(codes) ** 2).sum(), codes)
    assert float(energy.abs().max()) < 1e-12  # what the published code weighs by
    assert density(turning, codes.detach()).numpy() == pytest.approx(np.ones(9))


def test_points_gather_where_the_picture_changes_and_on_the_right_axis() -> None:
    def fast_above(z: Tensor) -> Tensor:
        slope = torch.where(z[:, 1:2] > 0, 3.0, 1.0)
        return torch.cat([slope * z[:, 1:2], slope * z[:, 0:1]], dim=1) / 10

    codes, _ = draw(made(fast_above, sharp=0.1), 4000, delta_max=0.9)
    # the sigmoid of the decoder makes the ratio a little smaller than 3 : 1
    assert (codes[:, 1] > 0).mean() == pytest.approx(0.74, abs=0.02)
    assert (codes[:, 0] > 0).mean() == pytest.approx(0.5, abs=0.02)
    even, _ = draw(made(fast_above, sharp=0.1), 4000, delta_max=0.9, weighting="uniform")
    assert (even[:, 1] > 0).mean() == pytest.approx(0.5, abs=0.02)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.floats(0.1, 0.6), st.integers(0, 1000))
def test_every_point_is_ambiguous_and_between_the_classes(latent: int, delta: float, seed: int) -> None:
    raae = made(lambda z: z[:, :1].expand(-1, 2), latent)
    codes, labels = draw(raae, 50, delta, seed)
    low, high = region(3.0, latent)
    assert codes.shape == (50, latent)
    assert (np.abs(labels[:, 0] - labels[:, 1]) <= delta).all()
    assert labels.sum(axis=1) == pytest.approx(np.ones(50))
    assert ((codes >= low) & (codes <= high)).all()


def test_the_label_is_the_papers() -> None:
    codes = np.array([[-1.0, 0.5], [0.0, 0.0], [2.0, -1.0]])
    found = made(lambda z: z).label(torch.from_numpy(codes)).numpy()
    each = np.stack([1 / (1 + np.exp(6 + codes[:, 0])), 1 / (1 + np.exp(6 - codes[:, 0]))], axis=1)
    assert found == pytest.approx(each / each.sum(axis=1, keepdims=True), rel=1e-4)


def test_labels_as_class_vectors() -> None:
    images = generate([made(lambda z: z), made(lambda z: 2 * z)], 7)
    assert images.images.shape == (7, 1, 1, 2)
    assert images.images.min() >= 0
    assert images.images.max() <= 1
    vectors = images.vectors(9)
    assert vectors.sum(axis=1) == pytest.approx(np.ones(7))
    assert set(np.nonzero(vectors)[1]) == {2, 7}
    again = generate([made(lambda z: z), made(lambda z: 2 * z)], 7)
    assert again.images.tolist() == images.images.tolist()


def test_diversity_of_pictures() -> None:
    assert diversity(np.zeros((3, 1, 2, 2))) == 0
    assert diversity(np.stack([np.zeros((1, 2, 2)), np.ones((1, 2, 2))])) == pytest.approx(1)
    assert np.isnan(diversity(np.zeros((1, 1, 2, 2))))


def test_what_cannot_be_drawn() -> None:
    sure = replace(made(lambda z: z), discriminator=Formula(lambda c: 9 * c[:, -1:]))
    with pytest.raises(InvalidInput, match="no point between them"):
        draw(sure, 5)
    with pytest.raises(InvalidInput, match="delta_max is 0"):
        draw(made(lambda z: z), 5, 0)
    with pytest.raises(InvalidInput, match="no autoencoder"):
        generate([], 5)
    with pytest.raises(InvalidInput, match="separation is 2"):
        region(2.0, 2)

"""The masks, without a network."""

from __future__ import annotations

import math

import pytest
import torch

from sticker_uq.detection.dropout import PassDropout, pass_generator

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_drops_the_rate_and_keeps_the_mean(rate: float) -> None:
    dropped = PassDropout(rate, 0, range(4), CPU)(torch.ones(1, 8, 50, 50))
    assert dropped.shape == (4, 8, 50, 50)
    n = dropped[0].numel()
    for one in dropped:
        zeros = int((one == 0).sum())
        assert abs(zeros - n * rate) < 5 * math.sqrt(n * rate * (1 - rate))
        assert torch.allclose(one[one != 0], torch.tensor(1 / (1 - rate)))


def test_masks_belong_to_seed_and_pass_not_to_the_group() -> None:
    shared, own = torch.rand(1, 3, 5, 7), torch.rand(3, 2, 4, 4)
    together = PassDropout(0.4, 11, range(3), CPU)
    first, second = together(shared), together(own)
    for t in range(3):
        alone = PassDropout(0.4, 11, [t], CPU)
        assert torch.equal(alone(shared)[0], first[t])
        assert torch.equal(alone(own[t : t + 1])[0], second[t])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(PassDropout(0.4, 12, [0], CPU)(shared)[0], first[0])
    assert not torch.equal(PassDropout(0.4, 11, [0], CPU)(shared), PassDropout(0.4, 1, [10], CPU)(shared))


def test_seeds_are_the_same_everywhere() -> None:
    assert pass_generator(5, 3, CPU).initial_seed() == 6224584235033279791
    assert (
        pass_generator(2**64 - 1, 0, CPU).initial_seed() != pass_generator(2**63 - 1, 0, CPU).initial_seed()
    )


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    PassDropout(0.5, 0, range(2), CPU)(torch.rand(1, 2, 3, 3, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), before)

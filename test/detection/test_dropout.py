# SPDX-License-Identifier: Apache-2.0
"""The masks, without a network."""

import math

import pytest
import torch

from sticker_uq.detection import dropout
from sticker_uq.detection.dropout import CounterDropout, PassDropout, no_dropout, pass_generator

CPU = torch.device("cpu")
KINDS = [PassDropout, CounterDropout]
PINNED = ["010110101110", "001011001001"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_drops_the_rate_and_keeps_the_mean(rate, kind):
    dropped = kind(rate, 0, range(4), CPU)(torch.ones(1, 8, 50, 50))
    assert dropped.shape == (4, 8, 50, 50)
    n = dropped[0].numel()
    for one in dropped:
        zeros = int((one == 0).sum())
        assert abs(zeros - n * rate) < 5 * math.sqrt(n * rate * (1 - rate))
        assert torch.allclose(one[one != 0], torch.tensor(1 / (1 - rate)))


@pytest.mark.parametrize("kind", KINDS)
def test_masks_belong_to_seed_and_pass_not_to_the_group(kind):
    shared, own = torch.rand(1, 3, 5, 7), torch.rand(3, 2, 4, 4)
    together = kind(0.4, 11, range(3), CPU)
    first, second = together(shared), together(own)
    for t in range(3):
        alone = kind(0.4, 11, [t], CPU)
        assert torch.equal(alone(shared)[0], first[t])
        assert torch.equal(alone(own[t : t + 1])[0], second[t])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(kind(0.4, 12, [0], CPU)(shared)[0], first[0])
    assert not torch.equal(kind(0.4, 11, [0], CPU)(shared), kind(0.4, 1, [10], CPU)(shared))


def test_seeds_are_the_same_everywhere():
    assert pass_generator(5, 3, CPU).initial_seed() == 6224584235033279791
    assert (
        pass_generator(2**64 - 1, 0, CPU).initial_seed() != pass_generator(2**63 - 1, 0, CPU).initial_seed()
    )


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    PassDropout(0.5, 0, range(2), CPU)(torch.rand(1, 2, 3, 3, generator=torch.Generator()))
    assert torch.equal(torch.get_rng_state(), before)


def test_counted_masks_are_the_same_for_ever():
    """A recording is assessed again on another machine: the bits must not depend on where they are drawn."""
    masks = CounterDropout(0.5, 7, range(2), CPU).masks(torch.empty(1, 3, 2, 2))
    assert masks.shape == (2, 3, 2, 2)
    assert ["".join(str(int(v)) for v in m.permute(1, 2, 0).flatten()) for m in masks] == PINNED


@pytest.mark.parametrize("count", [1, 40_000, 1 << 16, (1 << 16) + 1])
def test_processor_and_device_draw_the_same_words(count):
    keys = CounterDropout(0.2, 3, range(20), CPU).keys(range(1))[0].split(1, dim=1)
    assert torch.equal(dropout._hash_on_processor(count, *keys), dropout._hash_words(count, *keys))


def test_counted_masks_have_the_rate_exactly_and_no_pattern():
    """0.2 is no multiple of 1/256, so the thresholds of the bytes are mixed."""
    rate, like = 0.2, torch.empty(1, 64, 40, 40)
    dropout = CounterDropout(rate, 3, range(24), CPU)
    dropped = 1 - torch.cat([dropout.masks(like), dropout.masks(like)]).double()
    n, variance = dropped.numel(), rate * (1 - rate)
    assert abs(float(dropped.mean()) - rate) < 4 * math.sqrt(variance / n)
    centred = (dropped - rate) / math.sqrt(variance)
    limit = 5 / math.sqrt(n)
    for step in (1, 2, 3, 4, 5):  # neighbours in every direction share no more than chance
        assert abs(float((centred[..., step:] * centred[..., :-step]).mean())) < limit
        assert abs(float((centred[:, :, step:] * centred[:, :, :-step]).mean())) < limit
        assert abs(float((centred[:, step:] * centred[:, :-step]).mean())) < limit
    across = torch.corrcoef(centred.flatten(1)) - torch.eye(48)  # between passes, and calls of one pass
    assert float(across.abs().max()) < 5 / math.sqrt(centred[0].numel())
    per_channel = dropped.mean(dim=(0, 2, 3))
    assert float((per_channel - rate).abs().max()) < 5 * math.sqrt(variance / (n / 64))


def test_without_dropout_everything_is_kept():
    maps = torch.rand(1, 2, 3, 3)
    assert no_dropout(maps) is maps
    assert torch.equal(no_dropout.masks(maps), torch.ones(1, 2, 3, 3))

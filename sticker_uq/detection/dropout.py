"""Dropout masks of the stochastic passes: explicit, seeded per pass, never part of the module tree.

Setting ``model.backbone.fpn.dropout`` or ``model.head.dropout`` on a torchvision detector has no effect,
because its forward pass never calls it. The detectors here draw a mask wherever the published models drop
elements (Wu et al., section 3.1) and multiply it in themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def pass_generator(seed: int, pass_number: int, device: torch.device) -> torch.Generator:
    """The random generator of one stochastic pass, determined by ``seed``, ``pass_number`` and the device type."""
    digest = hashlib.blake2b(f"{seed}:{pass_number}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "big") >> 1)


class PassDropout:
    """Inverted dropout for a group of passes, each with its own generator."""

    def __init__(self, rate: float, seed: int, pass_numbers: Iterable[int], device: torch.device) -> None:
        self._keep = 1.0 - rate
        self._generators = [pass_generator(seed, t, device) for t in pass_numbers]

    def __call__(self, maps: Tensor) -> Tensor:
        """One map per pass (n, C, h, w), from one that all share (1, C, h, w) or from one per pass.

        Every element is zero with probability ``rate`` and otherwise multiplied by ``1 / (1 - rate)``. A pass
        draws its masks in the order of the calls, so they do not depend on the passes that are grouped with
        it.
        """
        masks = maps.new_empty((len(self._generators), *maps.shape[1:]))
        for mask, generator in zip(masks, self._generators, strict=True):
            mask.bernoulli_(self._keep, generator=generator)
        return masks.div_(self._keep).mul_(maps)

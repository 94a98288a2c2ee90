# SPDX-License-Identifier: Apache-2.0
"""Dropout masks of the stochastic passes: explicit, determined by seed and pass, never part of the module tree.

Setting ``model.backbone.fpn.dropout`` or ``model.head.dropout`` on a torchvision detector has no effect,
because its forward pass never calls it. The detectors here draw a mask wherever the published models drop
elements (Lu et al., section 3.1) and multiply it in themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sticker_uq.detection.transfer import to_device

_ROUNDS = ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB))
"""Shift and multiplier of the rounds of triple32, a permutation of the 32-bit words (Wellons, hash-prospector)."""
_LAST_SHIFT = 14
_WORDS_AT_ONCE = 1 << 16  # 256 KiB


class Dropout(Protocol):
    """Dropout masks of a group of passes, by whatever generator. ``keep``: probability that an element survives."""

    keep: float

    def masks(self, like: Tensor) -> Tensor:
        """The next mask of every pass, (n, C, h, w) of zeros and ones with the type and layout of ``like`` (., C, h, w)."""

    def __call__(self, maps: Tensor) -> Tensor:
        """``maps`` (1 or n, C, h, w) with elements dropped and the others scaled by ``1 / keep``, (n, C, h, w)."""


def pass_generator(seed: int, pass_number: int, device: torch.device) -> torch.Generator:
    """The generator of one pass, determined by ``seed``, ``pass_number`` and the device type."""
    digest = hashlib.blake2b(f"{seed}:{pass_number}".encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "big") >> 1)


class PassDropout:
    """Inverted dropout for a group of passes from torch's generators, one per pass: the reference that is easy to repeat."""

    def __init__(self, rate: float, seed: int, pass_numbers: Iterable[int], device: torch.device) -> None:
        self.keep = 1.0 - rate
        self._generators = [pass_generator(seed, number, device) for number in pass_numbers]

    def masks(self, like: Tensor) -> Tensor:
        masks = like.new_empty((len(self._generators), *like.shape[1:]))
        for mask, generator in zip(masks, self._generators, strict=True):
            mask.bernoulli_(self.keep, generator=generator)
        return masks

    def __call__(self, maps: Tensor) -> Tensor:
        """One map per pass (n, C, h, w), from one (1, C, h, w) that all passes share, or from one per pass.

        Every element is zero with probability ``rate`` and otherwise multiplied by ``1 / (1 - rate)``. A pass draws its masks in
        the order of the calls, so they do not depend on the passes that are grouped with it.
        """
        return self.masks(maps).div_(self.keep).mul_(maps)


class NoDropout:
    keep = 1.0

    def masks(self, like: Tensor) -> Tensor:
        return torch.ones_like(like[:1])

    def __call__(self, maps: Tensor) -> Tensor:
        return maps


no_dropout = NoDropout()


class CounterDropout:
    """Inverted dropout for a group of passes from a counter-based generator (Salmon et al. 2011), the same on every device.

    The random byte of an element is a hash of its position in the map under a key made of ``seed``, the number
    of the pass and the number of the call: no state, so neither the grouping of the passes nor stopping early
    changes a mask, and all elements are drawn at once. A byte is compared with one of the two thresholds next
    to 256 * rate, chosen per channel and pass at random so that every element is dropped with probability
    ``rate`` exactly; the choice correlates the elements of a channel by less than 1e-4.
    """

    def __init__(self, rate: float, seed: int, pass_numbers: Iterable[int], device: torch.device) -> None:
        self.keep = 1.0 - rate
        self._seed, self._numbers = seed, list(pass_numbers)
        self._device = device
        self.calls = 0
        self._floor = int(256 * rate)
        self._carry = round((256 * rate - self._floor) * 2**31)

    def masks(self, like: Tensor) -> Tensor:
        keys = self.keys(range(self.calls, self.calls + 1))[0]
        self.calls += 1
        return draw_masks(keys[:, :1], keys[:, 1:], like, self._floor, self._carry)

    def __call__(self, maps: Tensor) -> Tensor:
        return self.masks(maps).mul_(maps / self.keep)

    def keys(self, calls: range) -> Tensor:
        """Two 32-bit keys for each of ``calls`` and each pass, (calls, n, 2) int32."""
        digests = b"".join(
            hashlib.blake2b(f"{self._seed}:{number}:{call}".encode(), digest_size=8).digest()
            for call in calls
            for number in self._numbers
        )
        keys = torch.frombuffer(bytearray(digests), dtype=torch.int32)
        return to_device(keys.view(len(calls), -1, 2), self._device)

    def with_keys(self, keys: Tensor) -> KeyedDropout:
        """The same masks where the keys (calls, n, 2) of all calls are given: a graph reads them from its own memory."""
        return KeyedDropout(self.keep, keys, self._floor, self._carry)


class KeyedDropout:
    """:class:`CounterDropout` without numbers of the processor."""

    def __init__(self, keep: float, keys: Tensor, floor: int, carry: int) -> None:
        self.keep = keep
        self._keys = iter(keys)
        self._floor, self._carry = floor, carry

    def masks(self, like: Tensor) -> Tensor:
        keys = next(self._keys)
        return draw_masks(keys[:, :1], keys[:, 1:], like, self._floor, self._carry)

    def __call__(self, maps: Tensor) -> Tensor:
        return self.masks(maps).mul_(maps / self.keep)


def draw_masks(first: Tensor, second: Tensor, like: Tensor, floor: int, carry: int) -> Tensor:
    """The masks of :class:`CounterDropout` for the keys ``first`` and ``second`` (n, 1) of n passes.

    ``floor`` and ``carry``: 256 times the dropout rate, its whole part and the rest times 2^31.
    """
    _, channels, height, width = like.shape
    size = height * width * channels
    hashed = _hash_on_processor if like.device.type == "cpu" else _hash_words
    words = hashed(-(-size // 4) + channels, first, second)
    # the last words choose the thresholds, so that a mask takes no second round of hashing
    raised = (words[:, -channels:] & 0x7FFFFFFF) < carry
    thresholds = raised.to(torch.uint8).add_(floor)[:, None]
    bytes_ = words.view(torch.uint8)[:, :size].view(-1, height * width, channels)
    if like.device.type == "cpu":  # pass by pass, which the caches hold
        kept = torch.empty_like(bytes_, dtype=torch.bool)
        for of_pass, threshold, kept_of_pass in zip(bytes_, thresholds, kept, strict=True):
            torch.ge(of_pass, threshold, out=kept_of_pass)
    else:
        kept = bytes_.ge(thresholds)
    # as bytes: torch turns booleans into numbers at a quarter of the speed
    return kept.view(torch.uint8).view(-1, height, width, channels).to(like.dtype).permute(0, 3, 1, 2)


def _hash_on_processor(count: int, first: Tensor, second: Tensor) -> Tensor:
    """The words of :func:`_hash_words` in two thirds of the time: NumPy shifts unsigned words, in parts that fit a cache."""
    first_keys, second_keys = (keys.numpy().view(np.uint32) for keys in (first, second))
    words = np.empty((len(first), count), np.uint32)
    shifted = np.empty(_WORDS_AT_ONCE, np.uint32)
    for start in range(0, count, _WORDS_AT_ONCE):
        place = np.arange(start, min(start + _WORDS_AT_ONCE, count), dtype=np.uint32)
        together = _WORDS_AT_ONCE // len(place)
        for number in range(0, len(words), together):
            passes = slice(number, number + together)
            part = words[passes, start : start + _WORDS_AT_ONCE]
            other = shifted[: part.size].reshape(part.shape)
            np.bitwise_xor(place, first_keys[passes], out=part)
            for round_, (shift, factor) in enumerate(_ROUNDS):
                np.bitwise_xor(part, np.right_shift(part, shift, out=other), out=part)
                np.multiply(part, np.uint32(factor), out=part)
                if round_ == 0:
                    np.add(part, second_keys[passes], out=part)
            np.bitwise_xor(part, np.right_shift(part, _LAST_SHIFT, out=other), out=part)
    return torch.from_numpy(words.view(np.int32))


def _hash_words(count: int, first: Tensor, second: Tensor) -> Tensor:
    """``count`` random 32-bit words per row of the keys (n, 1): (n, count) int32."""
    # made anew in the stream that reads them: a shared tensor could be read by one stream of a GPU before another has filled it
    words = torch.arange(count, dtype=torch.int32, device=first.device) ^ first
    shifted = torch.empty_like(words)

    def fold(shift: int) -> None:
        # torch shifts signed words, which copies the sign: the mask makes the shift logical
        torch.bitwise_right_shift(words, shift, out=shifted)
        words.bitwise_xor_(shifted.bitwise_and_((1 << (32 - shift)) - 1))

    for number, (shift, factor) in enumerate(_ROUNDS):
        fold(shift)
        words.mul_(factor - (factor >> 31 << 32))  # as a signed word
        if number == 0:
            words.add_(second)
    fold(_LAST_SHIFT)
    return words

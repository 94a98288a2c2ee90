# SPDX-License-Identifier: Apache-2.0
"""Drift test of the policy's assumption: whether the scenes that come in are still like those the policy was made from.

Every guarantee of a policy rests on that (exchangeability). It is tested one signal at a time by a conformal test martingale
(Vovk, Nouretdinov and Gammerman, "Testing exchangeability on-line", 2003): the rank of a new value among the reference and all
values before it is uniform as long as nothing has changed, and a gambler bets against that. The ranks go on growing with the
stream: ranks against the reference alone would depend on each other, and their product would be no martingale.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

import numpy as np

from sticker_uq.gate.assumptions.martingale import EProcess
from sticker_uq.gate.policy.reference import Reference, signal_value
from sticker_uq.scene import SceneAssessment


class RankTest(EProcess):
    """Whether a stream of numbers is exchangeable with ``reference``; ``log_evidence`` against it."""

    # p^(k-1) k is the density of a bet on small ranks (values above the reference), mirrored on large ones; the last
    # one bets on both ends at once
    _POWERS = np.array([0.1, 0.3, 0.6])

    def __init__(self, reference: Iterable[float]) -> None:
        self._seen = sorted(reference)
        super().__init__(2 * len(self._POWERS) + 1)

    def observe(self, value: float, tie_break: float) -> float:
        """Test ``value``; its conformal p-value, small where ``value`` is large. ``tie_break``: uniform on [0, 1)."""
        seen = self._seen
        above = len(seen) - bisect_right(seen, value)
        equal = bisect_right(seen, value) - bisect_left(seen, value)
        p = (above + tie_break * (equal + 1)) / (len(seen) + 1)
        # half a rank is all that a rank can tell: nothing more is won by the tie break alone; a smaller bet is safe
        least = 0.5 / (len(seen) + 1)
        low, high = max(p, least), max(1 - p, least)
        insort(seen, value)
        powers = self._POWERS
        both = 1 / (math.pi * math.sqrt(low * high))
        self.bet(np.array([*powers * low ** (powers - 1), *powers * high ** (powers - 1), both]))
        return p


class DriftTest:
    """Whether scenes, one per workpiece, are exchangeable with a reference: one :class:`RankTest` per signal.

    If they are, ``strongest`` ever exceeds ln(number of signals / a) with probability at most a (Bonferroni over the signals,
    each a martingale of its own).
    """

    def __init__(self, reference: Reference) -> None:
        self._tests = {name: RankTest(values) for name, values in reference.signals.items()}

    def __len__(self) -> int:
        return len(self._tests)

    @property
    def observed(self) -> int:
        return next(iter(self._tests.values())).observed

    def observe(self, scene: SceneAssessment) -> None:
        """The same scenes in the same order give the same evidence: ties are broken by the pixels."""
        for name, test in self._tests.items():
            test.observe(signal_value(name, scene), uniform(scene.image_digest, name))

    @property
    def strongest(self) -> tuple[str, float]:
        """The signal with the most evidence, and the natural logarithm of that."""
        name = max(self._tests, key=lambda signal: self._tests[signal].log_evidence)
        return name, self._tests[name].log_evidence


def uniform(image_digest: str, purpose: str) -> float:
    """A tie-break: a number in [0, 1) that looks random and follows from the pixels and ``purpose`` alone."""
    mixed = hashlib.blake2b(f"{purpose}:{image_digest}".encode(), digest_size=8).digest()
    return (int.from_bytes(mixed, "little") >> 11) / 2**53

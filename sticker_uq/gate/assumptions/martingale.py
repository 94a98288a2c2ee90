# SPDX-License-Identifier: Apache-2.0
"""Test martingales (e-processes) against the policy's assumptions: evidence that cannot grow while the claim is true.

Each is the capital of a gambler who bets against the claim.

Under the claim the capital is a nonnegative (super)martingale that starts at 1, so that it ever reaches 1 / a with probability
at most a, however often one looks (Ville's inequality; Shafer and Vovk, "Game-Theoretic Foundations for Probability and
Finance", 2019).
"""

import math

import numpy as np

from sticker_uq.scene import FloatArray, InvalidInput


class EProcess:
    """Test martingale of a gambler with several strategies who does not know when the claim stops being true.

    Part of the capital lies idle. Before round t the strategies get 1 / (2 (t + 1)) of what still does, in equal parts, so
    that a strategy that starts late still has something to bet: the sum is a mixture over strategies and start times.
    """

    def __init__(self, strategies: int) -> None:
        self._idle = 0.0  # logarithms: the capital outgrows a float
        self._active = np.full(strategies, -np.inf)
        self.observed = 0

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the evidence against the claim: capital won by betting against it."""
        return float(np.logaddexp(self._idle, np.logaddexp.reduce(self._active)))

    def bet(self, factors: FloatArray) -> None:
        """A round: multiply each strategy's capital by its one of ``factors`` (S,), which are at least 0 and of mean at most 1
        under the claim. Raises :class:`InvalidInput` for any other number of factors, and for one that is negative or NaN.
        """
        if factors.shape != self._active.shape or not bool((factors >= 0).all()):
            raise InvalidInput(f"factors {factors}: expected {len(self._active)} numbers of at least 0")
        share = 0.5 / (self.observed + 1)
        funded = np.logaddexp(self._active, self._idle + math.log(share / len(self._active)))
        with np.errstate(divide="ignore"):  # a strategy may lose everything
            self._active = funded + np.log(factors)
        self._idle += math.log1p(-share)
        self.observed += 1


class RiskTest(EProcess):
    """Test martingale of whether losses in [0, 1] have a mean above ``limit``: the claim is that they have not, given the past.

    Strategy c multiplies its capital by 1 + (c / limit) (loss - limit) (Waudby-Smith and Ramdas, "Estimating means of bounded
    random variables by betting", 2024), small c for slight excesses. Nothing is assumed about the losses but their range.
    """

    _STRATEGIES = np.array([0.02, 0.05, 0.1, 0.2, 0.4])

    def __init__(self, limit: float) -> None:
        if not 0 < limit < 1:
            raise InvalidInput(f"limit of a risk {limit}: expected above 0 and below 1")
        self.limit = limit
        self.total = 0.0
        super().__init__(len(self._STRATEGIES))

    def observe(self, loss: float) -> None:
        """Raises :class:`InvalidInput` unless ``loss`` lies in [0, 1]."""
        if not 0 <= loss <= 1:
            raise InvalidInput(f"loss {loss}: expected 0 to 1")
        self.total += loss
        self.bet(1 + self._STRATEGIES / self.limit * (loss - self.limit))

# SPDX-License-Identifier: Apache-2.0
"""Risk control for a policy's limits: Learn-then-Test and conformal risk control for losses that are 0 or 1 per image."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from sticker_uq.evaluation.metrics.statistics import upper_bound
from sticker_uq.scene import FloatArray, IntArray, InvalidInput

_LEAST_DELTA, _HALVINGS = 1e-9, 30


@dataclass(frozen=True)
class Trial:
    """A limit to try, how many ``images`` it decides about, and how many of those are bad, ``events``."""

    limit: float
    images: int
    events: int
    method: ClassVar[str] = "exact binomial"
    sample: ClassVar[bool] = True
    """Whether the images were drawn at random from those that the guarantee is about."""

    def bound(self, delta: float) -> float:
        return upper_bound(self.events, self.images, delta) if self.images else 1.0

    def smallest_level(self, delta: float) -> float:
        return smallest_level(self.images, delta)

    def explain_shortfall(self, level: float, delta: float, bad: str) -> str:
        """Why ``level`` is not proved, for images that are no random sample; ``bad``: what a bad one is."""
        raise NotImplementedError


def p_values(tested: Sequence[Trial], level: float) -> FloatArray:
    """For each limit the chance of so few bad images if their rate were just above ``level``, (L,).

    The exact binomial tail, valid for 0-1 losses at any sample size; it is never above the Hoeffding-Bentkus value
    (Angelopoulos et al. 2021, proposition 2). 1 where there is no image.
    """
    if not all(t.sample for t in tested):
        return np.array([_p_value(t, level) for t in tested])
    events = np.array([t.events for t in tested])
    images = np.array([t.images for t in tested])
    return np.where(images > 0, scipy.stats.binom.cdf(events, images, level), 1.0)


def _p_value(trial: Trial, level: float) -> float:
    """The lowest delta at which the bound of ``trial`` is within ``level``."""
    low, high = math.log(_LEAST_DELTA), 0.0
    if trial.bound(math.exp(high)) > level:
        return 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if trial.bound(math.exp(middle)) <= level else (middle, high)
    return math.exp(high)


def learn_then_test(tested: Sequence[Trial], level: float, delta: float) -> IntArray:
    """Indices of the limits whose rate of bad images is at most ``level``, all together with confidence 1 - ``delta``."""
    return fixed_sequence(p_values(tested, level), delta)


def fixed_sequence(chances: FloatArray, delta: float) -> IntArray:
    """Indices of the hypotheses that are refuted, all together with confidence 1 - ``delta``, by their p-values ``chances`` (L,).

    Fixed-sequence testing in their order (Angelopoulos et al. 2021, section 2.2): it must not depend on the images that are
    tested. It ends at the first one that cannot be refuted.
    """
    from mapie.risk_control import FWERFixedSequenceTesting  # takes seconds to load

    return FWERFixedSequenceTesting().run(chances, delta)


def conformal_risk_control(tested: Sequence[Trial], level: float) -> int:
    """Index of the loosest limit whose expected loss on a new image is at most ``level``; -1 when there is none.

    ``tested`` in ascending order of a loss that grows with the limit (Angelopoulos et al. 2024, eq 4 with B = 1):
    n / (n + 1) R + 1 / (n + 1) <= level.
    """
    held = [(t.events + 1) / (t.images + 1) <= level for t in tested]
    first_broken = held.index(False) if False in held else len(held)
    return first_broken - 1


def smallest_level(images: int, delta: float) -> float:
    """The lowest rate that ``images`` without a bad one prove with confidence 1 - ``delta``: 1 - delta^(1/n)."""
    return 1.0 if images < 1 else -math.expm1(math.log(delta) / images)


def images_needed(level: float, delta: float) -> int:
    """How many images without a bad one prove ``level`` with confidence 1 - ``delta``."""
    return math.ceil(math.log(delta) / math.log1p(-level))


def check_levels(alpha: float, beta_level: float, delta: float) -> None:
    """Raise :class:`InvalidInput` for a level or delta that is not between 0 and 1; beta may be 0."""
    for name, value in (("alpha", alpha), ("beta", beta_level), ("delta", delta)):
        if not 0.0 < value < 1.0 and not (name == "beta" and value == 0.0):
            raise InvalidInput(f"{name} = {value!r}: expected a number between 0 and 1")

# SPDX-License-Identifier: Apache-2.0
"""What labelled images can prove at best, known from their labels alone: before the detector sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.control import images_needed, smallest_level
from sticker_uq.evaluation.metrics.statistics import upper_bound
from sticker_uq.scene import IntArray, InvalidInput


@dataclass(frozen=True)
class Units:
    """How many laptops there are, and how many of them show no sticker in at least one image."""

    laptops: int
    clean: int


@dataclass(frozen=True)
class Prospect:
    """What can be proved with confidence 1 - ``delta``: ``proof`` are the laptops that no limit is fitted on."""

    proof: Units
    delta: float

    @property
    def alpha(self) -> float:
        """The lowest rate of wrongful removals that can be proved: when no labelled image of the proof goes wrong."""
        return smallest_level(self.proof.laptops, self.delta)

    @property
    def beta(self) -> float:
        """The lowest rate of missed stickers that can be proved: when every clean laptop of the proof is called clean, and no
        other.
        """
        return smallest_level(self.proof.clean, self.delta)

    def text(self) -> str:
        """What levels labelled images can prove at best, and with one bad image."""
        rows = (
            ("alpha", self.alpha, self.proof.laptops, "laptops"),
            ("beta", self.beta, self.proof.clean, "laptops without a sticker"),
        )
        parts = [
            f"{count} {kind} prove --{name} {_up(level)} or more, {_up(upper_bound(1, count, self.delta))} with one bad"
            if count
            else f"no {kind} prove no --{name}"
            for name, level, count, kind in rows
        ]
        return f"at confidence {1 - self.delta:g}, " + "; ".join(parts)

    def check(self, alpha: float, beta: float) -> None:
        """Raise :class:`InvalidInput` for levels that these laptops cannot prove, with levels that they can."""
        wrong = []
        if self.alpha > alpha:
            needed = images_needed(alpha, self.delta)
            wrong.append(
                f"--alpha {alpha:g} takes {needed} or more laptops in the proof, there are {self.proof.laptops}"
            )
        if self.beta > beta:
            needed = images_needed(beta, self.delta)
            wrong.append(
                f"--beta {beta:g} takes {needed} or more laptops without a sticker in the proof, there are "
                f"{self.proof.clean}"
            )
        if not wrong:
            return
        advice = "label more laptops" + ("" if self.proof.clean else ", some of them without a sticker")
        if self.proof.clean and self.proof.laptops:
            least = f"--alpha {_up(max(alpha, self.alpha))} --beta {_up(max(beta, self.beta))}"
            advice += f", or give {least} or higher levels (without a bad image these can be proved)"
        raise InvalidInput(f"{'; '.join(wrong)}, at confidence {1 - self.delta:g}: {advice}")


def count_units(laptops: IntArray, with_sticker: NDArray[np.bool_]) -> Units:
    """Of images with the number of their laptop (N,): the laptops, and those with an image that shows no
    sticker.
    """
    return Units(len(np.unique(laptops)), len(np.unique(laptops[~with_sticker])))


def _up(level: float) -> str:
    """``level`` with two digits, rounded up so that it can still be proved."""
    if not 0.0 < level < 1.0:
        return f"{level:g}"
    step = 10.0 ** (math.floor(math.log10(level)) - 1)
    return f"{min(math.ceil(level / step - 1e-9) * step, 1.0):.2g}"

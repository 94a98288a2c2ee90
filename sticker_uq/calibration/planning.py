# SPDX-License-Identifier: Apache-2.0
"""What labelled images can prove at best, known from their labels alone: before the detector sees them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sticker_uq.calibration.control import images_needed, smallest_level
from sticker_uq.evaluation.metrics.statistics import upper_bound
from sticker_uq.gate.policy.familiarity import MIN_SCENES
from sticker_uq.scene import IntArray, InvalidInput

FIT_SHARE = 0.4
"""Share of the laptops that limits are fitted on; the others prove. With 0 all prove limits that were fitted elsewhere."""


@dataclass(frozen=True)
class Units:
    """How many laptops there are, and how many of them show a sticker."""

    laptops: int
    with_sticker: int


@dataclass(frozen=True)
class Prospect:
    """What can be proved with confidence 1 - ``delta``: ``proof`` are the laptops that no limit is fitted on, ``fit`` how many
    others there are, ``share`` their share.
    """

    proof: Units
    delta: float
    fit: int
    share: float = FIT_SHARE

    @property
    def levels(self) -> tuple[float, float]:
        """The lowest rates that can be proved: of wrongful removals when no laptop of the proof goes wrong, of stickers left when
        all that had one are finished without a person, and none keeps one.
        """
        return smallest_level(self.proof.laptops, self.delta), smallest_level(
            self.proof.with_sticker, self.delta
        )

    @property
    def with_one_bad(self) -> tuple[float, float]:
        return tuple(upper_bound(1, n, self.delta) for n in (self.proof.laptops, self.proof.with_sticker))  # type: ignore[return-value]

    def after(self, labels: int) -> Prospect:
        """What is provable with so many more laptops, of which as large a share shows a sticker as now."""
        added = round(labels * (1 - self.share))
        share = self.proof.with_sticker / self.proof.laptops if self.proof.laptops else 0.0
        units = Units(self.proof.laptops + added, self.proof.with_sticker + math.floor(added * share))
        return replace(self, proof=units, fit=self.fit + labels - added)

    def text(self) -> str:
        kinds = ("laptops", "laptops with a sticker")
        counts = (self.proof.laptops, self.proof.with_sticker)
        rows = zip(("alpha", "beta"), self.levels, counts, kinds, self.with_one_bad, strict=True)
        parts = [
            f"{count} {kind} prove --{name} {_up(level)} or more, {_up(with_one)} with one bad"
            if count
            else f"no {kind} prove no --{name}"
            for name, level, count, kind, with_one in rows
        ]
        return f"at confidence {1 - self.delta:g}, " + "; ".join(parts)

    def describe_shortfall(self, alpha: float, beta: float) -> str:
        """How many more labels it takes until the levels can be proved, "" when enough; a ``beta`` of 0 takes none."""
        fitted = (
            math.ceil((MIN_SCENES - 0.5) / self.share) if self.share else 0
        )  # half a laptop is rounded up
        proving = max(images_needed(alpha, self.delta), MIN_SCENES) - self.proof.laptops
        with_sticker = images_needed(beta, self.delta) - self.proof.with_sticker if beta else 0
        more = [max(math.ceil(n / (1 - self.share)), 0) for n in (proving, with_sticker)]
        laptops = max(fitted - self.fit - self.proof.laptops, *more)
        those = f", at least {more[1]} of them with a sticker" if more[1] else ""
        return f"label at least {laptops} more laptops{those}" if laptops > 0 else ""

    def check(self, alpha: float, beta: float, advice: str = "") -> None:
        """Raise :class:`InvalidInput` for levels that these laptops cannot prove, with levels that they can, and ``advice``."""
        lacking = self.describe_shortfall(alpha, beta)
        if not lacking:
            return
        wrong = [
            f"--{name} {level:g} takes {images_needed(level, self.delta)} or more {kind} in the proof, there are {count}"
            for name, level, least, kind, count in (
                ("alpha", alpha, self.levels[0], "laptops", self.proof.laptops),
                ("beta", beta, self.levels[1], "laptops with a sticker", self.proof.with_sticker),
            )
            if level and least > level
        ]
        alpha, beta = (
            max(level, least) if level else 0.0
            for level, least in zip((alpha, beta), self.levels, strict=True)
        )
        if wrong and self.proof.laptops and beta < 1.0 and not self.describe_shortfall(alpha, beta):
            least = f"--alpha {_up(alpha)} --beta {_up(beta)}"
            lacking += f", or give {least} or higher levels (without a bad image these can be proved)"
        elif (self.share and self.fit < MIN_SCENES) or self.proof.laptops < MIN_SCENES:
            wrong.append(
                f"{self.fit} laptops to fit limits on and {self.proof.laptops} in the proof, each takes {MIN_SCENES} or more"
            )
        raise InvalidInput(f"{'; '.join(wrong)}, at confidence {1 - self.delta:g}: {lacking}{advice}")


def count_units(laptops: IntArray, with_sticker: NDArray[np.bool_]) -> Units:
    return Units(len(np.unique(laptops)), len(np.unique(laptops[with_sticker])))


def _up(level: float) -> str:
    """``level`` with two digits, rounded up so that it can still be proved; 0 as it is."""
    if not 0.0 < level < 1.0:
        return f"{level:g}"
    step = 10.0 ** (math.floor(math.log10(level)) - 1)
    return f"{min(math.ceil(level / step - 1e-9) * step, 1.0):.2g}"

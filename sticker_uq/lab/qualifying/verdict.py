# SPDX-License-Identifier: Apache-2.0
"""Ready or not: what is required, what was found, and what a hundred more labels would change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sticker_uq.calibration.control import images_needed, smallest_level
from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.making import FIT_SHARE
from sticker_uq.calibration.planning import Units
from sticker_uq.evaluation.metrics.statistics import clopper_pearson, upper_bound
from sticker_uq.gate.assumptions.familiarity import MIN_SCENES
from sticker_uq.lab.qualifying.results import (
    CalibrationResult,
    CurvePoint,
    NoveltyResult,
    PolicyTestResult,
    ProofResult,
    percent,
)
from sticker_uq.novelty.quality import MIN_AUROC

NOT_MEASURED = "not measured"
MORE = 100
"""Labels whose worth the report tells."""


@dataclass(frozen=True)
class Requirement:
    """One thing that a cell needs: ``value`` found, ``limit`` it is held against, and what to do where it is not met."""

    name: str
    value: str
    limit: str
    met: bool
    advice: str = ""


def requirements(
    levels: Levels,
    min_removed: float,
    novelty: NoveltyResult,
    calibration: CalibrationResult,
    tested: PolicyTestResult | None,
    lacking: str,
) -> list[Requirement]:
    """All that a cell must meet for the verdict "ready"; ``lacking``: the labels that the guarantee lacks, "" for none."""
    return [
        Requirement(
            "novelty network: least lower bound of AUROC",
            f"{novelty.lower_bound:.3f}" if novelty.pictures else "not trained",
            f"at least {MIN_AUROC:g}",
            not novelty.weakness,
            f"{novelty.weakness}; label more laptops to learn from",
        ),
        _proved(
            "proof: wrongful removals",
            calibration.wrongful,
            levels.alpha,
            calibration.alpha,
            calibration,
            lacking,
        ),
        _proved(
            "proof: missed stickers", calibration.missed, levels.beta, calibration.beta, calibration, lacking
        ),
        *_test_requirements(levels, min_removed, tested),
    ]


def _proved(
    name: str,
    proof: ProofResult | None,
    level: float,
    lowest: float,
    calibration: CalibrationResult,
    lacking: str,
) -> Requirement:
    """``lowest``: the lowest level that the images prove, which holds also where the other promise cannot be proved."""
    limit = f"at most {percent(level)}"
    if proof is not None:
        return Requirement(name, f"{percent(proof.bound)} excluded", limit, proof.bound <= level)
    value = "nothing proved" if math.isnan(lowest) else f"{percent(lowest)} at best"
    return Requirement(name, value, limit, lowest <= level, lacking or calibration.refused)


def _test_requirements(
    levels: Levels, min_removed: float, tested: PolicyTestResult | None
) -> list[Requirement]:
    """What the test part, which had no part in the policy, says about it."""
    names = (
        "stickers of the test part released",
        "test part: wrongful removals",
        "test part: missed stickers",
    )
    limits = [
        f"at least {percent(min_removed)}",
        *(f"at most {percent(level)}" for level in (levels.alpha, levels.beta)),
    ]
    if tested is None:
        why = "there is no policy with a guarantee"
        return [
            Requirement(n, NOT_MEASURED, limit, False, why) for n, limit in zip(names, limits, strict=True)
        ]
    events, of = tested.removed
    found = [
        Requirement(
            names[0],
            f"{events} of {of}",
            limits[0],
            of > 0 and events >= min_removed * of,
            "the limits ask a person about too many; more labels to learn from make the detector surer, a higher --alpha "
            "or more labels to calibrate on make the limits looser",
        )
    ]
    rates = ((tested.wrongful, levels.alpha), (tested.missed, levels.beta))
    for name, limit, ((events, of), level) in zip(names[1:], limits[1:], rates, strict=True):
        low = clopper_pearson(events, of)[0] if of else 0.0
        advice = (
            "the test part contradicts the guarantee: its laptops are not like those of the calibrate part"
        )
        value = f"{events} of {of}, 95 % interval from {percent(low)}"
        found.append(Requirement(name, value, limit, low <= level, advice))
    return found


@dataclass(frozen=True)
class Provable:
    """What laptops in the proof can prove without a bad one, and with one; ``units`` of them."""

    units: Units
    delta: float

    @property
    def levels(self) -> tuple[float, float]:
        """The lowest provable alpha and beta."""
        return smallest_level(self.units.laptops, self.delta), smallest_level(self.units.clean, self.delta)

    @property
    def with_one_bad(self) -> tuple[float, float]:
        """The lowest provable alpha and beta with one bad laptop each."""
        return tuple(upper_bound(1, n, self.delta) for n in (self.units.laptops, self.units.clean))  # type: ignore[return-value]

    def after(self, labels: int) -> Provable:
        """What is provable with so many more laptops in the calibrate part, of which as many show no sticker as now."""
        added = round(labels * (1 - FIT_SHARE))
        clean = self.units.clean / self.units.laptops if self.units.laptops else 0.0
        return Provable(
            Units(self.units.laptops + added, self.units.clean + math.floor(added * clean)), self.delta
        )

    def lacking(self, levels: Levels, calibrate: int) -> str:
        """How many more labels the wanted levels take to be provable, "" when enough; ``calibrate``: laptops there are."""
        fitted = math.ceil((MIN_SCENES - 0.5) / FIT_SHARE)  # half a laptop is rounded up
        alpha, beta = images_needed(levels.alpha, self.delta), images_needed(levels.beta, self.delta)
        clean = max(math.ceil((beta - self.units.clean) / (1 - FIT_SHARE)), 0)
        proving = math.ceil((alpha - self.units.laptops) / (1 - FIT_SHARE))
        laptops = max(fitted - calibrate, proving, clean)
        if laptops <= 0:
            return ""
        without = f", at least {clean} of them without a sticker" if clean else ""
        return f"label at least {laptops} more laptops in the calibrate part{without}"


def next_gain(points: Sequence[CurvePoint], more: int = MORE) -> tuple[float, float] | None:
    """Gain by more labels: mAP@0.5 now and with ``more`` pictures, if the error 1 - mAP shrinks with each doubling as with the
    last one.

    A power law through the two largest trainings; None for fewer than two. A training each: the difference may be chance.
    """
    if len(points) < 2:
        return None
    last, before = sorted(points, key=lambda one: -one.pictures)[:2]
    errors = max(1 - last.map50, 1e-6), max(1 - before.map50, 1e-6)
    if last.pictures == before.pictures or not all(map(math.isfinite, errors)):
        return None
    power = math.log(errors[0] / errors[1]) / math.log(last.pictures / before.pictures)
    return last.map50, 1 - min(errors[0] * ((last.pictures + more) / last.pictures) ** power, 1.0)

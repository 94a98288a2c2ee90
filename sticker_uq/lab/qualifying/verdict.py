# SPDX-License-Identifier: Apache-2.0
"""Ready or not: what is required, what was found, and what a hundred more labels would change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sticker_uq.calibration.fitting import Levels
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.lab.qualifying.results import (
    AccuracyResult,
    CalibrationResult,
    NoveltyResult,
    PolicyTestResult,
    ProofResult,
    percent,
)
from sticker_uq.novelty.quality import MIN_AUROC

NOT_MEASURED = "not measured"
MORE = 100
"""Labels whose worth the report tells."""
WEAK_DETECTOR = 0.7
"""Precision or recall for stickers below which the report calls the detector the main problem. A round number: a detector that is
wrong about three stickers in ten leaves most of them to a person.
"""


@dataclass(frozen=True)
class Requirement:
    """One thing that a cell needs: ``value`` found, ``limit`` it is held against, and what to do where it is not met.

    ``met`` None: nothing is required, and ``advice`` says what may be the reason for the others.
    """

    name: str
    value: str
    limit: str
    met: bool | None
    advice: str = ""


def requirements(
    levels: Levels,
    min_removed: float,
    novelty: NoveltyResult,
    calibration: CalibrationResult,
    tested: PolicyTestResult | None,
    lacking: str,
    accuracy: AccuracyResult,
) -> list[Requirement]:
    """All that a cell must meet for the verdict "ready"; ``lacking``: the labels that the guarantee lacks, "" for none."""
    return [
        _detector(accuracy),
        _novelty(novelty),
        _proved(
            "proof: wrongful removals", calibration.wrongful, levels.alpha, _removals, calibration, lacking
        ),
        _proved("proof: missed stickers", calibration.missed, levels.beta, _cleans, calibration, lacking),
        *_test_requirements(levels, min_removed, tested),
    ]


def _detector(accuracy: AccuracyResult) -> Requirement:
    """Whether the detector itself may be the reason why little is proved or released; limits cannot make it better."""
    precision, recall = accuracy.of_stickers
    weak = [
        text
        for rate, text in (
            (precision, f"{percent(1 - precision)} of what it calls a sticker is none"),
            (recall, f"it does not find {percent(1 - recall)} of the stickers"),
        )
        if rate < WEAK_DETECTOR  # NaN is not
    ]
    advice = (
        f"the detector itself is weak, and limits can only make questions to a person of that: on the test part "
        f"{' and '.join(weak)}; label more laptops to learn from, train longer (--epochs), or take a larger --model"
    )
    return Requirement(
        "detector on the test part: stickers found, and right of those found",
        f"{percent(recall)}, {percent(precision)}",
        "for information",
        None,
        advice if weak else "",
    )


def _novelty(novelty: NoveltyResult) -> Requirement:
    more = "label more laptops to learn from, of all kinds and all light that the cell will see"
    too_weak = (
        f"the novelty network is too weak to notice what the detector does not know: {novelty.weakness}, on {novelty.pictures} "
        "pictures held out"
    )
    without = "the policy was fitted without it and also releases stickers in scenes that the detector was not made for"
    advice = f"{too_weak if novelty.pictures else novelty.weakness}; {without}; {more}"
    return Requirement(
        "novelty network: lower bound of AUROC of foreign scenes",
        f"{novelty.scenes[1]:.3f}" if novelty.pictures else "not trained",
        f"at least {MIN_AUROC:g}",
        not novelty.weakness,
        advice,
    )


def _proved(
    name: str,
    proof: ProofResult | None,
    level: float,
    told: Callable[[ProofResult], str],
    calibration: CalibrationResult,
    lacking: str,
) -> Requirement:
    """A promise holds also where the other one cannot be proved; ``told``: what the policy does on the laptops of the proof."""
    limit = f"at most {percent(level)}"
    if proof is None:
        return Requirement(name, "nothing proved", limit, False, lacking or calibration.refused)
    proved = proof.bound <= level
    value = f"{percent(proof.bound)} {'excluded' if proved else 'at best'}: {told(proof)}"
    return Requirement(name, value, limit, proved, lacking or calibration.refused)


def _removals(proof: ProofResult) -> str:
    released, of = proof.done
    if not proof.images:
        return "nothing could be released"
    if not released:
        return f"none of {of} stickers released, so that nothing could go wrong"
    return f"released {released} of {of} stickers, wrong on {proof.events} of {proof.images} laptops"


def _cleans(proof: ProofResult) -> str:
    called, of = proof.done
    return f"called clean {called} of {of} laptops without a sticker, and {proof.events} with one"


def _test_requirements(
    levels: Levels, min_removed: float, tested: PolicyTestResult | None
) -> list[Requirement]:
    limits = {
        "stickers of the test part released": f"at least {percent(min_removed)}",
        "test part: wrongful removals": f"at most {percent(levels.alpha)}",
        "test part: missed stickers": f"at most {percent(levels.beta)}",
    }
    if tested is None:
        why = "there is no policy with a guarantee"
        return [Requirement(name, NOT_MEASURED, limit, False, why) for name, limit in limits.items()]
    events, of = tested.removed
    looser = (
        "the limits ask a person about too many; more labels to learn from make the detector surer, a higher --alpha "
        "or more labels to calibrate on make the limits looser"
    )
    found = [(f"{events} of {of}", of > 0 and events >= min_removed * of, looser)]
    clean = f"called clean, {tested.clean[0]} of {tested.clean[1]} laptops without a sticker among them"
    contradicted = (
        "the test part contradicts the guarantee: its laptops are not like those of the calibrate part"
    )
    for (events, of), level, what in (
        (tested.wrongful, levels.alpha, "laptops"),
        (tested.missed, levels.beta, clean),
    ):
        low = clopper_pearson(events, of)[0] if of else 0.0
        value = f"{events} of {of} {what}, 95 % interval from {percent(low)}"
        found.append((value, low <= level, contradicted))
    return [
        Requirement(name, value, limit, met, advice)
        for (name, limit), (value, met, advice) in zip(limits.items(), found, strict=True)
    ]

# SPDX-License-Identifier: Apache-2.0
"""What the steps of a qualification find; ready or not: what is required, what was found, what more labels would change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sticker_uq.calibration.fitting import Levels
from sticker_uq.calibration.proving import Attempt
from sticker_uq.evaluation.metrics.accuracy import Accuracy
from sticker_uq.evaluation.metrics.decisions import Count, Measured
from sticker_uq.messages import printable
from sticker_uq.perception.novelty.quality import MIN_AUROC, Auroc
from sticker_uq_lab.kept_pieces import StepResult

_MOST_JOINED = 0.2  # share of the pictures in one group above which the person is told


def percent(rate: float) -> str:
    return "–" if math.isnan(rate) else f"{100 * rate:.3g} %"


class PartResult(StepResult):
    pictures: int
    laptops: int
    logos: int
    stickers: int
    clean: int


class CheckResult(StepResult):
    parts: dict[str, PartResult]
    labels: tuple[str, ...]
    near: tuple[str, ...]

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {part.pictures}" for name, part in self.parts.items())
        doubts = len(self.labels) + len(self.near)
        return f"pictures: {listed}; {doubts or 'nothing'} to look at"


class DivideResult(StepResult):
    """``largest``: pictures of the largest group that counts as one laptop."""

    pictures: int
    laptops: int
    largest: int

    def __str__(self) -> str:
        text = f"{self.pictures} pictures of {self.laptops} laptops into learn, calibrate and test"
        if self.largest > max(2, _MOST_JOINED * self.pictures):
            text += f"; {self.largest} pictures count as one laptop: if they show several, name them, or give --near -1"
        return text


class TrainResult(StepResult):
    """``map50``: mAP@0.5 of the ``chosen`` epoch on the ``held_out`` pictures of other laptops, enough of which choose it."""

    model: str
    epochs: int
    pictures: int
    map50: float
    chosen: int
    held_out: int

    def __str__(self) -> str:
        return (
            f"{self.model}, epoch {self.chosen} of {self.epochs}, mAP@0.5 {self.map50:.3f} on {self.held_out} "
            "pictures of laptops held out"
        )


class AccuracyResult(StepResult):
    """Accuracy on the test part: one pass without dropout, and the clusters of ``passes`` passes; NaN: not measured."""

    pictures: int
    passes: int
    map50: float
    clusters_map50: float
    rows: tuple[tuple[str, float, float, float], ...]
    """Class, average precision, precision and recall of the clusters."""

    def __str__(self) -> str:
        found = self.of_stickers
        return (
            f"mAP@0.5 {self.map50:.3f} on {self.pictures} test pictures, {self.clusters_map50:.3f} for the clusters of "
            f"{self.passes} passes; of the stickers {percent(found[1])} found, of those found {percent(found[0])} right"
        )

    @property
    def of_stickers(self) -> tuple[float, float]:
        """Precision and recall of the clusters for stickers, NaN where unknown."""
        return next(((p, r) for name, _, p, r in self.rows if name == "sticker"), (math.nan, math.nan))

    @classmethod
    def of(cls, one: Accuracy, clusters: Accuracy, passes: int) -> AccuracyResult:
        rows = tuple(
            (label.name.lower(), row.average_precision, row.precision, row.recall)
            for label, row in clusters.classes.items()
        )
        return cls(
            pictures=one.images, passes=passes, map50=one.map50, clusters_map50=clusters.map50, rows=rows
        )


class NoveltyResult(StepResult):
    """Areas under the ROC curve; ``weakness``: why the network cannot be used, ``objects_weakness``: why not for objects."""

    objects: Auroc
    scenes: Auroc
    pictures: int
    weakness: str
    objects_weakness: str = ""

    def __str__(self) -> str:
        if not self.pictures:
            return f"none: {self.weakness}"
        used = ""
        if self.weakness or self.objects_weakness:
            weak = "too weak" if self.weakness else "used for scenes only"
            used = f"; {weak}, expected a lower bound of {MIN_AUROC} or more"
        return f"AUROC of unknown objects {self.objects}, of foreign scenes {self.scenes}{used}"


class CalibrationResult(StepResult):
    """What could be proved. ``refused``: why there is no policy with a guarantee, "" where there is one.

    ``wrongful``, ``left``: what was found about each promise by itself, None where nothing was fitted, ``left`` also where
    nothing is promised of it. ``alpha`` and ``beta``: the lowest levels that the images would have proved as they came out, NaN
    where nothing was fitted.
    """

    refused: str
    policy: str = ""
    wrongful: Attempt | None = None
    left: Attempt | None = None
    alpha: float = math.nan
    beta: float = math.nan

    def __str__(self) -> str:
        if self.refused or self.wrongful is None:
            return f"no guarantee: {printable(self.refused)}"
        rates, cleans = "", "; no laptop is called clean without a person"
        if self.left is not None:
            rates = f" and {percent(self.left.level)} finished with a sticker left"
            cleans = f"; {self.left.done} laptops with a sticker finished alone, {self.left.bad.events} of them with one left"
        return (
            f"at most {percent(self.wrongful.level)} wrongful removals{rates} proved on {self.wrongful.bad.of} laptops: "
            f"{self.wrongful.done} stickers released, {self.wrongful.bad.events} laptops with a wrongful removal{cleans}"
        )


class PolicyTestResult(StepResult):
    """What the policy decides about the test part; the fields are those of :class:`Measured`."""

    wrongful: Count
    removed: Count
    clean: Count
    left: Count
    asked: Count

    def __str__(self) -> str:
        return (
            f"{self.removed} stickers released without a person, {self.wrongful} laptops with a wrongful removal, "
            f"{self.left} with stickers finished alone keep one, {self.clean} laptops without a sticker finished alone, "
            f"{self.asked} left to a person"
        )

    @classmethod
    def of(cls, measured: Measured) -> PolicyTestResult:
        return cls(**{name: getattr(measured, name) for name in cls.model_fields})


class RobustnessResult(StepResult):
    finding: str
    images: int
    circumstances: dict[str, str]

    def __str__(self) -> str:
        counts = [
            f"{sum(v == f for v in self.circumstances.values())} {f}"
            for f in ("holds", "violated", "undecided")
        ]
        return f"{len(self.circumstances)} circumstances on {self.images} pictures: {', '.join(counts)}"


NOT_MEASURED = "not measured"
MORE = 100
"""Labels whose worth the report tells."""
WEAK_DETECTOR = 0.7
"""Precision or recall for stickers below which the report calls the detector the main problem. A round number: a detector that is
wrong about three stickers in ten leaves most of them to a person.
"""


@dataclass(frozen=True)
class Requirement:
    """What a cell needs: ``value`` found, its ``limit``, what to do where it is not met.

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
    left = [
        _proof_requirement("proof: stickers left", calibration.left, levels.beta, _ends, calibration, lacking)
    ]
    if not levels.beta:  # nothing is promised of them
        left = []
    return [
        _detector(accuracy),
        _novelty(novelty),
        _proof_requirement(
            "proof: wrongful removals", calibration.wrongful, levels.alpha, _removals, calibration, lacking
        ),
        *left,
        *_of_test(levels, min_removed, tested),
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
        f"{novelty.scenes.low:.3f}" if novelty.pictures else "not trained",
        f"at least {MIN_AUROC:g}",
        not novelty.weakness,
        advice,
    )


def _proof_requirement(
    name: str,
    proof: Attempt | None,
    level: float,
    told: Callable[[Attempt], str],
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


def _removals(proof: Attempt) -> str:
    if not proof.bad.of:
        return "nothing could be released"
    if not proof.done.events:
        return f"none of {proof.done.of} stickers released, so that nothing could go wrong"
    return f"released {proof.done} stickers, wrong on {proof.bad} laptops"


def _ends(proof: Attempt) -> str:
    return f"finished alone {proof.done} laptops with a sticker, {proof.bad.events} of them with one left"


def _of_test(levels: Levels, min_removed: float, tested: PolicyTestResult | None) -> list[Requirement]:
    limits = {
        "stickers of the test part released": f"at least {percent(min_removed)}",
        "test part: wrongful removals": f"at most {percent(levels.alpha)}",
    }
    if levels.beta:
        limits["test part: stickers left"] = f"at most {percent(levels.beta)}"
    if tested is None:
        why = "there is no policy with a guarantee"
        return [Requirement(name, NOT_MEASURED, limit, False, why) for name, limit in limits.items()]
    removed = tested.removed
    looser = (
        "the limits ask a person about too many; more labels to learn from make the detector surer, a higher --alpha "
        "or more labels to calibrate on make the limits looser"
    )
    found = [(str(removed), removed.of > 0 and removed.rate >= min_removed, looser)]
    alone = "with stickers finished alone"
    unlike = "the test part contradicts the guarantee: its laptops are not like those of the calibrate part"
    kinds = [(tested.wrongful, levels.alpha, "laptops"), (tested.left, levels.beta, alone)]
    for count, level, what in kinds[: len(limits) - 1]:
        low = count.interval[0] if count.of else 0.0
        value = f"{count} {what}, 95 % interval from {percent(low)}"
        found.append((value, low <= level, unlike))
    return [
        Requirement(name, value, limit, met, advice)
        for (name, limit), (value, met, advice) in zip(limits.items(), found, strict=True)
    ]

# SPDX-License-Identifier: Apache-2.0
"""What the steps of a qualification find."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sticker_uq.calibration.fitting import Attempt
from sticker_uq.evaluation.metrics.accuracy import Accuracy
from sticker_uq.evaluation.metrics.decisions import Count, Measured
from sticker_uq.lab.kept_pieces import StepResult
from sticker_uq.messages import printable
from sticker_uq.novelty.quality import MIN_AUROC

_MOST_JOINED = 0.2
"""Share of the pictures in one group above which the person is told."""


def percent(rate: float) -> str:
    """``rate`` as percent with three digits, a dash for NaN."""
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
    """How many pictures were divided, and the size of the largest group that counts as one laptop."""

    pictures: int
    laptops: int
    largest: int

    def __str__(self) -> str:
        text = f"{self.pictures} pictures of {self.laptops} laptops into learn, calibrate and test"
        if self.largest > max(2, _MOST_JOINED * self.pictures):
            text += f"; {self.largest} pictures count as one laptop: if they show several, name them, or give --near -1"
        return text


class TrainResult(StepResult):
    """A training: its epochs, the ``chosen`` one, and mAP@0.5 of that on the pictures, ``held_out`` of them, that chose it.

    They are of laptops that it did not learn from.
    """

    model: str
    epochs: int
    pictures: int
    map50: float
    chosen: int
    held_out: int

    def __str__(self) -> str:
        return (
            f"{self.model}, epoch {self.chosen} of {self.epochs}, chosen by mAP@0.5 {self.map50:.3f} on "
            f"{self.held_out} pictures of laptops held out"
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
        """Precision and recall of the clusters for stickers in the qualification's evaluation step, NaN where unknown."""
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
    """Areas under the ROC curve with their 95 % intervals; ``weakness``: why it cannot be used, ``objects_weakness``: why not for
    objects.
    """

    objects: tuple[float, float, float]
    scenes: tuple[float, float, float]
    pictures: int
    weakness: str
    objects_weakness: str = ""

    def __str__(self) -> str:
        if not self.pictures:
            return f"none: {self.weakness}"
        weak = "too weak" if self.weakness else "used for scenes only"
        used = (
            f"; {weak}, expected a lower bound of {MIN_AUROC} or more"
            if self.weakness or self.objects_weakness
            else ""
        )
        return f"AUROC of unknown objects {_area(self.objects)}, of foreign scenes {_area(self.scenes)}{used}"


class ProofResult(StepResult):
    """One promise: its level, the laptops that prove it, how many went wrong, the rate that they exclude.

    ``done``: what the policy does there, as (events, of): stickers released, or laptops without a sticker called clean.
    """

    level: float
    images: int
    events: int
    bound: float
    done: tuple[int, int]

    @classmethod
    def of(cls, attempt: Attempt) -> ProofResult:
        return cls(
            level=attempt.level,
            images=attempt.bad.of,
            events=attempt.bad.events,
            bound=attempt.bound,
            done=(attempt.done.events, attempt.done.of),
        )


class CalibrationResult(StepResult):
    """What could be proved. ``refused``: why there is no policy with a guarantee, "" where there is one.

    ``wrongful``, ``missed``: what was found about each promise by itself, None where nothing was fitted. ``alpha`` and
    ``beta``: the lowest levels that the images would have proved as they came out, NaN where nothing was fitted.
    """

    refused: str
    policy: str = ""
    wrongful: ProofResult | None = None
    missed: ProofResult | None = None
    alpha: float = math.nan
    beta: float = math.nan

    def __str__(self) -> str:
        if self.refused or self.wrongful is None or self.missed is None:
            return f"no guarantee: {printable(self.refused)}"
        return (
            f"at most {percent(self.wrongful.level)} wrongful removals and {percent(self.missed.level)} missed stickers proved "
            f"on {self.wrongful.images} laptops: {_of(self.wrongful.done)} stickers released, {self.wrongful.events} laptops "
            f"with a wrongful removal; {_of(self.missed.done)} laptops without a sticker called clean, and "
            f"{self.missed.events} with one"
        )


class PolicyTestResult(StepResult):
    """What the policy decides about the test part, as (events, of)."""

    wrongful: tuple[int, int]
    removed: tuple[int, int]
    clean: tuple[int, int]
    missed: tuple[int, int]
    asked: tuple[int, int]

    def __str__(self) -> str:
        return (
            f"{_of(self.removed)} stickers released without a person, {_of(self.wrongful)} laptops with a wrongful removal, "
            f"{_of(self.clean)} laptops without a sticker called clean, {_of(self.missed)} called clean with a sticker, "
            f"{_of(self.asked)} left to a person"
        )

    @classmethod
    def of(cls, measured: Measured) -> PolicyTestResult:
        pair = {
            name: (count.events, count.of)
            for name in cls.model_fields
            if isinstance(count := getattr(measured, name), Count)
        }
        return cls(**pair)


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


def _area(values: Sequence[float]) -> str:
    return f"{values[0]:.3f} ({values[1]:.3f} to {values[2]:.3f})"


def _of(pair: tuple[int, int]) -> str:
    return f"{pair[0]} of {pair[1]}"

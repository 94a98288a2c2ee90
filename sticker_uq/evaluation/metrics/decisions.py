# SPDX-License-Identifier: Apache-2.0
"""What a policy decided about labelled images, counted: removals right and wrong, laptops finished alone, questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.matching import MATCH_IOU, best_overlap, find_overlapping, shares_inside
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate.box_overlap import area, as_box, covered_share
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, FloatArray, IntArray, ObjectClass, Outcome, SceneDecision, Verdict

BLADE_IOU = 0.3
"""IoU from which the blade meets a labelled object; partly covered stickers are labelled by what is seen of them."""
FREE_LOGO = 0.1
"""Share of a logo, where no sticker lies on it, from which a removal that takes it in does harm."""

ASKED = (0.2, 0.3, 0.4)
"""Shares of images with a question at which :func:`wrongful_share` compares detectors."""
_NOTABLE = 0.2  # probability of sticker from which what is not released is asked about
_LIMITS = 100


@dataclass(frozen=True)
class Count:
    """``events`` among ``of`` images or objects."""

    events: int
    of: int

    @property
    def rate(self) -> float:
        return self.events / self.of if self.of else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        return clopper_pearson(self.events, self.of)

    def __str__(self) -> str:
        return f"{self.events} of {self.of}"


@dataclass(frozen=True)
class Measured:
    """A policy's figures on labelled images, from its decisions alone. Images of the same laptop count as one.

    ``wrongful``: laptops with at least one removal that does harm (:func:`harmful`), ``wrong_objects`` of them in all;
    ``removed``: labelled stickers that may be removed without a person; ``asked``: laptops that end with a question, as
    :func:`sticker_uq.gate.judge.once_peeled` has it; the others are finished alone. The last image of a laptop decides.
    ``left``: laptops with a sticker on it at the end, of those finished alone that showed one; ``clean``: laptops finished alone,
    of those that never showed one; ``verdicts``: shares of all objects by verdict; ``on_logo``: removable objects that are logos,
    None where that was not asked.
    """

    images: int
    wrongful: Count
    wrong_objects: int
    removed: Count
    clean: Count
    asked: Count
    left: Count
    verdicts: dict[str, Count]
    on_logo: int | None

    def rows(self) -> dict[str, Count]:
        return {
            "stickers released, of those labelled": self.removed,
            "laptops with a wrongful removal": self.wrongful,
            "laptops with stickers, finished without a person, that keep one": self.left,
            "laptops without a sticker finished without a person": self.clean,
            "laptops left to a person": self.asked,
        }


@dataclass(frozen=True)
class Met:
    """What removals of R regions of a picture meet.

    ``sticker`` (R,): the number of the sticker on it that each takes, -1 for none; ``overlap`` (R,): IoU with what it overlaps
    most; ``harm`` (R,): see :func:`harmful`; ``logo`` (R,): whether that is a logo, None where it is not known.
    """

    sticker: IntArray
    overlap: FloatArray
    harm: NDArray[np.bool_]
    logo: NDArray[np.bool_] | None

    @property
    def peeled_stickers(self) -> set[int]:
        return set(self.sticker.tolist()) - {-1}


class DecisionCounts:
    """Counts what a policy decides about labelled images, one after the other; ``match_iou``: as :data:`BLADE_IOU`."""

    def __init__(self, match_iou: float = BLADE_IOU) -> None:
        self._match_iou = match_iou
        self._wrongful, self._with = set[str](), set[str]()
        self._ends: dict[str, tuple[bool, bool]] = {}  # by laptop: finished alone, with a sticker on it
        self._removed = self._stickers = self._wrong = self._on_logo = 0
        self._told_logos = True
        self._verdicts = dict.fromkeys((Verdict.REMOVE, Verdict.ASK, Verdict.KEEP), 0)

    def add(
        self,
        unit: str,
        boxes: FloatArray,
        labels: NDArray[np.int64],
        decision: SceneDecision,
        end: SceneDecision,
    ) -> None:
        """Count the ``decision`` about an image of the laptop ``unit`` (or its own name) with labelled ``boxes`` (N, 4) px.

        ``end``: what :func:`sticker_uq.gate.judge.once_peeled` makes of it.
        """
        met = met_labels(released_regions(decision), boxes, labels, self._match_iou)
        self.add_met(unit, int((labels == ObjectClass.STICKER).sum()), met, decision, end)

    def add_met(
        self, unit: str, stickers: int, met: Met, decision: SceneDecision, end: SceneDecision
    ) -> None:
        """The same where what is released on a picture with so many ``stickers`` has ``met`` is known without labelled boxes."""
        self._stickers += stickers
        if stickers:
            self._with.add(unit)
        if met.harm.any():
            self._wrongful.add(unit)
        self._wrong += int(met.harm.sum())
        self._removed += len(np.unique(met.sticker[~met.harm]))
        self._told_logos &= met.logo is not None
        self._on_logo += 0 if met.logo is None else int(met.logo.sum())
        self._ends[unit] = end.outcome is Outcome.CLEAN, len(met.peeled_stickers) < stickers
        for verdict in decision.verdicts:
            # in a scene that is asked about as a whole nothing is removed either
            held = verdict.verdict is Verdict.REMOVE and decision.outcome is not Outcome.WORK
            self._verdicts[Verdict.ASK if held else verdict.verdict] += 1

    def measure(self) -> Measured:
        images, total = len(self._ends), sum(self._verdicts.values())
        alone = {unit: dirty for unit, (finished, dirty) in self._ends.items() if finished}
        of = [dirty for unit, dirty in alone.items() if unit in self._with]
        return Measured(
            images=images,
            wrongful=Count(len(self._wrongful), images),
            wrong_objects=self._wrong,
            removed=Count(self._removed, self._stickers),
            clean=Count(len(alone) - len(of), images - len(self._with)),
            asked=Count(images - len(alone), images),
            left=Count(sum(of), len(of)),
            verdicts={verdict.name.lower(): Count(n, total) for verdict, n in self._verdicts.items()},
            on_logo=self._on_logo if self._told_logos else None,
        )


def released_regions(decision: SceneDecision) -> FloatArray:
    """The regions (R, 4) px that ``decision`` releases to the blade."""
    allowed = decision.removable() if decision.outcome is Outcome.WORK else ()
    return np.array([one.region for one in allowed], float).reshape(-1, 4)


def harmful(
    released: FloatArray, boxes: FloatArray, labels: IntArray, match_iou: float = BLADE_IOU
) -> NDArray[np.bool_]:
    """Which removals of ``released`` (R, 4) px do harm, (R,), on a laptop with labelled ``boxes`` (N, 4) of ``labels`` (N,).

    Those of which the object that they overlap most is no sticker, or none from ``match_iou`` on, and those that take in
    ``FREE_LOGO`` or more of a logo where no labelled sticker lies on it.
    """
    places, _ = best_overlap(released, boxes, match_iou)
    takes = np.array([bool(logos_taken(box, boxes, labels)) for box in released], bool)
    return (np.append(labels, 0)[places] != ObjectClass.STICKER) | takes


def met_labels(regions: FloatArray, boxes: FloatArray, labels: IntArray, match_iou: float = BLADE_IOU) -> Met:
    """What removals of ``regions`` (R, 4) px meet on a picture with labelled ``boxes`` (N, 4) of ``labels`` (N,)."""
    places, overlaps = best_overlap(regions, boxes, match_iou)
    is_sticker = labels == ObjectClass.STICKER
    numbers = np.append(np.where(is_sticker, np.cumsum(is_sticker) - 1, -1), -1)
    logo = np.append(labels, 0)[places] == ObjectClass.LOGO
    return Met(numbers[places], overlaps, harmful(regions, boxes, labels, match_iou), logo)


def logos_taken(box: FloatArray, boxes: FloatArray, labels: IntArray) -> list[int]:
    """Which of the labelled ``boxes`` are logos of which a removal of ``box`` (4,) takes in ``FREE_LOGO`` or more where no
    labelled sticker lies on them.
    """
    x1, y1, x2, y2 = as_box(box)
    stickers = [as_box(one) for one in boxes[labels == ObjectClass.STICKER]]
    taken = []
    for number in np.flatnonzero(labels == ObjectClass.LOGO).tolist():
        logo = as_box(boxes[number])
        met = max(x1, logo[0]), max(y1, logo[1]), min(x2, logo[2]), min(y2, logo[3])
        if area(met) * (1 - covered_share(met, stickers)) >= FREE_LOGO * area(logo) > 0:
            taken.append(number)
    return taken


def wrongful_share(found: Sequence[Detections], truths: Sequence[LabelledImage]) -> float:
    """Share of images with a wrongful removal where a person is asked about 20, 30 and 40 % of them: the mean of the three.

    A limit on the score of ``found``, one for every image of ``truths``, releases what is called a sticker; a person is asked
    about an image with another possible one. Per share the limit with the fewest wrongful removals counts, 1 if all ask more. A
    release inside a crowd of stickers is not wrong.
    """
    scores = [d.scores[d.foreground_labels == ObjectClass.STICKER] for d in found]
    levels = np.quantile(np.concatenate([*scores, [1.0]]), np.linspace(0, 1, _LIMITS))
    limits = np.append(np.unique(levels), np.inf)
    outcomes = [_outcomes(detected, truth, limits) for detected, truth in zip(found, truths, strict=True)]
    wrongful, asked = np.mean(outcomes, axis=0).T
    return float(np.mean([wrongful[asked <= share].min(initial=1.0) for share in ASKED]))


def _outcomes(detected: Detections, truth: LabelledImage, limits: FloatArray) -> NDArray[np.bool_]:
    """Whether something is wrongfully released and whether a person is asked, (limits, 2)."""
    called = detected.foreground_labels == ObjectClass.STICKER
    possible = detected.probabilities[:, ObjectClass.STICKER] >= _NOTABLE
    places, _ = best_overlap(detected.boxes, truth.boxes, BLADE_IOU)
    crowds = truth.crowd[truth.crowd_labels == ObjectClass.STICKER]
    crowded = (shares_inside(detected.boxes, crowds) >= MATCH_IOU).any(axis=1)
    wrong = harmful(detected.boxes, truth.boxes, truth.labels) & ~((places < 0) & crowded)
    rows = np.zeros((len(limits), 2), bool)
    for row, limit in zip(rows, limits, strict=True):
        released = called & (detected.scores >= limit)
        left = possible & ~released & ~find_overlapping(detected.boxes, detected.boxes[released], 0.5)
        row[:] = (released & wrong).any(), left.any()
    return rows


def match_label(box: FloatArray, boxes: FloatArray, match_iou: float = BLADE_IOU) -> tuple[int, float]:
    """What a removal of ``box`` (4,) touches: which of ``boxes`` (N, 4) it overlaps most, -1 below ``match_iou``; and the IoU."""
    places, overlaps = best_overlap(box[None], boxes, match_iou)
    return int(places[0]), float(overlaps[0])

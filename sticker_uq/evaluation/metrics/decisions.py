# SPDX-License-Identifier: Apache-2.0
"""What a policy decided about labelled images, counted: removals right and wrong, laptops called clean, questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.matching import MATCH_IOU, best_overlap, overlapping, shares_inside
from sticker_uq.evaluation.metrics.statistics import clopper_pearson
from sticker_uq.gate.box_overlap import as_box, same_place
from sticker_uq.io.coco import LabelledImage
from sticker_uq.scene import Detections, FloatArray, ObjectClass, Outcome, SceneDecision, Verdict

BLADE_IOU = 0.3
"""IoU from which the blade meets a labelled object; partly covered stickers are labelled by what is seen of them."""

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

    ``wrongful``: images in which at least one object that may be removed is no sticker, ``wrong_objects`` of them in all;
    ``removed``: labelled stickers that may be removed without a person; ``clean``: images without a sticker that are called
    clean; ``missed``: images called clean that show a sticker; ``asked``: images of which :func:`ends_with_question` is true;
    ``left``: of the others those that show a sticker that is not released;
    ``verdicts``: shares of all objects by verdict; ``on_logo``: removable objects that are logos.
    """

    images: int
    wrongful: Count
    wrong_objects: int
    removed: Count
    clean: Count
    missed: Count
    asked: Count
    left: Count
    verdicts: dict[str, Count]
    on_logo: int

    def rows(self) -> dict[str, Count]:
        return {
            "stickers released, of those labelled": self.removed,
            "laptops with a wrongful removal": self.wrongful,
            "laptops without a sticker called clean": self.clean,
            "laptops called clean that show a sticker": self.missed,
            "laptops left to a person": self.asked,
        }


class DecisionCounts:
    """Counts what a policy decides about labelled images, one after the other; ``match_iou``: as :data:`BLADE_IOU`."""

    def __init__(self, match_iou: float = BLADE_IOU) -> None:
        self._match_iou = match_iou
        self._units, self._wrongful, self._missed, self._asked = (set[str]() for _ in range(4))
        self._called, self._without, self._rightly, self._left = (set[str]() for _ in range(4))
        self._removed = self._stickers = self._wrong = self._on_logo = 0
        self._verdicts = dict.fromkeys((Verdict.REMOVE, Verdict.ASK, Verdict.KEEP), 0)

    def add(self, unit: str, boxes: FloatArray, labels: NDArray[np.int64], decision: SceneDecision) -> None:
        """Count the ``decision`` about an image of the laptop ``unit`` (or its own name) with labelled ``boxes`` (N, 4) px."""
        stickers = int((labels == ObjectClass.STICKER).sum())
        self._units.add(unit)
        self._stickers += stickers
        allowed = decision.removable() if decision.outcome is Outcome.WORK else ()
        places = [touched(verdict.object.box, boxes, self._match_iou)[0] for verdict in allowed]
        right = [place for place in places if place >= 0 and labels[place] == ObjectClass.STICKER]
        if len(right) < len(places):
            self._wrongful.add(unit)
        self._wrong += len(places) - len(right)
        self._removed += len(set(right))
        self._on_logo += len([p for p in places if p >= 0 and labels[p] == ObjectClass.LOGO])
        if not stickers:
            self._without.add(unit)
        if decision.outcome is Outcome.CLEAN:
            self._called.add(unit)
            (self._missed if stickers else self._rightly).add(unit)
        if ends_with_question(decision):
            self._asked.add(unit)
        if len(set(right)) < stickers:
            self._left.add(unit)
        for verdict in decision.verdicts:
            # in a scene that is asked about as a whole nothing is removed either
            held = verdict.verdict is Verdict.REMOVE and decision.outcome is not Outcome.WORK
            self._verdicts[Verdict.ASK if held else verdict.verdict] += 1

    def measured(self) -> Measured:
        images, total = len(self._units), sum(self._verdicts.values())
        return Measured(
            images=images,
            wrongful=Count(len(self._wrongful), images),
            wrong_objects=self._wrong,
            removed=Count(self._removed, self._stickers),
            clean=Count(len(self._rightly), len(self._without)),
            missed=Count(len(self._missed), len(self._called)),
            asked=Count(len(self._asked), images),
            left=Count(len(self._left - self._asked), images - len(self._asked)),
            verdicts={verdict.name.lower(): Count(n, total) for verdict, n in self._verdicts.items()},
            on_logo=self._on_logo,
        )


def ends_with_question(decision: SceneDecision) -> bool:
    """Whether a person is needed: now, or for what is in doubt once all that is released is gone.

    A doubtful box on a released sticker is peeled with it.
    """
    if decision.outcome is not Outcome.WORK:
        return decision.outcome is not Outcome.CLEAN
    released = [as_box(verdict.object.box) for verdict in decision.removable()]
    doubtful = [
        as_box(one.object.box)
        for one in decision.verdicts
        if one.verdict not in (Verdict.REMOVE, Verdict.KEEP)
    ]
    return any(not any(same_place(box, gone) for gone in released) for box in doubtful)


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
    wrong = np.where(places < 0, ~crowded, np.append(truth.labels, 0)[places] != ObjectClass.STICKER)
    rows = np.zeros((len(limits), 2), bool)
    for row, limit in zip(rows, limits, strict=True):
        released = called & (detected.scores >= limit)
        left = possible & ~released & ~overlapping(detected.boxes, detected.boxes[released], 0.5)
        row[:] = (released & wrong).any(), left.any()
    return rows


def touched(box: FloatArray, boxes: FloatArray, match_iou: float = BLADE_IOU) -> tuple[int, float]:
    """What a removal of ``box`` (4,) touches: which of ``boxes`` (N, 4) it overlaps most, -1 below ``match_iou``; and the IoU."""
    places, overlaps = best_overlap(box[None], boxes, match_iou)
    return int(places[0]), float(overlaps[0])

# SPDX-License-Identifier: Apache-2.0
"""The operator's answers about the workpiece in the cell, as the gate keeps them.

Answers belong to one workpiece and die with it. An object is found again by its place, because its number changes from
scene to scene. Where the cell does not name its workpiece, the gate forgets answers when the workpiece was done
and when a hold is released, because another one may lie there then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import combinations

from sticker_uq.gate.box_overlap import Box, as_box, same_place
from sticker_uq.scene import ObjectClass, ObjectVerdict, Reason, Verdict


class Answer(IntEnum):
    """An operator's answer about one object, the values of ``ObjectAnswer``."""

    UNKNOWN = 0
    REMOVE = 1
    KEEP = 2
    NOT_THERE = 3
    MISSED = 4

    @property
    def removes(self) -> bool:
        return self in (Answer.REMOVE, Answer.MISSED)


class SceneAnswer(IntEnum):
    """An operator's answer about the whole scene, the values of ``ResolveIntervention``."""

    NONE = 0
    RESCAN = 1
    SKIP_LAPTOP = 2
    FAULT = 3
    CLEAN = 4


@dataclass(frozen=True)
class OperatorAnswer:
    answer: Answer
    box: Box

    @property
    def removes(self) -> bool:
        return self.answer.removes


@dataclass(frozen=True)
class OperatorAnswers:
    """The operator's answers that hold for the workpiece.

    ``scene_checked``: an operator has checked the whole picture, so that uncertainty of the scene as a whole (a high DiL) asks no
    more; ``scene_clean``: an operator said that no sticker is left.
    """

    answers: tuple[OperatorAnswer, ...] = ()
    scene_checked: bool = False
    scene_clean: bool = False

    def remember(self, answers: Iterable[OperatorAnswer]) -> OperatorAnswers:
        """The answers with ``answers`` added; each replaces an earlier one about the same place.

        An answer that wants something peeled also replaces an earlier one that no sticker is left.
        """
        kept, clean = list(self.answers), self.scene_clean
        for new in answers:
            kept = [old for old in kept if not same_place(old.box, new.box)] + [new]
            clean = clean and not new.removes
        return replace(self, answers=tuple(kept), scene_clean=clean)

    def with_scene_checked(self) -> OperatorAnswers:
        """The answers after the whole picture was checked."""
        return replace(self, scene_checked=True)

    def clean(self) -> OperatorAnswers:
        """The answers after one said that no sticker is left: nothing is to be removed any more."""
        return replace(self.without_approvals(), scene_checked=True, scene_clean=True)

    def consume(self, box: Box) -> OperatorAnswers:
        """The answers once the removal at ``box`` was verified: the approval for that place is used up."""
        kept = tuple(a for a in self.answers if not (a.removes and same_place(a.box, box)))
        return replace(self, answers=kept)

    def without_approvals(self) -> OperatorAnswers:
        """The answers without any approval of a removal."""
        return replace(self, answers=tuple(answer for answer in self.answers if not answer.removes))

    def prohibitions(self) -> OperatorAnswers:
        """What of the answers keeps the arm away from places; all else is forgotten."""
        return OperatorAnswers(self.without_approvals().answers)

    def against(self, box: Box) -> OperatorAnswer | None:
        """The answer not to remove the object at ``box``, if there is one."""
        return next((a for a in self.answers if not a.removes and same_place(a.box, box)), None)

    @property
    def approvals(self) -> tuple[OperatorAnswer, ...]:
        return tuple(answer for answer in self.answers if answer.removes)


def contradiction(answers: Sequence[OperatorAnswer], scene: SceneAnswer) -> Reason | None:
    """Why answers given at once contradict each other, with the box; else None.

    An answer for the whole image excludes every removal: which of the two is a mistake is unknown, and one of them would leave a
    sticker on a laptop that is called clean or move the arm although something is wrong. At one place there is one answer;
    "peel it" and "missed" are the same one.
    """
    removal = next((answer for answer in answers if answer.removes), None)
    if removal is not None and scene is not SceneAnswer.NONE:
        return Reason("scene_answer_with_removal", box=removal.box)
    for first, second in combinations(answers, 2):
        alike = first.answer is second.answer or (first.removes and second.removes)
        if not alike and same_place(first.box, second.box):
            return Reason("answers_differ", box=second.box)
    return None


def sticker_places(verdicts: Iterable[ObjectVerdict]) -> tuple[Box, ...]:
    """Where something is seen as a sticker, and neither the policy nor an operator's answer leaves it alone."""
    seen = (v.object.box for v in verdicts if may_be_sticker(v.object.label, v.verdict))
    return tuple(dict.fromkeys(map(as_box, seen)))


def may_be_sticker(label: int, verdict: int) -> bool:
    """Whether who says that no sticker is left must mention an object that is called ``label``, under this ``verdict``."""
    return label == ObjectClass.STICKER and verdict != Verdict.KEEP


def find_unmentioned(
    stickers: Iterable[Box], answers: Iterable[OperatorAnswer], not_stickers: Iterable[Box]
) -> Reason | None:
    """Why nobody may say that no sticker is left: a place of ``stickers`` is in neither of the others; None when they may."""
    said = [*(answer.box for answer in answers), *not_stickers]
    open_places = (box for box in stickers if not any(same_place(box, other) for other in said))
    return next((Reason("sticker_not_mentioned", box=box) for box in open_places), None)

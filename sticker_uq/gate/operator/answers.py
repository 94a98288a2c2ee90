"""What people said about the workpiece that lies in the cell.

Answers belong to one workpiece and die with it. An object is found again by its place, because its number changes from
scene to scene. Where the cell does not say which workpiece it holds, the gate forgets answers when the workpiece was done
and when a hold is released, because another one may lie there then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from sticker_uq.gate.box_overlap import Box, same_place


class Answer(IntEnum):
    """What a person said about one object, the values of ``ObjectAnswer``."""

    UNKNOWN = 0
    REMOVE = 1
    KEEP = 2
    NOT_THERE = 3
    MISSED = 4


class SceneAnswer(IntEnum):
    """What a person said about the whole scene, the values of ``ResolveIntervention``."""

    NONE = 0
    RESCAN = 1
    SKIP_LAPTOP = 2
    FAULT = 3
    CLEAN = 4


@dataclass(frozen=True)
class OperatorAnswer:
    """A person's answer about the place ``box``."""

    answer: Answer
    box: Box

    @property
    def removes(self) -> bool:
        """Whether the person wants something peeled there."""
        return self.answer in (Answer.REMOVE, Answer.MISSED)


@dataclass(frozen=True)
class OperatorAnswers:
    """The answers that hold. ``scene_checked``: a person has looked over the whole picture, so that doubts about the scene

    as a whole (a high DiL) no longer ask; ``scene_clean``: a person said that no sticker is left.
    """

    answers: tuple[OperatorAnswer, ...] = ()
    scene_checked: bool = False
    scene_clean: bool = False

    def remember(self, answers: Iterable[OperatorAnswer]) -> OperatorAnswers:
        """This memory with ``answers``; each replaces what was said about the same place before."""
        kept = list(self.answers)
        for new in answers:
            kept = [old for old in kept if not same_place(old.box, new.box)] + [new]
        return replace(self, answers=tuple(kept))

    def checked(self) -> OperatorAnswers:
        """This memory after a person has looked over the whole picture."""
        return replace(self, scene_checked=True)

    def clean(self) -> OperatorAnswers:
        """This memory after a person said that no sticker is left: nothing is to be removed any more."""
        kept = tuple(answer for answer in self.answers if not answer.removes)
        return replace(self, answers=kept, scene_checked=True, scene_clean=True)

    def consume(self, box: Box) -> OperatorAnswers:
        """This memory once the removal at ``box`` was verified: the approval for that place is used up."""
        kept = tuple(
            answer for answer in self.answers if not (answer.removes and same_place(answer.box, box))
        )
        return replace(self, answers=kept)

    def without_approvals(self) -> OperatorAnswers:
        """This memory without any approval of a removal."""
        return replace(self, answers=tuple(answer for answer in self.answers if not answer.removes))

    def silences(self, box: Box) -> OperatorAnswer | None:
        """The answer that says to leave the object at ``box`` alone, if there is one."""
        return next((a for a in self.answers if not a.removes and same_place(a.box, box)), None)

    @property
    def approvals(self) -> tuple[OperatorAnswer, ...]:
        """The answers that want something peeled, oldest first."""
        return tuple(answer for answer in self.answers if answer.removes)

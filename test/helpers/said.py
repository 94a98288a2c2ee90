# SPDX-License-Identifier: Apache-2.0
"""What people and the cell said to the gate, as somebody remembers it who saw every step and whom no restart makes forget."""

from collections.abc import Sequence
from dataclasses import dataclass

from sticker_uq.gate import Answer, BlockReason, GateState, SceneAnswer
from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import Box, iou


@dataclass
class Said:
    """``identified``: the last announcement says which laptop lies there; ``left_alone``: where nothing is to be removed."""

    held: bool = False
    skipped: bool = False
    clean: bool = False
    stopped: bool = False
    identified: bool = True
    announced_ns: int = 0
    left_alone: tuple[Box, ...] = ()

    def hear(
        self, before: GateState, event: ev.Event, after: GateState, effects: Sequence[ev.Effect]
    ) -> None:
        self.held = isinstance(event, ev.Hold) or (self.held and not isinstance(event, ev.Release))
        taken = any(isinstance(e, ev.Reply) and e.accepted for e in effects)
        self.stopped |= any(isinstance(e, ev.Escalate) for e in effects)
        if isinstance(event, ev.Reset) and taken:
            self.stopped = any(isinstance(e, ev.Escalate) for e in effects)
        assert after.stop_demanded == self.stopped, "the stop of the arm is not what was demanded"
        another = after.workpieces > before.workpieces
        if isinstance(event, ev.WorkpieceChanged):
            known = event.workpiece_id == before.workpiece_id and event.stamp_ns == before.announced_ns
            blank = not event.workpiece_id.strip() or len(event.workpiece_id) > 200
            older = 0 < event.stamp_ns < self.announced_ns
            self.identified = known or not (blank or older)
            another = another and self.identified and not known
            if not known:
                self.announced_ns = event.stamp_ns
        elif another:
            self.identified = True  # a person released a hold, where nobody announces anything
        assert self.identified or not after.open, "open, and nobody knows which laptop lies there"
        if another:
            self.left_alone, self.skipped, self.clean = (), False, False
        if isinstance(event, ev.SceneReceived) and after.problem & BlockReason.SOURCE_CHANGED:
            self.left_alone = ()
        if not (isinstance(event, ev.AnswerGiven) and taken):
            return
        self.skipped |= event.scene_answer is SceneAnswer.SKIP_LAPTOP
        for given in event.answers:
            self.left_alone = tuple(box for box in self.left_alone if iou(box, given.box) < 0.5)
            if given.answer in (Answer.KEEP, Answer.NOT_THERE):
                self.left_alone += (given.box,)
            else:
                self.clean = False
        self.clean |= event.scene_answer is SceneAnswer.CLEAN

    def allow(self, place: Box) -> None:
        """Fail where the arm is sent to ``place`` and may not be."""
        assert not any((self.held, self.skipped, self.clean, self.stopped)), "against a person's word"
        assert not any(iou(place, other) >= 0.5 for other in self.left_alone), "a person said to leave it"

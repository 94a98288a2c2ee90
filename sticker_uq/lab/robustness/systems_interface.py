# SPDX-License-Identifier: Apache-2.0
"""Interface of a system under robustness assessment: what it says about one image,
and whether acting on it would have been right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sticker_uq.evaluation.metrics.matching import overlapping
from sticker_uq.io.images import Picture
from sticker_uq.scene import CLASS_COUNT, Detections, FloatArray, ObjectClass, Outcome, SceneDecision, Verdict

Boxes = NDArray[np.float32]


def no_detections() -> Detections:
    """An answer of an assessed system without any box."""
    return Detections(np.zeros((0, 4), np.float32), np.zeros((0, CLASS_COUNT), np.float32))


@dataclass(frozen=True)
class Action:
    """What would happen to the laptop on the answer of an assessed system: ``removed`` (R,
    4) boxes px that the arm would be sent to; ``asked``: a person is called; ``clean``: the laptop is passed on as clean.
    """

    removed: Boxes
    asked: bool
    clean: bool


@dataclass(frozen=True)
class SystemAnswer:
    """What a system under robustness assessment said about one image.

    ``action``: what its own gate decided, None for a system without one; ``features`` (D,) of its network, None for a black box;
    ``failure``: why there is no answer, empty when there is one. A failed answer has no boxes and calls a person.
    """

    detections: Detections
    action: Action | None = None
    features: FloatArray | None = None
    failure: str = ""

    @classmethod
    def failed(cls, reason: str) -> SystemAnswer:
        """The assessed system gave no answer: nothing was detected, nothing may be done, a person has to look."""
        return cls(no_detections(), Action(np.zeros((0, 4), np.float32), True, False), None, reason)


class System(Protocol):
    """A system under robustness assessment: whatever answers an image with detections.

    ``name``: what a report calls it; ``identity``: text that changes with everything that changes its answers.
    """

    name: str
    identity: str

    def answer(self, image: Picture, key: str) -> SystemAnswer:
        """The assessed system's answer to ``image`` (H, W, 3) uint8 BGR, which the assessment knows as ``key``.

        Does not raise for an image that it cannot handle: that is a failed answer.
        """

    def close(self) -> None:
        """Release what the assessed system holds."""


def act_on_detections(detections: Detections, score: float) -> Action:
    """Robustness assessment of a system without a gate: remove every sticker from ``score`` on, ask nobody, call the rest
    clean.
    """
    chosen = (detections.foreground_labels == ObjectClass.STICKER) & (detections.scores >= score)
    return Action(detections.boxes[chosen], False, not chosen.any())


def act_on_decision(decision: SceneDecision) -> Action:
    """Robustness assessment of a system with a gate: what it does on ``decision``. In a doubtful scene nothing is removed."""
    removed = [v.object.box for v in decision.removable()] if decision.outcome is Outcome.WORK else []
    doubtful = any(v.verdict in (Verdict.ASK, Verdict.UNKNOWN) for v in decision.verdicts)
    return Action(
        np.array(removed, np.float32).reshape(-1, 4),
        decision.outcome not in (Outcome.WORK, Outcome.CLEAN) or doubtful,
        decision.outcome is Outcome.CLEAN,
    )


@dataclass(frozen=True)
class Consequence:
    """Whether the action on an assessed system's answer was right. ``wrong`` and ``right``: boxes that would be removed off and
    on a sticker; ``asked``; ``missed``: the laptop would be passed on as clean with a sticker on it.
    """

    wrong: int
    right: int
    asked: bool
    missed: bool


def consequence(action: Action, stickers: FloatArray, hidden_sticker: bool, iou: float) -> Consequence:
    """What the ``action`` of an assessed system does to a laptop with visible ``stickers`` (N, 4) px and perhaps one that is
    hidden.

    A removal is right when it overlaps a sticker by ``iou``.
    """
    right = int(overlapping(action.removed, stickers, iou).sum())
    left = len(stickers) > 0 or hidden_sticker
    return Consequence(len(action.removed) - right, right, action.asked, action.clean and left)

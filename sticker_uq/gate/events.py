# SPDX-License-Identifier: Apache-2.0
"""Events that happen to the gate, and effects that the gate wants: the inputs and outputs of its state machine."""

from dataclasses import dataclass
from enum import IntEnum

from sticker_uq.gate.answers import OperatorAnswer, SceneAnswer
from sticker_uq.gate.box_overlap import Box
from sticker_uq.gate.durable import DurableState
from sticker_uq.gate.state import NO_POSES, BlockReason, GateState, Relief, SceneFacts, Target
from sticker_uq.geometry import ScenePoses
from sticker_uq.scene import ImageCheck, ObjectVerdict, Reason, SceneDecision


class RemovalCode(IntEnum):
    """How a removal by the arm ended, the values of ``RemoveSticker.Result.ERROR_*``."""

    NONE = 0
    UNKNOWN = 1
    PERMIT_REVOKED = 2
    STALE_PERMIT = 3
    OPERATOR_ABORT = 4
    TIMEOUT = 5
    MOTION_FAILED = 6
    INVALID_GOAL = 7
    NOT_STOPPED = 8


class Event:
    """Something that happened."""


class Effect:
    """Something that the gate wants done."""


@dataclass(frozen=True)
class Activated(Event):
    """The supervisor became active."""


@dataclass(frozen=True)
class Restarted(Event):
    """The supervisor has started; ``kept``: what outlived the run before. ``policy_hash``: the policy of now."""

    kept: DurableState
    policy_hash: str = ""


@dataclass(frozen=True)
class Deactivated(Event):
    """The supervisor is about to become inactive."""


@dataclass(frozen=True)
class Tick(Event):
    """Time has passed; sent every ``tick_period_s``. ``steady_ns``: a clock that never jumps; 0 when there is none."""

    steady_ns: int = 0


@dataclass(frozen=True)
class SceneReceived(Event):
    decision: SceneDecision
    facts: SceneFacts
    poses: ScenePoses = NO_POSES


@dataclass(frozen=True)
class SceneUnreadable(Event):
    """No usable scene, and why: one came that cannot be read, or its publisher is gone."""

    reason: Reason


@dataclass(frozen=True)
class ImageArrived(Event):
    check: ImageCheck


@dataclass(frozen=True)
class ReliefReceived(Event):
    """A map of heights came; ``None``: one that cannot be used."""

    relief: Relief | None


@dataclass(frozen=True)
class ArmReady(Event):
    """Exactly one arm is there and sends its heartbeat (``ready``), or not."""

    ready: bool


@dataclass(frozen=True)
class ArmLost(Event):
    """The arm's server has gone, or is another one than before: it will not report the end of its goal."""


@dataclass(frozen=True)
class GoalAccepted(Event):
    goal_id: int


@dataclass(frozen=True)
class GoalRejected(Event):
    """The arm rejected the goal, or it could not be sent. ``detail``: what was said about it."""

    goal_id: int
    detail: str = ""


@dataclass(frozen=True)
class RemovalFinished(Event):
    """The arm reported the end of the goal. ``detail``: what it said about it."""

    goal_id: int
    code: RemovalCode
    detail: str = ""


@dataclass(frozen=True)
class AnswerGiven(Event):
    """The operator answered a request. ``checked``: whether the name was proved with a secret.

    ``not_stickers``: places of what looks like a sticker and is none; without each of them CLEAN is not accepted.
    ``image_ns``: stamp of the image that the operator saw.
    """

    request_id: str
    person: str
    scene_answer: SceneAnswer = SceneAnswer.NONE
    answers: tuple[OperatorAnswer, ...] = ()
    checked: bool = False
    not_stickers: tuple[Box, ...] = ()
    image_ns: int = 0


@dataclass(frozen=True)
class Command(Event):
    """``person``: the operator's name, empty when not given; ``checked``: as in :class:`AnswerGiven`."""

    person: str = ""
    checked: bool = False


class Hold(Command):
    """The operator holds the gate closed."""


class Release(Command):
    """The operator ends the hold."""


class Reset(Command):
    """The operator acknowledges a fault."""


@dataclass(frozen=True)
class WorkpieceChanged(Event):
    """Another workpiece lies in the cell; images taken up to ``stamp_ns`` do not show it."""

    workpiece_id: str
    stamp_ns: int


@dataclass(frozen=True)
class Fault(Event):
    """An internal error; without ``reasons`` it is not known what."""

    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Impediment(Event):
    """Something outside of scenes, arm and operator forbids a permit, or (without ``detail``) no longer does.

    ``reason`` is ``HELD``, ``AUDIT``, ``SECOND_GATE_PUBLISHER``, ``UNKNOWN_GATE_PUBLISHER``, ``SECOND_SCENE_PUBLISHER`` or
    ``UNCALIBRATED``.
    """

    reason: BlockReason
    detail: Reason | None


@dataclass(frozen=True)
class AssumptionBroken(Event):
    reason: Reason


Effects = tuple[Effect, ...]


@dataclass(frozen=True)
class PublishGate(Effect):
    state: GateState


@dataclass(frozen=True)
class PublishDecision(Effect):
    decision: SceneDecision
    poses: ScenePoses = NO_POSES


@dataclass(frozen=True)
class SendGoal(Effect):
    goal_id: int
    target: Target


@dataclass(frozen=True)
class CancelGoal(Effect):
    goal_id: int


@dataclass(frozen=True)
class RecoverGoal(Effect):
    """A goal of an earlier run may still be carried out: have the arm stop, and say how the goal ended."""

    goal_id: int
    decision_id: str


@dataclass(frozen=True)
class OpenIntervention(Effect):
    """Ask the operator, and why. ``objects`` are those to be answered."""

    request_id: str
    reasons: tuple[Reason, ...]
    stamp_ns: int
    frame_id: str
    decision_id: str
    workpiece_id: str
    objects: tuple[ObjectVerdict, ...]


@dataclass(frozen=True)
class CloseIntervention(Effect):
    request_id: str


@dataclass(frozen=True)
class DeclareDone(Effect):
    """The workpiece is finished, once per workpiece. ``clean`` is False when it is left to the operator."""

    workpiece_id: str
    clean: bool
    reason: Reason
    stamp_ns: int
    frame_id: str
    decision_id: str


@dataclass(frozen=True)
class RemovalVerified(Effect):
    target: Target


@dataclass(frozen=True)
class Escalate(Effect):
    """The arm did not stop in time: use the cell's own means of stopping it, until the reset."""

    reason: Reason


@dataclass(frozen=True)
class Reply(Effect):
    """The reply to the operator's call (answer, reset): what was done, or why nothing."""

    accepted: bool
    reasons: tuple[Reason, ...]


class Severity(IntEnum):
    INFO = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True)
class Log(Effect):
    """A line for the log: what happened, then why."""

    severity: Severity
    reasons: tuple[Reason, ...]

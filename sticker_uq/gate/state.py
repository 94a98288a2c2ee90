# SPDX-License-Identifier: Apache-2.0
"""The state of the gate: what it is made of. How it changes is in :mod:`sticker_uq.gate.state_machine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import reduce
from operator import or_
from statistics import median

from sticker_uq.gate.answers import OperatorAnswers
from sticker_uq.gate.box_overlap import Box, as_box
from sticker_uq.gate.settings import GateSettings
from sticker_uq.geometry import ObjectPose, ScenePoses
from sticker_uq.messages import BlockReason
from sticker_uq.scene import Exposure, FloatArray, ObjectClass, ObjectVerdict, Outcome, Reason, SceneDecision


class Phase(IntEnum):
    """The values of ``GateState.STATE_*``. The gate is open only in PERMITTED and REMOVING."""

    UNKNOWN = 0
    BLOCKED = 1
    MONITORING = 2
    PERMITTED = 3
    REMOVING = 4
    VERIFYING = 5
    INTERVENTION = 6
    FAULT = 7
    # 8 was SECOND_VIEW until 0.3.0: it stays reserved


@dataclass(frozen=True)
class SceneFacts:
    """What the gate itself checks of a scene. ``finite``: every box and probability and every metric that must be is.

    ``calibration`` tells one camera calibration from another, empty when none is known. ``invalid``: a value that cannot have
    been measured, None when there is none. ``image_publishers``: as in :class:`~sticker_uq.scene.SceneAssessment`.
    """

    stamp_ns: int
    frame_id: str
    image_size: tuple[int, int]
    model_hash: str
    settings_hash: str
    policy_hash: str
    usable: bool
    finite: bool
    image_digest: str = ""
    exposure: Exposure | None = None
    calibration: str = ""
    panel_hash: str = ""
    invalid: Reason | None = None
    image_publishers: tuple[str, ...] | None = None

    @property
    def source(self) -> tuple[str, tuple[int, int]]:
        """Where the image comes from: boxes of two images mean the same places only if this is the same."""
        return self.frame_id, self.image_size

    @property
    def judges(self) -> tuple[object, ...]:
        """What judged the image: it must not change from one scene to the next."""
        return self.model_hash, self.settings_hash, self.panel_hash, self.policy_hash


@dataclass(frozen=True, eq=False)
class Relief:
    """Height above the lid, m, at each pixel (H, W) of the camera's image; not finite where it was not measured."""

    stamp_ns: int
    frame_id: str
    height: FloatArray


@dataclass(frozen=True)
class SeenPixels:
    """The pixels seen last: ``count`` images in a row had exactly these, the first of them at ``since_ns``."""

    digest: str
    since_ns: int
    count: int = 1


@dataclass(frozen=True)
class Target:
    decision_id: str
    object_id: int
    label: ObjectClass
    box: Box
    image_stamp_ns: int
    frame_id: str
    model_hash: str
    policy_hash: str
    by_operator: bool
    verdict: ObjectVerdict = field(compare=False)
    pose: ObjectPose | None = field(default=None, compare=False)

    @classmethod
    def of(cls, verdict: ObjectVerdict, decision: SceneDecision, poses: Mapping[int, ObjectPose]) -> Target:
        return cls(
            decision_id=decision.decision_id,
            object_id=verdict.object.id,
            label=verdict.object.label,
            box=as_box(verdict.object.box),
            image_stamp_ns=decision.stamp_ns,
            frame_id=decision.frame_id,
            model_hash=decision.model_hash,
            policy_hash=decision.policy_hash,
            by_operator=verdict.by_operator,
            verdict=verdict,
            pose=poses.get(verdict.object.id),
        )


@dataclass(frozen=True)
class Permit:
    """The permit for one goal, from its grant until the arm reports the end of the goal.

    ``revoked_ns`` is None while the permit is open; after that ``revoked`` and ``revoked_for`` say why and nothing reopens it.
    ``settings`` are those it was granted under. ``around``: label and place of the other objects detected when it was granted;
    ``doubts``: scenes in a row that doubt the object slightly. ``lost``: the arm's server went away, so that no end will be
    reported; ``escalated``: the arm did not report it in time; ``foreign``: its workpiece has left the cell.
    """

    goal_id: int
    target: Target
    settings: GateSettings
    sent_ns: int
    valid_until_ns: int
    around: tuple[tuple[ObjectClass, Box], ...] = ()
    doubts: int = 0
    accepted: bool = False
    revoked_ns: int | None = None
    revoked: BlockReason = BlockReason.NONE
    revoked_for: tuple[Reason, ...] = ()
    lost: bool = False
    escalated: bool = False
    foreign: bool = False

    @property
    def open(self) -> bool:
        return self.revoked_ns is None


@dataclass(frozen=True)
class Verification:
    """A removal whose effect is checked; ``seen`` and ``gone`` count scenes in a row since ``since_ns``."""

    target: Target
    since_ns: int
    seen: int = 0
    gone: int = 0


@dataclass(frozen=True)
class Request:
    """The open question to the operator, and why it is asked.

    ``boxes``: the objects that must be answered; ``stickers``: everything in the image in question that looks like a sticker and
    was not left alone before: nobody may say that no sticker is left without a word about each; ``whole_scene``: the scene
    itself is uncertain; ``source``: where the image in question came from, see :attr:`SceneFacts.source`; ``objectors``: monitors
    of the panel that objected to removing an object; ``stamp_ns``: of the image in question.
    """

    request_id: str
    reasons: tuple[Reason, ...]
    boxes: tuple[Box, ...]
    stickers: tuple[Box, ...]
    whole_scene: bool
    opened_ns: int
    overdue: bool = False
    source: tuple[object, ...] = ()
    objectors: tuple[str, ...] = ()
    stamp_ns: int = 0


@dataclass(frozen=True)
class Streak:
    """Scenes in a row that led to the same conclusion; for WORK about the same object, ``target`` as last seen."""

    outcome: Outcome = Outcome.UNKNOWN
    count: int = 0
    target: Target | None = None


@dataclass(frozen=True)
class Refused:
    """An announcement of a workpiece that does not say which one lies in the cell, and why."""

    workpiece_id: str
    stamp_ns: int
    reason: Reason


FEWEST_AGES, MOST_AGES = 5, 10
"""Of so many scenes it is known how old a scene usually is when the next one comes."""
NO_STREAK = Streak()
NOT_CALIBRATED = Reason("calibration_unknown")
NO_POSES = ScenePoses(problem=NOT_CALIBRATED)


@dataclass(frozen=True)
class GateState:
    """Everything the gate knows. ``phase``, ``reasons`` and ``details`` are derived from the rest at the end of each step.

    ``held_for``: why it is held, where no person did. ``impediments``: what outside of scenes, arm and operator forbids a
    permit, and why. ``now_ns``: time of the last step; ``tick_ns``, ``steady_ns``: this clock and a steady one at the last tick.
    ``scene``, ``received_ns``, ``problems``: the newest scene, when it came, and what is wrong with it, each with its detail;
    ``waited_ns``: how old the scene before was when it came; ``ages_ns``: that of the last ones; ``reference``: the newest scene
    that did not fail; ``picture``: its pixels; ``silent_ticks``: ticks since the newest scene; ``relief``: the newest one.
    ``undecided_ns``: since when scenes have come without a conclusion (0: not). ``attempts``: failed removals per place;
    ``removed``: places where the arm reported a removal as done and nobody has said since that a sticker is there.
    ``workpieces``: those that have left; ``workpiece_ns``: images up to this time do not show the present workpiece;
    ``counts_after_ns``: nor do images up to this time count, because they may show an earlier workpiece or the arm at work;
    ``announced_ns``: stamp of its announcement; ``refused``: a later one, after which nothing is permitted. ``skipped``: this
    workpiece is left to the operator; ``done``: it was declared done. ``assumption``: why what the policy rests on does not
    hold, until a reset or another policy; ``assumption_request``: the request in which the operator is told so.
    ``stop_demanded``: the arm did not stop, so that the cell's own means of stopping it are in use until the reset.
    """

    active: bool = False
    held: bool = False
    held_for: tuple[Reason, ...] = ()
    impediments: tuple[tuple[BlockReason, Reason], ...] = ()
    fault: tuple[Reason, ...] = ()
    assumption: Reason | None = None
    assumption_request: str = ""
    arm_ready: bool = False
    now_ns: int = 0
    tick_ns: int = 0
    steady_ns: int = 0
    scene: SceneFacts | None = None
    reference: SceneFacts | None = None
    received_ns: int = 0
    waited_ns: int = 0
    ages_ns: tuple[int, ...] = ()
    problems: tuple[tuple[BlockReason, Reason], ...] = ()
    picture: SeenPixels | None = None
    silent_ticks: int = 0
    relief: Relief | None = None
    decision: SceneDecision | None = field(default=None, compare=False)
    poses: ScenePoses = field(default=NO_POSES, compare=False)
    streak: Streak = NO_STREAK
    undecided_ns: int = 0
    permit: Permit | None = None
    verification: Verification | None = None
    attempts: tuple[tuple[Box, int], ...] = ()
    removed: tuple[Box, ...] = ()
    request: Request | None = None
    goals: int = 0
    requests: int = 0
    workpiece_id: str = ""
    workpieces: int = 0
    workpiece_ns: int = 0
    announced_ns: int = 0
    refused: Refused | None = None
    counts_after_ns: int = 0
    memory: OperatorAnswers = field(default_factory=OperatorAnswers)
    skipped: bool = False
    done: bool = False
    stop_demanded: bool = False
    phase: Phase = Phase.BLOCKED
    reasons: BlockReason = BlockReason.NOT_ACTIVE
    details: tuple[Reason, ...] = ()

    @property
    def problem(self) -> BlockReason:
        return reduce(or_, (problem for problem, _ in self.problems), BlockReason.NONE)

    @property
    def usual_age_ns(self) -> float:
        """How old a scene usually is when the next one comes, of the last ones; 0 while too few have come."""
        return median(self.ages_ns) if len(self.ages_ns) >= FEWEST_AGES else 0.0

    @property
    def open(self) -> bool:
        return self.phase in (Phase.PERMITTED, Phase.REMOVING)

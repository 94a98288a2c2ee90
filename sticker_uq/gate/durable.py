# SPDX-License-Identifier: Apache-2.0
"""What outlives the process of the supervisor: written to the disk before it is acknowledged, read back at every start.

Approvals are left out: after a restart the operator is asked again. Whatever keeps the gate closed is in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sticker_uq.gate.answers import OperatorAnswer, OperatorAnswers
from sticker_uq.gate.box_overlap import Box
from sticker_uq.gate.settings import GateSettings
from sticker_uq.gate.state import BlockReason, GateState, Permit, Refused, SceneFacts, Target
from sticker_uq.scene import InvalidInput, ObjectClass, ObjectVerdict, ObservedObject, Reason, Verdict

_EXACTLY: ConfigDict = {"extra": "forbid"}
_Reasons = tuple[Reason, ...]


@dataclass(frozen=True)
class UnfinishedGoal:
    """A goal that was sent to the arm, whose end the arm has not reported; fields as in Target and Permit."""

    __pydantic_config__: ClassVar[ConfigDict] = _EXACTLY
    goal_id: int
    decision_id: str
    object_id: int
    label: ObjectClass
    box: Box
    image_stamp_ns: int
    frame_id: str
    model_hash: str
    policy_hash: str
    by_operator: bool
    accepted: bool
    lost: bool
    escalated: bool
    foreign: bool

    @classmethod
    def of(cls, permit: Permit) -> UnfinishedGoal:
        known = vars(permit) | vars(permit.target)
        return cls(**{field.name: known[field.name] for field in fields(cls)})

    def permit(self, settings: GateSettings, now_ns: int) -> Permit:
        """The permit of this goal, revoked now: the arm must stop and report the end."""
        seen = ObservedObject.from_operator(self.object_id, self.label, np.asarray(self.box, np.float32))
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        verdict = ObjectVerdict(seen, Verdict.UNKNOWN, ())
        target = Target(verdict=verdict, **{name: own[name] for name in _TARGET})
        flags = {name: own[name] for name in ("accepted", "lost", "escalated", "foreign")}
        return Permit(
            self.goal_id,
            target,
            settings,
            sent_ns=now_ns,
            valid_until_ns=now_ns,
            revoked_ns=now_ns,
            revoked=BlockReason.NOT_ACTIVE,
            revoked_for=(Reason.of("last_run_moved", goal=self.goal_id),),
            **flags,
        )


_TARGET = [field.name for field in fields(Target) if field.name in UnfinishedGoal.__dataclass_fields__]


@dataclass(frozen=True)
class Camera:
    """Where the images came from, whose px the places below are, and what judged them."""

    __pydantic_config__: ClassVar[ConfigDict] = _EXACTLY
    frame_id: str
    image_size: tuple[int, int]
    model_hash: str
    settings_hash: str
    panel_hash: str
    policy_hash: str

    @classmethod
    def of(cls, facts: SceneFacts) -> Camera:
        return cls(**{field.name: getattr(facts, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class DurableState:
    """Fields as in GateState, and: ``asked``, why an unanswered question was asked; ``policy_hash``, that of ``assumption``;
    ``kept_places``, what the operator said not to remove; ``said_clean``, that no sticker is left; ``consoles``, the nodes of the
    operator's pages that are there.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _EXACTLY
    version: Literal[1] = 1
    held: bool = False
    held_for: _Reasons = ()
    fault: _Reasons = ()
    stop_demanded: bool = False
    assumption: Reason | None = None
    policy_hash: str = ""
    asked: _Reasons | None = None
    goal: UnfinishedGoal | None = None
    goals: int = 0
    requests: int = 0
    workpieces: int = 0
    workpiece_id: str = ""
    announced_ns: int = 0
    workpiece_ns: int = 0
    refused: Refused | None = None
    skipped: bool = False
    done: bool = False
    said_clean: bool = False
    kept_places: tuple[OperatorAnswer, ...] = ()
    removed: tuple[Box, ...] = ()
    attempts: tuple[tuple[Box, int], ...] = ()
    camera: Camera | None = None
    consoles: tuple[str, ...] = ()

    @classmethod
    def first(cls) -> DurableState:
        """That of a start that finds none: nobody knows what was decided before."""
        return cls(held=True, held_for=(Reason("first_start"),))

    def unreadable(self, why: str) -> DurableState:
        """This state, where what was decided after it is lost: somebody may have held the gate, the arm may not have stopped."""
        reason = Reason.of("last_run_unreadable", detail=why)
        fault = (reason, *self.fault)
        return replace(self, held=True, held_for=(reason,), fault=fault, stop_demanded=True)

    @classmethod
    def of(cls, state: GateState, policy_hash: str = "", consoles: tuple[str, ...] = ()) -> DurableState:
        reference = state.reference
        return cls(
            **{name: getattr(state, name) for name in _SAME},
            policy_hash=policy_hash if state.assumption else "",
            asked=None if state.request is None else state.request.reasons,
            goal=None if state.permit is None else UnfinishedGoal.of(state.permit),
            said_clean=state.memory.scene_clean,
            kept_places=state.memory.prohibitions().answers,
            camera=None if reference is None else Camera.of(reference),
            consoles=consoles,
        )

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(_ADAPTER.dump_python(self, mode="json"))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> DurableState:
        """Raises :class:`InvalidInput` for anything but what :meth:`to_plain` of this version made."""
        try:
            return _ADAPTER.validate_python({**plain})
        except (ValidationError, TypeError, ValueError) as error:
            wrong = (
                error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            )
            place = ".".join(map(str, wrong["loc"])) or "state"
            raise InvalidInput(f"{place}: {wrong['msg']}") from None

    def as_changes(self, settings: GateSettings, now_ns: int, policy_hash: str) -> dict[str, Any]:
        """The fields of a new GateState that this state gives.

        Images up to now do not count, what was broken by another policy is over, and an unanswered question is a fault.
        """
        fault = self.fault
        if fault and not fault[0].code.startswith("last_run_"):
            fault = (Reason("last_run_faulted"), *fault)
        if self.asked is not None:
            fault += (Reason("last_run_asked"), *self.asked)
        memory = OperatorAnswers(self.kept_places, self.said_clean, self.said_clean)
        reference = self.camera and SceneFacts(**asdict(self.camera), stamp_ns=0, usable=True, finite=True)
        return {name: getattr(self, name) for name in _SAME} | {
            "fault": fault,
            "assumption": self.assumption if self.policy_hash in ("", policy_hash) else None,
            "permit": self.goal and self.goal.permit(settings, now_ns),
            "memory": memory,
            "reference": reference,
            "workpiece_ns": min(self.workpiece_ns, now_ns),
            "counts_after_ns": now_ns,
        }


_SAME = [name for name in DurableState.__dataclass_fields__ if name in GateState.__dataclass_fields__]
_ADAPTER: TypeAdapter[DurableState] = TypeAdapter(DurableState)

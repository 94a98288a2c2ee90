# SPDX-License-Identifier: Apache-2.0
"""Which steps of the gate become entries of the audit log, and with which data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sticker_uq.gate import events as ev
from sticker_uq.gate.audit.chain import finite
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.state import GateState, Permit, Target
from sticker_uq.scene import ObjectVerdict, Reason, SceneDecision

AuditRecord = tuple[str, Mapping[str, Any]]


class Narrator:
    """Turns the gate's steps into audit log entries ``(kind, data)``; remembers the last decision and model."""

    def __init__(self) -> None:
        self._decision: object = None
        self._model: tuple[str, str, str] = ("", "", "")

    def entries_of_step(
        self, event: ev.Event | None, before: GateState, after: GateState, effects: Sequence[ev.Effect]
    ) -> list[AuditRecord]:
        """The audit log entries of one step of the gate. ``event`` is None for a scene, whose entries come from the effects."""
        told: list[AuditRecord] = [("model", model) for model in self._new_model(after)]
        if event is not None:
            told += _happened(event, effects)
        for effect in effects:
            told += self._follows(effect)
        told += _permit_changes(before.permit, after.permit)
        if (before.phase, before.reasons) != (after.phase, after.reasons):
            told.append(("gate", _gate(before, after)))
        return [(kind, finite(data)) for kind, data in told]

    def _new_model(self, state: GateState) -> Iterator[dict[str, Any]]:
        if state.scene is None:
            return
        model = (state.scene.model_hash, state.scene.settings_hash, state.scene.panel_hash)
        if model == self._model:
            return
        self._model = model
        yield {
            "model_hash": self._model[0],
            "settings_hash": self._model[1],
            **({"panel_hash": self._model[2]} if self._model[2] else {}),
            "policy_hash": state.scene.policy_hash,
        }

    def _follows(self, effect: ev.Effect) -> Iterator[AuditRecord]:
        match effect:
            case ev.PublishDecision(decision):
                # the numbers of the objects and their boxes change with every image, the decision does not
                same = _essence(decision)
                if same != self._decision:
                    self._decision = same
                    yield "decision", _decision(decision)
            case ev.SendGoal(goal_id, target):
                yield "permit", {"goal_id": goal_id, **_target(target)}
            case ev.CancelGoal(goal_id):
                yield "cancel", {"goal_id": goal_id}
            case ev.OpenIntervention():
                yield (
                    "request",
                    {
                        "request_id": effect.request_id,
                        "decision_id": effect.decision_id,
                        "workpiece_id": effect.workpiece_id,
                        "image_stamp_ns": effect.stamp_ns,
                        "objects": [_verdict(verdict) for verdict in effect.objects],
                        "reasons": _plain(effect.reasons),
                    },
                )
            case ev.CloseIntervention(request_id):
                yield "request_closed", {"request_id": request_id}
            case ev.DeclareDone():
                yield (
                    "done",
                    {
                        "workpiece_id": effect.workpiece_id,
                        "clean": effect.clean,
                        "reasons": _plain((effect.reason,)),
                        "decision_id": effect.decision_id,
                    },
                )
            case ev.RemovalVerified(target):
                yield "verified", _target(target)
            case ev.Escalate(reason):
                yield "escalation", {"reasons": _plain((reason,))}


def _happened(event: ev.Event, effects: Sequence[ev.Effect]) -> Iterator[AuditRecord]:
    reply = next((effect for effect in effects if isinstance(effect, ev.Reply)), None)
    replied = {} if reply is None else {"accepted": reply.accepted, "reasons": _plain(reply.reasons)}
    match event:
        case ev.AnswerGiven():
            yield (
                "answer",
                {
                    "request_id": event.request_id,
                    **_person(event),
                    "scene_answer": event.scene_answer.name,
                    "answers": [{"answer": a.answer.name, "box": list(a.box)} for a in event.answers],
                    "not_stickers": [list(box) for box in event.not_stickers],
                    **replied,
                },
            )
        case ev.Hold():
            yield "hold", _person(event)
        case ev.Release():
            yield "release", _person(event)
        case ev.Reset():
            yield "reset", {**_person(event), **replied}
        case ev.Fault(reasons):
            yield "fault", {"reasons": _plain(reasons)}
        case ev.WorkpieceChanged(workpiece_id, stamp_ns):
            yield "workpiece", {"workpiece_id": workpiece_id, "stamp_ns": stamp_ns}
        case ev.GoalAccepted(goal_id):
            yield "goal", {"goal_id": goal_id, "accepted": True}
        case ev.GoalRejected(goal_id, detail):
            yield "goal", {"goal_id": goal_id, "accepted": False, "detail": detail}
        case ev.RemovalFinished(goal_id, code, detail):
            yield "result", {"goal_id": goal_id, "code": code.name, "detail": detail}
        case ev.ArmReady(ready):
            yield "arm", {"ready": ready, "lost": False}
        case ev.ArmLost():
            yield "arm", {"ready": False, "lost": True}


def _person(event: ev.AnswerGiven | ev.Hold | ev.Release | ev.Reset) -> dict[str, str]:
    return {"person": event.person, "person_check": "checked" if event.checked else "unchecked"}


def _permit_changes(before: Permit | None, after: Permit | None) -> Iterator[AuditRecord]:
    """The end of a permit: it is renewed no more. Its beginning is the entry of the goal."""
    if before is None or not before.open:
        return
    if after is not None and after.goal_id == before.goal_id and after.open:
        return
    revoked = after is not None and after.goal_id == before.goal_id
    yield (
        "permit_end",
        {
            "goal_id": before.goal_id,
            "revoked": revoked,
            "reasons": _plain(after.revoked_for if revoked and after is not None else ()),
            "valid_until_ns": before.valid_until_ns,
        },
    )


def _gate(before: GateState, after: GateState) -> dict[str, Any]:
    return {
        "from": before.phase.name,
        "to": after.phase.name,
        "open": after.open,
        "closed_by": [reason.name for reason in after.reasons],
        "reasons": _plain(after.details),
    }


def _essence(decision: SceneDecision) -> object:
    verdicts = sorted((v.object.label.name, v.verdict.name, v.by_operator) for v in decision.verdicts)
    hashes = (decision.model_hash, decision.policy_hash, decision.workpiece_id)
    return decision.outcome, tuple(verdicts), tuple((r.code, r.subject) for r in decision.reasons), hashes


def _decision(decision: SceneDecision) -> dict[str, Any]:
    return {
        "decision_id": decision.decision_id,
        "outcome": decision.outcome.name,
        "workpiece_id": decision.workpiece_id,
        "image_stamp_ns": decision.stamp_ns,
        "verdicts": [_verdict(verdict) for verdict in decision.verdicts],
        "reasons": _plain(decision.reasons),
        "model_hash": decision.model_hash,
        "policy_hash": decision.policy_hash,
    }


def _verdict(verdict: ObjectVerdict) -> dict[str, Any]:
    return {
        "object_id": verdict.object.id,
        "label": verdict.object.label.name,
        "verdict": verdict.verdict.name,
        "by_operator": verdict.by_operator,
        "box": list(as_box(verdict.object.box)),
        "reasons": _plain(verdict.reasons),
    }


def _plain(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    return [reason.to_dict() for reason in reasons]


def _target(target: Target) -> dict[str, Any]:
    return {
        "decision_id": target.decision_id,
        "object_id": target.object_id,
        "label": target.label.name,
        "box": list(target.box),
        "image_stamp_ns": target.image_stamp_ns,
        "by_operator": target.by_operator,
        "model_hash": target.model_hash,
        "policy_hash": target.policy_hash,
    }

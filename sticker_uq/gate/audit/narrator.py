# SPDX-License-Identifier: Apache-2.0
"""Which steps of the gate become entries of the audit log, and with which data. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sticker_uq.gate import events as ev
from sticker_uq.gate.answers import OperatorAnswer
from sticker_uq.gate.audit.chain import finite
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.state import GateState, Permit, Target
from sticker_uq.scene import ObjectVerdict, Reason, SceneDecision

AuditRecord = tuple[str, Mapping[str, Any]]


class Narrator:
    """Turns the gate's steps into entries ``(kind, data)``; remembers the last decision and model."""

    def __init__(self) -> None:
        self._decision: object = None
        self._model: tuple[str, str, str] = ("", "", "")

    def entries_of_step(
        self, event: ev.Event | None, before: GateState, after: GateState, effects: Sequence[ev.Effect]
    ) -> list[AuditRecord]:
        """``event`` is None for a scene, whose entries come from the effects."""
        told: list[AuditRecord] = [("model", model) for model in self._new_model(after)]
        if event is not None:
            told += _of_event(event, effects)
        for effect in effects:
            told += self._entries_of(effect)
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

    def _entries_of(self, effect: ev.Effect) -> Iterator[AuditRecord]:
        if isinstance(effect, ev.PublishDecision):
            # the numbers of the objects and their boxes change with every image, the decision does not
            same = _essence(effect.decision)
            if same != self._decision:
                self._decision = same
                yield "decision", _decision(effect.decision)
        else:
            yield from _of_effect(effect)


def _of_effect(effect: ev.Effect) -> Iterator[AuditRecord]:
    match effect:
        case ev.SendGoal():
            yield "permit", {"goal_id": effect.goal_id} | _target(effect.target)
        case ev.CancelGoal() | ev.RecoverGoal():
            yield "cancel", {"goal_id": effect.goal_id}
        case ev.OpenIntervention():
            yield (
                "request",
                {
                    "request_id": effect.request_id,
                    "decision_id": effect.decision_id,
                    "workpiece_id": effect.workpiece_id,
                    "image_stamp_ns": effect.stamp_ns,
                    "objects": [_verdict(one) for one in effect.objects],
                    "reasons": _reasons(effect.reasons),
                },
            )
        case ev.CloseIntervention():
            yield "request_closed", {"request_id": effect.request_id}
        case ev.DeclareDone():
            yield (
                "done",
                {
                    "workpiece_id": effect.workpiece_id,
                    "clean": effect.clean,
                    "reasons": _reasons([effect.reason]),
                    "decision_id": effect.decision_id,
                },
            )
        case ev.RemovalVerified():
            yield "verified", _target(effect.target)
        case ev.Escalate():
            yield "escalation", {"reasons": _reasons([effect.reason])}


def _of_event(event: ev.Event, effects: Sequence[ev.Effect]) -> Iterator[AuditRecord]:
    match event:
        case ev.AnswerGiven():
            said = {
                "request_id": event.request_id,
                "scene_answer": event.scene_answer.name,
                "answers": [_answer(one) for one in event.answers],
                "not_stickers": [list(box) for box in event.not_stickers],
            }
            yield "answer", said | _by_whom(event, effects)
        case ev.Hold():
            yield "hold", _by_whom(event, effects)
        case ev.Release():
            yield "release", _by_whom(event, effects)
        case ev.Reset():
            yield "reset", _by_whom(event, effects)
        case ev.Fault():
            yield "fault", {"reasons": _reasons(event.reasons)}
        case ev.WorkpieceChanged():
            yield "workpiece", {"workpiece_id": event.workpiece_id, "stamp_ns": event.stamp_ns}
        case ev.GoalAccepted():
            yield "goal", {"goal_id": event.goal_id, "accepted": True}
        case ev.GoalRejected():
            yield "goal", {"goal_id": event.goal_id, "detail": event.detail, "accepted": False}
        case ev.RemovalFinished():
            yield "result", {"goal_id": event.goal_id, "code": event.code.name, "detail": event.detail}
        case ev.ArmReady():
            yield "arm", {"ready": event.ready, "lost": False}
        case ev.ArmLost():
            yield "arm", {"ready": False, "lost": True}


def _by_whom(event: ev.AnswerGiven | ev.Command, effects: Sequence[ev.Effect]) -> dict[str, Any]:
    """Who called, and what was replied."""
    data: dict[str, Any] = {
        "person": event.person,
        "person_check": "checked" if event.checked else "unchecked",
    }
    for reply in effects:
        if isinstance(reply, ev.Reply):
            data |= {"accepted": reply.accepted, "reasons": _reasons(reply.reasons)}
    return data


def _decision(decision: SceneDecision) -> dict[str, Any]:
    return {
        "decision_id": decision.decision_id,
        "outcome": decision.outcome.name,
        "workpiece_id": decision.workpiece_id,
        "image_stamp_ns": decision.stamp_ns,
        "verdicts": [_verdict(one) for one in decision.verdicts],
        "reasons": _reasons(decision.reasons),
        "model_hash": decision.model_hash,
        "policy_hash": decision.policy_hash,
    }


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


def _verdict(verdict: ObjectVerdict) -> dict[str, Any]:
    return {
        "verdict": verdict.verdict.name,
        "by_operator": verdict.by_operator,
        "reasons": _reasons(verdict.reasons),
        "object_id": verdict.object.id,
        "label": verdict.object.label.name,
        "box": list(as_box(verdict.object.box)),
    }


def _answer(answer: OperatorAnswer) -> dict[str, Any]:
    return {"answer": answer.answer.name, "box": list(answer.box)}


def _reasons(reasons: Iterable[Reason]) -> list[dict[str, Any]]:
    return [reason.to_dict() for reason in reasons]


def _permit_changes(before: Permit | None, after: Permit | None) -> Iterator[AuditRecord]:
    """The end of a permit: it is renewed no more. Its beginning is the entry of the goal."""
    if before is None or not before.open:
        return
    if after is not None and after.goal_id == before.goal_id and after.open:
        return
    revoked = after is not None and after.goal_id == before.goal_id
    reasons = _reasons(after.revoked_for if revoked and after is not None else ())
    data = {"goal_id": before.goal_id, "revoked": revoked, "reasons": reasons}
    yield "permit_end", data | {"valid_until_ns": before.valid_until_ns}


def _gate(before: GateState, after: GateState) -> dict[str, Any]:
    data = {"from": before.phase.name, "to": after.phase.name, "open": after.open}
    closed_by = [reason.name for reason in after.reasons]
    return data | {"closed_by": closed_by, "reasons": _reasons(after.details)}


def _essence(decision: SceneDecision) -> object:
    verdicts = sorted((v.object.label.name, v.verdict.name, v.by_operator) for v in decision.verdicts)
    hashes = (decision.model_hash, decision.policy_hash, decision.workpiece_id)
    return decision.outcome, tuple(verdicts), tuple((r.code, r.subject) for r in decision.reasons), hashes

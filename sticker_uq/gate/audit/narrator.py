# SPDX-License-Identifier: Apache-2.0
"""Which steps of the gate become entries of the audit log, and with which data. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from sticker_uq.gate import events as ev
from sticker_uq.gate.audit.chain import finite
from sticker_uq.gate.box_overlap import as_box
from sticker_uq.gate.operator.answers import OperatorAnswer
from sticker_uq.gate.state import GateState, Permit
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
        if isinstance(effect, ev.PublishDecision):
            # the numbers of the objects and their boxes change with every image, the decision does not
            same = _essence(effect.decision)
            if same != self._decision:
                self._decision = same
                yield "decision", _fields(effect.decision, DECISION)
        elif type(effect) in EFFECTS:
            kind, names = EFFECTS[type(effect)]
            target = getattr(effect, "target", None)
            yield kind, _fields(effect, names) | ({} if target is None else _fields(target, TARGET))


_SHOWN = "decision_id workpiece_id image_stamp_ns=stamp_ns"
DECISION = "decision_id outcome workpiece_id image_stamp_ns=stamp_ns verdicts reasons model_hash policy_hash"
TARGET = "decision_id object_id label box image_stamp_ns by_operator model_hash policy_hash"
EFFECTS = {
    ev.SendGoal: ("permit", "goal_id"),
    ev.CancelGoal: ("cancel", "goal_id"),
    ev.RecoverGoal: ("cancel", "goal_id"),
    ev.OpenIntervention: ("request", f"request_id {_SHOWN} objects reasons"),
    ev.CloseIntervention: ("request_closed", "request_id"),
    ev.DeclareDone: ("done", "workpiece_id clean reasons=reason decision_id"),
    ev.RemovalVerified: ("verified", ""),
    ev.Escalate: ("escalation", "reasons=reason"),
}
"""Kind and fields of the entry about each effect; ``name=field``: under another name."""
EVENTS: dict[type[ev.Event], tuple[str, str, dict[str, bool]]] = {
    ev.AnswerGiven: ("answer", "request_id scene_answer answers not_stickers", {}),
    ev.Hold: ("hold", "", {}),
    ev.Release: ("release", "", {}),
    ev.Reset: ("reset", "", {}),
    ev.Fault: ("fault", "reasons", {}),
    ev.WorkpieceChanged: ("workpiece", "workpiece_id stamp_ns", {}),
    ev.GoalAccepted: ("goal", "goal_id", {"accepted": True}),
    ev.GoalRejected: ("goal", "goal_id detail", {"accepted": False}),
    ev.RemovalFinished: ("result", "goal_id code detail", {}),
    ev.ArmReady: ("arm", "ready", {"lost": False}),
    ev.ArmLost: ("arm", "", {"ready": False, "lost": True}),
}
"""The same of each event, with what the entry says besides. Of others there is none."""


def _happened(event: ev.Event, effects: Sequence[ev.Effect]) -> Iterator[AuditRecord]:
    if type(event) not in EVENTS:
        return
    kind, names, more = EVENTS[type(event)]
    data = _fields(event, names) | more
    if isinstance(event, ev.AnswerGiven | ev.Command):
        data |= {"person": event.person, "person_check": "checked" if event.checked else "unchecked"}
        for reply in effects:
            if isinstance(reply, ev.Reply):
                data |= _fields(reply, "accepted reasons")
    yield kind, data


def _fields(value: object, names: str) -> dict[str, Any]:
    pairs = (name.partition("=") for name in names.split())
    return {name: _plain(getattr(value, field or name), name) for name, _, field in pairs}


def _plain(value: Any, name: str = "") -> Any:
    """``value`` for JSON: enumerations by name; what is one under a name in the plural, as a list."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Reason):
        return [value.to_dict()] if name else value.to_dict()
    if isinstance(value, OperatorAnswer):
        return _fields(value, "answer box")
    if isinstance(value, ObjectVerdict):
        seen = value.object
        place = {"object_id": seen.id, "label": seen.label.name, "box": as_box(seen.box)}
        return _fields(value, "verdict by_operator reasons") | place
    return value.name if isinstance(value, Enum) else value


def _permit_changes(before: Permit | None, after: Permit | None) -> Iterator[AuditRecord]:
    """The end of a permit: it is renewed no more. Its beginning is the entry of the goal."""
    if before is None or not before.open:
        return
    if after is not None and after.goal_id == before.goal_id and after.open:
        return
    revoked = after is not None and after.goal_id == before.goal_id
    reasons = _plain(after.revoked_for if revoked and after is not None else ())
    data = {"goal_id": before.goal_id, "revoked": revoked, "reasons": reasons}
    yield "permit_end", data | {"valid_until_ns": before.valid_until_ns}


def _gate(before: GateState, after: GateState) -> dict[str, Any]:
    data = {"from": before.phase.name, "to": after.phase.name, "open": after.open}
    closed_by = [reason.name for reason in after.reasons]
    return data | {"closed_by": closed_by, "reasons": _plain(after.details)}


def _essence(decision: SceneDecision) -> object:
    verdicts = sorted((v.object.label.name, v.verdict.name, v.by_operator) for v in decision.verdicts)
    hashes = (decision.model_hash, decision.policy_hash, decision.workpiece_id)
    return decision.outcome, tuple(verdicts), tuple((r.code, r.subject) for r in decision.reasons), hashes

"""Messages of the cell as the plain values that the operator's page draws and says."""

from __future__ import annotations

import math
from typing import Any

from sticker_uq.evaluation.replay.recording import GATE_STATES
from sticker_uq.gate.state import BlockReason
from sticker_uq.io.messages import stamp_to_ns
from sticker_uq_msgs.msg import (
    Box,
    GateState,
    InterventionAnswer,
    InterventionRequest,
    ObservedObject,
    Reason,
    SceneAssessment,
    SceneDecision,
    Verdict,
)

VERDICTS = ("unknown", "remove", "keep", "ask")
OUTCOMES = ("unknown", "work", "ask", "clean", "blocked")
ANSWERS = ("unknown", "remove", "keep", "not_there", "missed")
SCENE_ANSWERS = ("none", "rescan", "skip_laptop", "fault", "clean")


def shown_scene(scene: SceneAssessment, decision: SceneDecision | None) -> dict[str, Any]:
    """One scene and what was decided about it. Stamps are text: JavaScript has no integers of 64 bits."""
    verdicts = {} if decision is None else {verdict.object_id: verdict for verdict in decision.verdicts}
    objects = [_shown_object(seen, verdicts.pop(seen.id, None)) for seen in (*scene.objects, *scene.unstable)]
    objects += [_drawn_object(verdict) for verdict in verdicts.values()]
    return {
        "stamp": str(stamp_to_ns(scene.header.stamp)),
        "width": scene.image_width,
        "height": scene.image_height,
        "passes": scene.passes,
        "status": scene.status,
        "status_text": scene.status_text,
        "dil": _number(scene.dil.dil) if scene.dil.valid else None,
        "unexplained": [
            {"box": _box(region.box), "objectness": _number(region.objectness)}
            for region in scene.dil.unexplained
        ],
        "outcome": None if decision is None else _name(OUTCOMES, decision.outcome),
        "reasons": [] if decision is None else [shown_reason(reason) for reason in decision.reasons],
        "objects": objects,
    }


def shown_request(message: InterventionRequest) -> dict[str, Any] | None:
    """An open question; None when the message says that none is open."""
    if not message.request_id:
        return None
    return {
        "request_id": message.request_id,
        "stamp": str(stamp_to_ns(message.header.stamp)),
        "text": message.text,
        "reasons": [shown_reason(reason) for reason in message.scene_reasons],
        "objects": [
            {
                "id": verdict.object_id,
                "label": verdict.label,
                "box": _box(verdict.box),
                "reasons": [shown_reason(reason) for reason in verdict.reasons],
            }
            for verdict in message.objects
        ],
    }


def shown_gate(message: GateState) -> dict[str, Any]:
    """How the gate stands: ``reasons`` are the names of the bits that close it, ``text`` the same in the supervisor's words."""
    reasons = [(reason.name or "").lower() for reason in BlockReason if reason and message.reasons & reason]
    state = GATE_STATES[message.state] if message.state < len(GATE_STATES) else "unknown"
    return {"state": state, "text": message.text, "reasons": reasons, "held": "held" in reasons}


def shown_reason(reason: Reason) -> dict[str, Any]:
    """A reason with its numbers, so that the page can say it in its own words; ``text`` is what it says otherwise."""
    return {
        "metric": reason.metric,
        "value": _number(reason.value),
        "limit": _number(reason.limit),
        "text": reason.text,
        "box": _box(reason.box) if reason.box.x2 > reason.box.x1 else None,
    }


def shown_answer(message: InterventionAnswer) -> dict[str, Any]:
    """What a person answered."""
    return {
        "request_id": message.request_id,
        "person": message.person,
        "scene": _name(SCENE_ANSWERS, message.scene_answer),
        "answers": [_name(ANSWERS, answer.answer) for answer in message.answers],
    }


def _shown_object(seen: ObservedObject, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "id": seen.id,
        "label": seen.label,
        "box": _box(seen.box),
        "hulls": [list(zip(hull.x, hull.y, strict=True)) for hull in seen.corner_hulls],
        "probability": _number(seen.probabilities[seen.label])
        if len(seen.probabilities) > seen.label
        else None,
        "seen_in": seen.passes,
        "unstable": seen.unstable,
        "verdict": "unknown" if verdict is None else _name(VERDICTS, verdict.verdict),
        "by_operator": verdict is not None and verdict.by_operator,
    }


def _drawn_object(verdict: Verdict) -> dict[str, Any]:
    return {
        "id": verdict.object_id,
        "label": verdict.label,
        "box": _box(verdict.box),
        "hulls": [],
        "probability": None,
        "seen_in": 0,
        "unstable": False,
        "verdict": _name(VERDICTS, verdict.verdict),
        "by_operator": verdict.by_operator,
    }


def _box(box: Box) -> dict[str, float]:
    return {side: _number(getattr(box, side)) or 0.0 for side in ("x1", "y1", "x2", "y2")}


def _number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None


def _name(names: tuple[str, ...], value: int) -> str:
    return names[value] if value < len(names) else names[0]

# SPDX-License-Identifier: Apache-2.0
"""Messages as the page shows them."""

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from sticker_uq.gate.answers import may_be_sticker
from sticker_uq.io.messages import reason_from_msg, stamp_to_ns
from sticker_uq.messages import CALM, BlockReason, gate_state, is_explained, text_of
from sticker_uq.scene import Outcome, Reason, Verdict
from sticker_uq_msgs import msg as m


def scene_to_json(scene: m.SceneAssessment, decision: m.SceneDecision | None) -> dict[str, Any]:
    """A scene and its decision as the page shows them. Stamps are text: JavaScript has no integers of 64 bits."""
    verdicts = {} if decision is None else {verdict.object_id: verdict for verdict in decision.verdicts}
    objects = [
        _object_to_json(seen, verdicts.pop(seen.id, None)) for seen in (*scene.objects, *scene.unstable)
    ]
    objects += [_object_to_json(None, verdict) for verdict in verdicts.values()]
    return {
        "stamp": str(stamp_to_ns(scene.header.stamp)),
        "width": scene.image_width,
        "height": scene.image_height,
        "passes": scene.passes,
        "status": scene.status,
        "status_text": scene.status_text,
        "dil": _number(scene.dil.dil) if scene.dil.valid else None,
        "unexplained": [
            {"box": _box(r.box), "objectness": _number(r.objectness)} for r in scene.dil.unexplained
        ],
        "outcome": None if decision is None else name_of(Outcome, decision.outcome),
        "reasons": [] if decision is None else reasons_to_json(decision.reasons),
        "objects": objects,
    }


def request_to_json(message: m.InterventionRequest) -> dict[str, Any] | None:
    """An open question as the page shows it; None when ``message`` says that none is open."""
    if not message.request_id:
        return None
    objects = [
        {
            "id": v.object_id,
            "label": v.label,
            "box": _box(v.box),
            "reasons": reasons_to_json(v.reasons),
            "must_mention": may_be_sticker(v.label, v.verdict),
        }
        for v in message.objects
    ]
    question = {"request_id": message.request_id, "stamp": str(stamp_to_ns(message.header.stamp))}
    return question | {"reasons": reasons_to_json(message.reasons), "objects": objects}


def gate_to_json(message: m.GateState) -> dict[str, Any]:
    """The gate as the page shows it: ``closed`` are the reasons of its bits, ``details`` more about them."""
    reasons, details = BlockReason(message.reasons), [reason_from_msg(one) for one in message.details]
    return {
        "state": gate_state(message.state),
        "closed": [block_reason_to_json(one, details) for one in reasons],
        "details": reasons_to_json(message.details),
        "held": BlockReason.HELD in reasons,
    }


def block_reason_to_json(closed: BlockReason, details: Iterable[Reason]) -> dict[str, Any]:
    """A reason that closes the gate. ``calm``: it ends by itself or with a question; ``explained``: ``details`` say it."""
    (code,) = closed.codes
    calm, explained = bool(closed & CALM), is_explained(closed, details)
    return reason_to_json(Reason(code)) | {"calm": calm, "explained": explained}


def reason_to_json(reason: Reason, text: str = "") -> dict[str, Any]:
    """A reason as the page shows it, with values, for it has words of its own; ``text``: for an unknown code."""
    values = {name: value if isinstance(value, str) else _number(value) for name, value in reason.values}
    return {
        "code": reason.code,
        "subject": reason.subject,
        "value": _number(reason.value),
        "limit": _number(reason.limit),
        "values": values,
        "box": None if reason.box is None else dict(zip(("x1", "y1", "x2", "y2"), reason.box, strict=True)),
        "text": text or text_of(reason),
    }


def reasons_to_json(messages: Iterable[Any]) -> list[dict[str, Any]]:
    return [reason_to_json(reason_from_msg(message), message.text) for message in messages]


def _object_to_json(seen: m.ObservedObject | None, verdict: m.Verdict | None) -> dict[str, Any]:
    """An object and what was decided about it; what an operator drew is not ``seen``."""
    known: Any = verdict if seen is None else seen
    hulls = () if seen is None else seen.corner_hulls
    probabilities = () if seen is None else seen.probabilities
    return {
        "id": known.object_id if seen is None else known.id,
        "label": known.label,
        "box": _box(known.box),
        "hulls": [list(zip(hull.x, hull.y, strict=True)) for hull in hulls],
        "probability": _number(probabilities[known.label]) if len(probabilities) > known.label else None,
        "seen_in": 0 if seen is None else seen.passes,
        "unstable": seen is not None and seen.unstable,
        "verdict": "unknown" if verdict is None else name_of(Verdict, verdict.verdict),
        "must_mention": may_be_sticker(known.label, Verdict.UNKNOWN if verdict is None else verdict.verdict),
        "by_operator": verdict is not None and verdict.by_operator,
    }


def _box(box: m.Box) -> dict[str, float]:
    return {side: _number(getattr(box, side)) or 0.0 for side in ("x1", "y1", "x2", "y2")}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def name_of(kind: type[IntEnum], value: int) -> str:
    """The name of ``value`` on the page; that of 0 where this version knows no such value."""
    return kind(value if value in {*kind} else 0).name.lower()

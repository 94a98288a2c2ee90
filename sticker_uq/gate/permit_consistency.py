# SPDX-License-Identifier: Apache-2.0
"""What a newer scene means for a permit: it agrees, doubts the object slightly, or contradicts.

A metric near its limit goes over it and back with the noise of the passes. An arm that stopped each time would never finish,
so a permit, once given, is held against wider limits (a margin) and against scenes in a row: as many of them must doubt the
object slightly as had to agree before it was given. Everything else that contradicts the permit stops the arm at once.
"""

from dataclasses import dataclass

from sticker_uq.gate.box_overlap import Box, as_box, cover, iou
from sticker_uq.gate.plausibility import may_be_removed
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.policy import LIMITS
from sticker_uq.gate.policy.signals import OBJECT_NOVELTY
from sticker_uq.gate.settings import GateSettings
from sticker_uq.gate.state import Permit
from sticker_uq.scene import ObjectClass, ObjectVerdict, Reason, SceneDecision, Verdict

_LIMITED = {limit.signal for limit in LIMITS.values() if limit.before in (Before.REMOVAL, Before.START)}
NOISY_METRICS = frozenset(_LIMITED | {"sticker_probability", "detection_rate", "risk", "background_saliency"})
"""Subjects whose value moves with the passes or the sensor's noise although nothing in the scene has changed."""

SAME_SIZE_IOU = 0.7
"""Two boxes that overlap at least this much, laid on top of each other or as they are, have the same size, or place and size."""


@dataclass(frozen=True)
class PermitCheck:
    """What a scene means for a permit. ``contradiction``, ``doubt``: why, empty when there is none.

    With neither, ``seen`` tells whether the object was seen and is sure, or hidden.
    """

    contradiction: tuple[Reason, ...] = ()
    doubt: tuple[Reason, ...] = ()
    seen: bool = False


def surroundings(decision: SceneDecision, chosen: ObjectVerdict) -> tuple[tuple[ObjectClass, Box], ...]:
    """Label and place of all that enough passes saw beside the permit's object ``chosen``."""
    others = (v.object for v in decision.verdicts if v is not chosen)
    return tuple((other.label, as_box(other.box)) for other in others if not other.unstable)


def check_permit(permit: Permit, decision: SceneDecision, settings: GateSettings) -> PermitCheck:
    """What a usable scene means for an open permit: it agrees, doubts or contradicts.

    Until the arm has accepted the goal the object must be found again. After that the arm may hide it, or carry it away: then
    only an object that is seen at the place and may not be removed contradicts, and doubts about the scene as a whole do not,
    because the arm itself is in the picture, which is also why the novelty of the object does not. Something new over the
    object, or a neighbour that has moved, always does.
    """
    match_iou = settings.match_iou
    here = [v for v in decision.verdicts if iou(as_box(v.object.box), permit.target.box) >= match_iou]
    clear = _intruder(permit, decision, here, settings) or _shift(permit, decision, match_iou)
    if clear:
        return PermitCheck(contradiction=clear)
    if any(map(may_be_removed, here)):
        return PermitCheck(seen=True) if permit.accepted else _of_whole_scene(decision, settings)
    for verdict in here:
        if permit.accepted and _only_covered(verdict):
            continue
        objection = _objection(verdict)
        if is_slight(verdict, settings.doubt_margin, permit.target.box):
            scene = PermitCheck() if permit.accepted else _of_whole_scene(decision, settings)
            return scene if scene.contradiction else PermitCheck(doubt=objection)
        if objection:
            return PermitCheck(contradiction=objection)
    return PermitCheck() if permit.accepted else PermitCheck(contradiction=(Reason("object_not_found"),))


def _only_covered(verdict: ObjectVerdict) -> bool:
    """Whether nothing but novelty speaks against an object: under the arm it is as novel as the arm itself."""
    return verdict.verdict is Verdict.ASK and {r.subject for r in verdict.reasons} == {OBJECT_NOVELTY}


def is_slight(verdict: ObjectVerdict, margin: float, place: Box) -> bool:
    """Whether ``verdict`` doubts a permit slightly: a stable sticker, only because of metrics within ``margin`` of their
    limits, or because a pass saw it twice while its box is still that of the permit, ``place``: the mean of two things is not.
    """
    thing = verdict.object
    sticker = thing.label is ObjectClass.STICKER and not thing.unstable and not verdict.by_operator
    same = margin > 0.0 and iou(as_box(thing.box), place) >= SAME_SIZE_IOU
    near = all(same if r.code == "detected_twice" else _is_near(r, margin) for r in verdict.reasons)
    return verdict.verdict is Verdict.ASK and sticker and bool(verdict.reasons) and near


def _is_near(reason: Reason, margin: float) -> bool:
    """Whether the value lies beyond its limit by no more than ``margin`` of what the limit allows; NaN does not.

    An upper limit allows values from 0 to the limit, a lower one (of a probability) those from the limit to 1.
    """
    if reason.subject not in NOISY_METRICS:
        return False
    allowed = reason.limit if reason.value > reason.limit else 1.0 - reason.limit
    return abs(reason.value - reason.limit) <= margin * allowed


def _of_whole_scene(decision: SceneDecision, settings: GateSettings) -> PermitCheck:
    """Whether the scene as a whole still lets an arm start."""
    doubts = [reason for reason in decision.reasons if reason.code != "perception_restricted"]
    if not doubts:
        return PermitCheck(seen=True)
    if all(_is_near(reason, settings.doubt_margin) for reason in doubts):
        return PermitCheck(doubt=(doubts[0],))
    return PermitCheck(contradiction=(Reason("scene_doubtful"),))


def _objection(verdict: ObjectVerdict) -> tuple[Reason, ...]:
    """Why the object at the place of the permit may not be removed; empty for what looks like nothing at all."""
    if verdict.object.label is ObjectClass.LOGO:
        return (Reason("logo_at_object"),)
    if verdict.verdict is Verdict.KEEP and not verdict.by_operator:
        return ()
    return Reason("object_not_removable"), *verdict.reasons[:1]


def _intruder(
    permit: Permit, decision: SceneDecision, here: list[ObjectVerdict], settings: GateSettings
) -> tuple[Reason, ...]:
    """What lies over the object and was not there before. A sticker does not count while the object itself is not seen:

    it may be the object, half hidden or lifted by the blade.
    """
    alone = permit.accepted and not any(map(may_be_removed, here))
    for verdict in decision.verdicts:
        thing, box = verdict.object, as_box(verdict.object.box)
        if thing.unstable or any(verdict is v for v in here) or _is_known(permit, box, settings.match_iou):
            continue
        if thing.label is ObjectClass.BACKGROUND or (thing.label is ObjectClass.STICKER and alone):
            continue
        if cover(box, permit.target.box) > settings.max_intrusion:
            return (Reason("object_covered", thing.label.name.lower()),)
    return ()


def _shift(permit: Permit, decision: SceneDecision, match_iou: float) -> tuple[Reason, ...]:
    """A neighbour of the object that is seen beside its place: the workpiece or the camera has moved."""
    seen = [v.object for v in decision.verdicts if not v.object.unstable]
    for label, place in permit.around:
        if any(iou(as_box(thing.box), place) >= match_iou for thing in seen):
            continue
        for thing in seen:
            box = as_box(thing.box)
            novel = not _is_known(permit, box, match_iou) and iou(box, permit.target.box) < match_iou
            if novel and thing.label is label and iou(box, place) > 0 and _same_size(box, place):
                return (Reason("neighbour_moved", label.name.lower()),)
    return ()


def _is_known(permit: Permit, box: Box, match_iou: float) -> bool:
    return any(iou(box, place) >= match_iou for _, place in permit.around)


def _same_size(first: Box, second: Box) -> bool:
    at_origin = (0.0, 0.0, first[2] - first[0], first[3] - first[1])
    return iou(at_origin, (0.0, 0.0, second[2] - second[0], second[3] - second[1])) >= SAME_SIZE_IOU

# SPDX-License-Identifier: Apache-2.0
"""From the assessment to what may be done: a pure function of the assessment, the policy and the operator's answers."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sticker_uq.gate.box_overlap import as_box, iou, is_proper, same_place
from sticker_uq.gate.operator.answers import Answer, OperatorAnswer, OperatorAnswers
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.rules import is_possible_logo, judge_object, within
from sticker_uq.gate.policy.signals import (
    DISTANCE,
    MISSED,
    NOVELTY,
    OBSTRUCTION,
    UNEXPLAINED,
    NoveltySignal,
    SaliencyName,
    object_signals,
    scene_saliency,
)
from sticker_uq.plain import to_plain
from sticker_uq.scene import (
    ObjectClass,
    ObjectVerdict,
    ObservedObject,
    Outcome,
    Reason,
    SceneAssessment,
    SceneDecision,
    Status,
    Verdict,
)

NOTHING_SAID = OperatorAnswers()
_Verdicts = tuple[ObjectVerdict, ...]


def judge(
    assessment: SceneAssessment,
    policy: Policy,
    memory: OperatorAnswers = NOTHING_SAID,
    workpiece_id: str = "",
) -> SceneDecision:
    """Decide about one scene, by the policy and the operator's answers, what may be removed and what is asked.

    One verdict per object, the clustered ones first, then those seen in few passes, then the places that an operator drew and the
    detector does not see (their numbers follow). The outcome is BLOCKED for a failed scene and for one that the policy was not
    made for, ASK when there is a doubt about the scene as a whole or nothing but doubtful objects is left, WORK when an object
    may be removed, else CLEAN. The same input gives the same decision with the same ``decision_id``.
    """
    verdicts: _Verdicts = ()
    if assessment.status not in (Status.OK, Status.DEGRADED):
        outcome = Outcome.BLOCKED
        detail = assessment.status_text or assessment.status.name
        reasons = [Reason.of("perception_failed", detail=detail)]
    elif (refusal := policy.refusal(assessment)) is not None:
        outcome = Outcome.BLOCKED
        reasons = [refusal]
    else:
        verdicts = _verdicts(assessment, policy, memory)
        outcome, reasons = _outcome(assessment, verdicts, policy, memory)
        if assessment.status is Status.DEGRADED:
            reasons.append(Reason.of("perception_restricted", detail=assessment.status_text))
    return SceneDecision(
        decision_id=decision_id(assessment, policy.hash, memory, workpiece_id),
        stamp_ns=assessment.stamp_ns,
        frame_id=assessment.frame_id,
        outcome=outcome,
        verdicts=verdicts,
        reasons=tuple(reasons),
        model_hash=assessment.model_hash,
        policy_hash=policy.hash,
        workpiece_id=workpiece_id,
    )


def once_peeled(decision: SceneDecision, assessment: SceneAssessment, policy: Policy) -> SceneDecision:
    """What is to be done when all that ``decision`` about ``assessment`` releases is gone: a question, or CLEAN.

    What lies at the place of a released object goes with it; everything else of the scene is judged as it stands, which a new
    look may see otherwise. Only the saliency is not asked about, which stickers raise: measured beside them it would send laptops
    to a person that a new look finds clean. A decision that releases nothing is its own end.
    """
    if decision.outcome is not Outcome.WORK:
        return decision
    gone = [as_box(one.object.box) for one in decision.removable()]
    rest = tuple(
        one
        for one in decision.verdicts
        if one.verdict is not Verdict.REMOVE
        and not any(same_place(as_box(one.object.box), box) for box in gone)
    )
    asked = any(one.verdict is not Verdict.KEEP for one in rest)
    doubts = [] if asked else _doubts_about_rest(assessment, rest, policy)
    outcome = Outcome.ASK if asked or doubts else Outcome.CLEAN
    return replace(decision, outcome=outcome, verdicts=rest, reasons=tuple(doubts))


def _seen(assessment: SceneAssessment) -> list[ObservedObject]:
    """All objects of the scene; those seen in too few passes to cluster are marked unstable, if they are not."""
    rarely = (o if o.unstable else replace(o, unstable=True) for o in assessment.unstable)
    return [*assessment.objects, *rarely]


def _verdicts(assessment: SceneAssessment, policy: Policy, memory: OperatorAnswers) -> _Verdicts:
    seen = _seen(assessment)
    approved, drawn = _approved(seen, memory)
    protected = [
        o for o in seen if is_possible_logo(o, policy) and not _not_there(memory.against(as_box(o.box)))
    ]
    verdicts = []
    for index, one in enumerate(seen):
        verdict = _said_by_operator(one, approved.get(index), memory)
        if verdict is None:
            others = [o for o in protected if o is not one]
            signals = None if policy.risk is None else object_signals(one, assessment)
            verdict = ObjectVerdict(one, *judge_object(one, others, policy, signals))
        verdicts.append(verdict)
    first_free = max((o.id for o in seen), default=-1) + 1
    for number, answer in enumerate(drawn):
        reason = Reason("operator_drew")
        unseen = ObservedObject.drawn(first_free + number, ObjectClass.STICKER, np.asarray(answer.box))
        verdicts.append(ObjectVerdict(unseen, Verdict.REMOVE, (reason,), True))
    return tuple(verdicts)


def _approved(
    seen: Sequence[ObservedObject], memory: OperatorAnswers
) -> tuple[dict[int, OperatorAnswer], list[OperatorAnswer]]:
    """For each approval the object that it fits best, and the drawn places where nothing is seen.

    Other objects at the same place are left to the rules: one approval never covers two objects.
    """
    approved: dict[int, OperatorAnswer] = {}
    drawn = []
    for answer in memory.approvals:
        overlaps = [iou(as_box(one.box), answer.box) for one in seen]
        best = max(range(len(seen)), key=overlaps.__getitem__, default=-1)
        if best >= 0 and same_place(as_box(seen[best].box), answer.box):
            approved.setdefault(best, answer)
        elif answer.answer is Answer.MISSED:
            drawn.append(answer)
    return approved, drawn


def _said_by_operator(
    one: ObservedObject, approval: OperatorAnswer | None, memory: OperatorAnswers
) -> ObjectVerdict | None:
    """The verdict that an operator's answer settles; ``None`` when none is about this object."""
    if memory.scene_clean:
        return ObjectVerdict(one, Verdict.KEEP, (Reason("operator_says_clean"),), True)
    refused = memory.against(as_box(one.box))
    if refused is not None and approval is not None:
        return ObjectVerdict(one, Verdict.ASK, (Reason("operator_answers_conflict"),))
    if refused is not None:
        said = Reason("operator_sees_nothing" if _not_there(refused) else "operator_keeps")
        return ObjectVerdict(one, Verdict.KEEP, (said,), True)
    if approval is None or not is_proper(as_box(one.box)):
        return None
    if approval.answer is Answer.MISSED and one.label is ObjectClass.LOGO:
        # the drawing was about something that was not detected, not about this logo
        return ObjectVerdict(one, Verdict.ASK, (Reason("operator_drew_on_logo"),))
    return ObjectVerdict(one, Verdict.REMOVE, (Reason("operator_removes"),), True)


def _not_there(answer: OperatorAnswer | None) -> bool:
    return answer is not None and answer.answer is Answer.NOT_THERE


def _outcome(
    assessment: SceneAssessment, verdicts: _Verdicts, policy: Policy, memory: OperatorAnswers
) -> tuple[Outcome, list[Reason]]:
    doubts = []
    if not memory.scene_checked:
        doubts = _saliency_doubts(assessment, policy, clean=False)
        doubts += _foreign_scene(assessment, policy)
        if policy.familiarity is not None:
            doubts += policy.familiarity.doubts(assessment)
    if doubts:
        return Outcome.ASK, doubts
    if any(v.verdict is Verdict.REMOVE for v in verdicts):
        return Outcome.WORK, []
    doubts = [] if memory.scene_checked else _obstructed(assessment, policy)
    if any(v.verdict is Verdict.ASK for v in verdicts):
        return Outcome.ASK, doubts
    doubts += [] if memory.scene_checked else _clean_doubts(assessment, verdicts, policy)
    return (Outcome.ASK, doubts) if doubts else (Outcome.CLEAN, [])


def _saliency_doubts(assessment: SceneAssessment, policy: Policy, clean: bool) -> list[Reason]:
    """Why the saliency that no box explains is too much to remove anything or, if ``clean``, to call the scene clean."""
    signal: SaliencyName = "dil"
    if policy.saliency is not None:
        signal = policy.saliency.signal
        limit = policy.saliency.max_clean if clean else policy.saliency.max_removal
    else:
        dil_limit = policy.max_dil_clean if clean else policy.max_dil
        # DiL is in [0, 1], so that a limit of 1 asks nothing, not even that it was measured
        limit = None if dil_limit >= 1.0 else dil_limit
    if limit is None:
        return []
    passed, reason = within(signal, scene_saliency(assessment, signal), limit)
    return [] if passed else [reason]


def _foreign_scene(assessment: SceneAssessment, policy: Policy) -> list[Reason]:
    """That the scene as a whole is unlike the training pictures, or that this is not known."""
    passed, reason = _within_novelty(assessment, DISTANCE, policy.max_scene_distance)
    released = policy.unmeasured_novelty == "release" and math.isnan(reason.value)
    return [] if passed or released else [reason]


def _obstructed(assessment: SceneAssessment, policy: Policy) -> list[Reason]:
    """That a hand or a gripper may be in front of the laptop, or that this is not known."""
    if policy.max_obstruction >= 1.0:
        return []
    localization = assessment.localization
    value = math.nan if localization is None else localization.obstruction
    passed, reason = within(OBSTRUCTION, value, policy.max_obstruction)
    return [] if passed else [reason]


def _clean_doubts(assessment: SceneAssessment, verdicts: _Verdicts, policy: Policy) -> list[Reason]:
    """Why a scene in which nothing is to be removed or asked about is not clean yet."""
    quiet = _background_is_quiet(assessment, policy)
    doubts = [] if quiet else _saliency_doubts(assessment, policy, clean=True)
    return doubts + _doubts_about_rest(assessment, verdicts, policy)


def _doubts_about_rest(assessment: SceneAssessment, verdicts: _Verdicts, policy: Policy) -> list[Reason]:
    """Why what is left alone, by ``verdicts`` or because no box explains it, may be a sticker."""
    doubts = _unexplained(assessment, policy.max_unexplained_objectness)
    doubts += _novelty_limit(assessment, NOVELTY, policy.max_novelty)
    doubts += _novelty_limit(assessment, MISSED, policy.max_missed_sticker_probability)
    if not policy.clean_without_operator:
        doubts.append(Reason("clean_not_promised"))
    if policy.max_left_probability < 1.0:
        left = [policy.sticker_probability(v.object) for v in verdicts if not v.by_operator]
        passed, reason = within("left_probability", float(max(left, default=0)), policy.max_left_probability)
        doubts += [] if passed else [reason]
    return doubts


def _unexplained(assessment: SceneAssessment, limit: float) -> list[Reason]:
    """What no box explains above ``limit``: one reason for each place, one for the scene where no place is known."""
    if limit >= 1.0:
        return []
    value = scene_saliency(assessment, UNEXPLAINED)
    passed, reason = within(UNEXPLAINED, value, limit)
    return [] if passed else _places(assessment, reason) or [reason]


def _novelty_limit(assessment: SceneAssessment, name: NoveltySignal, limit: float) -> list[Reason]:
    """That the novelty signal ``name`` is above ``limit``, or was not measured.

    One reason for the scene, and one for each place that no box explains.
    """
    if limit >= 1.0:
        return []
    passed, reason = _within_novelty(assessment, name, limit)
    return [] if passed else [reason, *_places(assessment, reason)]


def _within_novelty(assessment: SceneAssessment, name: NoveltySignal, limit: float) -> tuple[bool, Reason]:
    """Whether the novelty signal ``name`` is at most ``limit``, and that as a reason.

    Where only novelty is missing, and not distinctive localization too, there is no network, which has a reason of its own.
    """
    localization = assessment.localization
    value = math.nan if localization is None else float(getattr(localization, name))
    passed, reason = within(name, value, limit)
    missing = localization is not None and math.isnan(value)
    return passed, replace(reason, code="no_novelty_network") if missing else reason


def _places(assessment: SceneAssessment, reason: Reason) -> list[Reason]:
    """A reason like ``reason`` for every unexplained place above its limit."""
    places = []
    for region in assessment.localization.unexplained if assessment.localization is not None else ():
        if region.objectness > reason.limit:
            code = "novel_place" if reason.subject == NOVELTY else "missed_place"
            box = as_box(region.box)
            places.append(Reason(code, reason.subject, region.objectness, reason.limit, box=box))
    return places


def _background_is_quiet(assessment: SceneAssessment, policy: Policy) -> bool:
    """DiL is a ratio: on an empty lid it is 1 however faint the saliency. Its absolute amount distinguishes the two."""
    if policy.max_background_saliency <= 0.0:
        return False
    return scene_saliency(assessment, "background_saliency") <= policy.max_background_saliency


def decision_id(
    assessment: SceneAssessment,
    policy_hash: str,
    memory: OperatorAnswers = NOTHING_SAID,
    workpiece_id: str = "",
) -> str:
    """The name of the decision that :func:`judge` makes of these, 32 hex digits: other answers give another one."""
    basis = [assessment.digest, policy_hash, to_plain(memory), workpiece_id]
    return hashlib.blake2b(json.dumps(basis, sort_keys=True).encode(), digest_size=16).hexdigest()

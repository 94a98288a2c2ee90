# SPDX-License-Identifier: Apache-2.0
"""From the assessment to what may be done: a pure function of the assessment, the policy and the operator's answers."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sticker_uq.gate.answers import Answer, OperatorAnswer, OperatorAnswers
from sticker_uq.gate.box_overlap import as_box, iou, is_proper, same_place
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.policy import Policy
from sticker_uq.gate.policy.rules import is_possible_logo, judge_object, within
from sticker_uq.gate.policy.signals import (
    UNEXPLAINED,
    holder_of,
    object_signals,
    scene_saliency,
    scene_signal,
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


def _list_objects(assessment: SceneAssessment) -> list[ObservedObject]:
    """All objects of the scene; those seen in too few passes to cluster are marked unstable, if they are not."""
    rarely = (o if o.unstable else replace(o, unstable=True) for o in assessment.unstable)
    return [*assessment.objects, *rarely]


def _verdicts(assessment: SceneAssessment, policy: Policy, memory: OperatorAnswers) -> _Verdicts:
    seen = _list_objects(assessment)
    approved, drawn = _match_approvals(seen, memory)
    protected = [
        o for o in seen if is_possible_logo(o, policy) and not _not_there(memory.against(as_box(o.box)))
    ]
    verdicts: list[ObjectVerdict] = []
    for index, one in enumerate(seen):
        verdict = _judge_by_answer(one, approved.get(index), memory)
        if verdict is None:
            others = [o for o in protected if o is not one]
            signals = None if policy.risk is None else object_signals(one, assessment)
            verdict = ObjectVerdict(one, *judge_object(one, others, policy, signals))
        verdicts.append(verdict)
    first_free = max((o.id for o in seen), default=-1) + 1
    for number, answer in enumerate(drawn):
        reason = Reason("operator_drew")
        unseen = ObservedObject.from_operator(
            first_free + number, ObjectClass.STICKER, np.asarray(answer.box)
        )
        verdicts.append(ObjectVerdict(unseen, Verdict.REMOVE, (reason,), True))
    return tuple(replace(verdict, margin=policy.blade_margin) for verdict in verdicts)


def _match_approvals(
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


def _judge_by_answer(
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
        doubts = _doubts(assessment, policy, Before.START)
        if policy.familiarity is not None:
            doubts += policy.familiarity.doubts(assessment)
    if doubts:
        return Outcome.ASK, doubts
    if any(v.verdict is Verdict.REMOVE for v in verdicts):
        return Outcome.WORK, []
    doubts = [] if memory.scene_checked else _doubts(assessment, policy, Before.QUESTION)
    if any(v.verdict is Verdict.ASK for v in verdicts):
        return Outcome.ASK, doubts
    doubts += [] if memory.scene_checked else _clean_doubts(assessment, verdicts, policy)
    return (Outcome.ASK, doubts) if doubts else (Outcome.CLEAN, [])


def _doubts(assessment: SceneAssessment, policy: Policy, before: Before) -> list[Reason]:
    """The limits that hold before ``before`` and are exceeded, or of what was not measured, as reasons."""
    doubts = []
    for limit, highest in policy.limits_before(before):
        value = scene_signal(assessment, limit.signal)
        passed, reason = within(limit.signal, value, highest)
        if passed or policy.releases_unmeasured(limit, value):
            continue
        looked = holder_of(assessment, limit.signal) is not None
        if limit.network and looked and math.isnan(value):
            # the network is missing, and not the distinctive localization that carries its other values
            reason = replace(reason, code="no_novelty_network")
        places = _places(assessment, reason, limit.place) if limit.place else []
        # objectness is what a place has: its reason says it all
        doubts += places if places and limit.signal == UNEXPLAINED else [reason, *places]
    return doubts


def _clean_doubts(assessment: SceneAssessment, verdicts: _Verdicts, policy: Policy) -> list[Reason]:
    """Why a scene in which nothing is to be removed or asked about is not clean yet."""
    quiet = _background_is_quiet(assessment, policy)
    doubts = [] if quiet else _doubts(assessment, policy, Before.CLEAN)
    return doubts + _doubts_about_rest(assessment, verdicts, policy)


def _doubts_about_rest(assessment: SceneAssessment, verdicts: _Verdicts, policy: Policy) -> list[Reason]:
    """Why what is left alone, by ``verdicts`` or because no box explains it, may be a sticker."""
    doubts = _doubts(assessment, policy, Before.REST)
    if not policy.clean_without_operator:
        doubts.append(Reason("clean_not_promised"))
    if policy.max_left_probability < 1.0:
        left = policy.left_probability([v.object for v in verdicts if not v.by_operator], assessment)
        passed, reason = within("left_probability", left, policy.max_left_probability)
        doubts += [] if passed else [reason]
    return doubts


def _places(assessment: SceneAssessment, reason: Reason, code: str) -> list[Reason]:
    """A reason like ``reason`` with the ``code`` for every unexplained place above its limit."""
    found = assessment.localization.unexplained if assessment.localization is not None else ()
    above = (region for region in found if region.objectness > reason.limit)
    return [
        Reason(code, reason.subject, region.objectness, reason.limit, box=as_box(region.box))
        for region in above
    ]


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

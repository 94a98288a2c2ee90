# SPDX-License-Identifier: Apache-2.0
"""How the gate's state machine reacts to scenes: what the newest one does to a permit, and what follows from K of them."""

from dataclasses import replace

from sticker_uq.gate import events as ev
from sticker_uq.gate.box_overlap import as_box, iou, same_place
from sticker_uq.gate.permit_consistency import check_permit, surroundings
from sticker_uq.gate.plausibility import Problem, image_problems, picture_of, problems_of
from sticker_uq.gate.policy.limits import Before
from sticker_uq.gate.policy.policy import LIMITS
from sticker_uq.gate.relief import relief_doubt
from sticker_uq.gate.settings import GateSettings
from sticker_uq.gate.state import MOST_AGES, NO_STREAK, BlockReason, GateState, Permit, Streak, Target
from sticker_uq.gate.step_context import StepContext
from sticker_uq.messages import lack_of
from sticker_uq.scene import ObjectClass, ObjectVerdict, Outcome, Reason, SceneDecision, Verdict

_MISSED = {limit.signal for limit in LIMITS.values() if limit.before is Before.REST}
"""Subjects of the reasons that say that something may have been missed."""
_IN_FRONT = {limit.signal for limit in LIMITS.values() if limit.before is Before.QUESTION}
"""Subjects of the reasons that say that the laptop may not be seen as it is."""


def receive(context: StepContext, event: ev.SceneReceived) -> None:
    """Take in the newest scene and void a permit that it contradicts."""
    facts, decision, before = event.facts, event.decision, context.state
    picture = picture_of(facts, before.picture)
    waited_ns = context.now - min(before.scene.stamp_ns, before.received_ns) if before.scene else 0
    ages_ns = (*before.ages_ns, waited_ns)[-MOST_AGES:] if before.scene else before.ages_ns
    problems = problems_of(facts, decision, event.poses, picture, before, context.now, context.settings)
    context.set(
        scene=facts,
        reference=before.reference if _has(problems, BlockReason.FAILED_SCENE) else facts,
        picture=picture,
        received_ns=context.now,
        waited_ns=waited_ns,
        ages_ns=ages_ns,
        silent_ticks=0,
        decision=decision,
        poses=event.poses,
        problems=problems,
    )
    if _has(problems, BlockReason.SOURCE_CHANGED):
        context.forget_places(before.reference is not None and facts.source == before.reference.source)
    permit = before.permit
    if permit is not None and permit.open and not problems:
        _compare(context, permit, decision)


def receive_unreadable(context: StepContext, event: ev.SceneUnreadable) -> None:
    context.set(problems=((BlockReason.FAILED_SCENE, event.reason),))


def receive_image(context: StepContext, event: ev.ImageArrived) -> None:
    """Close at once for an image that cannot be what it claims, until scenes of later images have come."""
    problems = image_problems(event.check, context.state, context.now, context.settings)
    if problems:
        context.set(problems=problems, counts_after_ns=context.now)


def receive_relief(context: StepContext, event: ev.ReliefReceived) -> None:
    """Keep the newest relief. Once the arm is at work it covers or has peeled what was measured."""
    context.set(relief=event.relief)
    permit = context.state.permit
    if permit is not None and permit.open and not permit.accepted:
        doubt = relief_doubt(context.state, permit.target.verdict, context.settings)
        if doubt is not None and doubt.code == "relief_flat":
            context.revoke(BlockReason.CONTRADICTED, doubt)


def relief_reason(state: GateState, settings: GateSettings) -> Reason | None:
    """Why scenes that agree about a sticker do not open the gate: its relief is not there yet. Else None."""
    target = state.streak.target
    if target is None or state.streak.count < settings.consecutive_scenes:
        return None
    return relief_doubt(state, target.verdict, settings)


def _has(problems: tuple[Problem, ...], reason: BlockReason) -> bool:
    return any(bit is reason for bit, _ in problems)


def _compare(context: StepContext, permit: Permit, decision: SceneDecision) -> None:
    """Void ``permit`` when the scene contradicts it, or when it is one of too many in a row that doubt it."""
    said = check_permit(permit, decision, context.settings)
    if said.contradiction:
        context.revoke(BlockReason.CONTRADICTED, *said.contradiction)
        return
    doubts = permit.doubts + 1 if said.doubt else 0 if said.seen else permit.doubts
    context.set(permit=replace(permit, doubts=doubts))
    if doubts >= context.settings.consecutive_scenes:
        context.revoke(BlockReason.CONTRADICTED, *said.doubt)


def _at(verdict: ObjectVerdict, target: Target, match_iou: float) -> bool:
    return iou(as_box(verdict.object.box), target.box) >= match_iou


def conclude(context: StepContext) -> None:
    """What the newest scene, together with those before it, leads to. Called when nothing closes the gate."""
    state = context.state
    assert state.scene is not None
    assert state.decision is not None
    if state.scene.stamp_ns <= state.counts_after_ns:
        context.set(streak=NO_STREAK)
        return
    if context.settings.frozen_images and state.picture is not None and state.picture.count > 1:
        return  # the same pixels once more are no further evidence
    if state.verification is not None:
        _verify(context, state.decision)
        return
    if state.done:
        if state.workpiece_id or state.decision.outcome is Outcome.CLEAN:
            return
        # the workpiece is not named: a new object after the last one was done means another one
        context.forget_workpiece()
    streak = _extend(context, state.decision)
    context.set(streak=streak, undecided_ns=state.undecided_ns or context.now)
    if obstruction(state.decision):
        return  # what is in front leaves, or the operator is asked once the scenes have been undecided for too long
    # more before the operator is asked about a missed object
    needed = context.settings.consecutive_scenes * (2 if has_unexplained(state.decision) else 1)
    if streak.count >= needed:
        awaited = relief_reason(context.state, context.settings)
        waiting_ends = context.has_passed(context.state.undecided_ns, context.settings.max_relief_age_s)
        if awaited is not None and awaited.code != "relief_flat" and not waiting_ends:
            return
        context.set(undecided_ns=0)
        _act(context, streak, state.decision)


def has_unexplained(decision: SceneDecision) -> bool:
    """Whether ``decision`` only doubts that a scene with nothing to do is clean, as something may have been missed."""
    return decision.outcome is Outcome.ASK and any(r.subject in _MISSED for r in decision.reasons)


def obstruction(decision: SceneDecision) -> tuple[Reason, ...]:
    """Why ``decision`` neither asks nor calls the laptop clean before the view is free; empty where it is."""
    return tuple(reason for reason in decision.reasons if reason.subject in _IN_FRONT)


def _extend(context: StepContext, decision: SceneDecision) -> Streak:
    before, poses = context.state.streak, context.state.poses.poses
    if decision.outcome is not Outcome.WORK:
        return Streak(decision.outcome, before.count + 1 if before.outcome is decision.outcome else 1)
    found = before.target and _again(decision, before.target, context.settings.match_iou)
    # what is raised, or approved by a person, goes before what must be asked about
    first = min(decision.removable(), key=lambda verdict: _is_in_doubt(context, verdict))
    if found and _is_in_doubt(context, found) <= _is_in_doubt(context, first):
        return Streak(Outcome.WORK, before.count + 1, Target.of(found, decision, poses))
    return Streak(Outcome.WORK, 1, Target.of(first, decision, poses))


def _is_in_doubt(context: StepContext, verdict: ObjectVerdict) -> bool:
    return relief_doubt(context.state, verdict, context.settings) is not None


def _again(decision: SceneDecision, target: Target, match_iou: float) -> ObjectVerdict | None:
    """The removable object that is the same as ``target`` of the scene before; the nearest one of several."""
    same = [
        v
        for v in decision.removable()
        if _at(v, target, match_iou) and (v.object.label, v.by_operator) == (target.label, target.by_operator)
    ]
    return max(same, key=lambda v: iou(as_box(v.object.box), target.box), default=None)


def _act(context: StepContext, streak: Streak, decision: SceneDecision) -> None:
    if streak.target is not None:
        if any(same_place(place, streak.target.box) for place in context.state.removed):
            context.ask_about(streak.target, Reason("sticker_still_there"))
        elif _is_in_doubt(context, streak.target.verdict):
            _ask_about_relief(context, decision)
        elif context.state.arm_ready:
            _grant(context, streak.target, decision)
    elif streak.outcome is Outcome.ASK:
        doubts = tuple(r for r in decision.reasons if r.code != "perception_restricted")
        ask_about_scene(context, decision, doubts)
    else:
        by_operator = context.state.memory.scene_clean
        context.declare_done(True, Reason("operator_says_clean" if by_operator else "no_sticker_left"))
        if not context.state.workpiece_id:
            context.set(memory=context.state.memory.without_approvals())


def _ask_about_relief(context: StepContext, decision: SceneDecision) -> None:
    """Ask about all that is left: nothing in ``decision`` is raised, or approved by a person."""
    doubts = {
        v.object.id: doubt
        for v in decision.removable()
        if (doubt := relief_doubt(context.state, v, context.settings)) is not None
    }
    objects = tuple(
        replace(v, verdict=Verdict.ASK, reasons=(doubts[v.object.id],)) if v.object.id in doubts else v
        for v in decision.verdicts
        if v.object.id in doubts or _in_question(v, False)
    )
    context.ask((*dict.fromkeys(doubts.values()), *_find_lacks(decision)), objects)


def _grant(context: StepContext, target: Target, decision: SceneDecision) -> None:
    number = context.state.goals + 1
    permit = Permit(
        number,
        target,
        context.settings,
        sent_ns=context.now,
        valid_until_ns=context.lease_end(),
        around=surroundings(decision, target.verdict),
    )
    context.set(permit=permit, goals=number, streak=NO_STREAK)
    context.emit(ev.SendGoal(number, target))
    granted = Reason.of("permit_granted", goal=number, object=target.object_id, decision=target.decision_id)
    context.log(ev.Severity.INFO, granted)


def ask_about_scene(context: StepContext, decision: SceneDecision, scene_reasons: tuple[Reason, ...]) -> None:
    """Ask the operator about what the decision leaves open.

    With ``scene_reasons`` the scene as a whole is uncertain, so that every possible sticker is in question, the sure ones too.
    The question says what the picture does not show.
    """
    objects = tuple(v for v in decision.verdicts if _in_question(v, bool(scene_reasons)))
    context.ask((*scene_reasons, *_find_lacks(decision)), objects, bool(scene_reasons))


def _find_lacks(decision: SceneDecision) -> tuple[Reason, ...]:
    """What the picture lacks for the questions of ``decision``, each once."""
    reasons = list(decision.reasons if decision.outcome is Outcome.ASK else ())
    for verdict in decision.verdicts:
        reasons += verdict.reasons if verdict.verdict is Verdict.ASK else ()
    lacks = dict.fromkeys(filter(None, map(lack_of, reasons)))
    return tuple(Reason("picture_lacks", lack) for lack in lacks)


def _in_question(verdict: ObjectVerdict, whole_scene: bool) -> bool:
    if verdict.by_operator:
        return False
    sticker = verdict.object.label is ObjectClass.STICKER
    return verdict.verdict in (Verdict.ASK, Verdict.UNKNOWN) or (whole_scene and sticker)


def _verify(context: StepContext, decision: SceneDecision) -> None:
    """Count the scenes since the removal in which its object is still seen, or gone."""
    check = context.state.verification
    assert check is not None
    target = check.target
    there = any(_is_sticker_at(v, target, context.settings.match_iou) for v in decision.verdicts)
    check = replace(check, seen=check.seen + 1 if there else 0, gone=0 if there else check.gone + 1)
    context.set(verification=check)
    if check.gone >= context.settings.consecutive_scenes:
        context.set(verification=None, memory=context.state.memory.consume(target.box), streak=NO_STREAK)
        context.forget_attempts(target.box)
        context.emit(ev.RemovalVerified(target))
        gone = Reason.of("object_removed", object=target.object_id, decision=target.decision_id)
        context.log(ev.Severity.INFO, gone)
    elif check.seen >= context.settings.consecutive_scenes:
        context.set(verification=None)
        context.ask_about(target, Reason("sticker_still_there"))


def _is_sticker_at(verdict: ObjectVerdict, target: Target, match_iou: float) -> bool:
    # a place that only a person drew is in every decision until its removal is verified: it proves nothing
    detected = verdict.object.detections > 0
    sticker = verdict.object.label is ObjectClass.STICKER or verdict.verdict is not Verdict.KEEP
    return detected and sticker and _at(verdict, target, match_iou)

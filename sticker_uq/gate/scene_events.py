"""The gate's part that reads scenes: what the newest one does to a permit, and what follows from K of them."""

from __future__ import annotations

from dataclasses import replace

from sticker_uq.gate.box_overlap import as_box, iou
from sticker_uq.gate.events import (
    ImageArrived,
    RemovalVerified,
    SceneReceived,
    SceneUnreadable,
    SendGoal,
    Severity,
)
from sticker_uq.gate.permit_consistency import left_out, opinion, surroundings
from sticker_uq.gate.plausibility import image_problems, picture_of, problems_of
from sticker_uq.gate.policy.signals import OVERSIGHT, STRANGENESS, UNEXPLAINED
from sticker_uq.gate.state import NO_STREAK, BlockReason, Permit, Streak, Target
from sticker_uq.gate.step_context import StepContext
from sticker_uq.scene import ObjectClass, ObjectVerdict, Outcome, Reason, SceneDecision, Verdict

_MISSED = (UNEXPLAINED, STRANGENESS, OVERSIGHT)
"""Metrics of the reasons that say that something may have been missed."""


def receive(turn: StepContext, event: SceneReceived) -> None:
    """Take in the newest scene and void a permit that it contradicts."""
    facts, decision, before = event.facts, event.decision, turn.state
    picture = picture_of(facts, before.picture)
    problems = problems_of(facts, decision, event.poses, picture, before, turn.now, turn.settings)
    turn.set(
        scene=facts,
        reference=before.reference if _has(problems, BlockReason.FAILED_SCENE) else facts,
        picture=picture,
        received_ns=turn.now,
        silent_ticks=0,
        decision=decision,
        poses=event.poses,
        problems=problems,
    )
    if _has(problems, BlockReason.SOURCE_CHANGED):
        turn.forget_places()
    permit = before.permit
    if permit is not None and permit.open and not problems:
        _compare(turn, permit, decision)


def receive_unreadable(turn: StepContext, event: SceneUnreadable) -> None:
    """Close until a scene comes that can be read."""
    turn.set(problems=((BlockReason.FAILED_SCENE, event.text),))


def receive_image(turn: StepContext, event: ImageArrived) -> None:
    """Close at once for an image that cannot be what it claims, until scenes of later images have come."""
    problems = image_problems(event.check, turn.state, turn.now, turn.settings)
    if problems:
        turn.set(problems=problems, counts_after_ns=turn.now)


def _has(problems: tuple[tuple[BlockReason, str], ...], reason: BlockReason) -> bool:
    return any(bit is reason for bit, _ in problems)


def _compare(turn: StepContext, permit: Permit, decision: SceneDecision) -> None:
    """Void ``permit`` when the scene contradicts it, or when it is one of too many in a row that doubt it."""
    said = opinion(permit, decision, turn.settings)
    if said.contradiction:
        turn.revoke(BlockReason.CONTRADICTED, said.contradiction)
        return
    doubts = permit.doubts + 1 if said.doubt else 0 if said.seen else permit.doubts
    turn.set(permit=replace(permit, doubts=doubts))
    if doubts >= turn.settings.consecutive_scenes:
        turn.revoke(BlockReason.CONTRADICTED, said.doubt)


def _at(verdict: ObjectVerdict, target: Target, match_iou: float) -> bool:
    return iou(as_box(verdict.object.box), target.box) >= match_iou


def conclude(turn: StepContext) -> None:
    """What the newest scene, together with those before it, leads to. Called when nothing closes the gate."""
    state = turn.state
    assert state.scene is not None
    assert state.decision is not None
    if state.scene.stamp_ns <= state.counts_after_ns:
        turn.set(streak=NO_STREAK)
        return
    if turn.settings.frozen_images and state.picture is not None and state.picture.count > 1:
        return  # the same pixels once more are no further evidence
    if state.verification is not None:
        _verify(turn, state.decision)
        return
    if state.done:
        if state.workpiece_id or state.decision.outcome is Outcome.CLEAN:
            return
        # nobody says which workpiece lies here: something new after the last one was done means another one
        turn.forget_workpiece()
    if left_out(state.decision):
        return  # it tells that the scene is alive and what contradicts, but concludes nothing
    streak = _extended(turn, state.decision)
    turn.set(streak=streak, undecided_ns=state.undecided_ns or turn.now)
    if streak.count >= scenes_needed(turn, state.decision):
        turn.set(undecided_ns=0)
        _act(turn, streak, state.decision)


def unexplained(decision: SceneDecision) -> bool:
    """Whether ``decision`` only doubts that a scene without anything to do is clean, because something may have been missed."""
    return decision.outcome is Outcome.ASK and any(r.metric in _MISSED for r in decision.reasons)


def scenes_needed(turn: StepContext, decision: SceneDecision) -> int:
    """Scenes in a row that must agree. Before a person is called about a missed object the scene is looked at once more."""
    return turn.settings.consecutive_scenes * (2 if unexplained(decision) else 1)


def _extended(turn: StepContext, decision: SceneDecision) -> Streak:
    before, poses = turn.state.streak, turn.state.poses.poses
    if decision.outcome is not Outcome.WORK:
        return Streak(decision.outcome, before.count + 1 if before.outcome is decision.outcome else 1)
    found = before.target and _again(decision, before.target, turn.settings.match_iou)
    if found:
        return Streak(Outcome.WORK, before.count + 1, Target.of(found, decision, poses))
    return Streak(Outcome.WORK, 1, Target.of(decision.removable()[0], decision, poses))


def _again(decision: SceneDecision, target: Target, match_iou: float) -> ObjectVerdict | None:
    """The removable object that is the same as ``target`` of the scene before; the nearest one of several."""
    same = [
        v
        for v in decision.removable()
        if _at(v, target, match_iou) and (v.object.label, v.by_operator) == (target.label, target.by_operator)
    ]
    return max(same, key=lambda v: iou(as_box(v.object.box), target.box), default=None)


def _act(turn: StepContext, streak: Streak, decision: SceneDecision) -> None:
    if streak.target is not None:
        if turn.state.arm_ready:
            _grant(turn, streak.target, decision)
    elif streak.outcome is Outcome.ASK:
        ask_about_scene(turn, decision, tuple(r for r in decision.reasons if r.metric != "status"))
    else:
        said = turn.state.memory.scene_clean
        turn.declare_done(True, "a person said that no sticker is left" if said else "no sticker is left")
        if not turn.state.workpiece_id:
            turn.set(memory=turn.state.memory.without_approvals())


def _grant(turn: StepContext, target: Target, decision: SceneDecision) -> None:
    number = turn.state.goals + 1
    permit = Permit(
        number,
        target,
        turn.settings,
        sent_ns=turn.now,
        valid_until_ns=turn.lease_end(),
        around=surroundings(decision, target.verdict),
    )
    turn.set(permit=permit, goals=number, streak=NO_STREAK)
    turn.emit(SendGoal(number, target))
    turn.log(Severity.INFO, f"permit {number} for object {target.object_id} of decision {target.decision_id}")


def ask_about_scene(turn: StepContext, decision: SceneDecision, scene_reasons: tuple[Reason, ...]) -> None:
    """Call a person about what the decision leaves open.

    With ``scene_reasons`` the scene as a whole is in doubt, so that every possible sticker is in question, the sure ones too.
    """
    whole_scene = bool(scene_reasons)
    objects = tuple(v for v in decision.verdicts if _in_question(v, whole_scene))
    parts = [reason.text for reason in scene_reasons]
    if objects:
        parts.append(f"{len(objects)} object{'s' * (len(objects) > 1)} to be decided")
    turn.ask("; ".join(parts), objects, scene_reasons, whole_scene)


def _in_question(verdict: ObjectVerdict, whole_scene: bool) -> bool:
    if verdict.by_operator:
        return False
    sticker = verdict.object.label is ObjectClass.STICKER
    return verdict.verdict in (Verdict.ASK, Verdict.UNKNOWN) or (whole_scene and sticker)


def _verify(turn: StepContext, decision: SceneDecision) -> None:
    """Count the scenes since the removal in which its object is still seen, or gone."""
    check = turn.state.verification
    assert check is not None
    there = any(_is_sticker_at(v, check.target, turn.settings.match_iou) for v in decision.verdicts)
    check = replace(check, seen=check.seen + 1 if there else 0, gone=0 if there else check.gone + 1)
    turn.set(verification=check)
    if check.gone >= turn.settings.consecutive_scenes:
        turn.set(verification=None, memory=turn.state.memory.consume(check.target.box), streak=NO_STREAK)
        turn.forget_attempts(check.target.box)
        turn.emit(RemovalVerified(check.target))
        turn.log(
            Severity.INFO, f"object {check.target.object_id} of decision {check.target.decision_id} is gone"
        )
    elif check.seen >= turn.settings.consecutive_scenes:
        turn.set(verification=None)
        turn.attempt_failed(check.target, "the sticker is still there after its removal")


def _is_sticker_at(verdict: ObjectVerdict, target: Target, match_iou: float) -> bool:
    # a place that only a person drew is in every decision until its removal is verified: it proves nothing
    detected = verdict.object.detections > 0
    sticker = verdict.object.label is ObjectClass.STICKER or verdict.verdict is not Verdict.KEEP
    return detected and sticker and _at(verdict, target, match_iou)
